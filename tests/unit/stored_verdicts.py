"""Attacks, controls and honest kernels with what the judge found of them, so that no change of it goes unseen.

``stored_verdicts.jsonl`` holds a line a pair: what was judged, the hits of the screen, and every (outcome, reason) that
was found, more than one where chance decides. ``KEVIN_STORE_VERDICTS=1 pytest tests/attacks`` adds to it what it finds,
on a machine with a GPU also of CUDA kernels; delete lines whose verdict is meant to change, and say why in the commit.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from kevin.core.types import Kernel, Verdict
from kevin.judge.screen import screen

PATH = Path(__file__).with_name("stored_verdicts.jsonl")
DETAILS = ("kernelbench_check", "fewer_rows", "parameters")
"""Details of a verdict that no clock decides."""
_WHAT = ("reference", "dialect", "language", "source", "rules")

Line = dict[str, Any]


def read() -> dict[tuple[str, ...], Line]:
    lines = [json.loads(text) for text in PATH.read_text().splitlines()] if PATH.exists() else []
    return {_key(line): line for line in lines}


def _key(line: Line) -> tuple[str, ...]:
    return tuple(str(line[name]) for name in _WHAT)


def kernel_of(line: Line) -> Kernel:
    return Kernel(dialect=line["dialect"], language=line["language"], source=line["source"])


def hits_of(kernel: Kernel) -> list[str]:
    return [f"{hit.rule}: {hit.message}" for hit in screen(kernel)]


def found_of(verdict: Verdict) -> list[Any]:
    details = {name: verdict.details[name] for name in DETAILS if name in verdict.details}
    return [verdict.outcome.value, verdict.reason, sorted(verdict.flags), details]


def differs(line: Line, verdict: Verdict) -> str | None:
    """How a verdict differs from the stored ones; None where it does not, or none is stored."""
    if line["found"] and found_of(verdict) not in line["found"]:
        return f"found {found_of(verdict)}, stored {line['found']}: {verdict.message}"
    return None


class StoredVerdicts:
    """Compares verdicts with the stored ones as they come, or adds them."""

    def __init__(self) -> None:
        self._lines = read()
        self._adds = bool(os.environ.get("KEVIN_STORE_VERDICTS"))

    def check(self, reference: str, kernel: Kernel, rules: tuple[str, ...], verdict: Verdict) -> None:
        """Fails where a stored verdict is another."""
        line: Line = {"reference": reference, "dialect": kernel.dialect, "language": kernel.language,
                      "source": kernel.source, "rules": list(rules), "hits": hits_of(kernel), "found": []}  # fmt: skip
        line = self._lines.get(_key(line), line)
        if self._adds and found_of(verdict) not in line["found"]:
            line["found"].append(found_of(verdict))
            self._lines[_key(line)] = line
            PATH.write_text("".join(json.dumps(each) + "\n" for each in self._lines.values()))
        assert not (difference := differs(line, verdict)), difference
