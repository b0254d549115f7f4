"""Cores and GPUs of a node among its workers, and a judge over several nodes that is not there."""

from __future__ import annotations

from pathlib import Path

import pytest

from kevin.core.errors import HarnessError
from kevin.judge.pool import worker
from kevin.judge.pool.cluster import CONNECTION, SlurmNodes, connect, worker_arguments
from kevin.judge.pool.judge_pool import warn_of_sharing
from kevin.judge.pool.worker import split_cores


def test_cores_are_shared_out() -> None:
    assert split_cores(range(6), devices=2, device_cores=1) == [[0, 1, 2, 3], [5], [4]]
    assert split_cores(range(8), devices=1, device_cores=4) == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert split_cores([3], devices=1, device_cores=1) == [[3], [3]]


def test_a_gpu_of_a_node_has_as_many_kernels_in_flight_as_was_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[list[str]] = []

    class Ended:
        def __init__(self, command: list[str], env: dict[str, str]) -> None:
            started.append(command)

        def wait(self) -> int:
            return 0

    monkeypatch.setattr("kevin.judge.pool.worker.subprocess.Popen", Ended)
    monkeypatch.setattr("kevin.judge.pool.worker.signal.signal", lambda *_: None)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,6")
    arguments = worker_arguments(SlurmNodes(gpus=2, kernels_in_flight=3))
    assert worker.main(["tls://here:1", "--name", "job", *arguments, "--nthreads", "1", "--tls-key", "key.pem"]) == 0
    _, first, second = started
    for command in (first, second):
        assert command[command.index("--nthreads") + 1] == "3" and "device=3" in command
        assert command[-2:] == ["--tls-key", "key.pem"]


def test_a_judge_that_was_not_started_is_named(tmp_path: Path) -> None:
    with pytest.raises(HarnessError, match="start the judge first"):
        connect(str(tmp_path / CONNECTION))


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"address": "tls://here", "tls": {}}', '{"address": "tls://here"', "\xff"]
)
def test_a_connection_file_that_is_none_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / CONNECTION).write_bytes(text.encode("latin-1"))
    with pytest.raises(HarnessError, match=r"cannot be read \(.+\): start the judge again"):
        connect(str(tmp_path / CONNECTION))


def test_processes_that_share_a_gpu_are_told_of(caplog):
    for gpus in ([], ["0"], ["0", "1"]):
        warn_of_sharing(gpus)
    assert not caplog.records
    warn_of_sharing(["4", "6", "4"])
    assert "3 processes judge on 2 GPUs" in caplog.text
