"""The graph of rules at each scale, as it was found once: jobs, what they read and make, their share of a machine, and
the command of each rule's first job. Nothing is run.

``KEVIN_STORE_GRAPHS=1 pytest tests/workflow/test_graphs.py`` stores it again, where a change is meant.
"""

from __future__ import annotations

import itertools
import os
import re
import shlex
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

import pytest

from kevin.core.config import load_study

from .conftest import ROOT, Run

GRAPHS = Path(__file__).with_name("graphs")
JOB = re.compile(r"^(?:local)?rule (\w+):\n((?:    .+\n)+)(?:Shell command: (.+)\n)?", re.MULTILINE)


class Job(NamedTuple):
    """Of a dry run with ``-p``."""

    rule: str
    output: str
    input: str
    share: str
    command: str


def read_jobs(said: str) -> list[Job]:
    found = []
    for rule, text, command in JOB.findall(said):
        fields = dict(re.findall(r"^    (\w+): (.+)$", text, re.MULTILINE))
        resources = dict(pair.split("=") for pair in fields["resources"].split(", "))
        share = (
            f"threads {fields.get('threads', 1)}, gpu {resources.get('gpu', 0)}, priority {fields.get('priority', 0)}"
        )
        found.append(Job(rule, fields.get("output", ""), fields.get("input", ""), share, command))
    assert found, said
    return sorted(found)


def graph(jobs: list[Job], results: str) -> str:
    """Jobs of a rule that read the same stand together; paths are those in the folder of results."""
    lines = []
    for rule, of_rule in itertools.groupby(jobs, key=lambda job: job.rule):
        own = list(of_rule)
        (share,) = {job.share for job in own}
        outputs = defaultdict(list)
        for job in own:
            outputs[job.input].append(job.output)
        lines += [f"{rule}: jobs {len(own)}, {share}", f"  $ {own[0].command}"]
        lines += [f"  {', '.join(output)} <- {given}" for given, output in outputs.items()]
    return "\n".join(lines).replace(f"{results}/", "").replace(str(ROOT), "<repository>") + "\n"


@pytest.mark.parametrize("scale", ["laptop", "gpu", "coder", "paper"])
def test_the_graph_is_the_one_that_is_stored(snakemake: Run, scale: str) -> None:
    overlay = () if scale == "laptop" else ("--configfile", ROOT / f"config/{scale}.yaml")
    run = snakemake("--dry-run", "-p", "--cores", "9", *overlay)
    assert run.returncode == 0, run.stderr
    study = load_study([ROOT / "config/config.yaml", *overlay[1:]])
    found, path = graph(read_jobs(run.stdout), study.results), GRAPHS / f"{scale}.txt"
    if os.environ.get("KEVIN_STORE_GRAPHS"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(found)
    assert found.splitlines() == path.read_text().splitlines(), (
        "another graph; if that is meant, KEVIN_STORE_GRAPHS=1 stores it again"
    )


def test_no_command_takes_a_folder_s_name_apart(snakemake: Run, tmp_path: Path) -> None:
    overlay = tmp_path / "strange.yaml"
    overlay.write_text("""results: "own results; it's $HOME"\nsearch: {compared: [parallel, serial]}\n""")
    run = snakemake("--dry-run", "-p", "--configfile", ROOT / "config/gpu.yaml", overlay)
    assert run.returncode == 0, run.stderr
    assert " results/" not in run.stdout, "own models are in the folder of results, too"
    commands = [job.command for job in read_jobs(run.stdout) if job.rule != "all"]
    assert len(commands) > 40
    for command in commands:
        words = [word for word in shlex.split(command) if "own" in word or "results" in word or "HOME" in word]
        assert words and all("own results; it's $HOME/" in word for word in words), command
