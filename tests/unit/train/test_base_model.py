"""The base model: tokenizer, packing, a training run of a few steps that leaves a folder; heads that copy; Muon."""

from __future__ import annotations

import json
import random
from collections import Counter

import pytest
import torch
from torch.nn.functional import cross_entropy
from transformers import AutoModelForCausalLM, AutoTokenizer
from writer_fixtures import small_catalog, small_composed

from golden import same_losses
from kevin.core.config import BaseModelConfig, PolicyConfig, Study
from kevin.core.errors import ConfigError
from kevin.core.types import Message
from kevin.policy.interface import Request, Sampling
from kevin.policy.load import load_policy
from kevin.tasks.catalog import catalog
from kevin.train import base_model
from kevin.train.packing import IGNORED, Branch, Drills, Row, answer_loss, pack, row_of
from kevin.train.school_batches import encode
from kevin.train.tokenizer import VOCABULARY, train_tokenizer
from kevin.train.training import rate_share
from kevin.writer import corpus
from kevin.writer.corpus import scratch_corpus, scratch_tasks
from kevin.writer.transcripts import transcripts

pytestmark = pytest.mark.usefixtures("one_thread")

CONFIG = BaseModelConfig(
    hidden_size=64,
    num_heads=1,
    num_layers=2,
    intermediate_size=64,
    num_transcripts=24,
    max_steps=5,
)


@pytest.fixture(scope="module")
def written():
    return list(transcripts([*small_catalog(), *small_composed(10)], "cpp", 24, 3, 0, first_answers=2, later_answers=2))


@pytest.fixture(scope="module")
def tokenizer(written):
    return train_tokenizer(base_model._texts(written), VOCABULARY)


def test_text_survives_the_tokenizer(written, tokenizer):
    text = written[0].exchanges[0].answers[0] + "\nünï 0.1234 \t x"
    assert tokenizer.decode(tokenizer(text, add_special_tokens=False)["input_ids"]) == text


def test_lines_become_pieces_and_constants_stay_whole(tokenizer):
    def pieces(text: str) -> list[str]:
        return [tokenizer.decode([i]) for i in tokenizer(text, add_special_tokens=False)["input_ids"]]

    assert pieces("import torch.nn as nn\n") == ["import torch.nn as nn\n"]
    assert "1e-05" in pieces("        self.layer_norm = nn.LayerNorm((channels, height, width), eps=1e-05)\n")
    label, _, speed, *_ = pieces("The last one: Correct, 0.76x the speed of PyTorch.\n")
    assert label == "The last one: " and speed == pieces("Correct, 0.76x the speed of PyTorch.\n")[1]
    prompt, kernel = pieces("launch(const float* x, float* out);\n"), pieces("launch(const float* x, float* out) {\n")
    assert "const float* x" in prompt and "const float* x" in kernel


def test_a_packed_row_has_the_loss_of_its_samples(written, tokenizer):
    rows = [row_of(samples) for samples in encode(written[:6], tokenizer)]
    torch.manual_seed(0)
    model = base_model.new_model(CONFIG, len(tokenizer), end=1, pad=0)
    torch.nn.init.normal_(model.model.embed_tokens.weight, std=1.0)
    packed = [answer_loss(model, pack(row, tokenizer.pad_token_id)).item() for row in rows]
    model.set_attn_implementation("sdpa")
    for row, loss in zip(rows, packed, strict=True):
        total, num = 0.0, 0
        for at, answer in row.branches:
            ids = torch.tensor([[*row.spine[:at], *answer]])
            labels = ids.clone()
            labels[:, :at] = IGNORED
            total += model(input_ids=ids, labels=labels).loss.item() * len(answer)
            num += len(answer)
        assert loss == pytest.approx(total / num, rel=1e-4)


@pytest.fixture(scope="module")
def study():
    own = [t for t in catalog("cpu") if t.name in ("relu", "softmax")]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(corpus, "build_tasks", lambda study: [(t, "train") for t in own])
        yield Study(policies={"base": PolicyConfig(model="model")}, base_model=CONFIG)


