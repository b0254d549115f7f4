"""As many idle clients as there may be open files: the others are answered, and the log stays short."""

from __future__ import annotations

import asyncio
import http.client
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from kevin.serve.app import OutOfFiles

PROGRAM = """
import asyncio, resource, sys
from pathlib import Path
from kevin.core.protocol import JudgeProtocol
from kevin.serve import app, desk
from kevin.serve.settings import ServeSettings

class Engine:
    device_name, is_well = "here", True
    def __init__(self, *args, **options): pass
    def start(self): return self.device_name
    def close(self): pass

desk.Engine = Engine
app.IDLE_S = float(sys.argv[2])
app._OWN_FILES = 40
resource.setrlimit(resource.RLIMIT_NOFILE, (80, 120))
settings = ServeSettings(protocol=JudgeProtocol(), store=Path(sys.argv[1]), grace_s=0)
asyncio.run(app.serve(settings, "127.0.0.1", 0, lambda url: print(url.rpartition(":")[2], flush=True)))
print(resource.getrlimit(resource.RLIMIT_NOFILE)[0])
"""


@contextmanager
def serving(folder: Path, idle_s: float) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """A server in a process of its own, whose limit is low, and its port; what it says is in ``folder/log``."""
    command = [sys.executable, "-c", PROGRAM, str(folder), str(idle_s)]
    with (
        (folder / "log").open("w") as log,  # a pipe that nobody reads would hold it up
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True) as server,
    ):
        assert server.stdout is not None
        try:
            yield server, int(server.stdout.readline())
        finally:
            server.kill()


def test_idle_clients_take_no_room_from_those_that_ask(tmp_path: Path) -> None:
    with serving(tmp_path, idle_s=600) as (server, port), ExitStack() as open_clients:
        for number in range(200):
            client = open_clients.enter_context(socket.create_connection(("127.0.0.1", port), timeout=20))
            if number % 50 == 0:
                client.sendall(b"GET /health HTT")  # and no more
            if number % 50 == 25:
                client.sendall(b"\x16\x03\x01\x02\x00\x01\x00")  # of TLS
            if number % 50 == 40:
                client.sendall(b"GET /health HTTP/1.1\r\nno header\r\n\r\n")
        for _ in range(3):
            asking = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
            asking.request("GET", "/health")
            assert asking.getresponse().status == 200
            asking.close()
        server.send_signal(signal.SIGTERM)
        said, _ = server.communicate(timeout=60)
    assert said.strip() == "120", "the soft limit is raised"
    told = (tmp_path / "log").read_text()
    assert told.count("\n") <= 3, told[:2000]


def test_a_connection_on_which_nothing_is_asked_any_more_is_closed(tmp_path: Path) -> None:
    with serving(tmp_path, idle_s=0.2) as (_, port):
        asking = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
        asking.request("GET", "/health")
        assert asking.getresponse().read() and asking.sock.recv(1) == b""
        asking.close()


def test_what_asyncio_tries_again_after_the_end_fills_no_log(caplog: pytest.LogCaptureFixture) -> None:
    """It waits a second for files to be free, and the server may be gone by then."""
    loop, told = asyncio.new_event_loop(), OutOfFiles()
    loop.set_exception_handler(told)
    said = "Exception in callback BaseSelectorEventLoop._start_serving(...)"
    for _ in range(3):
        loop.call_exception_handler({"message": said, "exception": ValueError("Invalid file descriptor: -1")})
        loop.call_exception_handler({"message": "socket.accept() out of system resource", "exception": OSError(24)})
    loop.close()
    assert [record.name for record in caplog.records] == ["kevin.serve.app"], "once, of files alone"
