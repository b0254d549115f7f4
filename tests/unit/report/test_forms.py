"""Tables as Markdown and LaTeX: what they hold, and that nothing in them is read as markup."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pandas as pd
import pytest
from cli_fixtures import ROOT
from report_fixtures import GOLDEN, golden_study, make_study

from kevin.report import show
from kevin.report.captions import Caption, captions
from kevin.report.catalogue import make_table
from kevin.report.field import field_table
from kevin.report.forms import MANY_ROWS, PACKAGES, Shown, escape_latex, latex, markdown, write_table
from kevin.report.published import make_published_tables

REFERENCE = ROOT / "results/reference"
NASTY = r"a_b & 50 % of $x$ #1 {y} ~z ^q \cmd <t> | *s*"


def small(num_rows: int = 2, columns: int = 2) -> Shown:
    heads = [("", "Policy"), *[("Best", f"Speed_up {i}") for i in range(columns - 1)]]
    ours = [[NASTY, *["1.50×\n1.20–1.80"] * (columns - 1)]] * num_rows
    cells = pd.DataFrame([*ours, ["them ¹", *["–"] * (columns - 1)]], columns=pd.MultiIndex.from_tuples(heads))
    return Shown(cells, theirs=[*[False] * num_rows, True], notes="¹ Not comparable: the paper & others.")


def test_markdown_has_one_line_a_row_and_as_many_cells_as_heads() -> None:
    text = markdown(small(), "A title", "In 95 % of cases. Small: an interval.")
    assert text.startswith("**A title**\n\nIn 95 % of cases. In parentheses: an interval.\n\n")
    lines = [re.sub(" +", " ", line) for line in text.splitlines() if line.startswith("|")]
    assert lines[0].startswith(r"| Policy | Best: Speed\_up 0 |") and re.fullmatch(r"\|:-+\|-+:\|", lines[1])
    assert {len(re.findall(r"(?<!\\)\|", line)) for line in lines} == {3}
    assert "1.50× (1.20–1.80)" in lines[2] and r"\|" in lines[2] and len(lines) == 5


def test_latex_prints_every_sign() -> None:
    assert escape_latex(NASTY) == (
        r"a\_b \& 50 \% of \$x\$ \#1 \{y\} \textasciitilde{}z \textasciicircum{}q \textbackslash{}cmd "
        r"\textless{}t\textgreater{} | *s*"
    )
    assert escape_latex("1.5×\n−2 – 3") == r"1.5$\times$ $-$2 -- 3"
    text = latex(small(), "a_table", "A title", "In 95 % of cases.")
    assert text.isascii()
    for line in (line for line in text.splitlines() if NASTY[-3:] in line):
        assert not re.search(r"(?<!\\)[#%]", line), line


def test_latex_is_a_booktabs_table() -> None:
    lines = latex(small(), "a_table", "A title", "In 95 % of cases.").splitlines()
    assert [line for line in lines if line in (r"\toprule", r"\midrule")] == [r"\toprule", r"\midrule"]
    assert r"\label{tab:a-table}" in lines and any(line.startswith(r"\bottomrule") for line in lines)
    rows = [line for line in lines if "Speed" not in line and line.endswith(r"\\") and "&" in line]
    assert any(r"1.50$\times$ {\scriptsize (1.20--1.80)}" in row for row in rows)


SHAPES = [
    (small(), "table"),
    (small(columns=5), "table*"),
    (small(num_rows=MANY_ROWS), "longtable"),
    (small(num_rows=MANY_ROWS, columns=12), "landscape"),
]


@pytest.mark.parametrize(("table", "environment"), SHAPES)
def test_latex_environments_open_and_close(table: Shown, environment: str) -> None:
    text = latex(table, "t", "T", "C")
    opened = re.findall(r"\\begin\{([^}]*)\}", text)
    assert environment in opened and sorted(opened) == sorted(re.findall(r"\\end\{([^}]*)\}", text))
    depth = 0
    for sign in re.sub(r"\\[{}\\]", "", text):
        depth += {"{": 1, "}": -1}.get(sign, 0)
        assert depth >= 0
    assert depth == 0


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="pdflatex (texlive-latex-recommended) is not installed")
def test_latex_compiles_and_no_sign_is_lost(tmp_path: Path) -> None:
    """Every table of a study, those that are made by name, and one of every shape."""
    study = golden_study()
    tables = tmp_path / "tables"
    made = make_published_tables(GOLDEN, tables, study)
    write_table(tables / "field.csv", field_table({}, [], study), show.field, study, captions()["tables/field"], "Cut.")
    for name, path in {"attacks": "intel-xeon/attacks.csv", "audit": "laptop/audit/audit.csv"}.items():
        shown = {"attacks": show.attacks, "audit": show.audit}[name](pd.read_csv(REFERENCE / path), study)
        (tables / f"{name}.tex").write_text(latex(shown, name, "Title", "Caption."))
    for number, (table, _) in enumerate(SHAPES):
        (tables / f"shape{number}.tex").write_text(latex(table, f"shape_{number}", "Title", "Caption."))
    found = sorted(tables.glob("*.tex"))
    assert len(found) == len(made) + 3 + len(SHAPES)
    body = "\n".join(rf"\input{{{path.as_posix()}}}\clearpage" for path in found)
    head = rf"\documentclass[a4paper]{{article}}\usepackage{{{PACKAGES}}}"
    (tmp_path / "all.tex").write_text(f"{head}\n\\begin{{document}}\n{body}\n\\end{{document}}\n")
    for _ in range(3):  # longtable settles its columns over several runs
        command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "-no-shell-escape", "all.tex"]
        run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, errors="replace", check=False)
        assert run.returncode == 0, run.stdout[-3000:]
    log = (tmp_path / "all.log").read_text(errors="replace")
    assert re.findall(r"^(?:LaTeX Warning|Missing character).*", log, re.MULTILINE) == []


def test_every_table_is_written_in_three_forms(tmp_path: Path) -> None:
    given = {"scores": [GOLDEN / "answers.csv"], "baselines": GOLDEN / "baselines.csv"}
    out = make_table("table1", tmp_path / "table1.csv", study=golden_study(), **given)
    rows = pd.read_csv(out)
    for ending in (".md", ".tex"):
        text = out.with_suffix(ending).read_text()
        for label in ("base model", "multi (2 seeds)", "o4-mini", "ceiling (kernel writer)"):
            assert label in text
        assert "100 unseen tasks, levels not told apart" in text
    policy = rows[(rows["policy"] == "single") & (rows["baseline"] == "eager")].iloc[0]
    best = [policy[f"speedup_best{end}"] for end in ("", "_low", "_high")]
    assert f"{best[0]:.2f}× ({best[1]:.2f}–{best[2]:.2f})" in out.with_suffix(".md").read_text()


def test_what_must_be_said_of_the_study_stands_under_every_form(tmp_path: Path) -> None:
    said = Caption(title="T", category="Tables", text="What it shows.")
    frame = pd.DataFrame({"policy": ["p"], "num_tasks": [3]})
    out = write_table(
        tmp_path / "t.csv", frame, lambda own, _: Shown(own.astype(str)), make_study(1), said, "Cut short."
    )
    assert pd.read_csv(out)["note"].tolist() == ["Cut short."]
    assert all("Cut short." in out.with_suffix(ending).read_text() for ending in (".md", ".tex"))
