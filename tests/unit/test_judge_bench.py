"""KernelBench's harness beside ours: a stand-in for its package, and what is made of its answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kevin.core.types import Kernel, Outcome, Round, Task, Timing, Verdict
from kevin.judge.bench import KernelBenchHarness, Result, compare_verdicts, parity

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
    timed: dict[str, Any] = {}
    if speedup is not None:
        kernel, reference = (
            Timing(median_us=us, iqr_us=0.0, min_us=us, num_samples=3) for us in (1000 / speedup, 1000.0)
        )
        rounds = (Round(kernel_us=1000 / speedup, reference_us=1000.0),)
        timed = {"timing": kernel, "reference_timing": reference, "rounds": rounds}
    names = {"key": "k", "task_digest": "t", "kernel_digest": "d", "protocol_digest": "p", "device_name": "GPU"}
    reason = "wrong_values" if outcome is Outcome.INCORRECT else None
    details = {"kernelbench_check": check or ("passed" if speedup else "failed")}
    return Verdict(
        **names,
        outcome=outcome,
        reason=reason,
        num_trials=5,
        trials_passed=5 if speedup else 0,
        details=details,
        **timed,
    )


def _harness(checkout: Path, work: Path, sources: list[str], seen: list[int]) -> KernelBenchHarness:
    task = Task(id="t", level=1, name="t", source="", origin="user")
    pairs = [(task, Kernel(dialect="load_inline", language="cuda", source=s)) for s in sources]
    return KernelBenchHarness(pairs, checkout, work, found=lambda results: seen.append(len(results)))


def test_their_answers_beside_ours(checkout: Path, tmp_path: Path) -> None:
    seen: list[int] = []
    sources = ["right 0.5 0.51", "right 0.5 0.6", "right 0.25 0.25", "wrong", "broken", "lost", "crash"]
    harness = _harness(checkout, tmp_path / "work", [*sources, "right 1 1", "wrong"], seen)
    row = harness.time(len(sources))
    assert row["harness_failures"] == 2 and row["outcomes"] == {"correct": 3, "other": 4}
    assert row["kernels"] == 7 and 0 < row["seconds"] <= sum(row["stage_seconds"].values()) + 1e-6
    theirs = harness.results
    assert theirs[0] is not None and theirs[0]["kernel_us"] == [500.0, 510.0]
    assert theirs[3] is not None and not theirs[3]["kernel_us"] and theirs[5] is theirs[6] is None
    harness.check_others()
    assert theirs[7] is not None and theirs[7]["correct"] and not theirs[7]["kernel_us"]
    assert theirs[8] is not None and not theirs[8]["correct"]
    assert seen == [*range(1, 10)], "each answer is told as it comes"

    correct, incorrect = Outcome.CORRECT, Outcome.INCORRECT
    ours = [_verdict(correct, 2.05), _verdict(correct, 2.0), _verdict(correct, 3.0), _verdict(incorrect)]
    ours += [_verdict(correct, 1.0), _verdict(correct, 1.0), _verdict(incorrect)]
    ours += [_verdict(incorrect, check="passed"), _verdict(correct, 1.0, check="failed"), RuntimeError("no GPU")]
    records = compare_verdicts([str(i) for i in range(10)], ours, theirs)
    assert [r.get("agrees") for r in records] == [True, True, True, True, False, None, None, True, True, None]
    assert records[0]["speedup_ratio"] == pytest.approx(1.025)
    assert parity(records) == {
        "compared": 7,
        "agree": 6,
        "disagree": {"4": None},
        "differs": {"unexplained": 1, "wrong_values": 1, "tolerance_not_scaled": 1},
        "steady": 2,
        "within": 1,
    }


def test_nothing_of_theirs_is_nothing_to_compare() -> None:
    nothing: dict[int, Result] = {}
    records = compare_verdicts(["a"], [_verdict(Outcome.CORRECT, 1.0)], nothing)
    assert "agrees" not in records[0] and parity(records)["compared"] == 0
