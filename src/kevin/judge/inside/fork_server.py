"""Forks the processes of cells from one that has imported what they need: torch takes seconds of a core to import.

It runs outside of any sandbox and never loads a candidate. A child of it joins the namespaces of a sandbox that stands
ready, as ``nsenter`` does, gives up every capability, and goes on as the cell's script, which locks itself down before
it loads its candidate like one that was executed there. argv: the script, the descriptor of the judge's socket.
`serve` also is the end of the channel of what times eager PyTorch. Standard library only.
"""

import array
import ctypes
import gc
import importlib
import json
import os
import signal
import socket
import sys
import traceback

_LENGTH_BYTES = 8
_NUM_FDS = 5
_CHANNEL_FD = 3
_NAMESPACES = {
    "user": 0x10000000,
    "mnt": 0x00020000,
    "pid": 0x20000000,
    "net": 0x40000000,
    "ipc": 0x08000000,
    "uts": 0x04000000,
    "cgroup": 0x02000000,
}
_PR_CAPBSET_DROP, _PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL = 24, 47, 4
_CAPABILITY_VERSION_3 = 0x20080522


def framed(content: bytes) -> bytes:
    """As the other end sends it."""
    return len(content).to_bytes(_LENGTH_BYTES, "little") + content


def _receive(source: socket.socket, num_fds: int) -> tuple[bytes, list[int]] | None:
    """A request and its descriptors; None when the other end is closed."""
    length, fds, *_ = socket.recv_fds(source, _LENGTH_BYTES, num_fds)
    if len(length) < _LENGTH_BYTES:
        return None
    content, num_bytes = b"", int.from_bytes(length, "little")
    while len(content) < num_bytes:
        chunk = source.recv(num_bytes - len(content))
        if not chunk:
            return None
        content += chunk
    return content, list(fds)


def serve(source: socket.socket, num_fds: int, work) -> None:
    """Fork for every request, until the other end is closed; ``work(content, fds)`` is all that a child does."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while (request := _receive(source, num_fds)) is not None:
        content, fds = request
        if os.fork() == 0:
            try:
                source.close()
                work(content, fds)
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(1)
        for fd in fds:
            os.close(fd)


def _namespace(pid: int | str, name: str) -> str:
    return os.readlink(f"/proc/{pid}/ns/{name}")  # noqa: PTH115


def _join(sandbox: dict, libc: ctypes.CDLL) -> None:
    """Enter its namespaces; that of pids is the children's."""
    pid = sandbox["child-pid"]
    process = os.pidfd_open(pid)
    others = [n for n in _NAMESPACES if _namespace(pid, n) != _namespace("self", n)]
    told = {n: sandbox.get(f"{n}-namespace") for n in others}
    if any(told[n] is not None and f"{n}:[{told[n]}]" != _namespace(pid, n) for n in others):
        raise OSError("the sandbox is gone, and another process has its number")
    if libc.setns(process, sum(_NAMESPACES[n] for n in others)) != 0:
        raise OSError(ctypes.get_errno(), f"cannot join the sandbox: {os.strerror(ctypes.get_errno())}")
    os.close(process)


def _drop_capabilities(libc: ctypes.CDLL) -> None:
    for number in range(64):
        libc.prctl(_PR_CAPBSET_DROP, number, 0, 0, 0)
    libc.prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
    header = array.array("I", [_CAPABILITY_VERSION_3, 0]).tobytes()
    if libc.capset(header, bytes(24)) != 0:
        raise OSError(ctypes.get_errno(), "cannot drop capabilities")


def _sandbox(info: int, ready: int) -> dict:
    """What bubblewrap tells of it, once everything is mounted, which its program tells."""
    said = b""
    while not said.rstrip().endswith(b"}"):
        chunk = os.read(info, 4096)
        if not chunk:
            raise OSError("the sandbox was not made")
        said += chunk
    if not os.read(ready, 1):
        raise OSError("the sandbox ended")
    return json.loads(said)


def _become_cell(script, request: dict, channel: int, libc: ctypes.CDLL) -> int:
    """Exit status of the cell's script in this process, which must hold nothing of the server's."""
    os.setsid()
    os.dup2(channel, _CHANNEL_FD)
    os.closerange(_CHANNEL_FD + 1, os.sysconf("SC_OPEN_MAX"))
    os.chdir("/tmp")
    os.environ.clear()
    os.environ.update(request["environment"])
    _drop_capabilities(libc)
    sys.argv = [sys.argv[1], str(_CHANNEL_FD)]
    try:
        script.main()
    except SystemExit as e:
        return e.code if isinstance(e.code, int) else int(e.code is not None)
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def _start(script, request: dict, fds: list[int]) -> None:
    """In a child: fork the cell's process into its sandbox; tell its pid, and when it ends its wait status."""
    channel, stderr, status, info, ready = fds
    null = os.open(os.devnull, os.O_RDWR)
    for target, source in ((0, null), (1, null), (2, stderr)):
        os.dup2(source, target)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    libc = ctypes.CDLL(None, use_errno=True)
    os.sched_setaffinity(0, request["cores"])
    _join(_sandbox(info, ready), libc)
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            code = _become_cell(script, request, channel, libc)
            sys.stderr.flush()
        finally:
            os._exit(code)
    os.close(channel)
    os.write(status, b"%d\n" % pid)
    os.write(status, b"%d\n" % os.waitpid(pid, 0)[1])


def main() -> None:
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH100, PTH120
    script = importlib.import_module(sys.argv[1].removesuffix(".py"))
    gc.collect()
    gc.freeze()  # a collection in a child would write to, and so copy, every page of what is imported
    judge = socket.socket(fileno=int(sys.argv[2]))
    serve(judge, _NUM_FDS, lambda request, fds: _start(script, json.loads(request), fds))


if __name__ == "__main__":
    main()
