"""The study of micro.yaml as it was found once: its tables, and what must be the same on every machine.

``KEVIN_STORE_STUDY=1 pytest --group 1 tests/workflow/test_micro.py`` stores it again, where a change is meant. It tells
apart other tasks, other transcripts, another loss of the base model after its steps, another recording of answers, a
kernel that is judged otherwise, a table, row or column that is gone, a metric that says something else of the same
turns. Not: speeds, which are of the machine.
"""

from __future__ import annotations

import itertools
import json
import os
import shutil
from pathlib import Path
from typing import Any

from kevin.core.config import load_study
from kevin.core.files import read_tasks, read_turns
from kevin.core.types import digest
from kevin.report.diff import read_origin
from kevin.writer.plan import Habits
from kevin.writer.transcripts import MAX_TURNS, transcripts

REFERENCE = Path(__file__).with_name("reference")
SPLITS = ("level1", "level2")
NUM_TRANSCRIPTS = 40
OF_SPEEDS = ("claims", "differences", "primary")
"""Tables whose rows say what their numbers are: a column's name does not tell times apart there."""


def facts(results: Path) -> dict[str, Any]:
    """What follows from code, seed and configuration alone; the loss but for the last digits."""
    tasks = read_tasks(results / "tasks.parquet")
    study = load_study([results / "config.yaml"])
    written = transcripts(
        tasks,
        study.language,
        NUM_TRANSCRIPTS,
        MAX_TURNS,
        study.seed,
        habits=Habits(**study.base_model.writer.model_dump()),
        history=study.transcripts_history,
    )
    training = json.loads((results / "base_model/summary.json").read_text())
    turns = list(
        itertools.chain(*(read_turns(results / f"rollouts/recorded-{split}/turns.parquet")[0] for split in SPLITS))
    )
    return {
        "tasks": {task.id: task.digest for task in tasks},
        "transcripts": digest(*(repr(t) for t in written)),
        "base_model": {key: training[key] for key in ("num_steps", "loss")},
        "recorded_kernels": digest(*(t.kernel.digest if t.kernel else "" for t in turns)),
        "recorded_outcomes": {f"{t.task_id} {t.trajectory} {t.turn}": t.outcome and t.outcome.value for t in turns},
    }


def stored(results: Path) -> dict[str, Any]:
    """The facts that are stored; first stores those of ``results`` where that is asked for."""
    path = REFERENCE / "facts.json"
    if os.environ.get("KEVIN_STORE_STUDY"):
        shutil.rmtree(REFERENCE, ignore_errors=True)
        (REFERENCE / "tables").mkdir(parents=True)
        for table in sorted((results / "tables").glob("*.csv")):
            if table.stem not in OF_SPEEDS:
                shutil.copy(table, REFERENCE / "tables")
        for name in ("config.yaml", "split.yaml"):
            shutil.copy(results / name, REFERENCE / name)
        origin = read_origin(results).provenance
        kept = {
            k: v
            for k, v in origin.items()
            if k not in ("kind", "schema_version", "commit", "policy", "split", "rollouts")
        }
        (REFERENCE / "provenance.json").write_text(json.dumps(kept, indent=1, sort_keys=True) + "\n")
        path.write_text(json.dumps(facts(results), indent=1) + "\n")
    found: dict[str, Any] = json.loads(path.read_text())
    return found
