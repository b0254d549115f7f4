"""The channel to a process that forks, without any sandbox."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator

import pytest
from process_fixtures import until

from kevin.judge.sandbox.process import ForkServer


@pytest.fixture
def server() -> Iterator[ForkServer]:
    server = ForkServer("native.py", {"PATH": "/usr/bin"})
    yield server
    if server.is_alive:
        server.close()


def test_a_request_reaches_a_child_and_the_server_goes_on(server: ForkServer) -> None:
    for _ in range(2):
        info, info_end = os.pipe()
        os.close(info_end)  # the child waits here for what bubblewrap says, which is nothing
        with tempfile.TemporaryFile() as stderr:
            server.fork([info, stderr.fileno(), info, info, info])
            os.close(info)
            until(lambda said=stderr: b"the sandbox was not made" in os.pread(said.fileno(), 1 << 16, 0))
    assert server.is_alive and server.last_words() is None


def test_it_ends_when_nobody_can_ask_it_any_more(server: ForkServer) -> None:
    server._socket.close()
    assert server._process.wait(60) == 0


def test_what_is_long_arrives_whole(server: ForkServer) -> None:
    """A message does not fit into the channel at once, and the child that gets it cannot read it."""
    server.request(b"x" * (1 << 21), [])
    until(lambda: "JSONDecodeError" in server.words())
    assert server.is_alive
