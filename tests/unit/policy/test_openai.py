"""The endpoint policy against a small server on this machine that answers, stalls, refuses and talks rubbish."""

import json
import re
import textwrap
import threading
import time
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from kevin.cli.entry import pass_by_proxies
from kevin.core.config import PolicyConfig, load_study
from kevin.core.errors import PolicyError, UsageError
from kevin.core.lengths import with_lengths
from kevin.core.types import Message
from kevin.policy.interface import Request, Sampling
from kevin.policy.load import load_policy
from kevin.policy.openai import OpenAIPolicy
from kevin.rollout.settings import RolloutSettings

SAMPLING = Sampling(temperature=0.9, top_p=0.95, max_tokens=50, seed=1)


def answer(content="hello", finish="stop", usage=True, **message):
    body = {
        "id": "x",
        "object": "chat.completion",
        "created": 0,
        "model": "m",
        "choices": [
            {
                "index": 0,
                "finish_reason": finish,
                "message": {"role": "assistant", "content": content, **message},
            }
        ],
    }
    if usage:
        body["usage"] = {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18}
    return body


class Server(ThreadingHTTPServer):
    """Asks ``reply(body, number of the call)`` for status, payload and headers; counts calls that run at once."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.reply = lambda body, call: (200, answer(), {})
        self.bodies, self.paths, self.keys = [], [], []
        self.now = self.most = 0
        self.lock = threading.Lock()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        server = self.server
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        with server.lock:
            server.bodies.append(body)
            server.paths.append(self.path)
            server.keys.append(self.headers["authorization"])
            call = len(server.bodies)
            server.now += 1
            server.most = max(server.most, server.now)
        try:
            status, payload, headers = server.reply(body, call)
        finally:
            with server.lock:
                server.now -= 1
        data = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
        try:
            self.send_response(status)
            for name, value in {"content-type": "application/json", **headers}.items():
                self.send_header(name, value)
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)
        except (BrokenPipeError, ConnectionResetError):
            pass

    def log_message(self, *_):
        pass


@pytest.fixture
def server(monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    made = Server()
    thread = threading.Thread(target=made.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    yield made
    made.shutdown()
    made.server_close()


def make(server, num_retries=2, **changes):
    url = f"http://127.0.0.1:{server.server_address[1]}/v1"
    config = PolicyConfig(backend="openai", model="qwq", base_url=url, **{"timeout_s": 5, **changes})
    return OpenAIPolicy("remote", config, num_retries=num_retries, max_backoff_s=0.01)


def ask(text="hi", trajectory=0):
    return Request(conversation=(Message(role="user", content=text),), task_id="t", trajectory=trajectory, turn=1)


def complete_one(policy):
    return policy.complete([ask()], SAMPLING)[0]


def test_a_normal_answer(server):
    policy = make(server)
    completion = complete_one(policy)
    assert completion.text == "hello"
    assert (completion.num_prompt_tokens, completion.num_completion_tokens) == (11, 7)
    assert completion.finish_reason == "stop"
    assert server.paths == ["/v1/chat/completions"]
    body = server.bodies[0]
    assert body["messages"] == [{"role": "user", "content": "hi"}]
    assert (body["model"], body["temperature"], body["top_p"], body["max_tokens"]) == ("qwq", 0.9, 0.95, 50)
    assert body.get("n", 1) == 1
    assert policy.complete([], SAMPLING) == [] and len(server.bodies) == 1


def test_the_manual_s_model_is_not_cut_at_the_small_model_s_lengths(server, tmp_path):
    """The manual's mine.yaml over the laptop's configuration, and a model that answers in 3000 tokens."""
    root = Path(__file__).parents[3]
    shown = re.search(r"```yaml\n# mine\.yaml\n(.*?)```", (root / "docs/own-model.md").read_text(), re.DOTALL)[1]
    (tmp_path / "mine.yaml").write_text(textwrap.dedent(shown))
    study = load_study([root / "config/config.yaml", tmp_path / "mine.yaml"])
    settings = RolloutSettings.from_study(with_lengths(study, "mine"))
    server.reply = lambda body, call: (200, answer(finish="stop" if body["max_tokens"] >= 3000 else "length"), {})
    completion = make(server).complete([ask()], settings.sampling(1, ()))[0]
    assert completion.finish_reason == "stop"
    assert study.evaluate == ("base", "mine")


@pytest.mark.parametrize("others", [None, "", "corp.example", "*"])
def test_no_proxy_stands_before_a_server_of_this_machine(server, monkeypatch, others):
    """As `kevin` begins; where `no_proxy` names others these are still passed by."""
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    if others is not None:
        monkeypatch.setenv("NO_PROXY", others)
    pass_by_proxies()
    assert complete_one(make(server)).text == "hello"
    assert urllib.request.proxy_bypass("corp.example") == (others in ("corp.example", "*"))


def test_the_key_comes_from_the_environment(server, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "from-the-environment")
    complete_one(make(server))
    assert server.keys == ["Bearer from-the-environment"]


def test_without_key_and_server_of_ones_own(monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with pytest.raises(UsageError, match="OPENAI_API_KEY"):
        load_policy("remote", PolicyConfig(backend="openai", model="o4-mini"))


def test_order_and_concurrency(server):
    def reply(body, call):
        text = body["messages"][0]["content"]
        time.sleep(0.05 if text in ("0", "3") else 0.01)
        return 200, answer(f"re {text}"), {}

    server.reply = reply
    seen = {}
    requests = [ask(str(i), i) for i in range(12)]
    completions = make(server, max_concurrency=3).complete(requests, SAMPLING, seen.__setitem__)
    assert [c.text for c in completions] == [f"re {i}" for i in range(12)]
    assert [seen[i] for i in range(12)] == completions
    assert 1 < server.most <= 3
    assert len({b["seed"] for b in server.bodies}) == 12


@pytest.mark.parametrize("status", [408, 429, 500, 503])
def test_a_busy_server_is_asked_again(server, status):
    server.reply = lambda body, call: (
        (200, answer("at last"), {}) if call == 3 else (status, {"error": {"message": "busy"}}, {"retry-after": "0.01"})
    )
    assert complete_one(make(server)).text == "at last"
    assert len(server.bodies) == 3


@pytest.mark.parametrize(
    ("status", "fix"),
    [(401, "OPENAI_API_KEY"), (404, "base_url"), (400, "the policy's model.*policies.remote.max_prompt_tokens")],
)
def test_a_refusal_is_not_repeated(server, status, fix):
    server.reply = lambda body, call: (status, {"error": {"message": "no such thing"}}, {})
    with pytest.raises(PolicyError, match=f"(?s)remote.*qwq at http.*status {status}.*no such thing.*{fix}"):
        complete_one(make(server))
    assert len(server.bodies) == 1


def test_a_timeout_names_endpoint_and_fix(server):
    server.reply = lambda body, call: (time.sleep(1), (200, answer(), {}))[1]
    with pytest.raises(PolicyError, match=r"at http://127.*no answer in 0\.1 s, after 2 attempts.*timeout_s"):
        complete_one(make(server, timeout_s=0.1, num_retries=1))


def test_a_server_that_is_not_there(server):
    policy = make(server)
    server.shutdown()
    server.server_close()
    with pytest.raises(PolicyError, match=r"at http://127.*after 3 attempts\. Check that the server runs"):
        complete_one(policy)


@pytest.mark.parametrize(
    ("payload", "content_type"),
    [
        (b"<html>proxy</html>", "text/html"),
        (b"{not json", "application/json"),
        (b"[]", "application/json"),
        (b"null", "application/json"),
        ({}, "application/json"),
        ({**answer(), "choices": []}, "application/json"),
        ({**answer(), "choices": None}, "application/json"),
        ({**answer(), "choices": [{"index": 0, "finish_reason": "stop"}]}, "application/json"),
        ({**answer(), "choices": ["text"]}, "application/json"),
        (answer({"not": "text"}), "application/json"),
    ],
)
def test_rubbish_is_asked_again_and_then_told(server, payload, content_type):
    server.reply = lambda body, call: (200, payload, {"content-type": content_type})
    with pytest.raises(PolicyError, match=r"not a chat completion .*after 3 attempts"):
        complete_one(make(server))
    assert len(server.bodies) == 3


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
def test_reasoning_is_kept_as_a_thought(server, field):
    server.reply = lambda body, call: (200, answer("code", **{field: "Okay, let me see"}), {})
    assert complete_one(make(server)).text == "<think>\nOkay, let me see\n</think>\n\ncode"


def test_a_thought_that_was_cut_stays_open(server):
    server.reply = lambda body, call: (200, answer(None, "length", reasoning_content="Okay, and then"), {})
    completion = complete_one(make(server))
    assert completion.text == "<think>\nOkay, and then"
    assert completion.finish_reason == "length"


def test_token_counts_are_estimated_when_absent(server):
    server.reply = lambda body, call: (200, answer("x" * 31, usage=False), {})
    policy = make(server)
    completion = complete_one(policy)
    assert completion.num_completion_tokens == 11
    assert completion.num_prompt_tokens == policy.count_tokens(ask().conversation) == 5


def test_half_a_surrogate_pair_can_be_stored(server):
    server.reply = lambda body, call: (200, answer("a\ud83d"), {})
    complete_one(make(server)).text.encode()


def test_one_failure_stops_the_rest_but_keeps_what_was_answered(server):
    server.reply = lambda body, call: (
        (200, answer("ok"), {}) if body["messages"][0]["content"] == "0" else (400, {"error": {"message": "bad"}}, {})
    )
    seen = {}
    with pytest.raises(PolicyError, match="bad"):
        make(server, max_concurrency=1).complete([ask(str(i), i) for i in range(20)], SAMPLING, seen.__setitem__)
    assert list(seen) == [0]
    assert len(server.bodies) == 2
