"""The clients in examples/ against a server: rewards for TRL, an environment for verifiers."""

from __future__ import annotations

import http.server
import json
import os
import runpy
import subprocess
import sys
import threading
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar
from unittest.mock import MagicMock

import pytest
from cli_fixtures import GOOD, REFERENCE, ROOT, WRONG
from serve_fixtures import Server
from train_fixtures import save_model

EXAMPLES = ROOT / "examples"
VERIFIERS = os.environ.get("KEVIN_VERIFIERS_PYTHON")

pytestmark = pytest.mark.timing


@pytest.fixture
def as_client(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEVIN_URL", f"http://127.0.0.1:{server.port}")
    monkeypatch.setenv("KEVIN_TOKEN", server.token)
    monkeypatch.syspath_prepend(str(EXAMPLES))


def fenced(kernel: str) -> str:
    return f"Here it is:\n```cpp\n{kernel}```\n"


@pytest.mark.slow
@pytest.mark.usefixtures("as_client")
def test_answers_of_a_model_have_scores() -> None:
    """Judged by a server for real."""
    answers = [fenced(GOOD), fenced(WRONG), "no kernel", fenced(GOOD)]
    answers += [f"<thinking>\n{fenced(WRONG)}", f"Now:\n```c++ \n{GOOD}```\n```bash\nmake\n```\n"]
    references = [REFERENCE, REFERENCE, REFERENCE, "import nothing_like_it\n", REFERENCE, REFERENCE]
    results = import_module("kevin_client").judge(list(zip(references, answers, strict=True)), "answer")
    scores = [result.get("score") for result in results]
    assert scores[0] > 0.3 and scores[1:] == [0.0, 0.0, None, 0.0, scores[0]]


class Tokenizer:
    """A token a character."""

    def apply_chat_template(self, chats, add_generation_prompt, tokenize):
        return ["\n".join(f"{m['role']}: {m['content']}" for m in chat) for chat in chats]

    def __call__(self, texts, add_special_tokens):
        return {"input_ids": [[ord(sign) for sign in text] for text in texts]}

    def batch_decode(self, rows, skip_special_tokens):
        return ["".join(map(chr, row)) for row in rows]


def test_trl_is_handed_each_turn_as_a_sample_without_earlier_thoughts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without TRL, which takes seconds to import: see the next test."""
    monkeypatch.syspath_prepend(str(EXAMPLES))
    for name in ("datasets", "trl"):
        monkeypatch.setitem(sys.modules, name, MagicMock())
    client = import_module("kevin_client")
    correct = {"verdict": {"outcome": "correct", "message": ""}, "speedup": 1.5}
    results = {
        "slow": correct | {"score": 1.0, "seen": "slow"},
        "fast": correct | {"score": 2.0, "seen": "fast"},
        "lost": {"error": {}},
    }

    def judge(pairs, what):
        assert what == "answer" and {reference for reference, _ in pairs} == {"class Model: ..."}
        return [results[answer.split()[-1]] for _, answer in pairs]

    monkeypatch.setattr(client, "judge", judge)
    example = runpy.run_path(str(EXAMPLES / "trl_grpo.py"))
    written = iter([["<think>one</think> slow", "lost"], ["<think>two</think> fast", "fast"]])
    trainer = MagicMock(processing_class=Tokenizer())
    trainer._generate_single_turn = lambda *_: ([[ord(sign) for sign in text] for text in next(written)], None)
    prompt = [{"role": "user", "content": example["PROMPT"] + "class Model: ..."}]
    made = example["rollouts"](2)([prompt] * 4, trainer)
    texts = Tokenizer().batch_decode(made["prompt_ids"], True)
    assert Tokenizer().batch_decode(made["completion_ids"], True) == [
        "<think>one</think> slow", "<think>two</think> fast", "lost", "fast"
    ]  # fmt: skip
    assert texts[0] == texts[2] and "think" not in "".join(texts)
    assert "assistant: slow\nuser: correct, 1.50x as fast as PyTorch." in texts[1]
    assert made["value"] == [1.0 + 0.4 * 2.0, 2.0, None, 2.0] and made["logprobs"] is None
    assert example["kernel_return"]([], made["value"]) == made["value"]


@pytest.mark.slow
@pytest.mark.usefixtures("as_client")
def test_trl_trains_with_it(tmp_path: Path) -> None:
    """TRL itself, imported and run for a step of two turns."""
    save_model(tmp_path / "model")
    trainer = import_module("trl_grpo").trainer(
        str(tmp_path / "model"),
        [REFERENCE],
        num_turns=2,
        output_dir=str(tmp_path / "out"),
        max_steps=1,
        per_device_train_batch_size=4,
        num_generations=4,
        max_completion_length=4,
        use_cpu=True,
        bf16=False,
        report_to=[],
    )
    trainer.train()
    logged = {key: value for entry in trainer.state.log_history for key, value in entry.items()}
    assert logged["rewards/kernel_return/mean"] == 0.0, "four tokens are no kernel"


@pytest.mark.slow
@pytest.mark.usefixtures("as_client")
def test_a_client_waits_for_a_server_that_starts_again(server: Server) -> None:
    """A server's end, and its start."""
    judge = import_module("kevin_client").judge
    found: list[Any] = []
    server.end()
    asking = threading.Thread(target=lambda: found.extend(judge([(REFERENCE, WRONG)])))
    asking.start()
    server.start()
    asking.join(120)
    assert found[0]["verdict"]["outcome"] == "incorrect"


class Model(http.server.BaseHTTPRequestHandler):
    """An OpenAI endpoint that answers with a wrong kernel, and with a right one once it was told so."""

    asked: ClassVar[list[str]] = []

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.asked.append(str(asked["messages"]))
        turns = [message for message in asked["messages"] if message["role"] == "assistant"]
        kernel = GOOD if turns and "incorrect" in str(asked["messages"][-1]["content"]) else WRONG
        text = "<think>A thought.</think>\n" + fenced(kernel)
        chunks = [
            {"delta": {"role": "assistant", "content": text}, "finish_reason": None},
            {"delta": {}, "finish_reason": "stop"},
        ]
        head = {"id": "1", "object": "chat.completion.chunk", "created": 0, "model": "mine"}
        events = [head | {"choices": [{"index": 0, **chunk}]} for chunk in chunks]
        events[-1]["usage"] = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        for event in [*map(json.dumps, events), "[DONE]"]:
            self.wfile.write(f"data: {event}\n\n".encode())


@pytest.mark.slow
@pytest.mark.skipif(
    not VERIFIERS, reason="KEVIN_VERIFIERS_PYTHON names no Python with verifiers, which needs openai < 3"
)
@pytest.mark.usefixtures("as_client")
def test_an_environment_for_verifiers_makes_each_turn_a_sample(tmp_path: Path) -> None:
    (tmp_path / "references").mkdir()
    (tmp_path / "references" / "relu.py").write_text(REFERENCE)
    endpoint = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Model)
    threading.Thread(target=endpoint.serve_forever, daemon=True).start()
    options = {
        "env.taskset.references": "references",
        "env.num-turns": "2",
        "model": "mine",
        "client.base-url": f"http://127.0.0.1:{endpoint.server_address[1]}/v1",
        "client.api-key-var": "NO_KEY",
        "num-rollouts": "1",
    }
    command = [str(Path(VERIFIERS or sys.executable).with_name("vf-eval")), "verifiers-kernels"]
    for key, value in options.items():
        command += [f"--{key}", value]
    command += ["--no-push", "--no-rich"]
    path = os.pathsep.join([os.environ["PATH"], str(Path(command[0]).parent)])  # where it looks for uv
    run = subprocess.run(
        command,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(EXAMPLES), "PATH": path},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    endpoint.shutdown()
    assert run.returncode == 0, run.stdout + run.stderr
    [episode] = [json.loads(line) for path in tmp_path.rglob("traces.jsonl") for line in path.read_text().splitlines()]
    for error in episode["errors"]:
        if "failed to prepare uv script" in error["message"]:  # it fetches uv where there is none
            pytest.skip(f"verifiers cannot set up its harness here: {error['message'][-120:]}")
    assert episode["ok"], episode["errors"]
    first, second = (trace["rewards"]["kernel"]["score"] for trace in episode["traces"])
    assert second > 0.3 and first == pytest.approx(0.4 * second), "the second turn was told of the first"
    assert len(Model.asked) == 2 and "A thought." not in Model.asked[1]
