"""A Slurm that answers in unusual ways, or not at all, as its commands are seen from here."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kevin.core.errors import UsageError
from kevin.workflow import slurm
from kevin.workflow.slurm import Partition, cancel_jobs, check_job, partitions, read_partitions

KNOWN = {"2024": Partition(True, 60, False), "gpu": Partition(False, None, True), "night": Partition(False, 600, False)}


@pytest.fixture
def commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Puts commands of these texts on PATH, ahead of any real ones; a second is all the patience there is."""
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr(slurm, "PATIENCE_S", 1.0)

    def put(**texts: str) -> None:
        for name, text in texts.items():
            (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
            (tmp_path / name).chmod(0o755)

    return put


@pytest.mark.parametrize(
    ("said", "found"),
    [
        ("cpu*|infinite|(null)\n", {"cpu": Partition(True, None, False)}),
        ("2024*|1-00:30:00|gpu:h100:8(S:0-1)\n", {"2024": Partition(True, 1470, True)}),
        ("a|30:00|(null)\na|30:00|gpu:1\n", {"a": Partition(False, 30, True)}),
        ("a|2:00:00|gpu:1\na|2:00:00|(null)\n", {"a": Partition(False, 120, True)}),
        ("Welcome to the cluster!\n* no mail today | see below *\n\nq|90|x|y\n", {"q": Partition(False, 1.5, False)}),
        ("a|1-12|\nb|1-12:30|\nc|90:00|", {"a": Partition(False, 2160, False), "b": Partition(False, 2190, False),
                                          "c": Partition(False, 90, False)}),
        ("a|n/a|\nb|UNLIMITED|\nc|INVALID|\nd|2-0|\n", {n: Partition(False, None, False) for n in "abc"}
         | {"d": Partition(False, 2880, False)}),
    ],
)  # fmt: skip
def test_what_sinfo_says(said: str, found: dict[str, Partition]) -> None:
    assert read_partitions(said) == found


@pytest.mark.parametrize("asked", [2024, "2024", None, "", "2024,night", "2024, night", "2024,", " 2024 "])
def test_a_partition_that_is_a_number_to_yaml(asked: object) -> None:
    check_job("train_policy", {"slurm_partition": asked, "runtime": 60, "gpu": 0}, KNOWN)


@pytest.mark.parametrize("written", ["2024", "night", "1_000", "'007'", "'yes'", "'1e3'"])
def test_jobs_of_a_group_ask_for_the_partition_and_not_for_its_sum(written: str) -> None:
    """Snakemake adds up the numbers of jobs that it runs as one."""
    from snakemake.resources import GroupResources, Resources

    given = Resources.parse([f"slurm_partition={written}", "slurm_account=77", "mem_mb=5"], allow_expressions=True)
    slurm.keep_names(given)
    options: Any = dict.fromkeys(("wildcards", "input", "attempt", "threads", "rulename", "async_run"), 1)
    values = {name: resource.evaluate(**options).value for name, resource in given.items()}
    jobs: Any = [[SimpleNamespace(pipe_group=None, resources=values)] * 3]
    free: Any = SimpleNamespace(get=lambda name: SimpleNamespace(value=None))
    found = GroupResources.basic_layered(jobs, free, run_local=False)
    partition = "1000" if written == "1_000" else written.strip("'")
    assert (found["slurm_partition"], found["slurm_account"], found["mem_mb"]) == (partition, "77", 15)


@pytest.mark.parametrize(
    ("resources", "said"),
    [
        ({"slurm_partition": 2023}, "slurm_partition 2023 does not exist; this cluster has 2024, gpu, night"),
        ({"slurm_partition": "2024,cpu"}, "slurm_partition cpu does not exist"),
        ({"slurm_partition": 7}, """slurm_partition 7 does not exist.* 007, 1e3 or yes, is written "'007'\""""),
        ({"slurm_partition": True}, """slurm_partition is True, which is no name; .* written "'007'\""""),
        ({"slurm_partition": False}, "slurm_partition is False, which is no name"),
        ({"runtime": 61}, r"runtime 61 minutes is more than partition 2024 allows \(60\)"),
        ({"slurm_partition": 2024, "gpu": 1}, "needs 1 GPUs and partition 2024 has none; .* one of gpu"),
    ],
)
def test_what_the_cluster_cannot_do_is_refused(resources: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=f"rule train_policy: .*{said}"):
        check_job("train_policy", resources, KNOWN)
    check_job("train_policy", {"slurm_partition": "gpu", "runtime": 10**6, "gpu": 8}, KNOWN)


@pytest.mark.parametrize(
    ("sinfo", "said"),
    [
        ("sleep 30", "sinfo did not answer in 1 s"),
        ("echo no controller >&2; exit 1", r"Slurm does not answer \(no controller\)"),
        ("echo Welcome", "names no partition, but says 'Welcome'"),
        (r"printf 'gr\374n'", "names no partition, but says 'gr\ufffdn'"),
        ("", "names no partition, but says ''"),
    ],
)
def test_a_slurm_that_does_not_answer(commands: Any, sinfo: str, said: str) -> None:
    commands(sinfo=sinfo, sbatch="")
    with pytest.raises(UsageError, match=f"--profile slurm: .*{said}.*leaving out --profile slurm"):
        partitions()


def test_hidden_partitions_may_be_asked_for(commands: Any) -> None:
    commands(sinfo='echo "cpu*|1:00|"; case "$*" in *--all*) echo "hidden|1:00|";; esac', sbatch="")
    assert list(partitions()) == ["cpu", "hidden"]


def test_what_another_cluster_can_do_is_not_known() -> None:
    check_job("train_policy", {"slurm_partition": "theirs", "runtime": 10**6, "gpu": 8, "clusters": "other"}, KNOWN)


def test_no_slurm(commands: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(UsageError, match="there is no Slurm on this machine"):
        partitions()


@pytest.mark.parametrize(
    ("scancel", "said"),
    [
        ("sleep 30", "scancel did not answer in 1 s"),
        ("echo down >&2; exit 1", r"scancel failed \(down\)"),
        (None, "scancel cannot be started"),
    ],
)
def test_jobs_that_cannot_be_ended_are_told_of(
    commands: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, scancel: str | None, said: str
) -> None:
    if scancel is None:
        monkeypatch.setenv("PATH", "/nowhere")
    else:
        commands(scancel=scancel)
    cancel_jobs("kevin-1")
    assert len(caplog.messages) == 1 and re.match(said, caplog.messages[0])
    assert "scancel --name kevin-1" in caplog.text


def test_jobs_that_are_ended_need_no_words(commands: Any, caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    commands(scancel=f'echo "$@" > {tmp_path}/asked')
    cancel_jobs("kevin-1")
    assert (caplog.text, (tmp_path / "asked").read_text()) == ("", "--name kevin-1\n")


def test_jobs_of_a_killed_run_are_ended_and_those_of_this_one_when_it_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended: list[str] = []
    at_exit: list[tuple[object, ...]] = []
    monkeypatch.setattr(slurm, "cancel_jobs", ended.append)
    monkeypatch.setattr(slurm.atexit, "register", lambda *call: at_exit.append(call))
    slurm.own_jobs("first", tmp_path / "run")
    assert ended == []
    slurm.own_jobs("second", tmp_path / "run")
    assert ended == ["first"]
    assert at_exit == [(slurm.cancel_jobs, "first"), (slurm.cancel_jobs, "second")]
