"""Generation through vLLM, its engine played by a double: what it is asked, and when it wakes and sleeps."""

import sys
from types import ModuleType, SimpleNamespace

import pytest
from engine_fixtures import finishing_last_first

from kevin.core.errors import PolicyError
from kevin.policy.interface import Sampling
from kevin.train.policy import awake, engines_draft, generate_with_vllm

SAMPLING = Sampling(temperature=0.9, top_p=0.95, max_tokens=7)


class SamplingParams:
    def __init__(self, **settings):
        self.settings = settings


class Engine:
    """Answers a prompt with its length and its seed."""

    def __init__(self):
        self.calls = []

    def wake_up(self, tags):
        self.calls.append(f"wake {tags}")

    def sleep(self, level):
        self.calls.append(f"sleep {level}")

    def generate(self, prompts, params, use_tqdm):
        self.calls.append(f"generate {len(prompts)}")
        outputs = []
        for prompt, p in zip(prompts, params, strict=True):
            tokens = (len(prompt["prompt_token_ids"]), p.settings["seed"])
            logprobs = SimpleNamespace(token_ids=list(tokens), logprobs=[-t / 10 for t in tokens])
            outputs.append(SimpleNamespace(outputs=[SimpleNamespace(token_ids=tokens, logprobs=logprobs)]))
        self.params = params
        return outputs


@pytest.fixture
def trainer(monkeypatch):
    vllm = ModuleType("vllm")
    vllm.SamplingParams = SamplingParams
    monkeypatch.setitem(sys.modules, "vllm", vllm)
    llm = Engine()
    engine = SimpleNamespace(
        llm=llm,
        tensor_parallel_size=1,
        _llm_weights_sleeping=True,
        sync_weights=lambda: (llm.calls.append("weights"), setattr(engine, "_llm_weights_sleeping", False)),
    )
    return SimpleNamespace(vllm_generation=engine, llm=llm)


def ask(trainer, prompts, seeds):
    answers = {}
    generate_with_vllm(
        trainer.vllm_generation, prompts, seeds, SAMPLING, lambda i, ids, lp: answers.__setitem__(i, (ids, lp))
    )
    return answers


def test_every_answer_has_its_seed_and_its_logprobs(trainer):
    answers = ask(trainer, [[1, 2, 3], [4]], [11, 12])
    assert answers == {0: ([3, 11], [-0.3, -1.1]), 1: ([1, 12], [-0.1, -1.2])}
    settings = trainer.llm.params[0].settings
    assert settings["max_tokens"] == 7 and settings["logprobs"] == 0 and settings["flat_logprobs"]


def test_logprobs_of_other_tokens_are_refused(trainer):
    at_once = trainer.llm.generate

    def generate(prompts, params, use_tqdm):
        outputs = at_once(prompts, params, use_tqdm)
        outputs[0].outputs[0].logprobs.token_ids[0] += 1
        return outputs

    trainer.llm.generate = generate
    with pytest.raises(PolicyError, match="tokens that it sampled"):
        ask(trainer, [[1, 2, 3]], [11])


def test_an_answer_is_told_when_it_is_finished(trainer):
    """By an engine that numbers requests on."""
    told, engine = finishing_last_first(trainer.llm, first=7), trainer.vllm_generation
    step = trainer.llm.llm_engine.step
    for _ in range(2):
        told.clear()
        generate_with_vllm(engine, [[1], [2, 2]], [11, 12], SAMPLING, lambda i, ids, lp: told.append((i, ids)))
        assert told == [(1, [2, 12]), "step", (0, [1, 11]), "step"]
        assert trainer.llm.llm_engine.step is step


def test_one_wake_up_and_one_sleep_a_step(trainer):
    for _ in range(2):
        with awake(trainer):
            for _ in range(3):
                ask(trainer, [[1]], [1])
    step = ["weights", "wake ['kv_cache']", *["generate 1"] * 3, "sleep 2"]
    assert trainer.llm.calls == step * 2


def test_a_process_of_a_group_keeps_its_own_answers(trainer, monkeypatch):
    import torch.distributed as dist

    trainer.vllm_generation.tensor_parallel_size = 2
    trainer.vllm_generation.tp_group = "group"

    def gather(into, own, group):
        into[:] = [([[9, 9]], [50]), own]

    monkeypatch.setattr(dist, "get_rank", lambda group: 1)
    monkeypatch.setattr(dist, "all_gather_object", gather)
    assert ask(trainer, [[1], [2, 2, 2]], [60, 61]) == {0: ([1, 60], [-0.1, -6.0]), 1: ([3, 61], [-0.3, -6.1])}
    assert trainer.llm.calls == ["generate 3"]


def test_the_engine_that_trl_makes_drafts(monkeypatch):
    place = ModuleType("trl.generation.vllm_generation")
    place.LLM = lambda **settings: settings
    monkeypatch.setitem(sys.modules, "trl.generation.vllm_generation", place)
    own = place.LLM
    with engines_draft(16):
        made = place.LLM(model="m")
    assert made["model"] == "m" and made["speculative_config"]["num_speculative_tokens"] == 16
    with engines_draft(0):
        assert place.LLM(model="m") == {"model": "m"}
    assert place.LLM is own
