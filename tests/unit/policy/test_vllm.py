"""The vLLM policy, its engine played by a double: the same tokens as transformers would be given."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace

import pytest
from engine_fixtures import finishing_last_first
from school_fixtures import save_pretrained_model
from transformers import AutoTokenizer

from kevin.core.config import PolicyConfig
from kevin.core.errors import PolicyError, UsageError
from kevin.core.types import Message
from kevin.policy.interface import Request, Sampling
from kevin.policy.load import load_policy
from kevin.train.tokenizer import CHAT_TEMPLATE


class LLM:
    def __init__(self, **settings):
        LLM.settings, LLM.asked = settings, []
        self._tokenizer = AutoTokenizer.from_pretrained(settings["model"])

    def get_tokenizer(self):
        return self._tokenizer

    def generate(self, prompts, params, use_tqdm):
        LLM.asked += prompts
        answer = SimpleNamespace(text="done", token_ids=[7, 8], finish_reason="stop")
        return [SimpleNamespace(outputs=[answer]) for _ in prompts]


@pytest.fixture(autouse=True)
def vllm(monkeypatch):
    module = ModuleType("vllm")
    module.LLM, module.SamplingParams = LLM, SimpleNamespace
    monkeypatch.setitem(sys.modules, "vllm", module)


@pytest.fixture
def config(tmp_path):
    """Of a policy whose model has a template; more settings may be given."""

    def of(template=CHAT_TEMPLATE, **settings):
        folder = save_pretrained_model(tmp_path / "model", "llama", template=template)
        return PolicyConfig(backend="vllm", model=str(folder), **settings)

    return of


def ask(number=0):
    conversation = (Message(role="user", content="Write.\n"), Message(role="assistant", content="So."))
    return Request(conversation=conversation, task_id="t", trajectory=number, turn=1)


@pytest.mark.parametrize(("ending", "opening"), [("", ""), ("<think>\n", "<think>\n")])
def test_it_is_given_the_tokens_that_transformers_is_given(config, ending, opening):
    settings, conversation = config(CHAT_TEMPLATE + ending, dtype="bfloat16", memory_share=0.4), ask().conversation
    policy = load_policy("base", settings)
    (completion,) = policy.complete([ask()], Sampling(max_tokens=8))
    other = load_policy("base", PolicyConfig(model=settings.model))
    assert LLM.asked == [{"prompt_token_ids": other.encode(conversation)[0]}]
    assert completion.text == f"{opening}done"
    assert completion.num_prompt_tokens == policy.count_tokens(conversation) == other.count_tokens(conversation)
    assert LLM.settings["gpu_memory_utilization"] == 0.4
    assert policy.complete([], Sampling(max_tokens=8)) == []


def test_further_arguments_reach_the_engine(config, monkeypatch):
    settings = config(engine={"tensor_parallel_size": 8})
    load_policy("base", settings)
    assert LLM.settings["tensor_parallel_size"] == 8
    assert settings.identity() != settings.model_copy(update={"engine": {}}).identity()

    def refuse(self, **settings):
        raise TypeError("unexpected keyword argument 'tensor_paralel_size'")

    monkeypatch.setattr(LLM, "__init__", refuse)
    with pytest.raises(PolicyError, match=r"policies\.base\.engine: .* 'tensor_paralel_size'"):
        load_policy("base", settings)


def test_a_model_without_a_template_is_refused_before_the_engine_starts(config):
    LLM.settings = None
    with pytest.raises(UsageError, match=r"policy base: the tokenizer of .* has no chat template"):
        load_policy("base", config(template=None))
    assert LLM.settings is None


def test_answers_are_told_as_they_are_finished(config):
    policy = load_policy("base", config())
    told = finishing_last_first(policy._llm, first=5)
    policy.complete([ask(0), ask(1)], Sampling(max_tokens=8), lambda i, completion: told.append((i, completion.text)))
    assert told == [(1, "done"), "step", (0, "done"), "step"]


def test_drafts_are_asked_for(config):
    settings = config(draft_tokens=16)
    plain = settings.model_copy(update={"draft_tokens": 0})
    load_policy("base", settings)
    assert LLM.settings["speculative_config"]["num_speculative_tokens"] == 16
    load_policy("base", plain)
    assert "speculative_config" not in LLM.settings and settings.identity() != plain.identity()


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"backend": "openai", "draft_tokens": 8}, "draft_tokens: of backend vllm alone, and this one's is openai"),
        (
            {"backend": "vllm", "draft_tokens": 8, "engine": {"speculative_config": {"method": "ngram"}}},
            "there is one way of drafting",
        ),
        ({"backend": "vllm", "engine": {"gpu_memory_utilization": 0.5}}, "set memory_share of the policy instead"),
        ({"backend": "openai", "engine": {"max_model_len": 9}}, "of backend vllm alone, and this one's is openai"),
    ],
)
def test_arguments_that_are_set_elsewhere_or_reach_nobody_are_refused(settings, said):
    with pytest.raises(ValueError, match=said):
        PolicyConfig(model="m", **settings)
