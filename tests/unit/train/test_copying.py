"""Heads that copy from the context, and drills of it."""

from __future__ import annotations

import random

import pytest
import torch
from torch.nn.functional import cross_entropy

from kevin.core.config import BaseModelConfig
from kevin.train import base_model
from kevin.train.base_model import new_model
from kevin.train.packing import Branch, Drills, Row

pytestmark = pytest.mark.usefixtures("one_thread")

VOCABULARY = 700


def repeated(num_tokens: int, seed: int) -> torch.Tensor:
    """(1, 2 N): random tokens twice."""
    once = torch.randint(0, VOCABULARY, (1, num_tokens), generator=torch.Generator().manual_seed(seed))
    return torch.cat([once, once], dim=1)


def guesses(config: BaseModelConfig, tokens: torch.Tensor) -> tuple[float, float]:
    """Of the second half: share of tokens that are thought likeliest, and the loss."""
    torch.manual_seed(0)
    model = new_model(config, VOCABULARY, end=0, pad=1)
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
    model = new_model(BaseModelConfig(), VOCABULARY, end=0, pad=1)
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
