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
    tokens: ClassVar[list[str]] = []
    raw: ClassVar[list[bytes]] = []
    """In their place, all that is sent until the connection ends."""

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.tokens.append(self.headers["Authorization"].encode("latin-1").decode())
        if self.raw:
            self.wfile.write(self.raw.pop(0))
            return
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
    monkeypatch.setattr(Stub, "raw", [])
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Stub)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()  # how soon it sees its end
    monkeypatch.setenv("KEVIN_URL", f"http://127.0.0.1:{server.server_port}/")
    monkeypatch.setenv("KEVIN_TOKEN", "t")
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    module = import_module("kevin_client")
    monkeypatch.setattr(module, "waited", [], raising=False)

    def wait(seconds: float) -> None:
        module.waited.append(seconds)
        assert len(module.waited) < 20, "it waits for ever"

    monkeypatch.setattr(module.time, "sleep", wait)
    yield module
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize(
    ("status", "headers", "seconds"),
    [
        (503, {}, 2.0),
        (429, {"Retry-After": "7.5"}, 7.5),
        (503, {"Retry-After": "soon"}, 2.0),
        (503, {"Retry-After": "-1"}, 2.0),
        (503, {"Retry-After": "nan"}, 2.0),
        (503, {"Retry-After": "inf"}, 300.0),
        (503, {"Retry-After": "Wed, 21 Oct 9999 07:28:00 GMT"}, 300.0),
        (503, {"Retry-After": "Wed, 21 Oct 99999 07:28:00 GMT"}, 2.0),
        (503, {"Retry-After": "Wed, 21 Oct 2015 07:28:00 GMT"}, 2.0),
        (502, {}, 2.0),
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


RESULTS = b'{"results":[1]}'


@pytest.mark.parametrize(
    "raw",
    [
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nff\r\n" + RESULTS,
        b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n" + RESULTS,
        b"HTTP/1.1 503 busy\r\nContent-Length: 99\r\n\r\nlater",
        b"HTTP/1.1 503 busy\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"SSH-2.0-OpenSSH\r\n",
        b"",
    ],
)
def test_an_answer_that_was_cut_short_is_asked_for_again(client: Any, raw: bytes) -> None:
    Stub.raw += [raw]
    assert client.judge([("r", "k")]) == [{"reference": "r", "kernel": "k"}]
    assert client.waited == [2.0]


def test_an_answer_in_pieces(client: Any) -> None:
    Stub.raw += [b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nf\r\n" + RESULTS + b"\r\n0\r\n\r\n"]
    assert client.judge([("r", "k")]) == [1]


@pytest.mark.parametrize(
    "body", [b"<html>Log in</html>", b"", b'{"results":["\xe9"]}', b"[]", b"{}", RESULTS[:-3], b'{"results":[]}']
)
def test_who_answers_in_the_place_of_the_server_is_told_of(client: Any, body: bytes) -> None:
    Stub.raw += [b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)]
    with pytest.raises(RuntimeError, match="no answer of kevin serve to 1 pairs"):
        client.judge([("r", "k")])


@pytest.mark.parametrize("url", ["localhost:8421", "", "http://", "ftp://judge", "http://a b"])
def test_what_is_no_address_is_not_waited_for(client: Any, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEVIN_URL", url)
    with pytest.raises(RuntimeError, match=r"KEVIN_URL .* is no address such as http"):
        client.judge([("r", "k")])


@pytest.mark.parametrize("token", ["t", "t\n", " tö\u2192\r\n", "\ufefft\r\n"])
def test_a_token_as_a_file_has_it(client: Any, token: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEVIN_TOKEN", token)
    client.judge([("r", "k")])
    assert Stub.tokens[-1].removeprefix("Bearer ") in ("t", "tö\u2192")


def test_an_answer_goes_as_one(client: Any) -> None:
    assert client.judge([("r", "text")], "answer") == [{"reference": "r", "answer": "text"}]


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "127.9.9.9", "0.0.0.0", "[::ffff:127.0.0.1]", "[::1]"])
def test_no_proxy_stands_between_two_programs_of_one_machine(
    client: Any, host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.setenv("KEVIN_URL", client.os.environ["KEVIN_URL"].replace("127.0.0.1", host))
    client._opener(client.os.environ["KEVIN_URL"])
    if host in ("127.0.0.1", "localhost"):  # where the server listens
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
