"""examples/kevin_client.py against servers that are busy, gone, or behind proxies."""

from __future__ import annotations

import email.utils
import http.server
import json
import threading
import time
from collections.abc import Iterator
from importlib import import_module
from typing import Any, ClassVar

import pytest
from cli_fixtures import ROOT


class Stub(http.server.BaseHTTPRequestHandler):
    """Gives the answers that a test has put down for it, one a request; then a verdict of each pair."""

    answers: ClassVar[list[tuple[int, dict[str, str]]]] = []

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        status, headers = self.answers.pop(0) if self.answers else (200, {})
        body = json.dumps({"results": asked["pairs"]} if status == 200 else {"error": "later"}).encode()
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The module, with a server for it; ``waited`` holds the seconds that it slept."""
    monkeypatch.setattr(Stub, "answers", [])
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Stub)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setenv("KEVIN_URL", f"http://127.0.0.1:{server.server_port}/")
    monkeypatch.setenv("KEVIN_TOKEN", "t")
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    module = import_module("kevin_client")
    monkeypatch.setattr(module, "waited", [], raising=False)
    monkeypatch.setattr(module.time, "sleep", module.waited.append)
    yield module
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize(
    ("status", "headers", "seconds"),
    [
        (503, {}, 2.0),
        (429, {"Retry-After": "7"}, 7.0),
        (503, {"Retry-After": "soon"}, 2.0),
        (503, {"Retry-After": ""}, 2.0),
        (503, {"Retry-After": "-1"}, 2.0),
        (503, {"Retry-After": "nan"}, 2.0),
        (503, {"Retry-After": "inf"}, 300.0),
        (503, {"Retry-After": "Wed, 21 Oct 2015 07:28:00 GMT"}, 2.0),
        (502, {}, 2.0),
        (504, {}, 2.0),
    ],
)
def test_it_waits_as_it_is_told(client: Any, capsys: Any, status: int, headers: dict[str, str], seconds: float) -> None:
    Stub.answers += [(status, headers)]
    assert client.judge([("r", "k")]) == [{"reference": "r", "kernel": "k"}]
    assert client.waited == [seconds]
    assert f"status {status}" in capsys.readouterr().err


def test_it_waits_until_a_date(client: Any) -> None:
    Stub.answers += [(503, {"Retry-After": email.utils.formatdate(time.time() + 60, usegmt=True)})]
    client.judge([("r", "k")])
    assert 50 < client.waited[0] <= 60


def test_an_answer_goes_as_one(client: Any) -> None:
    assert client.judge([("r", "text")], "answer") == [{"reference": "r", "answer": "text"}]


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "127.9.9.9"])
def test_no_proxy_stands_between_two_programs_of_one_machine(
    client: Any, host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.setenv("KEVIN_URL", client.os.environ["KEVIN_URL"].replace("127.0.0.1", host))
    client._opener(client.os.environ["KEVIN_URL"])
    if host != "127.9.9.9":  # nobody listens there
        assert client.judge([("r", "k")])
    assert "proxy" not in client._opener(f"http://{host}:8421")[1]


def test_it_says_what_it_waits_for(client: Any, capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.setenv("KEVIN_URL", "http://judge.example")

    def give_up(seconds: float) -> None:
        client.waited.append(seconds)
        if len(client.waited) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(client.time, "sleep", give_up)
    with pytest.raises(KeyboardInterrupt):
        client.judge([("r", "k")])
    told = capsys.readouterr().err
    assert told.count("\n") == 1, "once, as long as the reason stays"
    assert "waiting for http://judge.example/v1/batch by the proxy http://127.0.0.1:9" in told and "refused" in told


def test_what_is_wrong_is_no_reason_to_wait(client: Any) -> None:
    Stub.answers += [(401, {})]
    with pytest.raises(RuntimeError, match="later"):
        client.judge([("r", "k")])
