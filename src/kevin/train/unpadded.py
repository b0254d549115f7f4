"""Samples of different lengths in one row, without padding: a third less to compute where lengths are mixed. And layers
as compiled programs: most of a small model's step is launching one by one what these fuse.

Only attention sees them one below the other. The tokens of a sample have the positions that they would have alone.

Shape suffixes: T tokens of all samples; R samples, P tokens of the longest one; H heads, D their size.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from itertools import accumulate
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch.nn.functional import scaled_dot_product_attention

from kevin.core.errors import DeviceError, first_line

if TYPE_CHECKING:
    from transformers import PreTrainedModel

log = logging.getLogger(__name__)

ATTENTION = "kevin_unpadded"
"""Name by which transformers knows the attention of such rows."""
_TOLERANCE, _NARROW_TOLERANCE = 1e-3, 0.05
"""In float32, and in types with fewer digits; another attention is as far off as the states are large."""
_LENGTHS = (7, 3, 5)
_ALIGNMENT = 8


class Row(NamedTuple):
    """Samples one behind the other."""

    tokens_1T: torch.Tensor
    positions_1T: torch.Tensor
    places_T: torch.Tensor
    """Where a token stands when the samples are padded and laid out flat."""
    num_samples: int
    """At least two, the second one empty: a compiled layer would be compiled again for one, seven seconds on a GPU."""
    longest: int
    """A multiple of `_ALIGNMENT`: for others a compiled layer's attention would be compiled once more."""


def make_row(samples: Sequence[Sequence[int]], device: torch.device) -> Row:
    """The tokens of ``samples`` as a row on ``device``."""
    longest = -(-max(map(len, samples)) // _ALIGNMENT) * _ALIGNMENT
    tokens = [token for sample in samples for token in sample]
    positions = [i for sample in samples for i in range(len(sample))]
    places = [r * longest + i for r, sample in enumerate(samples) for i in range(len(sample))]
    on_device = torch.tensor([tokens, positions, places], device=device)
    return Row(on_device[:1], on_device[1:2], on_device[2], max(2, len(samples)), longest)


def hidden_states(model: PreTrainedModel, row: Row) -> torch.Tensor:
    """What the model's last layer makes of a row, (T, hidden size); of a model that `leave_out_padding` took.

    Compiled layers are called as for a gradient, or there would be a second program; what they would keep for one that
    nobody wants is dropped: of a model of 7 billion parameters it takes 80 GB.
    """
    wants_gradient = torch.is_grad_enabled()
    kept = nullcontext() if wants_gradient else torch.autograd.graph.saved_tensors_hooks(lambda _: None, lambda x: x)
    with torch.set_grad_enabled(wants_gradient or has_compiled_layers(model)), kept:
        states: torch.Tensor = model.base_model(
            input_ids=row.tokens_1T,
            position_ids=row.positions_1T,
            use_cache=False,
            places=row.places_T,
            num_samples=row.num_samples,
            longest=row.longest,
        ).last_hidden_state
    return states[0] if wants_gradient else states[0].detach()


def answer_states(
    model: PreTrainedModel, samples: Sequence[Sequence[int]], num_answers: Sequence[int]
) -> tuple[torch.Tensor, torch.Tensor]:
    """Of the tokens that each sample's answer has at its end: the states that predict them, (N, hidden size), and the
    tokens, (N,). The state at a token predicts the next one.

    Of a model that takes no rows the samples are padded on the right, where causal attention cannot see it: no mask, so
    that the fast kernels serve.
    """
    lengths = [len(sample) for sample in samples]
    if takes_rows(model):
        row = make_row(samples, model.device)
        tokens, states = row.tokens_1T[0], hidden_states(model, row)
        ends = list(accumulate(lengths))
    else:
        longest = max(lengths)
        padded = torch.tensor([[*s, *[0] * (longest - len(s))] for s in samples], device=model.device)
        tokens = padded.flatten()
        states = model.base_model(input_ids=padded, use_cache=False).last_hidden_state.flatten(0, 1)
        ends = [r * longest + length for r, length in enumerate(lengths)]
    places = [place for end, num in zip(ends, num_answers, strict=True) for place in range(end - num, end)]
    predicted = torch.tensor(places, device=model.device)
    return states[predicted - 1], tokens[predicted]


def takes_rows(model: PreTrainedModel) -> bool:
    """Whether `leave_out_padding` took it; other models get their samples padded."""
    return bool(model.config._attn_implementation == ATTENTION)


def leave_out_padding(model: PreTrainedModel) -> bool:
    """Have ``model`` take rows, if it computes with them what it computes with each sample alone.

    A model may know another attention (windows, sinks, a state of its own), or none that can be replaced: it is tried.

    Returns:
        Whether it does; otherwise it stays as it is.
    """
    from transformers import AttentionInterface

    AttentionInterface.register(ATTENTION, _attention)
    before = model.config._attn_implementation
    was_training = model.training
    model.eval()
    try:
        apart = _apart(model)
    except (TypeError, ValueError, RuntimeError, AttributeError, KeyError) as e:
        log.debug("no rows without padding: %s", e)
        apart = float("inf")
    finally:
        model.train(was_training)
    fits = apart <= (_TOLERANCE if model.dtype == torch.float32 else _NARROW_TOLERANCE)
    model.set_attn_implementation(ATTENTION if fits else before)
    if not fits:
        log.info("samples are padded: this model's attention cannot be replaced")
    return fits


def lay_out_in_rows(model: PreTrainedModel) -> None:
    """Have ``model`` take rows where it can, its layers compiled."""
    if leave_out_padding(model):
        compile_layers(model)


@contextmanager
def steady_attention() -> Iterator[None]:
    """Without cuDNN's attention, which plans anew for every length: on an H200 the host took longer than the GPU."""
    before = torch.backends.cuda.cudnn_sdp_enabled()
    torch.backends.cuda.enable_cudnn_sdp(False)
    try:
        yield
    finally:
        torch.backends.cuda.enable_cudnn_sdp(before)


@torch.no_grad()
def _apart(model: PreTrainedModel) -> float:
    """Largest difference between the states of a row and of its samples alone, over the largest state."""
    limit = int(model.config.get_text_config().vocab_size)
    samples = [[(17 * i + 5 * r) % limit for i in range(n)] for r, n in enumerate(_LENGTHS)]
    alone = [
        model.base_model(input_ids=torch.tensor([s], device=model.device), use_cache=False).last_hidden_state[0]
        for s in samples
    ]
    model.set_attn_implementation(ATTENTION)
    together = hidden_states(model, make_row(samples, model.device))
    expected = torch.cat(alone)
    return float((together - expected).abs().max() / expected.abs().max())


class _Padded(torch.autograd.Function):
    """(T, H, D) to (R, P, H, D), zeros where there is no token. Gradients are picked, where autograd would add."""

    @staticmethod
    def forward(ctx: Any, x_THD: torch.Tensor, places_T: torch.Tensor, num_samples: int, longest: int) -> torch.Tensor:
        ctx.save_for_backward(places_T)
        laid_out = x_THD.new_zeros(num_samples * longest, *x_THD.shape[1:]).index_copy(0, places_T, x_THD)
        return laid_out.view(num_samples, longest, *x_THD.shape[1:])

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None, None, None]:
        (places_T,) = ctx.saved_tensors
        return gradient.flatten(0, 1).index_select(0, places_T), None, None, None


