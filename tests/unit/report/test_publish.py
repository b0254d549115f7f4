"""Tables as Markdown and LaTeX: what they hold, and that nothing in them is read as markup."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pandas as pd
import pytest
from cli_fixtures import ROOT
from report_fixtures import make_study, write_scores, write_study

from kevin.report.cells import Body, Cell, Row, Table, text_cell
from kevin.report.display import display_table
from kevin.report.display_systems import attacks
from kevin.report.field import field_table
from kevin.report.publish import ACROSS_SIDEWAYS, DOWN, PACKAGES, escape_latex, latex, markdown, write_table
from kevin.report.tables import TABLES, make_table

REFERENCE = ROOT / "results/reference"
NASTY = r"a_b & 50 % of $x$ #1 {y} ~z ^q \cmd <t> | *s*"


def small(num_rows: int = 2, columns: int = 2) -> Table:
    cells = [text_cell(NASTY), *[Cell("1.50×", 1.5, "1.20–1.80")] * (columns - 1)]
    theirs = Body("Not comparable: the paper & others", [Row([text_cell("them"), *[Cell("–")] * (columns - 1)], {})])
    bodies = [Body(None, [Row(cells, {})] * num_rows), Body("Empty", []), theirs]
    heads = ["Policy", *["Speed_up"] * (columns - 1)]
    return Table("a_table", "A title", "In 95 % of cases.", heads, bodies, [("", 1), ("Best", columns - 1)])


def test_markdown_has_one_line_a_row_and_as_many_cells_as_heads() -> None:
    lines = [line for line in markdown(small()).splitlines() if line.startswith("|")]
    assert lines[0] == r"| Policy | Best: Speed\_up |" and lines[1] == "|---|---:|"
    assert {len(re.findall(r"(?<!\\)\|", line)) for line in lines} == {3}
    assert "1.50× (1.20–1.80)" in lines[2] and r"\|" in lines[2]
    assert lines[4] == r"| *Not comparable: the paper & others* |  |"
    assert "Empty" not in "".join(lines)


def test_latex_prints_every_sign() -> None:
    assert escape_latex(NASTY) == (
        r"a\_b \& 50 \% of \$x\$ \#1 \{y\} \textasciitilde{}z \textasciicircum{}q \textbackslash{}cmd "
        r"\textless{}t\textgreater{} | *s*"
    )
    assert escape_latex("1.5×\n−2 – 3") == r"1.5$\times$ $-$2 -- 3"
    text = latex(small())
    assert text.isascii()
    for line in (line for line in text.splitlines() if NASTY[-3:] in line):
        assert not re.search(r"(?<!\\)[#%]", line), line


def test_latex_is_a_booktabs_table_with_the_papers_rows_under_a_rule() -> None:
    lines = latex(small()).splitlines()
    assert [line for line in lines if line in (r"\toprule", r"\midrule", r"\bottomrule")] == [
        r"\toprule", r"\midrule", r"\midrule", r"\bottomrule"
    ]  # fmt: skip
    assert lines[lines.index(r"\midrule", lines.index(r"\midrule") + 1) + 1].startswith(r"\multicolumn{2}")
    assert r"\cmidrule(lr){2-2}" in lines and r"\label{tab:a-table}" in lines
    rows = [line for line in lines if line.endswith(r"\addlinespace[2pt]") and "multicolumn" not in line]
    assert len(rows) == 3 and all(len(re.findall(r"(?<!\\)&", row)) == 1 for row in rows)
    assert any(r"\stacked{t}{r}{1.50$\times$ \\ {\smallprint 1.20--1.80}}" in row for row in rows)


def test_lines_end_within_long_names_and_not_before_a_unit() -> None:
    table = Table("t", "T", "", ["Task"], [Body(None, [Row([text_cell("a_long_name 1 × 4 of 5 %")], {})])])
    assert r"a\_\allowbreak{}long\_\allowbreak{}name 1~$\times$~4 of 5~\%" in latex(table)


SHAPES = [
    (small(), "table"),
    (small(columns=5), "table*"),
    (small(columns=12), "sidewaystable*"),
    (small(num_rows=DOWN), "longtable"),
    (small(num_rows=DOWN, columns=12), "landscape"),
    (small(num_rows=DOWN, columns=ACROSS_SIDEWAYS // 13), "landscape"),
]


@pytest.mark.parametrize(("table", "environment"), SHAPES)
def test_latex_environments_open_and_close(table: Table, environment: str) -> None:
    text = latex(table)
    opened = re.findall(r"\\begin\{([^}]*)\}", text)
    assert environment in opened and sorted(opened) == sorted(re.findall(r"\\end\{([^}]*)\}", text))
    depth = 0
    for sign in re.sub(r"\\[{}\\]", "", text):
        depth += {"{": 1, "}": -1}.get(sign, 0)
        assert depth >= 0
    assert depth == 0


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="pdflatex (texlive-latex-recommended) is not installed")
def test_latex_compiles_and_nothing_leaves_the_page(tmp_path: Path) -> None:
    """Every table of a study, those that are made by name, and one of every shape: no error, sign or line lost."""
    study = make_study(2)
    files = write_study(tmp_path, study, num_trajectories=2, num_turns=2)
    scores = write_scores(tmp_path, study, files)
    tables = tmp_path / "tables"
    names = [name for name in TABLES if name not in ("level3", "level4", "unseen")]
    for name in names:
        make_table(name, scores, tables / f"{name}.csv", study=study, baselines=files["baselines"][0])
    write_table(tables / "field.csv", "field", field_table({}, [], study), study, "Cut short.")
    for name, path in {"attacks": "intel-xeon/attacks.csv", "audit": "laptop/audit/audit.csv"}.items():
        frame = pd.read_csv(REFERENCE / path)
        text = latex(attacks(frame) if name == "attacks" else display_table(name, frame, study))
        (tables / f"{name}.tex").write_text(text)
    for number, (table, _) in enumerate(SHAPES):
        (tables / f"shape{number}.tex").write_text(latex(table._replace(name=f"shape_{number}")))
    found = sorted(tables.glob("*.tex"))
    assert len(found) == len(names) + 3 + len(SHAPES)
    body = "\n".join(rf"\input{{{path.as_posix()}}}\clearpage" for path in found)
    head = rf"\documentclass[a4paper]{{article}}\usepackage{{{PACKAGES}}}"
    (tmp_path / "all.tex").write_text(f"{head}\n\\begin{{document}}\n{body}\n\\end{{document}}\n")
    for _ in range(3):  # longtable settles its columns over several runs
        command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "-no-shell-escape", "all.tex"]
        run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, errors="replace", check=False)
        assert run.returncode == 0, run.stdout[-3000:]
    log = (tmp_path / "all.log").read_text(errors="replace")
    said = re.findall(r"^(?:Overfull .hbox|LaTeX Warning|Missing character|.*too large for page).*", log, re.MULTILINE)
    assert said == []


def test_every_table_is_written_in_three_forms(tmp_path: Path) -> None:
    study = make_study(2)
    files = write_study(tmp_path, study, num_trajectories=2, num_turns=2)
    scores = write_scores(tmp_path, study, files)
    out = make_table("table1", scores, tmp_path / "table1.csv", study=study, baselines=files["baselines"][0])
    rows = pd.read_csv(out)
    for ending in (".md", ".tex"):
        text = out.with_suffix(ending).read_text()
        for label in ("base model", "multi-turn RL", "o4-mini", "ceiling (kernel writer)"):
            assert label in text
        assert "100 unseen tasks, levels not told apart" in text
    policy = rows[(rows["policy"] == "p1") & (rows["baseline"] == "eager")].iloc[0]
    best = [policy[f"speedup_best{end}"] for end in ("", "_low", "_high")]
    assert f"{best[0]:.2f}× ({best[1]:.2f}–{best[2]:.2f})" in out.with_suffix(".md").read_text()


def test_what_must_be_said_of_the_study_stands_under_every_form(tmp_path: Path) -> None:
    frame = pd.DataFrame({"policy": ["p"], "num_tasks": [3]})
    out = write_table(tmp_path / "t.csv", "t", frame, make_study(1), "Cut short.")
    assert pd.read_csv(out)["note"].tolist() == ["Cut short."]
    assert all("Cut short." in out.with_suffix(ending).read_text() for ending in (".md", ".tex"))
