"""KernelBench in, KernelBench out: its layout of kernels, its results, and its own analysis of ours."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from cli_fixtures import REFERENCE
from click.testing import Result
from core_fixtures import make_verdict
from typer.testing import CliRunner

from kevin.api import batch, kernelbench
from kevin.api.judge import Judged
from kevin.api.kernelbench import check_results, entry, lenient, read_samples
from kevin.cli.app import app
from kevin.core.config import KernelBenchSource
from kevin.core.errors import DataError, UsageError
from kevin.core.protocol import JudgeProtocol
from kevin.core.types import Kernel, Outcome, Round, Task, Verdict

CHECKOUT = os.environ.get("KEVIN_KERNELBENCH")
HEAD = "import torch\nimport torch.nn as nn\n\n\nclass ModelNew(nn.Module):\n    def forward(self, x):\n"
RIGHT = HEAD + "        return torch.relu(x) * 2.0\n"
WRONG = HEAD + "        return torch.relu(x)\n"
NO_PYTHON = HEAD + "        return (\n"
STUBS = {
    "pydra": "REQUIRED = None\nclass Config: pass\ndef main(base): return lambda function: function\n",
    "dotenv": "def load_dotenv(): pass\n",
    "litellm": "completion = None\n",
}
"""What its package imports beside what is installed here: for its command line and for models that it asks."""


def name(problem: int, sample: int, level: int = 1) -> str:
    return f"level_{level}_problem_{problem}_sample_{sample}_kernel.py"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two problems, one with two samples; a problem without a kernel; kernels of another level."""
    folder = tmp_path_factory.mktemp("kernelbench")
    for problem in (1, 2, 10):
        path = folder / f"KernelBench/level1/{problem}_Relu_{problem}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(REFERENCE)
    run = folder / "runs/mine"
    run.mkdir(parents=True)
    kernels = {name(10, 0): WRONG, name(2, 0): RIGHT, name(2, 1): NO_PYTHON, name(1, 0, level=2): RIGHT}
    for file, text in (kernels | {"generation_config.yaml": "level: 1\n"}).items():
        (run / file).write_text(text)
    return run


def judge(run: Path, *options: str | Path) -> Result:
    """`kevin judge --runs` in this process."""
    return CliRunner().invoke(app, ["judge", "--runs", str(run), *map(str, options)])


def verdict(outcome: Outcome, *, seconds: tuple[str, ...] = ("build",), **more: Any) -> Verdict:
    right = outcome is Outcome.CORRECT
    rounds = tuple(Round(kernel_us=us, reference_us=9) for us in (2000, 4000)) if right else ()
    taken = dict.fromkeys(seconds, 1.0)
    return make_verdict(outcome, kernel_us=5 if right else None, eager_us=5, rounds=rounds, seconds=taken, **more)


class ToldJudge:
    """Stands in for `kevin.Judge`: says of the run's kernels what that says, and of others what it read."""

    def __init__(self, *, protocol: JudgeProtocol, store: Path, pool: None) -> None:
        self.protocol = protocol

    def __enter__(self) -> ToldJudge:
        return self

    def __exit__(self, *exc: object) -> None: ...

    def many(self, pairs: Iterable[tuple[Task, Kernel]]) -> Iterator[Judged]:
        judged = [Judged(i, self._verdict(kernel.source), None) for i, (_, kernel) in enumerate(pairs)]
        yield from reversed(judged)

    def _verdict(self, kernel: str) -> Verdict:
        more = {"key": f"{self.protocol.digest} {kernel}", "num_trials": self.protocol.num_trials}
        if self.protocol.rules:
            return verdict(Outcome.REFUSED, reason="no_kernel", **more)
        if kernel == NO_PYTHON:
            return verdict(Outcome.COMPILE_ERROR, message="SyntaxError: '(' was never closed", **more)
        if kernel == RIGHT:
            return verdict(Outcome.CORRECT, seconds=("build", "check", "time"), trials_passed=5, **more)
        return verdict(Outcome.INCORRECT, seconds=("build", "check"), message=f"expected other than {kernel}", **more)


