"""The profiling-based reward: what share of device time a kernel's own code had, as the judge measured it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from kevin.core.errors import HarnessError
from kevin.core.files import append_line
from kevin.core.texts import strict_json
from kevin.core.types import Kernel, Task, Verdict
from kevin.rollout.settings import Judge

DETAIL = "own_kernel_share"


class OwnShares:
    """Shares by verdict key. A turn does not carry them, so they are kept in a file beside the step's rollouts."""

    def __init__(self, path: Path) -> None:
        self._path = path
        text = path.read_text("utf-8") if path.exists() else ""
        self.by_key: dict[str, float] = dict(json.loads(line) for line in text.split("\n")[:-1])  # the last may be cut

    def watched(self, judge: Judge) -> Judge:
        """The judge, with every share that it reports remembered before its verdicts are used."""

        def judging(pairs: Sequence[tuple[Task, Kernel]]) -> list[Verdict | HarnessError]:
            results = judge(pairs)
            for verdict in results:
                if isinstance(verdict, Verdict) and isinstance(share := verdict.details.get(DETAIL), int | float):
                    if verdict.key not in self.by_key:
                        append_line(self._path, strict_json([verdict.key, share]))
                    self.by_key[verdict.key] = float(share)
            return results

        return judging
