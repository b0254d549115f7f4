"""What the profile does with a single job: resources, a second attempt, and settings that the cluster cannot fulfil."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from .conftest import ROOT, SNAKEMAKE, STUDY, Cluster, clone_to, environment, finish, start

pytestmark = pytest.mark.slurm

TOY = """
rule fails_once:
    output: "out.txt"
    threads: 2
    resources: gpu=2, mem_mb=300, runtime=5
    shell:
        "echo $SLURM_JOB_ID >> attempts; test $(wc -l < attempts) = 2;"
        " echo $CUDA_VISIBLE_DEVICES $SLURM_CPUS_PER_TASK > {output}"
"""


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return clone_to(tmp_path_factory.mktemp("slurm-profile") / "clone")


def test_a_failing_job_has_a_second_attempt_and_its_gpus(cluster: Cluster, tmp_path: Path) -> None:
    (tmp_path / "Snakefile").write_text(TOY)
    (tmp_path / "slurm").symlink_to(ROOT / "profiles/slurm")
    finish(start(tmp_path, "--profile", "slurm"), tmp_path / "run.log", timeout=300)
    assert len(set((tmp_path / "attempts").read_text().split())) == 2, "two jobs, one attempt each"
    assert (tmp_path / "out.txt").read_text() == "0,1 2\n"


def refusal(clone: Path, *args: str) -> str:
    run = subprocess.run(
        [str(SNAKEMAKE), "--profile", "slurm", "--configfile", *STUDY, *args],
        cwd=clone,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        stdin=subprocess.DEVNULL,
        env=environment(clone),
    )
    assert run.returncode != 0
    assert "Traceback" not in run.stderr
    return run.stdout + run.stderr


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--default-resources", "slurm_partition=nowhere"], "slurm_partition nowhere does not exist"),
        (["--set-resources", "train_base_model:runtime=999"], "set-resources: train_base_model: runtime"),
    ],
    ids=["partition", "runtime"],
)
def test_what_the_cluster_cannot_do_is_refused_by_name(
    cluster: Cluster, clone: Path, args: list[str], said: str
) -> None:
    assert said in refusal(clone, *args)
    assert cluster.jobs() == []
