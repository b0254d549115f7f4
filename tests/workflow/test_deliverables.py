"""Every file that the README names can be made from a fresh clone, at each scale, and has a caption. Nothing is run."""

from __future__ import annotations

import re

import pytest

from kevin.core.config import load_study
from kevin.workflow.captions import caption_key, read_captions

from .conftest import ROOT, Run

CAPTIONS = read_captions(ROOT / "rules/captions")
OTHERS = ("results/tables/search_turns.csv", "results/figures/ablations.png")
"""What the pages of the manual name beside the README's table."""
OVERLAYS = (
    (),
    ("gpu",),
    ("paper",),
    ("field",),
    ("ablations",),
    ("gpu", "gpu_seeds"),
    ("gpu", "gpu_quick"),
    ("laptop_seeds",),
    ("laptop_seeds", "rewards"),
    ("laptop_seeds", "budget"),
    ("wrong_kernels",),
)


def documented() -> list[str]:
    """Files of the first column of the README's table; ``results`` for the folder that their configuration names."""
    table = re.search(
        r"^\| file \| command .*\n\|[-| ]+\n((?:\|.*\n)+)", (ROOT / "README.md").read_text(), re.MULTILINE
    )
    assert table is not None, "the README has no table of files"
    found: list[str] = []
    for row in table[1].splitlines():
        files, command = row.split("|")[1:3]
        overlay = re.findall(r"--configfile (\S+?)`", command)
        own = load_study([ROOT / name for name in ("config/config.yaml", *overlay)]).results
        folder = ""
        for name in re.findall(r"`([^`]+)`", files):
            folder = name.rpartition("/")[0] or folder
            assert folder.startswith(own), f"README: {name} is not in {own}, which {command} makes"
            found.append(f"results{folder.removeprefix(own)}/{name.rpartition('/')[2]}")
    return list(dict.fromkeys(found))


def test_the_readme_s_table_is_read() -> None:
    found = documented()
    assert {"results/tables/level1.csv", "results/tables/level2.csv", "results/report.html"} <= set(found)
    assert len(found) >= 18


def configfiles(overlays: tuple[str, ...]) -> list[str]:
    return ["--configfile", *(str(ROOT / f"config/{name}.yaml") for name in overlays)] if overlays else []


@pytest.mark.parametrize("overlays", OVERLAYS, ids=lambda overlays: "-".join(overlays) or "laptop")
def test_every_documented_file_can_be_made_from_a_fresh_clone(snakemake: Run, overlays: tuple[str, ...]) -> None:
    study = load_study([ROOT / f"config/{name}.yaml" for name in ("config", *overlays)])
    targets = [file.replace("results/", f"{study.results}/", 1) for file in (*documented(), *OTHERS)]
    trained = [f"{study.results}/{file}" for file in ("tables/rl_gain.csv", "tables/step_time.csv")]
    trained += [f"{study.results}/figures/{name}.png" for name in ("training", "training_turns")]
    if overlays == ("ablations",):  # it compares trainings, and no policy of theirs is evaluated
        targets = [file for file in targets if file not in trained]
    run = snakemake(*targets, f"{study.results}/report.html", "--dry-run", *configfiles(overlays))
    said = run.stdout + run.stderr
    assert run.returncode == 0, said
    outputs = {file for line in re.findall(r"^    output: (.+)$", said, re.MULTILINE) for file in line.split(", ")}
    assert set(targets) <= outputs
    forms = {f.removesuffix("csv") + end for f in targets if "/tables/" in f for end in ("md", "tex")}
    assert forms <= outputs, "a table stands as Markdown and LaTeX beside its CSV"
    shown = {f for f in outputs if re.fullmatch(r".*/(tables/[^/]+\.csv|figures/[^/]+\.png|report\.html)", f)}
    lacking = sorted(key for f in shown if (key := caption_key(f)) not in CAPTIONS)
    assert lacking == [], f"write {', '.join(f'rules/captions/{key}.rst' for key in lacking)}"
