"""What is counted, in Prometheus' text format."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_SECONDS = (0.1, 0.5, 1, 2, 5, 10, 20, 60, 120, 300)


class Metrics:
    """Of one server; two in a process do not meet."""

    def __init__(self) -> None:
        self._registry = here = CollectorRegistry(auto_describe=True)
        self.requests = Counter("kevin_requests", "Requests by route and status", ("route", "status"), registry=here)
        self.verdicts = Counter("kevin_verdicts", "Pairs answered", ("outcome", "source"), registry=here)
        self.failures = Counter("kevin_failures", "Pairs that got no verdict", ("code",), registry=here)
        self.open_pairs = Gauge("kevin_open_pairs", "Pairs waited for, those in work among them", registry=here)
        self.running_pairs = Gauge("kevin_running_pairs", "Pairs in work", registry=here)
        self.abandoned = Counter("kevin_abandoned_pairs", "Pairs whose clients went away before work", registry=here)
        self.seconds = Histogram("kevin_judge_seconds", "Wall time of a pair in work", buckets=_SECONDS, registry=here)

    def text(self) -> bytes:
        return generate_latest(self._registry)