@pytest.fixture(scope="module")
def trained(study, tmp_path_factory):
    out = tmp_path_factory.mktemp("trained") / "base_model"
    base_model.train_base_model(study, scratch_corpus(study), out)
    return out


def records_of(out):
    return [json.loads(line) for line in (out / "training.jsonl").read_text().splitlines()]


def test_training_leaves_a_folder_that_loads_and_answers(trained):
    assert [r["step"] for r in records_of(trained)] == [1, 2, 3, 4, 5]
    assert sorted(p.name for p in trained.parent.iterdir()) == ["base_model"]
    tokenizer, model = AutoTokenizer.from_pretrained(trained), AutoModelForCausalLM.from_pretrained(trained)
    assert len(tokenizer("import torch.nn as nn\n")["input_ids"]) == 1
    assert model.config.head_dim == 64
    assert model.generation_config.eos_token_id == tokenizer.eos_token_id
    policy = load_policy("base", PolicyConfig(model=str(trained)))
    request = Request(conversation=(Message(role="user", content="Write.\n"),), task_id="t", trajectory=0, turn=1)
    (completion,) = policy.complete([request], Sampling(max_tokens=8))
    assert completion is not None and completion.num_completion_tokens > 0


def test_its_losses_are_the_golden_ones(trained):
    """On any processor: they differ by rounding."""
    found = {name: [r[name] for r in records_of(trained)] for name in ("loss", "copying_loss")}
    same_losses("base_model", "losses/base_model.json", found, rel=1e-3)


def test_training_again_gives_the_same_weights(study, trained, tmp_path):
    base_model.train_base_model(study, scratch_corpus(study), tmp_path / "again")
    a, b = (AutoModelForCausalLM.from_pretrained(out).state_dict() for out in (trained, tmp_path / "again"))
    assert all(torch.equal(a[k], b[k]) for k in a)


def test_every_epoch_takes_each_batch_once_and_drills_are_recorded(study, tmp_path):
    config = CONFIG.model_copy(update={"num_epochs": 2, "max_steps": 100, "num_transcripts": 8})
    study = study.model_copy(update={"base_model": config})
    base_model.train_base_model(study, scratch_corpus(study), tmp_path / "m")
    records = records_of(tmp_path / "m")
    assert len(records) == 2 * 8 // base_model.BATCH_SIZE
    assert all(r["copying_loss"] > 0 for r in records)


def test_other_dialects_are_refused(study):
    with pytest.raises(ConfigError, match="c_abi"):
        scratch_corpus(study.model_copy(update={"dialect": "load_inline"}))


def test_the_study_s_tasks_come_more_often_than_others(study):
    names = Counter(t.name for t in scratch_tasks(study))
    assert names["relu"] == names["softmax"] == corpus.OWN_TASKS
    assert names["sigmoid"] == 1


def test_the_learning_rate_warms_up_and_falls():
    rates = [rate_share(s, 100) for s in range(100)]
    assert max(rates) == pytest.approx(1.0, abs=0.01)
    assert rates[0] < 0.3 and rates[-1] < 0.1
    assert rates[10:] == sorted(rates[10:], reverse=True)


# --- heads that copy from the context, and drills of it -------------------------------------------------------

NUM_WORDS = 700


def repeated(num_tokens: int, seed: int) -> torch.Tensor:
    """(1, 2 N): random tokens twice."""
    once = torch.randint(0, NUM_WORDS, (1, num_tokens), generator=torch.Generator().manual_seed(seed))
    return torch.cat([once, once], dim=1)


