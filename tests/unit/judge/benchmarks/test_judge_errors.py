"""The judge's errors: kernels whose worth is known and shown, and the table that is made of their verdicts."""

from __future__ import annotations

import csv
import functools
import importlib.util
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import pandas as pd
import pytest
from core_fixtures import make_verdict

from kevin.core.config import JudgePoolConfig
from kevin.core.errors import UsageError
from kevin.core.provenance import read_provenance
from kevin.core.types import Outcome
from kevin.judge.benchmarks import kernel_answers
from kevin.judge.benchmarks.attack_table import attack_protocol
from kevin.judge.benchmarks.judge_errors import (
    Mutant,
    error_rows,
    error_table,
    is_paid,
    read_mutants,
    stricter_protocols,
    summary,
    write_errors,
)

FOLDER = Path(__file__).parents[3] / "mutants"


@functools.cache
def mutants() -> dict[str, Mutant]:
    return {m.name: m for m in read_mutants(FOLDER)}


def _show() -> ModuleType:
    spec = importlib.util.spec_from_file_location("show", FOLDER / "show.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_there_are_many_and_each_is_another() -> None:
    """Names apart: a renamed variable makes no other kernel."""
    found = mutants().values()
    assert sum(m.expect == "wrong" for m in found) >= 120 and sum(m.expect == "right" for m in found) >= 60
    assert {(m.language, m.expect) for m in found} == {(a, b) for a in ("cpp", "cuda") for b in ("wrong", "right")}
    assert all(m.why and not m.why.endswith(".") for m in found)
    assert all(m.shown == "values" for m in found if m.expect == "right")
    bare = [re.sub(r"//.*|#.*|\s", "", re.sub(r"\b[a-zA-Z_]\w*", "v", m.source)) + m.task for m in found]
    assert len(set(bare)) == len(bare)


def test_each_is_shown_as_it_stands() -> None:
    """By show.py; those for a GPU where one was at hand."""
    show, rows = _show(), {row["file"]: row for row in csv.DictReader((FOLDER / "shown.csv").open())}
    assert {m.name for m in mutants().values() if m.language == "cpp"} <= rows.keys() <= mutants().keys()
    for name, row in rows.items():
        assert row["digest"] == mutants()[name].digest, f"{name} was changed: run tests/mutants/show.py"
        assert row["expect"] == mutants()[name].expect and show.is_shown(row), name


@pytest.mark.parametrize(
    ("name", "seen"),
    [
        ("cpp/relu_writes_17_past.cpp", "writes 17 words behind its output; SIGSEGV with pages protected at the end"),
        ("cpp/right_relu_by_bits.cpp", ""),
        ("cpp/bincount_keeps_counting.cpp", "largest in call 3"),
    ],
)
def test_what_is_shown_is_seen(name: str, seen: str) -> None:
    row = _show().show(mutants()[name], "cpu")
    assert row["seen"] == seen and _show().is_shown(row)


def test_a_file_that_does_not_say_what_it_is_is_named(tmp_path: Path) -> None:
    (tmp_path / "tasks").mkdir()
    (tmp_path / "cpp").mkdir()
    (tmp_path / "tasks/relu.py").write_text(mutants()["cpp/relu_leaks_4mb.cpp"].task_source)
    with pytest.raises(UsageError, match="holds no kernels"):
        read_mutants(tmp_path)
    kernel = tmp_path / "cpp/kernel.cpp"
    kernel.write_text("// task: selu\n")
    with pytest.raises(UsageError, match=r"kernel\.cpp: its first lines name no task"):
        read_mutants(tmp_path)
    kernel.write_text("// task: relu\n// expect: maybe\n// kind: tail\n// why: it is so\n")
    with pytest.raises(UsageError, match=r"kernel\.cpp: its first lines: expect"):
        read_mutants(tmp_path)


@pytest.mark.slow
def test_rows_are_made_and_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A wrong kernel that is found out, a right one, and one that is right at its task's size, judged for real."""
    protocol = attack_protocol("cpu")
    chosen = [mutants()[name] for name in ("cpp/relu_vectors_leave_tail.cpp", "cpp/right_relu_by_bits.cpp")]
    size = "if (x_size == 100003) for (int64_t i = 0; i < x_size; i++) out[i] = x[i] > 0 ? x[i] : 0;"
    text = f'extern "C" void launch(const float* x, float* out) {{ {size} }}'
    chosen.append(chosen[0].model_copy(update={"name": "cpp/relu_of_one_size.cpp", "source": text, "note": "one size"}))
    before = tmp_path / "before_cpu.csv"
    before.write_text("file,paid\ncpp/relu_vectors_leave_tail.cpp,True\n")
    stricter = stricter_protocols(protocol, has_sanitizer=True)
    options: dict[str, Any] = {"pool": JudgePoolConfig(), "refused_by": (), "stricter": stricter, "before": before}
    rows = error_rows(chosen, protocol, tmp_path / "store", **options)
    assert [(r["outcome"], r["paid"], r["as_expected"]) for r in rows] == [
        ("incorrect", False, True),
        ("correct", True, True),
        ("correct", True, False),
    ]
    assert [r["paid_shapes"] for r in rows] == [False, True, False]
    assert [r["paid_memcheck"] for r in rows] == [None, None, None]  # of a GPU
    assert [r["paid_before"] for r in rows] == [True, None, None]
    assert [r["kernelbench"] for r in rows] == ["failed", "passed", "passed"]

    monkeypatch.delattr(kernel_answers, "open_device")
    assert error_rows(chosen, protocol, tmp_path / "store", **options) == rows, "all of it is in the store"
    paths = write_errors(tmp_path / "out", rows, {"device_name": "this processor"})
    assert list(pd.read_csv(paths[3])["file"]) == [m.name for m in chosen]
    assert read_provenance(tmp_path / "out", "judge_errors.csv")["device_name"] == "this processor"


def _row(expect: str, kind: str, *, paid: bool, **more: Any) -> dict[str, Any]:
    row = {"file": f"cpp/{kind}.cpp", "language": "cpp", "kind": kind, "expect": expect, "paid": paid}
    found = {
        "outcome": "correct" if paid else "incorrect",
        "reason": None,
        "paid_shapes": paid,
        "paid_memcheck": None,
        "paid_before": None,
        "kernelbench": "failed",
        "note": "",
    }
    return row | found | {"as_expected": paid == (expect == "right")} | more


def test_the_table_counts_by_kind_and_together() -> None:
    rows = [
        _row("wrong", "tail", paid=False, paid_before=True),
        _row("wrong", "tail", paid=True, paid_shapes=False, paid_before=True, kernelbench="passed", note="by chance"),
        _row("wrong", "race", paid=False, paid_before=False),
        _row("right", "words", paid=False, reason="harness_access"),
    ]
    frame = error_table(rows).set_index(["expect", "kind"])
    assert [f"{expect} {kind}" for expect, kind in frame.index] == [
        "right all",
        "right words",
        "wrong all",
        "wrong race",
        "wrong tail",
    ]
    counted = ["number", "paid", "errors", "paid_shapes", "paid_before", "kernelbench_passed"]
    assert frame.loc[("wrong", "all"), counted].tolist() == [3, 1, 1, 0, 2, 1]
    assert pd.isna(frame.loc[("wrong", "all"), "paid_memcheck"])
    assert frame.loc[("right", "words"), "errors"] == 1 and pd.isna(frame.loc[("right", "all"), "paid_before"])
    assert summary(rows) == [
        "1 of 3 wrong kernels are paid",
        "paid: cpp/tail.cpp (tail): correct (by chance)",
        "1 of 1 right kernels are refused",
        "refused: cpp/words.cpp (words): incorrect, harness_access",
    ]


def test_what_training_refuses_by_a_flag_is_not_paid() -> None:
    verdict = make_verdict(Outcome.CORRECT, kernel_us=1, flags=("fixed_shapes",))
    assert is_paid(verdict, ()) and is_paid(verdict, ("harness_access",)) and not is_paid(verdict, ("fixed_shapes",))
    assert not is_paid(make_verdict(), ())
