"""The manual: its links lead somewhere, what there is is described, what it shows works."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import pytest
from cli_fixtures import ROOT

import kevin
from kevin import Judge, Outcome, Task, Verdict
from kevin.core.config import RewardConfig
from kevin.core.files import read_parquet, turns_frame, write_tasks
from kevin.core.protocol import Rule
from kevin.policy.replay import Recorded
from kevin.report.published import kernels_frame
from kevin.report.scores import score_frame

PAGES = [*sorted((ROOT / "docs").glob("*.md")), *(ROOT / name for name in ("README.md", "CHANGELOG.md"))]
TOPS = ("src", "tests", "rules", "config", "containers", "examples", "slurm", "profiles")
NOT_OURS = {"reference.py", "my_module.py", "scripts/generate_samples.py", "benchmark_eval_analysis.py"}
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


def page(name: str) -> str:
    return (ROOT / "docs" / name).read_text()


def anchors(path: Path) -> set[str]:
    """Of a page's headings, as GitHub makes them."""
    text = re.sub(r"```.*?```", "", path.read_text(), flags=re.DOTALL)
    names = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in _HEADING.findall(text))
    return {name.strip().replace(" ", "-") for name in names}


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_links_lead_somewhere(path: Path) -> None:
    broken = []
    for target in _LINK.findall(path.read_text()):
        if "://" in target:
            continue
        name, _, anchor = target.partition("#")
        file = (path.parent / name).resolve() if name else path
        if not file.exists() or (anchor and anchor not in anchors(file)):
            broken.append(target)
    assert broken == []


@pytest.mark.parametrize("path", [*PAGES, ROOT / "CONTRIBUTING.md"], ids=lambda path: path.name)
def test_source_files_that_are_named_exist(path: Path) -> None:
    text = re.sub(r"```.*?```", "", path.read_text(), flags=re.DOTALL)
    named = set(re.findall(r"`((?:[\w.]+/)*[\w]+\.(?:py|smk|h|def|sh)|src/[\w/]+)`", text)) - NOT_OURS
    files = [f"/{file.relative_to(ROOT)}" for top in TOPS for file in (ROOT / top).rglob("*")]
    assert [name for name in sorted(named) if not any(file.endswith(f"/{name.rstrip('/')}") for file in files)] == []


def test_every_page_is_in_the_table_of_contents() -> None:
    listed = set(_LINK.findall(page("README.md")))
    assert {path.name for path in (ROOT / "docs").glob("*.md")} - {"README.md"} <= listed


def test_outcomes_rules_and_fields_are_described() -> None:
    text = page("verdicts.md")
    names = [*Outcome, *get_args(Rule), *Verdict.model_fields]
    assert [name for name in names if f"`{name}`" not in text] == []


def test_details_of_a_verdict_are_described() -> None:
    text = page("verdicts.md")
    sources = "".join(path.read_text() for path in (ROOT / "src/kevin/judge").rglob("*.py"))
    names = set(re.findall(r"(?:details|seconds|shares)(?:\.setdefault\(|\[)\"(\w+)\"", sources))
    assert len(names) > 15 and [name for name in sorted(names) if f"`{name}`" not in text] == []


def test_columns_of_files_are_described(tmp_path: Path) -> None:
    task = Task(id="a", level=1, name="a", source="", origin="user")
    write_tasks(tmp_path / "tasks.parquet", [(task, "train")], {})
    columns = {
        "kernels": kernels_frame(iter(()), tmp_path).columns,
        "tasks": read_parquet(tmp_path / "tasks.parquet", "tasks")[0].columns,
        "turns": turns_frame([]).columns,
        "scores": score_frame([], [], RewardConfig(), policy="base", split="level1").columns,
    }
    sections = re.findall(r"^\*\*(\w+)\*\*: (.*?)(?:\n\n|\Z)", page("schemas.md"), re.DOTALL | re.MULTILINE)
    described = {name: set(re.findall(r"`(\w+)`", text)) for name, text in sections}
    assert {name: set(found) - described[name] for name, found in columns.items()} == {name: set() for name in columns}
    assert all(len(found) > 9 for found in columns.values())


def test_public_names_and_errors_are_described() -> None:
    text = page("api.md") + page("verdicts.md")
    others = {"Kernel", "Task", "Verdict", "__version__"}
    assert [name for name in kevin.__all__ if name not in others and name not in text] == []


def test_statuses_of_the_server_are_described() -> None:
    text = page("serve.md")
    sources = "".join(path.read_text() for path in (ROOT / "src/kevin/serve").glob("*.py"))
    codes = set(re.findall(r"Refusal\(\s*(?:\d+|e\.status),\s*\"(\w+)\"", sources))
    assert len(codes) > 8 and [code for code in sorted(codes) if f"`{code}`" not in text] == []


@pytest.mark.slow
def test_the_worked_example_is_correct_and_its_changes_have_the_outcomes_that_are_told(tmp_path: Path) -> None:
    """One of them is waited for until its time is up, four seconds."""
    text = page("own-kernel.md")
    reference, kernel = (re.search(rf"```{kind}\n(.*?)```", text, re.DOTALL)[1] for kind in ("python", "cpp"))  # type: ignore[index]
    exits = "#include <cstdlib>\n" + kernel.replace("{\n", "{\n  exit(0);\n", 1)
    example = ROOT / "examples/relu"
    assert (reference, kernel) == ((example / "reference.py").read_text(), (example / "kernel.cpp").read_text())
    changes = {
        "correct": kernel,
        "wrong_values": kernel.replace("= 2.0f", "= 3.0f"),
        "not_written": kernel.replace("out_size;", "out_size / 2;"),
        "compile_error": kernel.replace("* x[i]", "* y[i]"),
        "segmentation_fault": kernel.replace("out[i] =", "out[i + (1 << 30)] ="),
        "run_timeout": kernel.replace("{\n", "{\n  for (;;);\n", 1),
        "input_mutated": kernel.replace("\n}\n", "\n  ((float*)x)[0] = 0;\n}\n"),
        "early_exit": exits,
    }
    with Judge("cpu", store=tmp_path, run_timeout_s=4.0) as judge:
        found = {judged.index: judged.verdict for judged in judge.many((reference, k) for k in changes.values())}
    told = {name: found[i] for i, name in enumerate(changes)}
    assert {name: (v.reason or str(v.outcome)) if v else None for name, v in told.items()} == {n: n for n in changes}
    assert [name for name in changes if f"`{name}`" not in text] == []
    assert told["early_exit"] and told["early_exit"].flags == ("harness_access",)
    with Judge("cpu", store=tmp_path, rules="default") as judge:
        verdict = judge(reference, exits)
    assert (str(verdict.outcome), verdict.reason) == ("refused", "harness_access")


def test_a_recording_is_documented_by_its_fields() -> None:
    page = (ROOT / "docs/own-model.md").read_text()
    assert [name for name in Recorded.model_fields if f"`{name}`" not in page] == []
    lines = [Recorded.model_validate_json(line) for line in re.findall(r"^ +(\{.*\})$", page, re.MULTILINE)]
    assert [(line.trajectory, line.turn, line.finish_reason) for line in lines] == [
        (0, 1, "stop"),
        (0, 2, "stop"),
        (1, 1, "length"),
    ]
