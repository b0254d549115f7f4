"""The routes without a judge behind them: what a body may hold, and what each pair of it is told."""

from __future__ import annotations

import asyncio
import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from aiohttp.test_utils import TestClient, TestServer
from cli_fixtures import GOOD, REFERENCE
from serve_fixtures import Engine

from kevin.core.protocol import JudgeProtocol
from kevin.serve import desk as desk_module
from kevin.serve.app import make_app
from kevin.serve.desk import Desk
from kevin.serve.settings import ServeSettings


@pytest.fixture
def ask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Posts a body; returns status and answer."""
    monkeypatch.setattr(desk_module, "Engine", Engine)

    def post(path: str, body: Any, **headers: str) -> tuple[int, Any]:
        async def talk() -> tuple[int, Any]:
            settings = ServeSettings(protocol=JudgeProtocol(), store=tmp_path)
            desk = Desk(settings)
            await desk.start()
            async with TestClient(TestServer(make_app(settings, desk))) as client:
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
    assert found["seen"] == f"```cpp\n{GOOD}```", "without its thought"
    assert "seen" not in ask("/v1/judge", pair(kernel=GOOD))[1]


def test_an_answer_without_a_kernel_has_a_verdict_that_says_so(ask: Any) -> None:
    status, found = ask("/v1/batch", {"pairs": [pair(answer="I give up."), pair(kernel=GOOD), pair(answer="")]})
    told = [(r["verdict"]["outcome"], r["verdict"]["reason"], r["score"]) for r in found["results"]]
    assert status == 200 and told == [
        ("parse_error", "no_kernel_found", 0.0),
        ("incorrect", None, 0.0),
        ("parse_error", "no_kernel_found", 0.0),
    ]
    assert found["results"][0]["verdict"]["message"] == "the answer holds no code block"
    assert [r.get("seen") for r in found["results"]] == ["(no code)", None, "(no code)"]


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


def test_an_answer_that_is_the_name_of_a_file_has_a_verdict_as_any_other(ask: Any) -> None:
    """In a training it earns nothing, as in the study; an error would leave it out of its group."""
    answers = ["kernel.cpp", "```cpp\nkernel.cpp\n```\n", "```cpp\n/* see */ a/k.cu\n```\n"]
    status, found = ask("/v1/batch", {"pairs": [pair(answer=answer) for answer in answers]})
    outcomes = [result["verdict"]["outcome"] for result in found["results"]]
    assert status == 200 and outcomes == ["parse_error", "incorrect", "incorrect"]


PAIR = pair(kernel=GOOD)
A_FILE = "kernels/fast.cpp"


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (b"{", "Invalid JSON"),
        (b'{"reference": "x", "reference": "y"}', "reference is set a second time"),
        (b"[]", "object"),
        (b"[" * 100_000, ""),
        (b"\xff", ""),
        (b"", ""),
        (b'{"reference": "\\ud800', ""),
        (b'{"\\ud800": 1}', ""),
        (pair(), "kernel: Field required"),
        (PAIR | {"answer": ANSWER}, "answer: a kernel"),
        (PAIR | {"Kernel": GOOD}, "Kernel: unknown field"),
        (PAIR | {"kernel": 7}, "kernel: Input should be a valid string"),
        (PAIR | {"kernel": A_FILE}, f"'{A_FILE}' is the name of a file"),
        (PAIR | {"reference": A_FILE}, f"'{A_FILE}' is the name of a file"),
        (PAIR | {"dialect": "triton"}, "dialect"),
        (PAIR | {"language": "cuda"}, "CUDA kernel needs device cuda"),
    ],
)
def test_a_body_that_is_none_is_named(ask: Any, body: Any, told: str) -> None:
    status, found = ask("/v1/judge", body)
    assert (status, found["error"]["code"]) == (400, "bad_request")
    assert told in found["error"]["message"]


@pytest.mark.parametrize(("pairs", "told"), [([], "pairs"), ([PAIR, PAIR | {"id": 1}], "pairs.1.id: unknown field")])
def test_a_batch_that_is_none_is_named(ask: Any, pairs: list[Any], told: str) -> None:
    status, found = ask("/v1/batch", {"pairs": pairs})
    assert status == 400 and told in found["error"]["message"]


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


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32"])
@pytest.mark.parametrize("ensure_ascii", [True, False])
def test_whatever_signs_a_kernel_has_and_however_its_json_is_encoded(
    ask: Any, encoding: str, ensure_ascii: bool
) -> None:
    kernel = f"// \u00e9 \u2028 \U0001f600 \\ud83d\n{GOOD}"
    status, found = ask("/v1/judge", json.dumps(pair(kernel=kernel), ensure_ascii=ensure_ascii).encode(encoding))
    assert (status, found["verdict"]["message"]) == (200, f"c_abi:{kernel}")
