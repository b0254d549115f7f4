"""KernelBench's harness beside ours: a stand-in for its package, and what is made of its answers."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from core_fixtures import make_module, make_verdict
from typer.testing import CliRunner

from kevin.cli.bench import app
from kevin.core.config import JudgePoolConfig
from kevin.core.errors import HarnessError, UsageError
from kevin.core.protocol import JudgeProtocol
from kevin.core.types import Kernel, Outcome, Task, Verdict
from kevin.judge.benchmarks.harness import KernelBenchHarness
from kevin.judge.benchmarks.throughput import compare_verdicts, parity

HARNESS = """
import types
def build_compile_cache(kernel, verbose, build_dir):
    return kernel != "broken", "", ""
calls = 0
def eval_kernel_against_ref(original_model_src, custom_model_src, num_correct_trials, measure_performance, **options):
    global calls
    calls += 1
    assert num_correct_trials == (5 if calls == 1 else 1)
    if custom_model_src == "lost":
        return None
    if custom_model_src == "crash":
        raise SystemExit(3)
    right = custom_model_src.startswith("right")
    timed = right and measure_performance
    runtime = float(custom_model_src.split()[calls]) if timed else -1.0
    return types.SimpleNamespace(
        compiled=custom_model_src != "broken", correctness=right, runtime=runtime, ref_runtime=1.0 if timed else -1.0)
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    package = tmp_path / "src/kernelbench"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "eval.py").write_text(HARNESS)
    return tmp_path


def _verdict(outcome: Outcome, speedup: float | None = None, check: str | None = None) -> Verdict:
    return make_verdict(
        outcome,
        kernel_us=None if speedup is None else 1000 / speedup,
        eager_us=1000.0,
        reason="wrong_values" if outcome is Outcome.INCORRECT else None,
        num_trials=5,
        trials_passed=5 if speedup else 0,
        details={"kernelbench_check": check or ("passed" if speedup else "failed")},
    )


def _harness(
    checkout: Path, work: Path, sources: list[str], theirs: dict[int, Any], seen: list[int]
) -> KernelBenchHarness:
    task = Task(id="t", level=1, name="t", source="", origin="user")
    pairs = [(task, Kernel(dialect="load_inline", language="cuda", source=s)) for s in sources]
    return KernelBenchHarness(pairs, checkout, work, theirs, lambda i, result: seen.append(i))


def test_a_checkout_that_cannot_be_imported_is_said_before_anything_is_measured(checkout: Path, tmp_path: Path) -> None:
    """Else every kernel fails for it, fast, and a rate comes out that means nothing."""
    (checkout / "src/kernelbench/eval.py").write_text("import litellm_of_nowhere\n")
    with pytest.raises(UsageError, match=r"cannot be imported: ModuleNotFoundError: .*litellm_of_nowhere"):
        _harness(checkout, tmp_path / "work", ["right 0.5 0.51"], {}, [])
    with pytest.raises(UsageError, match="No module named 'kernelbench'"):
        _harness(tmp_path / "elsewhere", tmp_path / "work", [], {}, [])


@pytest.mark.slow
def test_their_answers_beside_ours(checkout: Path, tmp_path: Path) -> None:
    seen: list[int] = []
    theirs: dict[int, Any] = {}
    sources = ["right 0.5 0.51", "right 0.5 0.6", "right 0.25 0.25", "wrong", "broken", "lost", "crash"]
    harness = _harness(checkout, tmp_path / "work", [*sources, "right 1 1", "wrong"], theirs, seen)
    row = harness.time(len(sources))
    assert row["harness_failures"] == 2 and row["outcomes"] == {"correct": 3, "other": 4}
    assert row["kernels"] == 7 and 0 < row["seconds"] <= sum(row["stage_seconds"].values()) + 1e-6
    assert theirs[0]["kernel_us"] == [500.0, 510.0]
    assert not theirs[3]["kernel_us"] and theirs[5] is theirs[6] is None
    harness.check_others()
    assert theirs[7]["correct"] and not theirs[7]["kernel_us"] and not theirs[8]["correct"]
    assert seen[:7] == [*range(7)] and sorted(seen[7:]) == [7, 8], "each answer is told as it comes"

    correct, incorrect = Outcome.CORRECT, Outcome.INCORRECT
    ours: list[Verdict | HarnessError] = [*(_verdict(correct, s) for s in (2.05, 2.0, 3.0)), _verdict(incorrect)]
    ours += [_verdict(correct, 1.0), _verdict(correct, 1.0), _verdict(incorrect)]
    ours += [_verdict(incorrect, check="passed"), _verdict(correct, 1.0, check="failed"), HarnessError("no GPU")]
    records = compare_verdicts([str(i) for i in range(10)], dict(enumerate(ours)), theirs)
    assert [r.get("agrees") for r in records] == [True, True, True, True, False, None, None, True, True, None]
    assert records[0]["speedup"] == pytest.approx(2.05) and records[0]["speedup_ratio"] == pytest.approx(1.025)
    assert parity(records) == {
        "compared": 7,
        "agree": 6,
        "disagree": {"4": None},
        "differs": {"unexplained": 1, "wrong_values": 1, "tolerance_not_scaled": 1},
        "steady": 2,
        "within": 1,
    }


