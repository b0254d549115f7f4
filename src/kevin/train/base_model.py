"""The study's own base language model: a small Qwen3, trained from scratch on the kernel writer's transcripts.

It plays the part of a pretrained model: it knows the language of kernels and of this dialogue, and was never shown
which kernels are good. See docs/pretraining.md.
"""

from __future__ import annotations

import logging
import math
import os
import random
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from kevin.core.config import BaseModelConfig, Study
from kevin.core.progress import Progress
from kevin.core.provenance import jobs_side_by_side
from kevin.core.types import Transcript
from kevin.train.packing import (
    ATTENTION,
    Drills,
    Gradients,
    Part,
    Row,
    bucketed,
    register_attention,
    row_of,
    step_parts,
)
from kevin.train.school_batches import encode
from kevin.train.tokenizer import VOCABULARY, train_tokenizer
from kevin.train.training import Training, save_training, summarise_training

log = logging.getLogger(__name__)

_TOKENIZER_TRANSCRIPTS = 800
BATCH_SIZE = 2
"""Transcripts a step, each a conversation with several answers."""
_NICE = 19
"""On a CPU: it takes every core that jobs beside it leave, whose kernels are timed meanwhile."""

LEARNING_RATE = 3e-3
"""Peak of AdamW's schedule: embeddings and vectors."""
MATRIX_LEARNING_RATE = 0.02
"""Peak of Muon's schedule: the matrices of the blocks."""
COEFFICIENTS = (3.4445, -4.7750, 2.0315)
"""Of the quintic iteration: https://kellerjordan.github.io/posts/muon/"""
NUM_ITERATIONS = 5
_MOMENTUM = 0.95
_EPSILON = 1e-7

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


def train_base_model(study: Study, corpus: Iterable[Transcript], out_dir: Path) -> None:
    """Read the corpus, learn the tokenizer, train, and save a Hugging Face folder with its ``training.jsonl`` and
    ``summary.json``.

    The number of steps follows from the configuration and the corpus alone. A killed run leaves no folder and starts
    again.
    """
    config = study.base_model
    start = time.monotonic()
    torch.manual_seed(study.seed)
    if jobs_side_by_side() > 1 and not torch.cuda.is_available():
        os.nice(_NICE)
    torch.set_num_threads(1)  # the operators are too small to share: two threads mostly wait for each other
    written: list[Transcript] = []
    with Progress(config.num_transcripts, "write transcripts", "transcripts") as bar:
        for transcript in corpus:
            written.append(transcript)
            bar.update()
    tokenizer = train_tokenizer(_texts(written[:_TOKENIZER_TRANSCRIPTS]), VOCABULARY)
    rows = [r for r in map(row_of, encode(written, tokenizer)) if r.num_positions <= config.max_tokens]
    num_tokens = sum(r.num_tokens for r in rows)
    log.info("%d transcripts, %d tokens, vocabulary of %d", len(rows), num_tokens, len(tokenizer))
    rng = random.Random(f"kevin batches, seed {study.seed}")
    together = bucketed(rows, BATCH_SIZE)
    epochs = [batch for _ in range(config.num_epochs) for batch in rng.sample(together, len(together))]
    batches = epochs[: config.max_steps]
    pad = int(tokenizer.pad_token_id)
    model = new_model(config, len(tokenizer), end=int(tokenizer.eos_token_id), pad=pad, seed=study.seed)
    drills = Drills([row for batch in batches for row in batch], set(tokenizer.all_special_ids))
    records = _train(model, batches, drills, pad, study, start)
    save_training(out_dir, model, tokenizer, records, summarise_training(records))
    log.info("base model of %d parameters in %.0f s", model.num_parameters(), time.monotonic() - start)


def _texts(written: Sequence[Transcript]) -> list[str]:
    prompts = [m.content for t in written for m in t.conversation]
    return prompts + [a for t in written for e in t.exchanges for a in e.answers]


def new_model(config: BaseModelConfig, vocab_size: int, *, end: int, pad: int, seed: int = 0) -> Qwen3ForCausalLM:
    """A model of the configured size with random weights, on the GPU where there is one.

    Args:
        end, pad: tokens that end an answer, and that fill up.
        seed: of the heads that copy; all other weights are drawn from torch's own generator.
    """
    register_attention()
    model = Qwen3ForCausalLM(
        Qwen3Config(
            vocab_size=vocab_size,
            hidden_size=config.hidden_size,
            num_hidden_layers=config.num_layers,
            num_attention_heads=config.num_heads,
            num_key_value_heads=config.num_heads,
            head_dim=config.hidden_size // config.num_heads,
            intermediate_size=config.intermediate_size,
            max_position_embeddings=config.max_tokens,
            rope_parameters={"rope_type": "default", "rope_theta": ROPE_THETA},
            tie_word_embeddings=True,
            bos_token_id=None,
            eos_token_id=end,
            pad_token_id=pad,
            attn_implementation=ATTENTION,  # type: ignore[call-arg]
        )
    )
    if can_hold_copying_heads(model):
        set_copying_heads(model, seed)
    return model.to("cuda" if torch.cuda.is_available() else "cpu")  # type: ignore[arg-type, no-any-return]


