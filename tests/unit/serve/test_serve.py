"""`kevin serve` as its clients meet it: verdicts, refusals with a clear status, limits, and what stays when it ends."""

from __future__ import annotations

import http.client
import json
import signal
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest
from cli_fixtures import BROKEN, GOOD, REFERENCE, WRONG, kevin
from serve_fixtures import Answer, Server
from typer.testing import CliRunner

from kevin.cli.app import app
from kevin.core.errors import UsageError

pytestmark = pytest.mark.timing

ENDLESS = 'extern "C" void launch(const float* x, float* out) {\n  for (;;) out[0] = x[0];\n}\n'
"""Two seconds on the device: what is asked for meanwhile has to wait."""


# --- answers ------------------------------------------------------------------------------------------------------


def test_a_kernel_has_its_verdict_speedup_and_score(server: Server) -> None:
    """Eight seconds: the first one to ask starts the server and its judge."""
    found = server.judge(GOOD)
    assert found.status == 200 and found.body["verdict"]["outcome"] == "correct"
    assert found.body["score"] == pytest.approx(0.3 + found.body["speedup"])
    judged = server.metric('kevin_verdicts_total{outcome="correct",source="judged"}')
    assert server.judge(GOOD).body == found.body
    assert server.metric('kevin_verdicts_total{outcome="correct",source="judged"}') == judged


def test_a_batch_answers_each_pair_and_one_failure_stops_none(server: Server) -> None:
    pairs = [(REFERENCE, WRONG), ("import nothing_like_it\n", GOOD), (REFERENCE, BROKEN), (REFERENCE, WRONG)]
    found = server.ask("/v1/batch", {"pairs": [{"reference": r, "kernel": k} for r, k in pairs]})
    assert found.status == 200
    results = found.body["results"]
    assert [r.get("verdict", {}).get("outcome") for r in results] == ["incorrect", None, "compile_error", "incorrect"]
    assert results[0] == results[3] and results[0]["score"] == 0.0 and results[0]["speedup"] is None
    assert (results[1]["error"]["status"], results[1]["error"]["code"]) == (422, "unusable_reference")
    assert "nothing_like_it" in results[1]["error"]["message"]


def test_health_needs_no_token_and_metrics_do(server: Server) -> None:
    health = server.ask("/health", method="GET", token=None)
    assert (health.status, health.body["status"], health.body["api_version"]) == (200, "ok", 1)
    assert server.ask("/metrics", method="GET", token=None).status == 401
    assert server.metric("kevin_requests_total") > 0


# --- bad input; what a body may hold: see test_app.py -------------------------------------------------------------


@pytest.mark.parametrize("token", [None, "wrong", "wröng"])
def test_without_the_token_nothing_is_judged(server: Server, token: str | None) -> None:
    found = server.ask("/v1/judge", {"unknown": 1}, token=token)
    assert (found.status, found.body["error"]["code"]) == (401, "wrong_token")
    assert found.headers["WWW-Authenticate"] == "Bearer"


def test_unknown_places_are_named(server: Server) -> None:
    assert server.ask("/v2/judge", {}).status == 404
    found = server.ask("/v1/judge", method="GET")
    assert (found.status, found.headers["Allow"]) == (405, "POST")


def test_a_body_that_is_too_large_is_refused_before_it_is_read(server: Server) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=20) as connection:
        head = f"POST /v1/judge HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {server.token}\r\n"
        connection.sendall(f"{head}Content-Length: {1 << 40}\r\n\r\n".encode())
        told = connection.recv(10_000)
    assert told.startswith(b"HTTP/1.1 413") and b"body_too_large" in told


def test_a_body_that_grows_too_large_is_cut_off(server: Server) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=20) as connection:
        head = f"POST /v1/judge HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {server.token}\r\n"
        connection.sendall(f"{head}Transfer-Encoding: chunked\r\n\r\n".encode())
        try:
            for _ in range(64):
                connection.sendall(b"10000\r\n" + b" " * 0x10000 + b"\r\n")
        except (BrokenPipeError, ConnectionResetError):
            pass
        told = connection.recv(10_000)
    assert told.startswith(b"HTTP/1.1 413")


def test_a_reference_that_hangs_is_named(server: Server) -> None:
    found = server.judge(GOOD, "import time\nwhile True:\n    time.sleep(0.01)\n")
    assert (found.status, found.body["error"]["code"]) == (422, "unusable_reference")
    assert "did not end within 3 s" in found.body["error"]["message"]
    assert server.judge(GOOD).status == 200


# --- limits -------------------------------------------------------------------------------------------------------


def variant(number: int, kernel: str = ENDLESS) -> str:
    """Another kernel that does the same."""
    return f"// {number}\n{kernel}"


