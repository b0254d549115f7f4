"""The routes without a judge behind them: what a body may hold, and what each pair of it is told."""

from __future__ import annotations

import asyncio
import gzip
import json
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
from aiohttp.test_utils import TestClient, TestServer
from cli_fixtures import GOOD, REFERENCE

from kevin.core.protocol import JudgeProtocol
from kevin.core.types import Kernel, Outcome, Task, Verdict
from kevin.serve import desk as desk_module
from kevin.serve.app import make_app
from kevin.serve.desk import Desk
from kevin.serve.metrics import Metrics
from kevin.serve.settings import ServeSettings

PROTOCOL = JudgeProtocol()


class Engine:
    """Finds every kernel wrong, and says in the message which it was."""

    device_name, is_well = "here", True

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass

    def start(self) -> str:
        return self.device_name

    def key(self, task: Task, kernel: Kernel) -> str:
        return kernel.digest

    def stored(self, key: str) -> Verdict | None:
        return None

    def submit(self, task: Task, kernel: Kernel) -> Future[Verdict]:
        future: Future[Verdict] = Future()
        future.set_result(
            Verdict(
                key=kernel.digest,
                task_digest=task.digest,
                kernel_digest=kernel.digest,
                protocol_digest=PROTOCOL.digest,
                device_name="here",
                outcome=Outcome.INCORRECT,
                message=f"{kernel.dialect}:{kernel.source}",
            )
        )
        return future

    def close(self) -> None:
        pass


@pytest.fixture
def ask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Posts a body; returns status and answer."""
    monkeypatch.setattr(desk_module, "Engine", Engine)

    def post(path: str, body: Any, **headers: str) -> tuple[int, Any]:
        async def talk() -> tuple[int, Any]:
            settings, metrics = ServeSettings(protocol=PROTOCOL, store=tmp_path), Metrics()
            desk = Desk(settings, metrics)
            await desk.start()
            async with TestClient(TestServer(make_app(settings, desk, metrics))) as client:
                data = body if isinstance(body, bytes) else json.dumps(body)
                response = await client.post(path, data=data, headers=headers)
                found = response.status, await response.json()
            await desk.close()
            return found

        return asyncio.run(talk())

    return post


def pair(**fields: Any) -> dict[str, Any]:
    return {"reference": REFERENCE, **fields}


ANSWER = f"<thinking>\n```cpp\nint draft;\n```\n</thinking>\nHere:\n```c++ title=k\n{GOOD}```\n```bash\nmake\n```\n"


def test_the_kernel_of_an_answer_is_judged(ask: Any) -> None:
    status, found = ask("/v1/judge", pair(answer=ANSWER))
    assert (status, found["verdict"]["message"]) == (200, f"c_abi:{GOOD}")


def test_an_answer_without_a_kernel_has_a_verdict_that_says_so(ask: Any) -> None:
    status, found = ask("/v1/batch", {"pairs": [pair(answer="I give up."), pair(kernel=GOOD), pair(answer="")]})
    told = [(r["verdict"]["outcome"], r["verdict"]["reason"], r["score"]) for r in found["results"]]
    assert status == 200 and told == [
        ("parse_error", "no_kernel_found", 0.0),
        ("incorrect", None, 0.0),
        ("parse_error", "no_kernel_found", 0.0),
    ]
    assert found["results"][0]["verdict"]["message"] == "the answer holds no code block"


def test_a_pair_has_one_candidate(ask: Any) -> None:
    for fields, told in (({}, "kernel: Field required"), ({"kernel": GOOD, "answer": ANSWER}, "answer: a kernel")):
        status, found = ask("/v1/judge", pair(**fields))
        assert status == 400 and told in found["error"]["message"]


@pytest.mark.parametrize("field", ["kernel", "answer", "reference"])
@pytest.mark.parametrize("half", ["\ud83d", "\udc00", "\udcff"])
def test_half_of_a_surrogate_pair_is_the_error_of_its_own_pair(ask: Any, field: str, half: str) -> None:
    bad = pair(kernel=GOOD) if field == "reference" else pair()
    bad[field] = f"// one\n// {half}\n{GOOD}"
    status, found = ask("/v1/batch", {"pairs": [pair(kernel=GOOD), bad]})
    assert status == 200 and found["results"][0]["verdict"]["outcome"] == "incorrect"
    error = found["results"][1]["error"]
    assert (error["status"], error["code"]) == (400, "bad_request")
    assert "line 2" in error["message"] and "surrogate" in error["message"]
    assert ask("/v1/judge", bad)[0] == 400


@pytest.mark.parametrize("field", ["kernel", "reference"])
def test_the_name_of_a_file_is_no_source(ask: Any, field: str) -> None:
    status, found = ask("/v1/judge", pair(kernel=GOOD) | {field: "kernels/fast.cpp"})
    assert status == 400 and "'kernels/fast.cpp' is the name of a file" in found["error"]["message"]


def test_an_answer_that_is_the_name_of_a_file_has_a_verdict_as_any_other(ask: Any) -> None:
    """In a training it earns nothing, as in the study; an error would leave it out of its group."""
    answers = ["kernel.cpp", "```cpp\nkernel.cpp\n```\n", "```cpp\n/* see */ a/k.cu\n```\n"]
    status, found = ask("/v1/batch", {"pairs": [pair(answer=answer) for answer in answers]})
    outcomes = [result["verdict"]["outcome"] for result in found["results"]]
    assert status == 200 and outcomes == ["parse_error", "incorrect", "incorrect"]


def test_a_whole_surrogate_pair_is_text(ask: Any) -> None:
    kernel = "// \U0001f600 \\ud83d\n" + GOOD
    status, found = ask("/v1/judge", pair(kernel=kernel))
    assert (status, found["verdict"]["message"]) == (200, f"c_abi:{kernel}")


@pytest.mark.parametrize("body", [b"[]", b"[" * 100_000, b"\xff", b"", b'{"reference": "\\ud800', b'{"\\ud800": 1}'])
def test_what_is_no_request_is_refused(ask: Any, body: bytes) -> None:
    status, found = ask("/v1/judge", body)
    assert (status, found["error"]["code"]) == (400, "bad_request")


def test_a_kernel_for_another_device_is_the_error_of_its_own_pair(ask: Any) -> None:
    status, found = ask("/v1/batch", {"pairs": [pair(kernel=GOOD, language="cuda"), pair(kernel=GOOD)]})
    assert status == 200 and "CUDA" in found["results"][0]["error"]["message"]
    assert found["results"][1]["verdict"]["outcome"] == "incorrect"


@pytest.mark.parametrize(
    ("encoded", "status"),
    [(gzip.compress, 200), (bytes, 400), (lambda body: gzip.compress(bytes(100_000_000)), 413)],
    ids=["gzip", "no gzip", "far too large"],
)
def test_bodies_that_are_compressed(ask: Any, encoded: Any, status: int) -> None:
    body = encoded(json.dumps(pair(kernel=GOOD)).encode())
    assert ask("/v1/judge", body, **{"Content-Encoding": "gzip"})[0] == status


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-32"])
def test_json_in_other_encodings(ask: Any, encoding: str) -> None:
    kernel = f"// \u00e9 \u2028\n{GOOD}"
    status, found = ask("/v1/judge", json.dumps(pair(kernel=kernel), ensure_ascii=False).encode(encoding))
    assert (status, found["verdict"]["message"]) == (200, f"c_abi:{kernel}")
