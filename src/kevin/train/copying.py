"""Copying from the context: heads that can do it before any training, and drills that keep them at it.

A language model copies what stands in its prompt by two layers of attention: heads that look one and two tokens back,
and a head that looks for the place where the last two tokens stood before and takes what followed (induction heads,
arXiv 2209.11895). Large models find them after billions of tokens; one that is trained for minutes never does, and then
can read neither the kernel that it is to go on from, nor what was said of it. So the own base model begins with them
(mimetic initialisation, arXiv 2305.09828), and training may change them like all other weights.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING

import torch

from kevin.train.packing import Branch, Row

if TYPE_CHECKING:
    from transformers import Qwen3ForCausalLM

ROPE_THETA = 1e6
"""Base of the rotary positions. Half of a head's pairs then turn by less than a milliradian a token, so that what they
hold can be compared over a whole prompt."""
_SLOW = 1.5e-3
"""Radians a token, at most, of pairs whose content is compared."""
_NUM_FAST = 6
"""Pairs by whose turning a head tells one token back from two."""
_SCALE = 0.08
_BACK_SHARPNESS, _MATCH_SHARPNESS = 2.5, 2.0
_COPIED_GAIN = 2.0


def can_hold_copying_heads(model: Qwen3ForCausalLM) -> bool:
    """Two layers and two heads are needed."""
    return model.config.num_hidden_layers >= 2 and model.config.num_attention_heads >= 2


@torch.no_grad()
def set_copying_heads(model: Qwen3ForCausalLM, seed: int = 0) -> None:
    """Initial weights by which ``model`` copies: the first layer's heads 0 and 1 look one and two tokens back, head 0
    of the second finds where the same two tokens stood before and takes what followed.

    The hidden size H is split into three parts of (H - 2) / 3: a token's own content, where its embedding stands at
    first, and that of the two tokens before it. One more dimension is the same for all tokens; from it alone the first
    two heads make their queries and keys, which differ by the turn of so many tokens. All layers write nothing else
    at first. Weights of heads that are not named here stay as they are.
    """
    config = model.config
    size, half = config.head_dim, config.head_dim // 2
    width = min((config.hidden_size - 2) // 3, size)
    own, one_back, two_back = (slice(i * width, (i + 1) * width) for i in range(3))
    constant = config.hidden_size - 1
    generator = torch.Generator().manual_seed(seed)
    turns = ROPE_THETA ** (-torch.arange(half) / half)  # radians a token, of each pair (i, i + half)

    embedded = model.model.embed_tokens.weight
    spread = _SCALE * math.sqrt(3)
    embedded.zero_()
    embedded[:, own] = torch.randn(len(embedded), width, generator=generator) * spread
    embedded[:, constant] = _SCALE * math.sqrt(width)
    norm = math.sqrt((width * spread**2 + width * _SCALE**2) / config.hidden_size)  # what RMSNorm divides by
    for layer in model.model.layers:
        layer.self_attn.o_proj.weight.zero_()
        layer.mlp.down_proj.weight.zero_()

    first, second = (layer.self_attn for layer in model.model.layers[:2])
    eye = torch.eye(width)
    for attention, sharpness in ((first, _BACK_SHARPNESS), (second, _MATCH_SHARPNESS)):
        attention.q_norm.weight.fill_(sharpness)
        attention.k_norm.weight.fill_(sharpness)
    for head, (back, written) in enumerate(((1, one_back), (2, two_back))):
        rows = slice(head * size, (head + 1) * size)
        query, key, value = (p.weight[rows] for p in (first.q_proj, first.k_proj, first.v_proj))
        for weights in (query, key, value):
            weights.zero_()
        fast = torch.arange(min(_NUM_FAST, half))
        query[fast, constant] = torch.cos(back * turns[fast])
        query[fast + half, constant] = -torch.sin(back * turns[fast])
        key[fast, constant] = 1
        value[:width, own] = eye
        first.o_proj.weight[written, head * size : head * size + width] = eye * norm

    query, key, value = (p.weight[:size] for p in (second.q_proj, second.k_proj, second.v_proj))
    for weights in (query, key, value):
        weights.zero_()
    slow = torch.nonzero(turns < _SLOW).flatten()
    dims = torch.cat([slow, slow + half])
    dims = dims[torch.randperm(len(dims), generator=generator)]
    num = min(len(dims) // 2, width)
    compared = torch.linalg.qr(torch.randn(width, width, generator=generator))[0][:num]
    query[dims[:num], own], key[dims[:num], one_back] = compared, compared
    query[dims[num : 2 * num], one_back], key[dims[num : 2 * num], two_back] = compared, compared
    value[:width, own] = eye
    second.o_proj.weight[own, :width] = eye * norm * _COPIED_GAIN


class Drills:
    """Rows of tokens drawn at random, whose answers are pieces of them: nothing but copying helps there."""

    def __init__(self, rows: Iterable[Row], special: Collection[int]) -> None:
        """``rows``: whose answers' tokens are drawn, common ones more often, as the root of their number."""
        counts = Counter(t for row in rows for b in row.branches for t in b.tokens)
        self._tokens = sorted(t for t in counts if t not in special)
        self._weights = [math.sqrt(counts[t]) for t in self._tokens]

    def draw(self, rng: random.Random, num_tokens: int = 100, num_pieces: int = 3, length: int = 40) -> Row:
        """A row of so many tokens and so many pieces of it."""
        spine = rng.choices(self._tokens, weights=self._weights, k=num_tokens)
        starts = [rng.randrange(num_tokens - length + 1) for _ in range(num_pieces)]
        return Row(spine, [Branch(num_tokens, spine[s : s + length]) for s in starts])
