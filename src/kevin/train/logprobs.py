"""Log-probabilities of answers whose prompts begin alike: the common beginning is computed once.

The trajectories of a task share their first prompt, and most of the later ones. TRL computes every sample by itself,
scores every position on a CPU, and pads to the longest sample of the batch: many times the work for a small model.
A model that takes rows without padding (`kevin.train.unpadded`) gets one of all samples, each whole: on a GPU its
compiled layers are worth more than a shared beginning.

Shape suffixes: B rows, P tokens of the common beginning, S padded rest, C padded answer, N answer tokens of all rows,
H hidden size, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch.utils.checkpoint import checkpoint
from transformers import DynamicCache, PreTrainedModel

from kevin.train.unpadded import answer_states, steady_attention, takes_rows

_PART_ELEMENTS = 1 << 26
"""Logits that are held at a time, 256 MB in float32; of a batch of long answers all together would take tens of GB."""


def answer_logprobs(
    model: PreTrainedModel,
    input_ids_BL: torch.Tensor,
    attention_mask_BL: torch.Tensor,
    answer_length: int,
    *,
    temperature: float,
    with_entropy: bool,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Log-probability, and entropy, of each answer token at ``temperature``; 0 at padding. Gradients flow.

    Args:
        input_ids_BL: prompts padded on the left, then answers padded on the right.
        answer_length: padded length C of the answers.

    Returns:
        Two tensors (B, C); the second is detached, and None unless wanted.
    """
    mask_BC = attention_mask_BL[:, -answer_length:].bool()
    prompt_mask = attention_mask_BL[:, :-answer_length].bool()
    prompts = [ids[m].tolist() for ids, m in zip(input_ids_BL[:, :-answer_length], prompt_mask, strict=True)]
    answers = [ids[m].tolist() for ids, m in zip(input_ids_BL[:, -answer_length:], mask_BC, strict=True)]
    if takes_rows(model):
        samples = [p + a for p, a in zip(prompts, answers, strict=True)]
        with steady_attention():
            states_NH, _ = answer_states(model, samples, [len(a) for a in answers])
    else:
        states_NH = _states_after_common(model, prompts, answers)
    tokens_N = input_ids_BL[:, -answer_length:][mask_BC]
    size = max(1, _PART_ELEMENTS // model.get_output_embeddings().weight.shape[0])
    keeps_logits = len(tokens_N) <= size or not torch.is_grad_enabled()
    parts = [
        _part_logprobs(model, states, tokens, temperature, with_entropy, keeps_logits=keeps_logits)
        for states, tokens in zip(states_NH.split(size), tokens_N.split(size), strict=True)
    ]
    logps_BC = torch.zeros(mask_BC.shape, device=mask_BC.device)
    logps_BC = logps_BC.masked_scatter(mask_BC, torch.cat([logps for logps, _ in parts]))
    if not with_entropy:
        return logps_BC, None
    entropy_N = torch.cat([entropy for _, entropy in parts if entropy is not None])
    return logps_BC, torch.zeros_like(logps_BC).masked_scatter(mask_BC, entropy_N)


def _part_logprobs(
    model: PreTrainedModel,
    states_NH: torch.Tensor,
    tokens_N: torch.Tensor,
    temperature: float,
    with_entropy: bool,
    *,
    keeps_logits: bool,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Of some of the answer tokens; where the logits are not kept for the gradient they are computed again for it."""

    def compute(states: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
        logits_NV = model.get_output_embeddings()(states).float() / temperature
        all_logps_NV = torch.log_softmax(logits_NV, dim=-1)
        logps_N = all_logps_NV.gather(1, tokens_N[:, None]).squeeze(1)
        if not with_entropy:
            return logps_N, None
        with torch.no_grad():
            return logps_N, -(all_logps_NV.exp() * all_logps_NV).sum(-1)

    if keeps_logits:
        return compute(states_NH)
    found: tuple[torch.Tensor, torch.Tensor | None] = checkpoint(
        compute, states_NH, use_reentrant=False, preserve_rng_state=False
    )
    return found


def _states_after_common(
    model: PreTrainedModel, prompts: Sequence[list[int]], answers: Sequence[list[int]]
) -> torch.Tensor:
    """As `answer_states`, (N, H)."""
    # In the order of their tokens the first and the last prompt differ first.
    first, last, limit = min(prompts), max(prompts), min(map(len, prompts)) - 1
    num_common = next((i for i in range(limit) if first[i] != last[i]), limit)
    hidden_BSH = _hidden_states(model, prompts, answers, num_common)
    rows = [i for i, a in enumerate(answers) for _ in a]
    places = [len(p) - num_common - 1 + j for p, a in zip(prompts, answers, strict=True) for j in range(len(a))]
    return hidden_BSH[rows, places]


def _hidden_states(
    model: PreTrainedModel, prompts: Sequence[list[int]], answers: Sequence[list[int]], num_common: int
) -> torch.Tensor:
    """States of what follows the common beginning, (B, S, H). Padding on the right cannot be seen from the left."""
    device = model.device
    rests = [p[num_common:] + a for p, a in zip(prompts, answers, strict=True)]
    length = max(map(len, rests))
    rest_BS = torch.tensor([r + [0] * (length - len(r)) for r in rests], device=device)
    past = None
    if num_common:
        past = DynamicCache(config=model.config)
        common_1P = torch.tensor([prompts[0][:num_common]], device=device)
        model.base_model(input_ids=common_1P, past_key_values=past, use_cache=True)
        past.batch_repeat_interleave(len(rests))
    positions_BS = torch.arange(num_common, num_common + length, device=device).expand(len(rests), -1)
    states: torch.Tensor = model.base_model(
        input_ids=rest_BS, position_ids=positions_BS, past_key_values=past, use_cache=past is not None
    ).last_hidden_state
    return states
