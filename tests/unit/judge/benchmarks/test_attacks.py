"""Attacks as data: all are known by a stored verdict; the table that is made of them, three of them for real."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import device_fixtures
import pytest
from core_fixtures import make_verdict
from stored_verdicts import read

from kevin.core.types import Outcome
from kevin.judge.benchmarks import attack_table, kernel_answers
from kevin.judge.benchmarks.attack_table import all_tried, attack_protocol, attack_rows, summary
from kevin.judge.benchmarks.kernel_answers import Answers
from kevin.judge.benchmarks.unguarded import Unguarded

NOT_STORED = {
    "zeros for tiny values (26)",
    "second output wrong",
    "harness_redefined (25)",
    "harness_and_its_checks_redefined (25)",
    "bias_ignored (33)",
    "tf32 switched on (12, 30)",
    "a decoy (41)",
    "a product of the library's, hidden in Python (42)",
    "a product of the library's, called in C++ (42)",
    "the driver's clock overwritten, and a memo of the last call (6, 16)",
    "the cell's clock rebound, and a memo of the last call (6, 16)",
}
"""Of those for a GPU, where no verdicts were stored since they are there."""
CHOSEN = ("cheap_after_call_k (10)", "input_mutated (23)", "writes_nothing (19)")


@pytest.mark.parametrize(("device", "not_stored"), [("cpu", set()), ("cuda", NOT_STORED)])
def test_what_tests_have_judged_is_what_the_table_judges(device: Any, not_stored: set[str]) -> None:
    """Word by word; and what was found of it is what the attack says may be found."""
    stored = read()
    missing = set()
    for t in all_tried(device):
        key = (t.attack.reference, t.dialect, t.language, t.attack.source, str(list(t.attack.rules)))
        if key not in stored:
            missing.add(t.name)
            continue
        for outcome, reason, *_ in stored[key]["found"]:
            assert t.attack.may_get(Outcome(outcome), reason), t.name
    assert missing <= not_stored, "another text than the one that was judged"


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_every_attack_says_what_it_tries_beside_another_honest_kernel(device: Any) -> None:
    tried = all_tried(device)
    assert len(tried) > 40
    assert len({(t.dialect, t.name) for t in tried}) == len(tried)
    for t in tried:
        assert t.attack.tries and t.attack.tries[0].islower() and not t.attack.tries.endswith("."), t.name
        assert t.attack.control != t.attack.source, t.name
        assert t.task.spec is not None
        assert {Outcome(outcome) for outcome in t.attack.expect.partition(": ")[0].split(", ")}, t.name


@pytest.mark.slow
@pytest.mark.timing
def test_the_table_is_made_and_goes_on_from_what_it_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    short = {"timing": device_fixtures.PROTOCOL.timing, "run_timeout_s": 20.0}  # eager's process starts, too
    protocol = attack_protocol("cpu").model_copy(update=short)
    tried = [t for t in all_tried("cpu") if t.name in CHOSEN and t.dialect == "c_abi"]
    rows = attack_rows(tried, protocol, tmp_path / "store")
    by_name = {r["attack"]: r for r in rows}
    assert set(by_name) == set(CHOSEN)
    assert all(r["as_expected"] and r["outcome"] == "incorrect" for r in rows)
    assert all(r["control_outcome"] == "correct" and r["control_kernelbench"] == "passed" for r in rows)
    assert by_name["cheap_after_call_k (10)"]["kernelbench"] == "passed", "five trials see nothing of it"
    assert by_name["input_mutated (23)"]["kernelbench"] == "passed", "the reference has run before it"
    assert by_name["writes_nothing (19)"]["kernelbench"] == "failed"
    assert by_name["writes_nothing (19)"]["kernelbench_speedup"] is None

    monkeypatch.delattr(kernel_answers, "open_device")
    assert attack_rows(tried, protocol, tmp_path / "store") == rows, "all of it is in the store"


FLAGS = ("harness_access", "no_kernel")


@pytest.mark.parametrize(
    ("restated", "asked", "harness", "said", "speedup", "by"),
    [
        (Unguarded(passed=True, kernel_us=2.0, reference_us=8.0, num_calls=9), False, None, "passed", 4.0, "restated"),
        (Unguarded(passed=False, reason="wrong_values"), False, None, "failed", None, "restated"),
        (None, False, None, None, None, "restated"),
        (None, True, None, "no answer", None, "harness"),
        (None, True, {"correct": False, "kernel_us": [], "reference_us": []}, "failed", None, "harness"),
        (None, True, {"correct": True, "kernel_us": [1.0, 2.0], "reference_us": [5.0, 2.0]}, "passed", 5.0, "harness"),
    ],
)
def test_who_spoke_for_kernelbench(
    restated: Unguarded | None, asked: bool, harness: Any, said: str | None, speedup: float | None, by: str
) -> None:
    answers = Answers(verdict=make_verdict(), restated=restated, asked_harness=asked, harness=harness)
    assert answers.kernelbench() == {"kernelbench": said, "kernelbench_speedup": speedup, "kernelbench_by": by}
    assert answers.kernelbench("control_").keys() == {f"control_{name}" for name in answers.kernelbench()}


def _rows() -> list[dict[str, Any]]:
    tried = [t for t in all_tried("cpu") if t.name in (*CHOSEN, "failed_build_swallowed")]
    paid = Unguarded(passed=True, kernel_us=0.5, reference_us=2.0, num_calls=9)
    honest = Answers(verdict=make_verdict(Outcome.CORRECT, kernel_us=1, eager_us=2, flags=FLAGS), restated=paid)
    hostile = Answers(verdict=make_verdict(reason="input_mutated", flags=FLAGS), restated=paid)
    return [attack_table._row(t, hostile, honest) for t in tried]


def test_what_it_says_in_short() -> None:
    rows = _rows()
    earn, controls, paid, *odd = summary(rows)
    assert earn.startswith(f"{len(rows)} of {len(rows)} attacks earn nothing")
    assert controls.startswith(f"{len(rows)} of {len(rows)}")
    assert f"would pay {len(rows)}:" in paid and "failed_build_swallowed" in paid
    unexpected = [r["attack"] for r in rows if not r["as_expected"]]
    assert "failed_build_swallowed" in unexpected and "input_mutated (23)" not in unexpected
    assert len(odd) == len(unexpected)
