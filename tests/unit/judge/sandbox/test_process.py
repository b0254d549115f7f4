"""A cell's process that is forked into its sandbox: it sees and may do no more than one executed there."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psutil
import pytest
from process_fixtures import is_gone, until

from kevin.core.errors import SandboxError
from kevin.core.types import Outcome
from kevin.judge.sandbox import process
from kevin.judge.sandbox.cell import _REASONS, CandidateFailed, Cell
from kevin.judge.sandbox.isolation import Isolation, detect_isolation, wrap
from kevin.judge.sandbox.process import ExecutedProcess, ForkedProcess, can_fork, fork_server

pytestmark = pytest.mark.skipif(
    detect_isolation() is not Isolation.BUBBLEWRAP or not can_fork(Isolation.BUBBLEWRAP),
    reason="processes are forked into bubblewrap's sandboxes only, and that cannot be done here",
)

SETUP = {"mode": "build", "num_threads": 1, "device": "cpu", "task_source": "", "build_folder": "/tmp"}
LOOK = """
import json, os
def status(name):
    lines = open("/proc/self/status").read().splitlines()
    return next(line.split(":")[1].strip() for line in lines if line.startswith(name + ":"))
def kinds(folder):
    for path in [f"{folder}/{n}" for n in os.listdir(folder)]:
        if os.path.lexists(path):  # the folder itself was open
            yield os.readlink(path).split(":")[0].split("#")[0]
