"""Every file of docs/targets.md can be made from a fresh clone, at each scale, and has a caption. Nothing is run."""

from __future__ import annotations

import re

import pytest

from kevin.core.config import load_study
from kevin.report.captions import caption_key, captions, target_of, targets_page

from .conftest import ROOT, Run

CAPTIONS = captions()
OVERLAYS = (
    (),
    ("gpu",),
    ("coder",),
    ("coder", "coder_rehearsal"),
    ("paper",),
    ("field",),
    ("ablations",),
    ("gpu", "gpu_quick"),
)


def documented() -> list[str]:
    """Files of docs/targets.md that a study makes by itself; ``results`` for the folder of their configuration."""
    found = []
    for key, caption in CAPTIONS.items():
        file, _ = target_of(key, caption, ROOT / "config")
        study = load_study([ROOT / "config" / f"{name}.yaml" for name in ("config", *filter(None, [caption.config]))])
        if caption.needs is None:
            found.append(file.replace(study.results, "results", 1))
    return [file for file in found if file != "results/tables/unseen.csv"] + ["results/published"]


def test_the_page_of_targets_is_generated() -> None:
    page = targets_page(ROOT / "config")
    assert (ROOT / "docs/targets.md").read_text() == page, "make schema"
    commands = set(re.findall(r"`(snakemake [^`]+)`", page))
    assert len(commands) > 35 and "snakemake results/audit/tables/audit.csv --configfile config/audit.yaml" in commands


def test_what_the_readme_names_is_made_so() -> None:
    """Its commands are those of the page of targets, and its first two set up the study and the tests."""
    text = (ROOT / "README.md").read_text()
    assert re.findall(r"^    (make \w+)", text, re.MULTILINE)[:2] == ["make study", "make test"]
    named = set(re.findall(r"`(snakemake results/[^`]+)`", text))
    commands = set(re.findall(r"`(snakemake [^`]+)`", (ROOT / "docs/targets.md").read_text()))
    assert len(named) >= 8 and named <= commands


def configfiles(overlays: tuple[str, ...]) -> list[str]:
    return ["--configfile", *(str(ROOT / f"config/{name}.yaml") for name in overlays)] if overlays else []


@pytest.mark.parametrize(
    "overlays",
    [*OVERLAYS[:3], *(pytest.param(o, marks=pytest.mark.slow) for o in OVERLAYS[3:])],
    ids=lambda overlays: "-".join(overlays) or "laptop",
)
def test_every_documented_file_can_be_made_from_a_fresh_clone(snakemake: Run, overlays: tuple[str, ...]) -> None:
    study = load_study([ROOT / f"config/{name}.yaml" for name in ("config", *overlays)])
    targets = [file.replace("results/", f"{study.results}/", 1) for file in documented()]
    trained = [f"{study.results}/{file}" for file in ("tables/rl_gain.csv", "tables/step_time.csv")]
    trained.append(f"{study.results}/figures/training.png")
    if overlays == ("ablations",):  # it compares trainings, and no policy of theirs is evaluated
        targets = [file for file in targets if file not in trained]
    run = snakemake(*targets, f"{study.results}/report.html", "--dry-run", *configfiles(overlays))
    said = run.stdout + run.stderr
    assert run.returncode == 0, said
    outputs = {file for line in re.findall(r"^    output: (.+)$", said, re.MULTILINE) for file in line.split(", ")}
    assert set(targets) <= outputs
    forms = {
        f.removesuffix("csv") + end for f in targets if "/tables/" in f and "_rows." not in f for end in ("md", "tex")
    }
    assert forms <= outputs, "a table stands as Markdown and LaTeX beside its CSV"
    shown = {f for f in outputs if re.fullmatch(r".*/(tables/[^/]+\.csv|figures/[^/]+\.png|report\.html)", f)}
    lacking = sorted(key for f in shown if (key := caption_key(f)) not in CAPTIONS)
    assert lacking == [], f"write {', '.join(lacking)} in src/kevin/report/captions.yaml"