def test_nothing_of_theirs_is_nothing_to_compare() -> None:
    records = compare_verdicts(["a", "b"], {1: _verdict(Outcome.CORRECT, 1.0)}, {})
    assert [r["id"] for r in records] == ["b"], "what was not judged yet has no record"
    assert "agrees" not in records[0] and parity(records)["compared"] == 0


REFERENCE = make_module("return torch.relu(x)", "torch.randn(16, 1024)")


class _Pool:
    """Stands in for the judge's pool: what it was made with, and what the files held when it was asked."""

    made: list[dict[str, Any]]
    files: list[tuple[list[str], list[dict[str, Any]]]]
    out: Path

    def __init__(self, protocol: JudgeProtocol, store: Path, config: JudgePoolConfig) -> None:
        self.made.append({"protocol": protocol, "store": store, "config": config})

    def __enter__(self) -> _Pool:
        return self

    def __exit__(self, *exc: object) -> None: ...

    def judge(
        self, pairs: Sequence[tuple[Task, Kernel]], on_verdict: Callable[[int, Any], None] | None = None
    ) -> list[Verdict]:
        if (self.out / "judge_bench.json").exists():
            self.files.append(_files(self.out))
        verdicts = []
        for i, (_, kernel) in enumerate(pairs):
            right = kernel.source.startswith("right")
            verdicts.append(_verdict(Outcome.CORRECT, 2.0) if right else _verdict(Outcome.INCORRECT))
            if on_verdict is not None:
                on_verdict(i, verdicts[-1])
        return verdicts


def _files(out: Path) -> tuple[list[str], list[dict[str, Any]]]:
    summary = json.loads((out / "judge_bench.json").read_text())
    lines = (out / "judge_bench.jsonl").read_text().splitlines()
    return [row["run"] for row in summary["runs"]], [json.loads(line) for line in lines]


@pytest.mark.slow
def test_the_command_keeps_what_it_knows(checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _Pool.made, _Pool.files, _Pool.out = [], [], tmp_path / "out"
    monkeypatch.setattr("kevin.judge.benchmarks.throughput.JudgePool", _Pool)
    sources = ["right 0.5 0.5", "wrong", "right 1 1"]
    batch = tmp_path / "pairs.jsonl"
    lines = [{"id": str(i), "reference": REFERENCE, "kernel": source} for i, source in enumerate(sources)]
    batch.write_text("".join(json.dumps(line) + "\n" for line in lines))
    options = ["--batch", str(batch), "--out", str(_Pool.out), "--kernelbench", str(checkout)]
    run = CliRunner().invoke(app, ["judge", *options, "--kernelbench-timed", "2", "--kernels-in-flight", "3"])
    assert run.exit_code == 0, run.output

    [made] = _Pool.made
    assert made["config"] == JudgePoolConfig(kernels_in_flight=3)
    [(before_warm, judged)] = _Pool.files
    assert before_warm == ["cold"] and len(judged) == 3, "what is known is in the files at once"
    runs, records = _files(_Pool.out)
    assert runs == ["cold", "warm x4", "KernelBench's own harness"]
    assert [r.get("speedup_ratio") for r in records] == [1.0, None, None]
    assert [r["agrees"] for r in records] == [True, True, True]
    summary = json.loads((_Pool.out / "judge_bench.json").read_text())
    assert summary["parity"]["steady"] == summary["parity"]["within"] == 1
