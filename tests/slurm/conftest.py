"""A real Slurm with two nodes on this host, and a copy of the repository to run from, as fresh as a clone."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
SNAKEMAKE = Path(sys.executable).with_name("snakemake")
STUDY = ("tests/workflow/micro.yaml", "tests/slurm/study.yaml")
NOT_IN_A_CLONE = (".git", ".venv", "results", ".snakemake", ".*_cache", ".hypothesis", "__pycache__", "*.egg-info")


def output_of(*command: str | Path, timeout: float = 30) -> str:
    """What a command says; its failure is the test's."""
    run = subprocess.run([str(c) for c in command], capture_output=True, text=True, timeout=timeout, check=False)
    assert run.returncode == 0, run.stderr + run.stdout
    return run.stdout


def install_slurm() -> str | None:
    """Why there is no Slurm here, or None when there is. Installs Debian's packages where that is possible."""
    if os.geteuid() != 0:
        return "Slurm's daemons are started by root here"
    if all(map(shutil.which, ("slurmctld", "slurmd", "munged"))):
        return None
    if shutil.which("apt-get") is None:
        return "neither Slurm nor apt-get is here"
    install = "apt-get install -y -qq --no-install-recommends slurm-wlm munge"
    for command in (install, f"apt-get update -qq && {install}"):
        env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        run = subprocess.run(command, shell=True, capture_output=True, text=True, timeout=240, check=False, env=env)
        if run.returncode == 0:
            return None
    return f"Slurm could not be installed: {run.stderr.strip()[-300:]}"


class Cluster:
    """Handle on the daemons that cluster_up.sh started in ``folder``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._foreign: set[int] = set()
        self._foreign = {process.pid for process in self.steps().values()}

    def up(self) -> None:
        output_of(HERE / "cluster_up.sh", self.folder, timeout=60)

    def down(self) -> None:
        output_of(HERE / "cluster_down.sh", self.folder, timeout=90)

    def jobs(self, *options: str) -> list[tuple[str, str, str, str]]:
        """Id, state, node and comment (the rule) of each job that waits or runs."""
        lines = output_of("squeue", "--noheader", "--format=%A|%t|%N|%k", *options).splitlines()
        return [tuple(line.split("|")) for line in lines]  # type: ignore[misc]

    def running(self, rule: str) -> str | None:
        """The node that runs this rule's step by now, not only its batch script."""
        steps = self.steps()
        for job, state, node, comment in self.jobs():
            if state == "R" and rule in comment and f"{job}.0" in steps:
                return node
        return None

    def kill_node(self, node: str) -> None:
        """What a power cut does: daemon, job steps and everything below them end at once."""
        jobs = {job for job, *_ in self.jobs("--nodelist", node)}
        steps = [process for name, process in self.steps().items() if name.split(".")[0] in jobs]
        assert steps, f"nothing runs on {node}"
        daemon = psutil.Process(int((self.folder / f"run/slurmd-{node}.pid").read_text()))
        dying: set[psutil.Process] = set()
        found = {daemon, *steps}
        while found - dying:  # stopped first: none may start another, or tell the controller about the others' end
            for process in found - dying:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.suspend()
            dying |= found
            found = {child for step in steps for child in step.children(recursive=True)}
        for process in dying:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()

    def start_node(self, node: str) -> None:
        output_of("slurmd", "-N", node)

    def steps(self) -> dict[str, psutil.Process]:
        """Slurm's own process around each batch script ("7.batch") and step ("7.0")."""
        others = (p for p in psutil.process_iter(["cmdline"]) if p.pid not in self._foreign)
        titles = ((" ".join(p.info["cmdline"] or ()), p) for p in others)
        return {found.group(1): p for title, p in titles if (found := re.match(r"slurmstepd: \[(\S+)\]", title))}


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    if reason := install_slurm():
        pytest.skip(reason)
    found = Cluster(tmp_path_factory.mktemp("slurm"))
    for folder in found.folder.parents:  # nodes and munge look in from outside
        if folder.stat().st_uid == os.geteuid() and folder != Path("/"):
            folder.chmod(folder.stat().st_mode | 0o011)
    try:
        found.up()
        yield found
    finally:
        found.down()


def clone_to(folder: Path, source: Path = ROOT) -> Path:
    shutil.copytree(source, folder, symlinks=True, ignore=shutil.ignore_patterns(*NOT_IN_A_CLONE))
    return folder


def environment(folder: Path) -> dict[str, str]:
    """Runs the clone's own code, so that editing the repository meanwhile changes nothing."""
    return {**os.environ, "NO_COLOR": "1", "PYTHONPATH": str(folder / "src")}


def start(folder: Path, *args: str | Path, log: str = "run.log") -> subprocess.Popen[bytes]:
    """Snakemake in the background, in ``folder``, quick to look at its jobs."""
    quick = ["--slurm-init-seconds-before-status-checks", "1"] if "slurm" in args else []
    with (folder / log).open("w") as out:
        return subprocess.Popen(
            [str(SNAKEMAKE), *map(str, args), *quick],
            cwd=folder,
            stdout=out,
            stderr=out,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            env=environment(folder),
        )


def finish(run: subprocess.Popen[bytes], log: Path, timeout: float) -> str:
    """Wait for Snakemake, which must end well. Returns what it said."""
    try:
        code = run.wait(timeout=timeout)
    finally:
        if run.poll() is None:
            os.killpg(run.pid, signal.SIGINT)
            run.wait(timeout=60)
    assert code == 0, log.read_text()[-6000:]
    return log.read_text()