def test_more_than_there_is_room_for_is_turned_away(server: Server) -> None:
    """Six seconds: three kernels are judged while others ask."""
    pairs = [{"reference": REFERENCE, "kernel": variant(i)} for i in range(4)]
    found = server.ask("/v1/batch", {"pairs": pairs})
    assert (found.status, found.body["error"]["code"]) == (413, "batch_too_large")
    with ThreadPoolExecutor() as threads:
        batch = threads.submit(server.ask, "/v1/batch", {"pairs": pairs[:3]})
        server.wait_for("kevin_open_pairs", 3)
        busy = server.judge(variant(4))
        assert (busy.status, busy.body["error"]["code"]) == (429, "too_many_pairs")
        assert 1 <= int(busy.headers["Retry-After"]) <= 60
        assert server.judge(GOOD).status == 200, "what is stored is always answered"
        results = batch.result()
    assert [r["verdict"]["outcome"] for r in results.body["results"]] == ["timeout"] * 3
    assert server.metric("kevin_open_pairs") == 0


def test_what_a_client_that_went_away_asked_for_is_kept_and_nothing_runs_on(server: Server) -> None:
    connection = server.connect()
    body = json.dumps({"reference": REFERENCE, "kernel": variant(5)})
    connection.request("POST", "/v1/judge", body, {"Authorization": f"Bearer {server.token}"})
    server.wait_for("kevin_running_pairs", 1)
    connection.close()
    server.wait_for("kevin_open_pairs", 0)
    judged = server.metric('kevin_verdicts_total{outcome="timeout",source="judged"}')
    assert server.judge(variant(5)).body["verdict"]["outcome"] == "timeout"
    assert server.metric('kevin_verdicts_total{outcome="timeout",source="judged"}') == judged


# --- starting and stopping ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ([], "give --token-file FILE"),
        (["--no-token", "--host", "0.0.0.0"], "would let anybody who reaches 0.0.0.0"),
        (["--no-token", "--token-file", "token"], "contradicts"),
        (["--no-token", "--references", "empty"], "holds no .py file"),
    ],
)
def test_a_start_that_cannot_be_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: list[str], told: str
) -> None:
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("KEVIN_TOKEN", raising=False)
    with pytest.raises(UsageError, match=told):
        CliRunner().invoke(app, ["serve", "--port", "0", *options], catch_exceptions=False)


def test_an_address_that_is_not_this_machines_is_one_sentence(tmp_path: Path) -> None:
    run = kevin("serve", "--port", "0", "--token-file", "token", "--host", "192.0.2.1", cwd=tmp_path, KEVIN_TOKEN="")
    assert run.returncode == 2 and "give another --host or --port" in run.stderr and "Traceback" not in run.stderr


def test_a_token_that_is_made_is_for_its_owner_alone(server: Server) -> None:
    path = server.folder / "token"
    assert path.stat().st_mode & 0o777 == 0o600 and len(server.token) > 30


@pytest.mark.slow
def test_stopped_it_finishes_what_is_in_work_and_killed_it_loses_nothing(tmp_path: Path) -> None:
    """A server starts three times, and judges a kernel that does not end."""
    (tmp_path / "references").mkdir()
    (tmp_path / "references" / "one.py").write_text(REFERENCE)
    server = Server(tmp_path, "--references", "references")
    other = server.judge(GOOD, REFERENCE + "\n")
    assert (other.status, other.body["error"]["code"]) == (403, "unknown_reference")
    assert server.judge(GOOD).status == 200
    with ThreadPoolExecutor() as threads:
        last = threads.submit(server.judge, variant(1))
        server.wait_for("kevin_running_pairs", 1)
        below = server.end(signal.SIGTERM)
        assert last.result().body["verdict"]["outcome"] == "timeout"
    assert server.process.returncode == 0
    assert psutil.wait_procs(below, timeout=20)[1] == []

    server.start()
    with ThreadPoolExecutor() as threads:
        asked = threads.submit(patient, server, [variant(i, WRONG) for i in range(8)])
        server.wait_for('kevin_verdicts_total{outcome="incorrect",source="judged"}', 2)
        below = server.end(signal.SIGKILL)
        assert psutil.wait_procs(below, timeout=30)[1] == []
        server.start()
        assert [a.body["verdict"]["outcome"] for a in asked.result()] == ["incorrect"] * 8
    assert server.metric('kevin_verdicts_total{outcome="incorrect",source="judged"}') <= 6
    server.end()


def patient(server: Server, kernels: list[str]) -> list[Answer]:
    """A client that asks again, as those in examples/ do."""
    found = []
    for kernel in kernels:
        while True:
            try:
                answer = server.judge(kernel)
            except (ConnectionError, http.client.HTTPException):
                time.sleep(0.2)
                continue
            if answer.status == 200:
                found.append(answer)
                break
            time.sleep(float(answer.headers["Retry-After"]))
    return found