def guesses(config: BaseModelConfig, tokens: torch.Tensor) -> tuple[float, float]:
    """Of the second half: share of tokens that are thought likeliest, and the loss."""
    torch.manual_seed(0)
    model = base_model.new_model(config, NUM_WORDS, end=0, pad=1)
    model.set_attn_implementation("sdpa")
    half = tokens.size(1) // 2
    with torch.no_grad():
        logits = model(tokens.to(model.device)).logits[0, half:-1].cpu()
    said = tokens[0, half + 1 :]
    return float((logits.argmax(-1) == said).float().mean()), float(cross_entropy(logits, said))


@pytest.mark.parametrize("num_heads", [2, 4])
@pytest.mark.parametrize("num_tokens", [20, 300])
def test_an_untrained_model_copies_what_it_reads(
    num_heads: int, num_tokens: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = BaseModelConfig(num_heads=num_heads)
    tokens = repeated(num_tokens, seed=num_tokens)
    copied, loss = guesses(config, tokens)
    monkeypatch.setattr(base_model, "can_hold_copying_heads", lambda model: False)
    plain, plain_loss = guesses(config, tokens)
    assert copied > 0.5 and plain < 0.1
    assert loss < plain_loss - 2


def test_two_tokens_tell_which_of_two_places_is_gone_on_from() -> None:
    a, b, c, d, e = 11, 22, 33, 44, 55
    tokens = [a, b, c, *range(100, 120), d, b, e, *range(120, 140)]
    torch.manual_seed(0)
    model = base_model.new_model(BaseModelConfig(), NUM_WORDS, end=0, pad=1)
    model.set_attn_implementation("sdpa")
    for before, after in ((a, c), (d, e)):
        with torch.no_grad():
            logits = model(torch.tensor([[*tokens, before, b]], device=model.device)).logits[0, -1]
        assert int(logits.argmax()) == after


def test_answers_of_drills_are_pieces_of_them() -> None:
    rows = [Row([1, 2], [Branch(2, [5, 6, 7, 0])]), Row([3], [Branch(1, [7, 8, 0])])]
    row = Drills(rows, special={0}).draw(random.Random(1), num_tokens=30, num_pieces=4, length=10)
    assert set(row.spine) == {5, 6, 7, 8} and len(row.branches) == 4
    for branch in row.branches:
        assert branch.at == 30
        assert any(row.spine[i : i + 10] == branch.tokens for i in range(21))


# --- Muon: the optimizer of PyTorch, without bfloat16 -------------------------------------------------------------


def stepped(make, shape: tuple[int, int], num_steps: int = 3) -> list[torch.Tensor]:
    torch.manual_seed(0)
    params = [torch.nn.Parameter(torch.randn(shape)) for _ in range(2)]
    optimizer = make(params)
    for _ in range(num_steps):
        for p in params:
            p.grad = torch.randn_like(p)
        optimizer.step()
    return [p.detach() for p in params]


@pytest.mark.parametrize("shape", [(32, 32), (96, 32), (32, 96)])
def test_it_steps_as_pytorch_s_does_up_to_bfloat16(shape):
    settings = {"lr": 0.02, "weight_decay": 0.05}
    ours = stepped(lambda params: base_model.Muon(params, **settings), shape)
    theirs = stepped(lambda params: torch.optim.Muon(params, **settings, adjust_lr_fn="original"), shape)
    start = stepped(lambda params: base_model.Muon(params, lr=0.0, weight_decay=0.0), shape)
    for a, b, s in zip(ours, theirs, start, strict=True):
        assert (a - b).norm() < 0.02 * (b - s).norm()


@pytest.mark.parametrize("shape", [(2, 24, 40), (3, 48, 16), (1, 16, 48)])
def test_singular_values_come_near_one(shape):
    updates = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    values = torch.linalg.svdvals(base_model.orthogonalised(updates))
    assert values.min() > 0.3 and values.max() < 1.3


def test_only_float32_matrices_are_taken():
    for wrong in (torch.zeros(3), torch.zeros(3, 3, dtype=torch.bfloat16)):
        with pytest.raises(ValueError, match="float32 matrices"):
            base_model.Muon([torch.nn.Parameter(wrong)], lr=0.1, weight_decay=0.0)
