"""Every number in the README is one of a committed file, rounded as it stands there; one of no file is found out."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml
from cli_fixtures import ROOT

README = (ROOT / "README.md").read_text()
BOUND: dict[str, list[dict[str, Any]]] = yaml.safe_load((ROOT / "docs/bound_numbers.yaml").read_text())
_TO_TWENTY = re.findall(
    r"\w+",
    "two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen "
    "nineteen twenty",
)
_VALUES = {word: number for number, word in enumerate(_TO_TWENTY, start=2)}
_VALUES |= {"thirty": 30, "forty": 40, "fifty": 50, "hundred": 100, "thousand": 1000}
_NUMBER = re.compile(
    rf"(?<![\w.+])(?<!\w[-/])[+−-]?\d[\d,]*(?:\.\d+)?(?!\w)|\b(?:{'|'.join(_VALUES)})\b", re.IGNORECASE
)
"""Digits that are no part of a name, and numbers as words from two on."""


def prose(text: str) -> str:
    """Without code, addresses of links and images, which are names."""
    text = re.sub(r"^(?: {4,}|\t).*$", "", text, flags=re.MULTILINE)
    text = re.sub(r"`[^`]*`", "", text)
    return re.sub(r"\]\([^)]*\)", "]", text)


def numbers(text: str) -> list[str]:
    return _NUMBER.findall(text)


def shown(value: float, token: str) -> str:
    """A value with as many decimals as the README gives it; words as they are."""
    if token.lower() in _VALUES:
        return token if value == _VALUES[token.lower()] else f"{value:g}"
    sign = "+" if token.startswith("+") and value > 0 else ""
    text = f"{value:,.{len(token.partition('.')[2])}f}" if "," in token else f"{value:.{len(token.partition('.')[2])}f}"
    return sign + (text if float(text.replace(",", "")) else text.lstrip("-")).replace("-", "−")


def as_number(text: str) -> float:
    return float(_VALUES.get(text.lower(), 0) or text)


def cells(source: dict[str, Any]) -> list[float]:
    path = ROOT / source["file"]
    if "pattern" in source:
        found = re.search(source["pattern"], path.read_text())
        assert found is not None, f"{path}: nothing like {source['pattern']}"
        return [float(n) for n in source.get("numbers", [])] or [as_number(group) for group in found.groups()]
    frame = pd.read_csv(path)
    if "count" in source:
        return [float(frame[source["count"]].nunique())]
    for column, value in source["row"].items():
        frame = frame[frame[column] == value]
    if "num_seeds" in frame and len(frame) > 1:
        frame = frame[frame["num_seeds"] == frame["num_seeds"].max()]  # all seeds together
    assert len(frame) == 1, f"{path}: {len(frame)} rows are {source['row']}"
    values = [float(frame[name.rstrip("%")].iloc[0]) * (100 if name.endswith("%") else 1) for name in source["columns"]]
    return [math.exp(value) for value in values] if source.get("exp") else values


@pytest.mark.parametrize("entry", BOUND["bound"], ids=lambda entry: entry["text"][:40])
def test_the_readme_says_what_the_file_holds(entry: dict[str, Any]) -> None:
    assert entry["text"] in README, "the README does not say this any more"
    said = numbers(entry["text"])
    held = [value for source in entry["from"] for value in cells(source)]
    assert len(said) == len(held)
    assert said == [shown(value, token) for value, token in zip(held, said, strict=True)]


def unbound(text: str) -> list[str]:
    """Numbers of a text that no entry holds, with what stands before and behind them."""
    entries = [entry["text"] for entry in BOUND["bound"]]
    for entry in sorted(entries, key=len, reverse=True):
        text = text.replace(entry, "")
    text = prose(text)
    return [text[max(0, m.start() - 30) : m.end() + 30] for m in _NUMBER.finditer(text)]


def test_no_number_of_the_readme_is_bound_to_nothing() -> None:
    assert unbound(README) == []


@pytest.mark.parametrize("more", ["It is 1.27 times as fast.", "Of seven models two are.", "| 3.24 [1.06, 6.65] |"])
def test_a_number_that_is_bound_to_nothing_is_found_out(more: str) -> None:
    assert unbound(f"{README}\n{more}\n")


def test_names_are_no_numbers() -> None:
    assert numbers(prose("an H200, `kb/1/40`, SmolLM2-135M, C++17, Apache-2.0, [x](a/2507.png)")) == []
    assert numbers("−0.05 to 1,280 in Twenty, 2 × 8") == ["−0.05", "1,280", "Twenty", "2", "8"]


def test_the_readme_is_short_and_in_the_fields_words() -> None:
    lines = [line for line in README.splitlines() if not line.startswith(("|", "    "))]
    assert len(" ".join(lines).split()) <= 900
    assert not re.search(r"\bschools?\b|\bworth\b", README, re.IGNORECASE)
    assert len((ROOT / "docs/results.md").read_text().split()) <= 1500
    assert Path(ROOT / "docs/bound_numbers.yaml").exists()
