"""The judge over the nodes of a real Slurm: found by a file, behind TLS, with a node lost in mid-run."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from cli_fixtures import GOOD, REFERENCE
from process_fixtures import until

from kevin.core.config import JudgePoolConfig
from kevin.core.protocol import JudgeProtocol, TimingProtocol
from kevin.core.types import Kernel, Outcome, Task
from kevin.judge.pool import judge_pool
from kevin.judge.pool.cluster import CONNECTION
from kevin.judge.pool.judge_pool import JudgePool

from .conftest import Cluster

pytestmark = pytest.mark.slurm  # there is one Slurm on a host

TASK = Task(id="relu", level=1, name="relu", source=REFERENCE, origin="user")
PROTOCOL = JudgeProtocol(rules=(), timing=TimingProtocol(min_rounds=3, max_rounds=6, budget_s=0.2))


def pairs(first: int, count: int) -> list[tuple[Task, Kernel]]:
    sources = (f"{GOOD}// kernel {i}\n" for i in range(first, first + count))
    return [(TASK, Kernel(dialect="c_abi", language="cpp", source=source)) for source in sources]


@pytest.fixture(scope="module")
def judge(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
    """The command that a person starts, and the folder that it works in."""
    folder = tmp_path_factory.mktemp("judge")
    options = ["--folder", str(folder), "--cores", "2", "--memory-mb", "3000", "--minutes", "20", "--max-jobs", "2"]
    command = [sys.executable, "-m", "kevin.judge.pool.cluster", *options]
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
    try:
        until(lambda: process.poll() is not None or (folder / CONNECTION).exists(), "the judge is up")
        assert process.poll() is None, (folder / "log").read_text()
        yield process, folder
    finally:
        process.terminate()
        process.wait(timeout=60)


def test_kernels_are_judged_on_the_nodes_and_one_may_die(
    cluster: Cluster, judge: tuple[subprocess.Popen[bytes], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, folder = judge
    monkeypatch.setattr(judge_pool, "MAX_RETRIES", 3)
    config = JudgePoolConfig(scheduler=str(folder / CONNECTION))
    lost: list[str] = []

    def lose_a_node() -> None:
        if not lost:
            node = next(node for _, state, node, _ in cluster.jobs() if state == "R")
            lost.append(node)
            threading.Thread(target=cluster.kill_node, args=(node,)).start()

    try:
        with JudgePool(PROTOCOL, tmp_path / "store", config) as pool:
            verdicts = pool.judge(pairs(0, 12), on_verdict=lambda index, verdict: lose_a_node())
    finally:
        for node in lost:
            cluster.start_node(node)
    assert lost
    assert [getattr(v, "outcome", v) for v in verdicts] == [Outcome.CORRECT] * 12
    assert len(pool.store) == 12


def test_nothing_of_the_connection_is_public(judge: tuple[subprocess.Popen[bytes], Path]) -> None:
    from distributed import Client

    _, folder = judge
    found = json.loads((folder / CONNECTION).read_text())
    assert (folder / CONNECTION).stat().st_mode & 0o077 == 0
    for path in found["tls"].values():
        assert Path(path).stat().st_mode & 0o077 == 0
    address = found["address"]
    assert address.startswith("tls://")
    with pytest.raises((OSError, TimeoutError)):
        Client(address.replace("tls://", "tcp://"), timeout=3)


def test_stopping_the_judge_leaves_nothing(cluster: Cluster, judge: tuple[subprocess.Popen[bytes], Path]) -> None:
    process, folder = judge
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=60) == 0, (folder / "log").read_text()
    assert not (folder / CONNECTION).exists() and not (folder / "tls").exists()
    until(lambda: not cluster.jobs() and not cluster.steps(), "the queue is empty")