class _Unpadded(torch.autograd.Function):
    """The way back: (R, P, H, D) to (T, H, D)."""

    @staticmethod
    def forward(ctx: Any, x_RPHD: torch.Tensor, places_T: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(places_T)
        ctx.size = x_RPHD.shape[:2]
        return x_RPHD.flatten(0, 1).index_select(0, places_T)

    @staticmethod
    def backward(ctx: Any, gradient_THD: torch.Tensor) -> tuple[torch.Tensor, None]:
        (places_T,) = ctx.saved_tensors
        num_samples, longest = ctx.size
        shape = gradient_THD.shape[1:]
        laid_out = gradient_THD.new_zeros(num_samples * longest, *shape).index_copy(0, places_T, gradient_THD)
        return laid_out.view(num_samples, longest, *shape), None


def _attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    *,
    places: torch.Tensor,
    num_samples: int,
    longest: int,
    scaling: float | None = None,
    **_: Any,
) -> tuple[torch.Tensor, None]:
    """Causal attention within each sample. Query, key and value are (1, H, T, D); the result is (1, T, H, D)."""

    def padded(x: torch.Tensor) -> torch.Tensor:
        narrow = x[0].transpose(0, 1).to(value.dtype)  # under autocast rotations are float32
        laid_out: torch.Tensor = _Padded.apply(narrow, places, num_samples, longest)
        return laid_out.transpose(1, 2)

    out_RHPD = scaled_dot_product_attention(
        padded(query),
        padded(key),
        padded(value),
        is_causal=True,
        scale=scaling,
        enable_gqa=query.shape[1] != key.shape[1],
    )
    out_THD: torch.Tensor = _Unpadded.apply(out_RHPD.transpose(1, 2), places)
    return out_THD[None], None


def compile_layers(model: PreTrainedModel) -> int:
    """Compile the repeated blocks of ``model``, in place: one program for all of them, rows of any length.

    It is made when the first of them is called; weights, their names and what is saved stay as they are.

    Returns:
        How many blocks there are; 0 for a model without a list of them, which stays as it is.
    """
    blocks = _blocks(model)
    for block in blocks:
        block.compile(dynamic=True)
    return len(blocks)


def has_compiled_layers(model: PreTrainedModel) -> bool:
    """Whether `compile_layers` compiled some. Calling them without gradients would take a second program."""
    return any(block._compiled_call_impl is not None for block in _blocks(model)[:1])


def _blocks(model: PreTrainedModel) -> list[torch.nn.Module]:
    lists = [m for m in model.base_model.children() if isinstance(m, torch.nn.ModuleList)]
    return list(max(lists, key=len, default=()))


@contextmanager
def compiling() -> Iterator[None]:
    """What goes wrong in compiling is told in one sentence.

    Raises:
        DeviceError: a block could not be compiled.
    """
    from torch._dynamo.exc import BackendCompilerFailed
    from torch._inductor.exc import InductorError

    try:
        yield
    except (BackendCompilerFailed, InductorError) as e:
        reason = first_line(getattr(e, "inner_exception", e))
        raise DeviceError(
            f"torch.compile failed on a layer of the model: {reason}; it wants Triton, a C compiler and the "
            f"headers of Python (Debian: python3-dev). Install them, or set TORCH_COMPILE_DISABLE=1 in the environment"
        ) from e
