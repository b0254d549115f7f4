"""A model in the shapes of another, with random weights."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from core_fixtures import make_module
from train_fixtures import save_model, train, verdict
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig
from writer_fixtures import small_composed

from kevin.core import dialogue
from kevin.core.config import PolicyConfig, Study
from kevin.core.errors import ConfigError
from kevin.core.types import Task
from kevin.policy.interface import Request, Sampling
from kevin.policy.load import load_policy
from kevin.tasks.format import inspect_task
from kevin.train import records
from kevin.train.architecture import read_architecture
from kevin.train.random_model import write_random_model
from kevin.train.records import TrainingStoppedError
from kevin.writer.past_files import rehearsed_answers


def _like(folder: Path, vocab_size: int = 64) -> Path:
    config = LlamaConfig(
        vocab_size=vocab_size,
        hidden_size=24,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        intermediate_size=40,
    )
    config.architectures = ["LlamaForCausalLM"]
    config.save_pretrained(folder)
    return folder / "config.json"


def test_it_has_the_shapes_of_the_one_and_the_tokenizer_of_the_other(tmp_path):
    like, words = _like(tmp_path / "like"), save_model(tmp_path / "words")
    count = write_random_model(like, words, tmp_path / "model", seed=3)
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "model", dtype="auto")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "model")
    assert model.num_parameters() == count and model.dtype == torch.bfloat16
    assert type(model).__name__ == "LlamaForCausalLM" and model.config.num_hidden_layers == 3
    assert tokenizer.chat_template and model.generation_config.eos_token_id == tokenizer.eos_token_id
    again = write_random_model(tmp_path / "like", words, tmp_path / "again", seed=3)
    other = AutoModelForCausalLM.from_pretrained(tmp_path / "again", dtype="auto")
    assert again == count and all(
        torch.equal(a, b) for a, b in zip(model.parameters(), other.parameters(), strict=True)
    )
    assert read_architecture(tmp_path / "model") == read_architecture(like)


def test_what_cannot_serve_is_said_and_nothing_is_written(tmp_path):
    like, words = _like(tmp_path / "like"), save_model(tmp_path / "words")
    few = _like(tmp_path / "few", vocab_size=4)
    with pytest.raises(ConfigError, match=r"9 tokens, .* rows for 4"):
        write_random_model(few, words, tmp_path / "model", seed=0)
    with pytest.raises(ConfigError, match="no tokenizer in"):
        write_random_model(like, tmp_path / "nowhere", tmp_path / "model", seed=0)
    with pytest.raises(ConfigError, match="lacks a chat template"):
        write_random_model(like, save_model(tmp_path / "mute", template=None), tmp_path / "model", seed=0)
    (tmp_path / "bad.json").write_text(json.dumps({"model_type": "nothing"}))
    with pytest.raises(ConfigError, match="causal language model"):
        write_random_model(tmp_path / "bad.json", words, tmp_path / "model", seed=0)
    assert not (tmp_path / "model").exists()


def test_a_training_of_it_is_a_rehearsal_that_goes_on(tmp_path, caplog, one_thread, monkeypatch):
    """A random model's answers hold no kernel, and leave the expected opening: else it would end after a step."""

    def all_wrong(pairs):
        return [verdict(kernel.model_copy(update={"source": "wrong"})) for _, kernel in pairs]

    monkeypatch.setattr(records, "STOP_PATIENCE", 1)
    options = {"num_steps": 2, "judge": all_wrong, "stop_nothing_correct": 1, "stop_not_okay": 0.01}
    with pytest.raises(TrainingStoppedError, match="was correct"):
        train(tmp_path, out="real", **options)
    model = tmp_path / "base"
    write_random_model(model / "config.json", save_model(tmp_path / "words"), tmp_path / "random", seed=0)
    shutil.copy(tmp_path / "random/random_weights", model)
    assert len(train(tmp_path, **options)) == 2
    assert "has random weights, so this is a rehearsal" in caplog.text


SOFTPLUS = make_module("return torch.nn.functional.softplus(x)", "torch.randn(16, 64)")


def _kernelbench_task():
    found = Task(id="kb/1/29", level=1, name="29_Softplus", source=SOFTPLUS, origin="kernelbench")
    return found.model_copy(update={"spec": inspect_task(SOFTPLUS, found.id)})


def test_answers_of_the_kernel_writer_stand_in_for_what_it_says(tmp_path):
    like, tasks = _like(tmp_path / "like", vocab_size=700), [_kernelbench_task()]
    answers = {t.id: rehearsed_answers(t, "cpp", 64, 0) for t in tasks}
    write_random_model(like, None, tmp_path / "model", seed=0, tasks=tasks, language="cpp", answers=answers)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "model")
    assert len(tokenizer) == 700, "whatever is sampled is a token"
    text = "void launch(const float* x) {}\n"
    assert tokenizer.decode(tokenizer(text)["input_ids"]) == text
    assert tokenizer.eos_token == "<|im_end|>" != tokenizer.pad_token
    policy = load_policy("base", PolicyConfig(model=str(tmp_path / "model")))
    conversation = dialogue.conversation(tasks[0], (), dialect="c_abi", language="cpp")
    requests = [
        Request(conversation=conversation, task_id="kb/1/29", trajectory=k, turn=turn)
        for turn in (1, 2)
        for k in (0, 1)
    ]
    told = {}
    answers = policy.complete(requests, Sampling(max_tokens=4), told.__setitem__)
    assert [told[i] for i in range(4)] == answers
    assert len({a.text for a in answers}) == 4 and all(
        "```cpp" in a.text and a.finish_reason == "stop" for a in answers
    )
    assert {a.num_completion_tokens for a in answers} <= {1, 2, 3, 4}
    other = Request(conversation=conversation, task_id="kb/1/99", trajectory=0, turn=1)
    assert "```" not in policy.complete([other], Sampling(max_tokens=4))[0].text


def test_held_out_tasks_have_such_answers_too():
    composed = small_composed(2)
    texts = [rehearsed_answers(t, "cpp", 8, 0) for t in composed]
    assert [len(t) for t in texts] == [8, 8] and all("```cpp" in text for t in texts for text in t)
    unknown = Task(id="mine/softplus", level=1, name="softplus", source=SOFTPLUS, origin="user")
    assert rehearsed_answers(unknown, "cpp", 8, 0) == []


def test_a_study_of_random_weights_says_so(tmp_path):
    base = {"random_shapes": str(_like(tmp_path / "like")), "model": "someone/model", "revision": 40 * "a"}
    with pytest.raises(ValueError, match=r"policies\.base\.random_shapes: .* set report\.miniature"):
        Study.model_validate({"policies": {"base": base}})
    study = Study.model_validate({"policies": {"base": base}, "report": {"miniature": True}})
    assert study.policies["base"].model == "results/random_models/base" and study.policies["base"].revision is None
