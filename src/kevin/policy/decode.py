"""Sampling from a causal language model in batches, with little overhead per step.

Beside ``generate`` of transformers this prefills equal prompts once (the trajectories of a task share theirs), lets
finished rows go, grows the cache in place, and draws each row from its own seed, so that an answer does not depend on
the rows around it.

Shape suffixes: B rows, U unique prompts, L padded prompt length, V vocabulary.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from transformers import DynamicCache, PreTrainedModel
from transformers.cache_utils import DynamicLayer

from kevin.core.errors import PolicyError

TokenIds = list[int]

_GROWTH_TOKENS = 64
_COMPACT_BELOW = 0.8
"""Finished rows are dropped when the live ones fall below this share."""


@dataclass(frozen=True)
class Decoding:
    """How tokens are drawn and when a row ends."""

    eos_ids: frozenset[int]
    pad_id: int
    max_tokens: int
    temperature: float = 1.0
    top_p: float = 1.0


class _RoomyLayer(DynamicLayer):
    """Keys and values in buffers with room for the next tokens, instead of a copy of everything at every step."""

    _buffers: tuple[torch.Tensor, torch.Tensor] | None = None

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
            self.keys, self.values = key_states, value_states
            return self.keys, self.values
        assert self.keys is not None and self.values is not None
        old, end = self.keys.shape[-2], self.keys.shape[-2] + key_states.shape[-2]
        if self._buffers is None or self._buffers[0].shape[-2] < end:
            room = end + _GROWTH_TOKENS
            self._buffers = _enlarged(self.keys, room), _enlarged(self.values, room)
        keys, values = self._buffers
        keys[..., old:end, :] = key_states
        values[..., old:end, :] = value_states
        self.keys, self.values = keys[..., :end, :], values[..., :end, :]
        return self.keys, self.values

    def batch_select_indices(self, indices: torch.Tensor) -> None:
        self._buffers = None
        super().batch_select_indices(indices)


def _enlarged(x: torch.Tensor, length: int) -> torch.Tensor:
    buffer = x.new_empty((*x.shape[:-2], length, x.shape[-1]))
    buffer[..., : x.shape[-2], :] = x
    return buffer


def _new_cache(model: PreTrainedModel) -> tuple[DynamicCache, bool]:
    """A cache for the model, and whether rows of it can be selected (not with linear attention)."""
    kv_cache = DynamicCache(config=model.config)
    kv_cache.layers = [_RoomyLayer() if type(layer) is DynamicLayer else layer for layer in kv_cache.layers]
    return kv_cache, all(hasattr(layer, "batch_select_indices") for layer in kv_cache.layers)


def micro_batches(lengths: Sequence[int], max_tokens: int, token_budget: int) -> Iterator[list[int]]:
    """Positions of ``lengths`` in batches of similar length, longest first, each within ``token_budget`` tokens.

    A batch costs rows * (its longest prompt + ``max_tokens``). One row is always let through.
    """
    order = sorted(range(len(lengths)), key=lambda i: (-lengths[i], i))
    while order:
        rows = max(1, token_budget // (lengths[order[0]] + max_tokens))
        yield order[:rows]
        order = order[rows:]


def decode(
    model: PreTrainedModel,
    prompts: Sequence[TokenIds],
    seeds: Sequence[int],
    decoding: Decoding,
    token_budget: int,
) -> Iterator[tuple[int, TokenIds]]:
    """Sample one continuation of every prompt.

    Args:
        seeds: one per prompt; torch's global generators are neither used nor moved.
        token_budget: bounds the memory of a micro-batch, in tokens of the cache.

    Yields:
        Each position once, with the sampled tokens, as soon as the last of them is drawn and before a further one is
        drawn for any other position. That last one is an end token unless ``max_tokens`` were reached. Where the device
        runs out of memory, only what is left of a micro-batch is decoded again, in halves.
    """
    pending = list(micro_batches([len(p) for p in prompts], decoding.max_tokens, token_budget))
    while pending:
        batch = pending.pop(0)
        left = dict.fromkeys(batch)
        try:
            for row, tokens in _decode_batch(model, [prompts[i] for i in batch], [seeds[i] for i in batch], decoding):
                del left[batch[row]]
                yield batch[row], tokens
        except torch.OutOfMemoryError:
            if len(batch) == 1:
                raise PolicyError(
                    f"the device has too little memory for one prompt of {len(prompts[batch[0]])} tokens; lower "
                    f"rollout.max_prompt_tokens and max_response_tokens, or use a bfloat16 or smaller model"
                ) from None
            rest, half = list(left), len(left) // 2
            pending[:0] = [part for part in (rest[:half], rest[half:]) if part]


@torch.inference_mode()
def _decode_batch(
    model: PreTrainedModel, prompts: Sequence[TokenIds], seeds: Sequence[int], decoding: Decoding
) -> Iterator[tuple[int, TokenIds]]:
    """Rows and their tokens in the order in which they end. Between them the caller is out of inference mode."""
    kv_cache, selectable = _new_cache(model)
    unique = list(dict.fromkeys(tuple(p) for p in prompts)) if selectable else [tuple(p) for p in prompts]
    place = {p: i for i, p in enumerate(unique)}
    expand_B = torch.tensor([place[tuple(p)] for p in prompts], device=model.device)
    ids_UL, mask_UL = _left_padded(unique, decoding.pad_id, model.device)
    position_UL = (mask_UL.cumsum(-1) - 1).clamp(min=0)
    logits_BV = _forward(model, ids_UL, mask_UL, position_UL, kv_cache)
    mask_BL, position_B = mask_UL, position_UL[:, -1]
    if selectable and len(unique) < len(prompts):
        kv_cache.batch_select_indices(expand_B)
        logits_BV, mask_BL, position_B = logits_BV[expand_B], mask_UL[expand_B], position_B[expand_B]

    uniform_BT = _uniforms(seeds, decoding.max_tokens).to(model.device)
    eos = torch.tensor(sorted(decoding.eos_ids), device=model.device)
    rows = torch.arange(len(prompts), device=model.device)
    live = torch.ones(len(prompts), dtype=torch.bool, device=model.device)
    sampled_BT = torch.full((len(prompts), decoding.max_tokens), decoding.pad_id, device=model.device)
    num_live = len(prompts)
    for t in range(decoding.max_tokens):
        token_B = draw(logits_BV, uniform_BT[rows, t], decoding.temperature, decoding.top_p)
        sampled_BT[rows, t] = token_B
        ended = live & torch.isin(token_B, eos)
        live = live & ~ended
        num_before, num_live = num_live, int(live.sum())
        if num_live < num_before:
            done = rows[ended]
            yield from zip(done.tolist(), sampled_BT[done, : t + 1].tolist(), strict=True)
        if num_live == 0 or t + 1 == decoding.max_tokens:
            break
        mask_BL = torch.cat([mask_BL, mask_BL.new_ones(len(mask_BL), 1)], dim=1)
        position_B = position_B + 1
        if selectable and num_live < _COMPACT_BELOW * len(rows):
            kept = live.nonzero().squeeze(1)
            kv_cache.batch_select_indices(kept)
            rows, token_B, mask_BL, position_B, live = (x[kept] for x in (rows, token_B, mask_BL, position_B, live))
        logits_BV = _forward(model, token_B[:, None], mask_BL, position_B[:, None], kv_cache)
    cut = rows[live]
    yield from zip(cut.tolist(), sampled_BT[cut].tolist(), strict=True)


def _forward(
    model: PreTrainedModel, ids: torch.Tensor, mask: torch.Tensor, positions: torch.Tensor, kv_cache: DynamicCache
) -> torch.Tensor:
    """Logits of the last position, [rows, V] in float32. Without padding no mask is passed: that path is faster."""
    last_only = {"logits_to_keep": 1} if _takes_logits_to_keep(type(model)) else {}  # type: ignore[arg-type]
    out = model(
        input_ids=ids,
        attention_mask=None if bool(mask.all()) else mask,
        position_ids=positions,
        past_key_values=kv_cache,
        use_cache=True,
        **last_only,
    )
    logits: torch.Tensor = out.logits[:, -1].float()
    return logits


@cache
def _takes_logits_to_keep(kind: type[PreTrainedModel]) -> bool:
    return "logits_to_keep" in inspect.signature(kind.forward).parameters


def draw(logits_BV: torch.Tensor, uniform_B: torch.Tensor, temperature: float, top_p: float) -> torch.Tensor:
    """One token a row by inverting the cumulative distribution at ``uniform_B`` in [0, 1); the likeliest at 0."""
    if temperature == 0:
        return logits_BV.argmax(-1)
    probs_BV = torch.softmax(logits_BV / temperature, dim=-1).double()
    order_BV = None
    if top_p < 1:
        probs_BV, order_BV = probs_BV.sort(dim=-1, descending=True)
        before_BV = probs_BV.cumsum(-1) - probs_BV
        probs_BV = probs_BV.masked_fill(before_BV >= top_p, 0.0)
    cumulative_BV = probs_BV.cumsum(-1)
    target_B1 = uniform_B[:, None] * cumulative_BV[:, -1:]
    index_B1 = torch.searchsorted(cumulative_BV, target_B1, right=True).clamp(max=logits_BV.shape[-1] - 1)
    return (index_B1 if order_BV is None else order_BV.gather(1, index_B1)).squeeze(1)


def _uniforms(seeds: Sequence[int], num: int) -> torch.Tensor:
    """[B, num] numbers in [0, 1), each row from its own seed."""
    generator = torch.Generator()
    return torch.stack([torch.rand(num, generator=generator.manual_seed(s), dtype=torch.float64) for s in seeds])


def _left_padded(
    prompts: Sequence[Sequence[int]], pad_id: int, device: torch.device
) -> tuple[torch.Tensor, torch.Tensor]:
    """Token ids and mask, both [U, L]."""
    length = max(len(p) for p in prompts)
    ids = [[pad_id] * (length - len(p)) + list(p) for p in prompts]
    mask = [[0] * (length - len(p)) + [1] * len(p) for p in prompts]
    return torch.tensor(ids, device=device), torch.tensor(mask, device=device)
