"""As many idle clients as there may be open files: the others are answered, and the log stays short."""

from __future__ import annotations

import http.client
import signal
import socket
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

PROGRAM = """
import resource, sys
from pathlib import Path
from kevin.core.protocol import JudgeProtocol
from kevin.serve import connections, desk, run
from kevin.serve.settings import ServeSettings

class Engine:
    device_name, is_well = "here", True
    def __init__(self, *args, **options): pass
    def start(self): return self.device_name
    def close(self): pass

desk.Engine = Engine
run.IDLE_S = float(sys.argv[2])
connections._OWN_FILES = 40
resource.setrlimit(resource.RLIMIT_NOFILE, (80, 120))
settings = ServeSettings(protocol=JudgeProtocol(), store=Path(sys.argv[1]), grace_s=0)
run.serve(settings, "127.0.0.1", 0, lambda url: print(url.rpartition(":")[2], flush=True))
print(resource.getrlimit(resource.RLIMIT_NOFILE)[0])
"""


def test_idle_clients_take_no_room_from_those_that_ask(tmp_path: Path) -> None:
    """Three seconds: a server in a process of its own, whose limit is low."""
    command = [sys.executable, "-c", PROGRAM, str(tmp_path), "1"]
    with (
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as server,
        ExitStack() as open_clients,
    ):
        assert server.stdout is not None and server.stderr is not None
        port = int(server.stdout.readline())
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
            assert asking.getresponse().read()
        assert asking.sock.recv(1) == b"", "closed once nothing was asked for a while"
        asking.close()
        server.send_signal(signal.SIGTERM)
        said, log = server.communicate(timeout=60)
    assert said.strip() == "120", "the soft limit is raised"
    assert log.count("\n") <= 3, log[:2000]
