"""Pairs of a file as people and programs write them: odd lines, half characters, paths; and what a verdict says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cli_fixtures import GOOD, REFERENCE
from core_fixtures import make_verdict

from kevin.api.batch import judge_batch, read_pairs, read_records
from kevin.cli.verdict_view import _rows
from kevin.core.candidate import make_kernel
from kevin.core.errors import UsageError
from kevin.core.protocol import JudgeProtocol
from kevin.core.types import Outcome, Round


@pytest.mark.parametrize("field", ["reference", "kernel"])
@pytest.mark.parametrize("path", ["kernel.cpp", "/some/where/k.py", "./k.cu\n", "/my kernels/K.CU", "~/k.hip"])
def test_a_path_where_the_source_is_wanted_is_told_as_such(tmp_path: Path, field: str, path: str) -> None:
    row = {"id": "a", "reference": REFERENCE, "kernel": GOOD} | {field: path}
    (tmp_path / "pairs.jsonl").write_text(json.dumps(row) + "\n")
    with pytest.raises(UsageError, match=rf"pairs\.jsonl:1: {field}: .* is the name of a file, whose text is wanted"):
        read_pairs(tmp_path / "pairs.jsonl")


def test_lines_of_pairs_and_verdicts_end_at_a_line_feed_alone(tmp_path: Path) -> None:
    odd = f"// \u2028\u2029\u0085\n{GOOD}"
    row = json.dumps({"id": "a", "reference": REFERENCE, "kernel": odd}, ensure_ascii=False)
    (tmp_path / "pairs.jsonl").write_text(f"{row}\n", encoding="utf-8-sig")
    assert [pair.kernel for pair in read_pairs(tmp_path / "pairs.jsonl")] == [odd]
    (tmp_path / "out.jsonl").write_text('{"id": "a\u2028", "message": "\u0085"}\n')
    assert list(read_records(tmp_path / "out.jsonl")) == ["a\u2028"]


@pytest.mark.parametrize(
    ("start", "told"), [('"id": true', "id.str: .*valid string"), ('"id": 1, "id": 2', "id is set a second time")]
)
def test_a_line_that_json_and_its_reader_would_take_otherwise_is_refused(tmp_path: Path, start: str, told: str) -> None:
    (tmp_path / "pairs.jsonl").write_text(f'{{{start}, "reference": "r", "kernel": "k"}}\n')
    with pytest.raises(UsageError, match=rf"pairs\.jsonl:1: not a line .*{told}"):
        read_pairs(tmp_path / "pairs.jsonl")


def test_half_a_surrogate_pair_is_the_error_of_its_own_line(tmp_path: Path) -> None:
    half = f"// \ud83d\n{GOOD}"
    pairs = [("k", REFERENCE, half), ("r", REFERENCE + "# \udc00\n", GOOD)]
    rows = [{"id": name, "reference": reference, "kernel": kernel} for name, reference, kernel in pairs]
    batch = tmp_path / "pairs.jsonl"
    batch.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert judge_batch(batch, tmp_path / "out.jsonl", protocol=JudgeProtocol(), dialect="auto", store=None) == 2
    rows = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().split("\n")[:-1]]
    assert [(row["id"], row["error"]) for row in rows] == [("k", "kernel"), ("r", "task")]
    assert "surrogate" in rows[0]["message"] and "line 1" in rows[0]["message"]


def test_the_interval_says_what_it_covers() -> None:
    rounds = tuple(Round(kernel_us=k, reference_us=100) for k in (50, 51, 52, 53))
    verdict = make_verdict(Outcome.CORRECT, kernel_us=50, eager_us=50, rounds=rounds)
    rows = dict(_rows(verdict, make_kernel("", "k.cpp", "auto", JudgeProtocol())))
    assert "95 % interval over its 4 rounds: " in rows["Speedup"] and "Another run" in rows[""]