raise RuntimeError("SEEN" + json.dumps({
    "root": [p for p in ("/home", "/root", "/var", "/opt", "/usr", "/etc/passwd") if os.path.exists(p)],
    "tmp": os.listdir("/tmp"),
    "cwd": os.getcwd(),
    "environment": sorted(kv for kv in os.environ.items() if kv[0] != "PWD"),
    "cores": sorted(os.sched_getaffinity(0)),
    "capabilities": [status(n) for n in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")],
    "guards": [status("NoNewPrivs"), status("Seccomp")],
    "descriptors": sorted(kinds("/proc/self/fd")),
    "threads": status("Threads"),
    "interfaces": open("/proc/self/net/dev").read().count(":"),
    "namespaces": {n: os.readlink(f"/proc/self/ns/{n}") for n in ("user", "mnt", "pid", "net", "ipc", "uts", "cgroup")},
    "uid": [os.getuid(), os.geteuid(), open("/proc/self/uid_map").read().split()],
}))
"""


def _cell(*, forked: bool = True, **options: Any) -> Cell:
    return Cell("module.py", isolation=Isolation.BUBBLEWRAP, forked=forked, **options)


def _load(cell: Cell, source: str) -> dict[str, Any]:
    cell.prepare(SETUP | {"source": source})
    return cell.load(60.0)


@pytest.mark.slow
def test_it_sees_and_may_do_what_an_executed_one_does() -> None:
    seen = []
    with ExitStack() as both:  # at once: the number of a namespace that is gone is given to another
        for forked in (True, False):
            cell = both.enter_context(_cell(forked=forked, environment={"OF_ITS_OWN": "1"}))
            assert isinstance(cell._process, ForkedProcess if forked else ExecutedProcess)
            seen.append(json.loads(_load(cell, LOOK)["error"].partition("SEEN")[2]))
    namespaces = [s.pop("namespaces") for s in seen]
    assert seen[0] == seen[1]
    assert set(seen[0]["capabilities"]) == {"0" * 16}
    assert ["OF_ITS_OWN", "1"] in seen[0]["environment"]
    for name, here in ((n, str(Path(f"/proc/self/ns/{n}").readlink())) for n in namespaces[0]):
        assert len({here, namespaces[0][name], namespaces[1][name]}) == 3, f"{name} is shared"


def test_it_sees_no_process_but_its_own_sandboxs() -> None:
    look = "import os; raise RuntimeError(sum(n.isdigit() for n in os.listdir('/proc')))"
    with _cell() as other, _cell(gpu=True) as cell:  # a GPU's may look into /proc
        other.wait()
        assert _load(cell, look)["error"].split()[-1] == "3"  # bubblewrap, what keeps the sandbox, the cell


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("import ctypes; ctypes.string_at(0)", "segmentation_fault"),
        ("import os; os.abort()", "aborted"),
        ("import os; os._exit(3)", "early_exit"),
    ],
)
def test_how_it_ended_is_known(source: str, reason: str) -> None:
    with _cell() as cell, pytest.raises(CandidateFailed) as failed:
        _load(cell, source)
    assert (failed.value.outcome, failed.value.reason) == (Outcome.RUNTIME_ERROR, reason)


def test_all_that_it_started_ends_with_it() -> None:
    source = "import subprocess, time\nsubprocess.Popen(['sleep', '1000'], start_new_session=True)\ntime.sleep(1000)"
    with _cell() as cell:
        with pytest.raises(CandidateFailed, match="time limit"):
            cell.prepare(SETUP | {"source": source})
            cell.load(0.5)
        pid = cell._process.pid
        assert pid is not None
        assert cell.cpu_seconds() is not None
        started = psutil.Process(pid).children(recursive=True)
        assert [p.name() for p in started] == ["sleep"]
    assert not psutil.pid_exists(pid) and not any(p.is_running() for p in started)


@pytest.mark.parametrize("said", [b"[" * 100_000, b'{"a":' * 100_000, b"1" * 5000, b"\xff", b"NaN", b'{"ns": [1]}\n{}'])
def test_nonsense_on_the_channel_is_the_candidates(said: bytes) -> None:
    cell = Cell.__new__(Cell)
    cell._buffer = said + b"\n"
    with pytest.raises(CandidateFailed) as failed:
        cell._receive(1.0)
    assert (failed.value.outcome, failed.value.reason) == (Outcome.RUNTIME_ERROR, "protocol_abuse")


@pytest.mark.parametrize("said", [10**400, 10**305, 2**63, 10**11, -1, 1.5, None, "1", True])
@pytest.mark.parametrize("name", ["ns", "waited_ns"])
def test_times_that_cannot_be_are_the_candidates(name: str, said: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a cell waited is compared elsewhere, and any number of nanoseconds."""
    cell = Cell.__new__(Cell)
    monkeypatch.setattr(cell, "request", lambda *args: {"ns": [5000], "waited_ns": [0], name: [said]})
    if name == "waited_ns" and said == 10**11:
        assert cell.call([], [0], 1.0).us == [5.0]
        return
    with pytest.raises(CandidateFailed) as failed:
        cell.call([], [0], 1.0)
    assert (failed.value.outcome, failed.value.reason) == (Outcome.RUNTIME_ERROR, "protocol_abuse")


@pytest.mark.parametrize(
    ("reason", "told"),
    [
        ("wrong_shape", (Outcome.INCORRECT, "wrong_shape")),
        ("out_of_memory", (Outcome.RUNTIME_ERROR, "out_of_memory")),
        ("busy, judge again", (Outcome.RUNTIME_ERROR, "protocol_abuse")),
        ("wrong_\ud800", (Outcome.RUNTIME_ERROR, "protocol_abuse")),
        (["exception"], (Outcome.RUNTIME_ERROR, "protocol_abuse")),
    ],
)
def test_a_reason_is_one_of_the_harness(reason: Any, told: tuple[Outcome, str]) -> None:
    with pytest.raises(CandidateFailed) as failed:
        Cell.raise_for({"error": "x", "reason": reason})
    assert (failed.value.outcome, failed.value.reason) == told


def test_every_reason_that_a_cell_gives_is_known() -> None:
    told = re.compile(r'"reason": (.*)}|_REASONS = ({[^}]*})|"reason": (.*),')
    said = [text for path in process.INSIDE.glob("*.py") for text in told.findall(path.read_text())]
    given = {reason for texts in said for reason in re.findall(r'"([a-z_]+)"', " ".join(texts))}
    assert given | {"exception"} == _REASONS


def test_a_cell_that_nobody_waited_for_leaves_nothing(tmp_path: Path) -> None:
    for _ in range(20):
        _cell(read_only=[str(tmp_path)]).kill()
    _wait_until_none(tmp_path)


@pytest.mark.parametrize("num_killed", [120, pytest.param(400, marks=pytest.mark.slow)])
def test_a_sandbox_killed_at_any_moment_of_its_start_leaves_nothing(tmp_path: Path, num_killed: int) -> None:
    """Of one that would go on for ever by itself; without care about one in seventy stays."""
    sandbox = wrap(["sleep", "1000"], isolation=Isolation.BUBBLEWRAP, read_only=[str(tmp_path)])
    with (tmp_path / "stderr").open("wb") as stderr:
        for i in range(num_killed):
            started = ExecutedProcess(sandbox, {"PATH": "/usr/bin:/bin"}, stderr.fileno(), stderr)
            time.sleep(0.006 * (i % 20) / 20)
            started.end()
    _wait_until_none(tmp_path)


def _wait_until_none(folder: Path) -> None:
    """Of sandboxes with it: those that lost their parents are no children of this process any more."""
    until(lambda: not [p for p in psutil.process_iter(["cmdline"]) if str(folder) in (p.info["cmdline"] or [])])


@pytest.mark.slow
def test_a_server_that_died_is_started_again() -> None:
    """Five seconds: a server that has imported torch is started twice."""
    environment = {"PATH": "/usr/bin:/bin", "A_SERVER": "of this test"}
    with _cell(environment=environment) as cell:
        cell.wait()
        full = next(
            dict(e.split("=", 1) for e in key[1:]) for key in process._servers if "A_SERVER=of this test" in key
        )
        server = fork_server("module.py", full)
        server._process.kill()
        server._process.wait()
        assert "SEEN" in _load(cell, LOOK)["error"]  # what it forked lives on
    with pytest.raises(SandboxError, match="has died"):
        server.fork([])
    with _cell(environment=environment) as cell:
        cell.wait()
    assert fork_server("module.py", full) is not server


def test_the_words_of_a_server_that_cannot_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether it has died before it is asked or after that."""
    monkeypatch.setattr(process, "_servers", {})
    with (
        pytest.raises(SandboxError, match=r"(?s)has died.*No module named 'missing'"),
        Cell("missing.py", isolation=Isolation.BUBBLEWRAP, forked=True) as cell,
    ):
        cell.wait()


def test_where_it_cannot_be_forked_it_is_executed(monkeypatch: pytest.MonkeyPatch) -> None:
    process._try_to_fork.cache_clear()
    monkeypatch.setattr(process.ForkServer, "fork", lambda *args: (_ for _ in ()).throw(SandboxError("no setns")))
    try:
        assert not can_fork(Isolation.BUBBLEWRAP)
        assert not can_fork(Isolation.NONE)
    finally:
        process._try_to_fork.cache_clear()


def test_the_servers_end_with_the_process_that_started_them(tmp_path: Path) -> None:
    script = tmp_path / "start.py"
    script.write_text(
        "from kevin.judge.sandbox.process import fork_server\n"
        "print(fork_server('native.py', {'PATH': '/usr/bin'})._process.pid, flush=True)\n"
        "import os; os._exit(1)\n"
    )
    run = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=False)
    until(lambda: is_gone(int(run.stdout)))
