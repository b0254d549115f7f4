"""A verdict that the store knows costs no import of torch, no pool and no process of the judge's."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from cli_fixtures import GOOD, KEVIN, REFERENCE

from kevin import Judge, Outcome, Verdict
from kevin.api.pairs import make_protocol, make_task
from kevin.core.candidate import make_kernel
from kevin.core.provenance import device_name
from kevin.judge.evaluate import early_verdict
from kevin.judge.store import VerdictStore

HEAVY = {"torch", "numpy", "dask", "distributed", "pandas"}


@pytest.fixture
def stored(tmp_path: Path) -> Verdict:
    """Nothing that the judge would find: where it comes from is plain."""
    protocol = make_protocol(None)
    pair = make_task(REFERENCE), make_kernel(GOOD, "good.cpp", "auto", protocol)
    told = {"outcome": Outcome.INCORRECT, "reason": "stored", "message": "from the store"}
    verdict = early_verdict(*pair, protocol, device_name("cpu"), **told)
    VerdictStore(tmp_path / "store").put(verdict)
    return verdict


def run_light(*args: str, cwd: Path) -> str:
    """What the command prints; it imports nothing heavy."""
    command = [sys.executable, "-X", "importtime", KEVIN, *args]
    run = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=120, check=False)
    assert run.returncode == 0, run.stderr[-2000:]
    lines = [line for line in run.stderr.splitlines() if line.startswith("import time:")]
    modules = {line.rpartition("|")[2].strip().partition(".")[0] for line in lines}
    assert "pydantic" in modules and not modules & HEAVY
    return run.stdout


def test_one_kernel(tmp_path: Path, stored: Verdict) -> None:
    (tmp_path / "ref.py").write_text(REFERENCE)
    (tmp_path / "good.cpp").write_text(GOOD)
    args = ("judge", "--task-file", "ref.py", "--kernel", "good.cpp", "--store", "store", "--json")
    found = json.loads(run_light(*args, cwd=tmp_path))
    assert (found["key"], found["reason"]) == (stored.key, "stored")


@pytest.mark.parametrize("options", [{}, {"PYTHONIOENCODING": "latin-1"}, {"PYTHONCOERCECLOCALE": "0", "LC_ALL": "C"}])
def test_signs_that_a_terminal_cannot_show(tmp_path: Path, options: dict[str, str]) -> None:
    """Half a second each: what a process takes for its encoding is settled when it starts."""
    protocol, source = make_protocol(None), f"// \u2192 \u2028\n{GOOD}"
    pair = make_task(REFERENCE), make_kernel(source, "k.cpp", "auto", protocol)
    told = {"outcome": Outcome.INCORRECT, "reason": "stored", "message": "\u2192 \U0001f600"}
    VerdictStore(tmp_path / "store").put(early_verdict(*pair, protocol, device_name("cpu"), **told))
    (tmp_path / "ref.py").write_text(REFERENCE)
    kernel = os.fsdecode(b"k\xe9.cpp")
    (tmp_path / kernel).write_text(source, "utf-8")
    command = [KEVIN, "judge", "--task-file", "ref.py", "--kernel", kernel, "--store", "store"]
    environment = {**os.environ, "PYTHONUTF8": "0", **options}
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, env=environment, timeout=120, check=False)
    assert (run.returncode, run.stderr) == (0, b"")
    assert b"its results are wrong" in run.stdout


def test_a_batch_of_which_all_are_known(tmp_path: Path, stored: Verdict) -> None:
    row = {"id": "a", "reference": REFERENCE, "kernel": GOOD}
    (tmp_path / "pairs.jsonl").write_text(json.dumps(row) + "\n")
    run_light("judge", "--batch", "pairs.jsonl", "--out", "out.jsonl", "--store", "store", cwd=tmp_path)
    record = json.loads((tmp_path / "out.jsonl").read_text())
    assert (record["key"], record["reason"]) == (stored.key, "stored")


def test_the_library(tmp_path: Path, stored: Verdict) -> None:
    with Judge(store=tmp_path / "store") as judge:
        assert judge(REFERENCE, GOOD) == stored
        assert judge._engine._process is None
