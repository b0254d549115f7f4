"""Captions of `snakemake --report`: one of its own for each table and figure, in words that people read."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from cli_fixtures import ROOT

from kevin.core.errors import DataError
from kevin.workflow.captions import caption_key, caption_of, read_captions

CAPTIONS = read_captions(ROOT / "rules/captions")
NAMES = (
    *(f"tables/level{level}" for level in (1, 2, 3)),
    *(
        f"tables/{name}"
        for name in ("primary", "claims", "table1", "table2", "serial_parallel", "differences", "tasks")
    ),
    *(f"tables/{name}" for name in ("turns", "mended", "pass_at_k", "rl_gain", "step_time", "field")),
    *(f"tables/{name}" for name in ("search", "search_turns")),
    *(f"figures/{name}" for name in ("serial_scaling", "parallel_scaling", "fast_p", "outcomes", "turns", "search")),
    *(f"figures/{name}" for name in ("primary", "layernorm_case_study", "training", "training_turns", "ablations")),
    *(f"figures/{name}" for name in ("serial_parallel_map", "speedup_distribution", "roofline", "stability", "audit")),
    "pages/report",
)


@pytest.mark.parametrize("name", NAMES)
def test_there_is_a_caption(name: str) -> None:
    assert name in CAPTIONS, f"write rules/captions/{name}.rst"


def test_no_two_are_the_same() -> None:
    for field in ("title", "text"):
        values = [getattr(caption, field) for caption in CAPTIONS.values()]
        assert len(set(values)) == len(values)


@pytest.mark.parametrize("name", CAPTIONS)
def test_titles_and_captions_hold_no_names_of_columns(name: str) -> None:
    caption = CAPTIONS[name]
    assert re.findall(r"\w+_\w+", f"{caption.title} {caption.text}") == []
    assert caption.title[0].isupper() and caption.text.endswith(".")
    assert len(caption.text) > 60


def test_every_reported_file_has_its_caption_from_there() -> None:
    """A rule that gives a caption of its own, or a category, passes the check of names by."""
    calls = [
        (rules.name, call)
        for rules in (ROOT / "rules").glob("*.smk")
        for call in re.findall(r"\breport\((.*?)\),\n", rules.read_text(), re.DOTALL)
    ]
    assert len(calls) > 10
    assert [(name, call) for name, call in calls if "**REPORTED" not in call] == []


@pytest.mark.parametrize(
    ("output", "key"),
    [
        ("results/tables/level1.csv", "tables/level1"),
        ("else where/figures/turns.png", "figures/turns"),
        ("results/report.html", "pages/report"),
    ],
)
def test_the_name_follows_from_the_file(output: str, key: str) -> None:
    assert caption_key(output) == key
    assert caption_of(CAPTIONS, output) is CAPTIONS[key]


def test_a_missing_caption_is_named() -> None:
    with pytest.raises(
        DataError, match=r"results/tables/new\.csv has no caption: write rules/captions/tables/new\.rst"
    ):
        caption_of(CAPTIONS, "results/tables/new.csv")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("Just text.\n", "expected :title:"),
        (":title: A\n\nText.\n", "expected :title:"),
        (":title: A\n:category: Tables\n\n", "expected :title:"),
        (":title: A\n:category: Others\n\nText.\n", "no category 'Others'"),
    ],
)
def test_a_damaged_file_is_named(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "tables").mkdir()
    (tmp_path / "tables/a.rst").write_text(text)
    with pytest.raises(DataError, match=f"a.rst: {said}"):
        read_captions(tmp_path)
