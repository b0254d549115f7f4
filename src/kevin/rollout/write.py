"""One module in, its best verified kernel out: a policy asked for it by the study's own loop and judge.

::

    kernel.cpp (.cu, .py)    the fastest kernel that the judge found right; absent where none was
    verdict.json             its verdict
    work/                    every answer (turns.parquet, which is a recording too), verdicts, and what a resume needs
"""

from __future__ import annotations

import logging
from collections import Counter
from pathlib import Path
from typing import NamedTuple

from kevin.core import files
from kevin.core.config import Study
from kevin.core.errors import DataError
from kevin.core.identity import set_aside
from kevin.core.provenance import provenance
from kevin.core.types import Kernel, Turn, Verdict
from kevin.judge.store import VerdictStore
from kevin.rollout.run import run_rollouts
from kevin.tasks.format import task_from_file

log = logging.getLogger(__name__)

_SUFFIXES = {("c_abi", "cpp"): ".cpp", ("c_abi", "cuda"): ".cu"}
"""Of a kernel's file; a load_inline one is a Python module."""


class Written(NamedTuple):
    """What a policy wrote for a module."""

    turns: list[Turn]
    kernel: Kernel | None
    verdict: Verdict | None
    path: Path | None
    """The kernel's file."""

    @property
    def outcomes(self) -> dict[str, int]:
        """Answers by what became of them, the most frequent first; ``no_verdict`` where the harness failed."""
        counts = Counter(turn.outcome.value if turn.outcome else "no_verdict" for turn in self.turns)
        return dict(counts.most_common())


def write_kernel(study: Study, policy: str, module: Path, out: Path) -> Written:
    """Ask ``policy`` for the module in a file, as often and over as many turns as ``study.rollout`` says.

    Called again with the same arguments it goes on where it stopped; what is finished is read. Another kernel that an
    earlier call found is kept, under another name.

    Raises:
        KevinError: as `run_rollouts`, `task_from_file` and `Study.with_policy`.
    """
    study = study.with_policy(policy)
    task = task_from_file(module)
    work = out / "work"
    files.write_tasks(work / "tasks.parquet", [(task, "own")], provenance(study.digest))
    turns_path, store = work / "turns.parquet", work / "store"
    run_rollouts(study, policy, [(None, turns_path)], work / "tasks.parquet", store=store)
    turns, _ = files.read_turns(turns_path)
    best = max((t for t in turns if t.speedup is not None), key=lambda t: t.speedup or 0.0, default=None)
    _keep_earlier(out, best.kernel.source if best is not None and best.kernel is not None else None)
    if best is None or best.kernel is None or best.verdict_key is None:
        return Written(turns, None, None, None)
    verdict = VerdictStore(store).get(best.verdict_key)
    if verdict is None:
        raise DataError(f"{store}: the verdict of the best kernel is not there any more; start anew: rm -r {work}")
    path = out / f"kernel{_SUFFIXES.get((best.kernel.dialect, best.kernel.language), '.py')}"
    files.write_text(path, best.kernel.source)
    return Written(turns, best.kernel, verdict, path)


def _keep_earlier(out: Path, source: str | None) -> None:
    """Under another name, with its verdict, where it is not ``source``."""
    found = [path for suffix in (*_SUFFIXES.values(), ".py") if (path := out / f"kernel{suffix}").exists()]
    if all(path.read_text("utf-8") == source for path in found):
        return
    for path in (*found, out / "verdict.json"):
        if path.exists():
            log.warning("the %s of an earlier run is kept as %s", path.name, set_aside(path))
