"""Captions of `snakemake --report`: one of its own for each table and figure, in words that people read."""

from __future__ import annotations

import re

import pytest
from cli_fixtures import ROOT

from kevin.core.errors import DataError
from kevin.report.captions import CATEGORIES, caption_key, caption_of, captions
from kevin.report.catalogue import FIGURES, TABLES

CAPTIONS = captions()
OF_THE_JUDGE = {"tables/attacks", "tables/judge_errors", "tables/judge_errors_rows"}


def test_there_is_one_for_each_table_and_figure_and_no_other() -> None:
    made = {*(f"tables/{name}" for name in TABLES), *(f"figures/{name}" for name in FIGURES)}
    assert set(CAPTIONS) == made | OF_THE_JUDGE | {"pages/report"}
    assert {caption.category for caption in CAPTIONS.values()} <= set(CATEGORIES)


def test_no_two_are_the_same() -> None:
    for field in ("title", "text"):
        values = [getattr(caption, field) for caption in CAPTIONS.values()]
        assert len(set(values)) == len(values)


@pytest.mark.parametrize("name", CAPTIONS)
def test_titles_and_captions_hold_no_names_of_columns(name: str) -> None:
    caption = CAPTIONS[name]
    assert re.findall(r"\w+_\w+", f"{caption.title} {caption.text}") == []
    assert caption.title[0].isupper() and caption.text.endswith(".")
    assert len(caption.text) > 40


def test_every_reported_file_has_its_caption_from_there() -> None:
    """A rule that gives a caption of its own, or a category, passes the check of names by."""
    calls = [
        (rules.name, call)
        for rules in (ROOT / "rules").glob("*.smk")
        for call in re.findall(r"\breport\((.*?)\),\n", rules.read_text(), re.DOTALL)
    ]
    assert len(calls) >= 5
    assert [(name, call) for name, call in calls if "**REPORTED" not in call] == []


@pytest.mark.parametrize(
    ("output", "key"),
    [
        ("results/tables/level1.csv", "tables/level1"),
        ("else where/figures/outcomes.png", "figures/outcomes"),
        ("results/report.html", "pages/report"),
    ],
)
def test_the_name_follows_from_the_file(output: str, key: str) -> None:
    assert caption_key(output) == key
    assert caption_of(output) is CAPTIONS[key]


def test_a_missing_caption_is_named() -> None:
    with pytest.raises(DataError, match=r"new\.csv has no caption: write tables/new in .*captions\.yaml"):
        caption_of("results/tables/new.csv")