def can_hold_copying_heads(model: Qwen3ForCausalLM) -> bool:
    """Two layers and two heads are needed."""
    return model.config.num_hidden_layers >= 2 and model.config.num_attention_heads >= 2


@torch.no_grad()
def set_copying_heads(model: Qwen3ForCausalLM, seed: int = 0) -> None:
    """Initial weights by which ``model`` copies: the first layer's heads 0 and 1 look one and two tokens back, head 0
    of the second finds where the same two tokens stood before and takes what followed.

    These are induction heads (arXiv 2209.11895). Large models find them after billions of tokens; one that is trained
    for minutes never does, and then can read neither the kernel that it is to go on from, nor what was said of it. So
    it begins with them (mimetic initialisation, arXiv 2305.09828); training may change them like all other weights, and
    drills (`kevin.train.packing`) keep it at copying.

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


def make_optimizers(model: torch.nn.Module) -> list[torch.optim.Optimizer]:
    """AdamW for embeddings and vectors, Muon for the matrices of the blocks: one for those of each shape."""
    others: list[torch.nn.Parameter] = []
    matrices: dict[torch.Size, list[torch.nn.Parameter]] = {}
    for name, p in model.named_parameters():
        (others if p.dim() < 2 or "embed" in name else matrices.setdefault(p.shape, [])).append(p)
    return [
        torch.optim.AdamW(others, lr=LEARNING_RATE, betas=(0.9, 0.98), weight_decay=0.0),
        *(Muon(alike, lr=MATRIX_LEARNING_RATE, weight_decay=0.05) for alike in matrices.values()),
    ]


def orthogonalised(updates: torch.Tensor) -> torch.Tensor:
    """The nearest half-orthogonal matrices, roughly: singular values between about 0.5 and 1.5.

    ``updates`` and the result are (N, R, C) float32.
    """
    tall = updates.size(1) > updates.size(2)
    x = updates.transpose(1, 2) if tall else updates
    x = x / x.norm(dim=(1, 2), keepdim=True).clamp(min=_EPSILON)
    a, b, c = COEFFICIENTS
    for _ in range(NUM_ITERATIONS):
        gram = x @ x.transpose(1, 2)  # (N, r, r), r the smaller of R and C
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.transpose(1, 2) if tall else x


class Muon(torch.optim.Optimizer):
    """Orthogonalised Nesterov momentum for matrices, with decoupled weight decay (``adjust_lr_fn="original"``).

    PyTorch's own iterates in bfloat16, which a processor without native bfloat16 products emulates: that alone made
    four fifths of a training step on such machines, and rounds differently wherever the products are native.
    """

    def __init__(self, params: Iterable[torch.nn.Parameter], lr: float, weight_decay: float) -> None:
        """``params``: all of one shape, and each with a gradient when it steps.

        Raises:
            ValueError: a parameter that is no float32 matrix.
        """
        super().__init__(params, {"lr": lr, "weight_decay": weight_decay})
        if any(p.ndim != 2 or p.dtype != torch.float32 for group in self.param_groups for p in group["params"]):
            raise ValueError("Muon is for float32 matrices; give vectors and other types to another optimizer")

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        (group,) = self.param_groups
        params = group["params"]
        num_rows, num_columns = params[0].shape
        rate = group["lr"] * math.sqrt(max(1.0, num_rows / num_columns))
        momenta = torch.stack([self._momentum(p) for p in params])
        for p, update in zip(params, orthogonalised(momenta), strict=True):
            p.mul_(1 - group["lr"] * group["weight_decay"]).add_(update, alpha=-rate)

    def _momentum(self, p: torch.nn.Parameter) -> torch.Tensor:
        """Nesterov's update, (R, C)."""
        assert p.grad is not None
        if "momentum_buffer" not in self.state[p]:
            self.state[p]["momentum_buffer"] = torch.zeros_like(p.grad)
        buffer = self.state[p]["momentum_buffer"].lerp_(p.grad, 1 - _MOMENTUM)
        return p.grad.lerp(buffer, _MOMENTUM)


def _train(
    model: Qwen3ForCausalLM, batches: Sequence[list[Row]], drills: Drills, pad: int, study: Study, start: float
) -> list[dict[str, float]]:
    """One pass over the batches; a record of every step. ``start``: when all of it began, monotonic seconds."""
    rng = random.Random(f"kevin drills, seed {study.seed}")
    model.train()
    with Progress(len(batches), "train base model", "steps") as bar, Gradients(model) as gradients:
        training = Training(model, make_optimizers(model), len(batches), started=start, map_=gradients.map)
        for rows in batches:
            parts = step_parts(rows, drills, rng, pad)

            def set_gradients(parts: list[Part] = parts) -> dict[str, float]:
                *losses, copying_loss = gradients.set(parts)
                return {
                    "loss": sum(part.weight * loss for part, loss in zip(parts[:-1], losses, strict=True)),
                    "copying_loss": copying_loss,
                    "num_tokens": sum(part.packed.tokens.numel() for part in parts),
                }

            record = training.step(set_gradients)
            bar.note(f"loss {record['loss']:.3f}")
            bar.update()
    model.eval()
    return training.records