@pytest.fixture(scope="module", params=["told", pytest.param("judged", marks=pytest.mark.slow)])
def results(run: Path, request: pytest.FixtureRequest) -> dict[str, Any]:
    """Judged as KernelBench does, and strictly: two judges one after the other, which take a while to start."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "told":
            patch.setattr(batch, "Judge", ToldJudge)
        done = judge(run, "--level", "1", "--kernelbench", run.parents[1], "--like-kernelbench", "--rules", "default")
    assert done.exit_code == 0, done.output
    return dict(json.loads((run / "eval_results.json").read_text()))


def test_results_have_its_layout(results: dict[str, Any]) -> None:
    assert list(results) == ["2", "10"]
    assert [e["sample_id"] for e in results["2"]] == [0, 1]
    fields = {"sample_id", "compiled", "correctness", "metadata", "runtime", "runtime_stats"}
    assert all(set(e) == fields for samples in results.values() for e in samples)
    good, broken, wrong = *results["2"], *results["10"]
    assert (good["compiled"], good["correctness"]) == (True, True)
    stats = good["runtime_stats"]
    assert stats["num_trials"] >= 30 and 0 < stats["min"] <= stats["mean"] == good["runtime"] <= stats["max"]
    assert good["runtime"] < 100, "milliseconds"
    for found, compiled in ((broken, False), (wrong, True)):
        assert (found["compiled"], found["correctness"]) == (compiled, False)
        assert (found["runtime"], found["runtime_stats"]) == (-1.0, {})
    assert "was never closed" in broken["metadata"]["compilation_error"]
    assert "expected" in wrong["metadata"]["correctness_issue"]
    assert wrong["metadata"]["correctness_trials"] == "(0 / 5)"


def test_the_strict_verdict_stands_beside_it(results: dict[str, Any], run: Path) -> None:
    good = results["2"][0]["metadata"]["kevin"]
    assert (good["outcome"], good["speedup"]) == ("refused", None)
    lines = [json.loads(line) for line in (run / "kevin_verdicts.jsonl").read_text().splitlines()]
    assert [line["id"] for line in lines] == [name(2, 0)[:-10], name(2, 1)[:-10], name(10, 0)[:-10]]
    assert lines[0]["outcome"] == "refused" and lines[0]["key"] == good["strict_key"]


@pytest.mark.slow
@pytest.mark.parametrize("results", ["judged"], indirect=True)
def test_again_it_judges_nothing_and_by_our_protocol_only_ours_counts(results: dict[str, Any], run: Path) -> None:
    before = sorted(path.name for path in (run / "kevin_store").rglob("*.json"))
    places = ("--kernelbench", run.parents[1], "--out", run / "strict.json")
    done = judge(run, "--level", "1", *places, "--rules", "default")
    assert done.exit_code == 0, done.output
    strict = json.loads((run / "strict.json").read_text())
    assert not any(e["correctness"] for samples in strict.values() for e in samples)
    assert sorted(path.name for path in (run / "kevin_store").rglob("*.json")) == before


def test_a_sample_that_is_no_text_counts_as_not_compiled(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch, "Judge", ToldJudge)
    accented = RIGHT + "# é\n"
    samples = {
        0: accented.encode("latin-1"),
        1: b"# coding: latin-1\n" + accented.encode("latin-1"),
        2: accented.encode("utf-8-sig"),
        3: accented.encode("utf-16"),
        4: accented.encode("cp1252")[:-1] + b"\xff\xfe\n",
        5: b"kernel.py\n",
    }
    for number, data in samples.items():
        (tmp_path / name(10, number)).write_bytes(data)
    tasks = KernelBenchSource(path=str(run.parents[1]))
    assert kernelbench.judge_runs(tmp_path, 1, None, tasks, JudgeProtocol(), like_kernelbench=True, store=None) == 0
    entries = json.loads((tmp_path / "eval_results.json").read_text())["10"]
    reasons = [entry["metadata"]["kevin"]["reason"] for entry in entries]
    assert reasons == ["not_text", "no_kernel", "no_kernel", "no_kernel", "not_text", "no_kernel"]
    assert not entries[0]["compiled"] and "not a text file" in entries[0]["metadata"]["compilation_error"]
    assert all("é" in entry["metadata"]["correctness_issue"] for entry in entries[1:4])


@pytest.mark.skipif(not CHECKOUT, reason="KEVIN_KERNELBENCH names no checkout of KernelBench")
def test_its_own_analysis_runs_on_them(results: dict[str, Any], run: Path, tmp_path: Path) -> None:
    """On its own level 1, of which problems 2 and 10 were answered."""
    assert CHECKOUT
    checkout = Path(CHECKOUT).resolve()
    names = sorted(path.name for path in (checkout / "KernelBench/level1").glob("*.py"))
    (tmp_path / "baseline.json").write_text(json.dumps({"level1": {name: {"mean": 1e3} for name in names}}))
    for module, text in STUBS.items():
        if find_spec(module) is None:
            (tmp_path / f"{module}.py").write_text(text)
    code = (
        "import json, sys\nsys.path[:0] = [sys.argv[1] + '/scripts', sys.argv[1] + '/src', sys.argv[2]]\n"
        "from benchmark_eval_analysis import analyze_greedy_eval\n"
        "found = analyze_greedy_eval('mine', 'ours', 'eager', 1, sys.argv[2] + '/baseline.json', sys.argv[3])\n"
        "print('RESULT', json.dumps(found))"
    )
    command = [sys.executable, "-c", code, checkout, tmp_path, run.parent]
    done = subprocess.run(command, cwd=checkout, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.rpartition("RESULT ")[2])
    assert (found["total_count"], found["total_eval"]) == (len(names), 2)
    assert (found["compiled_count"], found["correct_count"]) == (2, 1)
    assert found["fast_p"]["1.0"] == 1 / len(names)
    assert found["geo_mean_speedup"] == pytest.approx(1e3 / results["2"][0]["runtime"])


# --- single parts -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--level", "3"], "no kernels of level 3"),
        ([], "--runs DIR goes with --level N"),
        (["--level", "1", "--kernel", "k.py"], "--runs DIR goes with"),
        (["--level", "1", "--kernelbench", "nowhere"], "nowhere: no such folder"),
    ],
)
def test_a_run_that_cannot_be_judged_is_named(run: Path, options: list[str], told: str) -> None:
    done = judge(run, "--kernelbench", run.parents[1], *options)
    assert isinstance(done.exception, UsageError) and told in str(done.exception)


def test_a_kernel_of_no_problem_and_a_missing_folder_are_named(run: Path, tmp_path: Path) -> None:
    (tmp_path / name(7, 0)).write_text(RIGHT)
    done = judge(tmp_path, "--level", "1", "--kernelbench", run.parents[1])
    assert isinstance(done.exception, UsageError)
    assert "problem_7_sample_0_kernel.py: no such problem in level 1" in str(done.exception)
    with pytest.raises(UsageError, match="no such folder"):
        read_samples(tmp_path / "none", 1)


def test_results_of_its_own_evaluation_are_not_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "eval_results.json"
    check_results(path)
    path.write_text(json.dumps({"1": [{"sample_id": 0, "compiled": True, "metadata": {"hardware": "x"}}]}))
    with pytest.raises(UsageError, match="own evaluation"):
        check_results(path)
    theirs = {"sample_id": 0, "compiled": True, "metadata": {"hardware": "x"}}
    ours = {"sample_id": 1, "compiled": True, "metadata": {"kevin": {}}}
    path.write_text(json.dumps({"1": [ours], "2": [theirs]}))
    with pytest.raises(UsageError, match="own evaluation"):
        check_results(path)
    path.write_text("[1]")
    with pytest.raises(DataError, match="not results of KernelBench"):
        check_results(path)


@pytest.mark.parametrize(
    ("outcome", "reason", "seconds", "compiled"),
    [
        (Outcome.COMPILE_ERROR, None, ("build",), False),
        (Outcome.REFUSED, "no_kernel", ("build",), False),
        (Outcome.REFUSED, "torch_compute", ("build", "check", "time"), True),
        (Outcome.RUNTIME_ERROR, "load_error", ("build",), False),
        (Outcome.RUNTIME_ERROR, "segmentation_fault", ("build", "check"), True),
        (Outcome.TIMEOUT, "build", ("build",), False),
        (Outcome.TIMEOUT, "run", ("build", "check"), True),
        (Outcome.QUARANTINED, None, ("build", "check", "time"), True),
        (Outcome.CORRECT, None, ("build", "check", "time"), True),
    ],
)
def test_compiled_means_loaded(
    run: Path, outcome: Outcome, reason: str | None, seconds: tuple[str, ...], compiled: bool
) -> None:
    found = verdict(outcome, reason=reason, seconds=seconds)
    made = entry(read_samples(run, 1)[0], found, found, "cuda:0")
    assert (made["compiled"], made["correctness"]) == (compiled, outcome is Outcome.CORRECT)
    assert made["runtime"] == (3.0 if outcome is Outcome.CORRECT else -1.0)


def test_its_protocol_is_ours_without_rules_at_its_tolerance() -> None:
    protocol = lenient(JudgeProtocol(device="cuda", atol=1e-2, num_threads=2))
    assert (protocol.num_trials, protocol.distributions, protocol.atol, protocol.rtol) == (5, ("task",), 1e-4, 1e-4)
    assert (protocol.rules, protocol.device, protocol.num_threads) == ((), "cuda", 2)
    assert JudgeProtocol.model_validate(protocol.model_dump()) == protocol
