"""Is an output right, and where is it wrong? KernelBench's tolerances, scaled to the magnitude of what is compared.

An element passes when |out - ref| <= atol * max(1, rms(ref)) + rtol * |ref|; a mask's -1e9 does not count in rms. Where
the whole reference is tiny against atol (rms < 100 * atol), zeros would pass: there the relative L2 error must stay
below 1e-2, or below what lies between two runs of a reference that draws random numbers. Norms can neither overflow nor
vanish, and whatever is not finite fails: a tolerance or an error.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch

from kevin.core.types import Frozen

_POISON_BYTE = 0xFF
_TINY_RELATIVE_L2 = 1e-2
_MASKED_RMS, _MASK_RATIO = 1e4, 1e3
_KERNELBENCH_TOLERANCE = {torch.float16: 1e-2, torch.bfloat16: 1e-2}
_SQUARES = (1e-20, 1e36)
"""Sums of squares that float32 holds well."""
_CHUNK_ELEMENTS = {"cpu": 1 << 16, "cuda": 1 << 27}


class Slack(NamedTuple):
    """Added to the tolerance of an output: how far the baseline itself is from what is expected."""

    absolute: float = 0.0
    relative: float = 0.0
    """Of the L2 norm."""


NO_SLACK = Slack()


class Comparison(Frozen):
    passed: bool
    reason: str | None = None
    message: str = ""
    max_abs_error: float | None = None
    max_rel_error: float | None = None


def _never_written(out: torch.Tensor) -> torch.Tensor:
    """Mask of elements that still hold the poison, to the bit."""
    raw = out.contiguous().reshape(-1).view(torch.uint8).reshape(*out.shape, out.element_size())
    return (raw == _POISON_BYTE).all(dim=-1)


def _where(bad: torch.Tensor) -> str:
    """Describe which indices are wrong, and along which axis they cluster. ``bad``: bool with at least one True."""
    if bad.dim() == 0:
        return "the value is wrong"
    if bool(bad.all()):
        return "every element is wrong"
    share = 100.0 * bad.sum().item() / bad.numel()
    parts = [f"{bad.sum().item()} of {bad.numel()} elements ({share:.2g} %) are wrong"]
    for axis in range(bad.dim()):
        others = [d for d in range(bad.dim()) if d != axis]
        hit = bad.any(dim=others) if others else bad
        idx = hit.nonzero().flatten()
        size, first, last = bad.shape[axis], int(idx[0]), int(idx[-1])
        if 0 < len(idx) < size and last - first + 1 == len(idx):
            parts.append(f"only indices {first}..{last} of dimension {axis} (size {size})")
    return ", ".join(parts)


def _mismatch(name: str, out: torch.Tensor, ref: torch.Tensor, bad: torch.Tensor) -> str:
    # the first one by a search: a list of all takes eight times the memory of the output and more
    first = bad.reshape(-1).view(torch.uint8).argmax()
    index = tuple(int(i) for i in torch.unravel_index(first, bad.shape))
    at = f"[{', '.join(map(str, index))}]" if index else ""
    text = f"{name}: {_where(bad)}; {name}{at} is {out[index].item():.6g}, expected {ref[index].item():.6g}"
    unwritten = int(_never_written(out).sum())
    return f"{name}: {unwritten} of {out.numel()} elements were never written; {text}" if unwritten else text


def compare(
    name: str,
    out: torch.Tensor,
    ref: torch.Tensor,
    *,
    atol: float,
    rtol: float,
    slack: Slack = NO_SLACK,
    room: float = 1.0,
) -> Comparison:
    """Compare one output with its reference, both of the same shape and dtype; ``room``: times the tolerances."""
    atol, rtol = room * atol, room * rtol
    if not ref.dtype.is_floating_point:
        bad = out != ref
        if not bool(bad.any()):
            return Comparison(passed=True, max_abs_error=0.0, max_rel_error=0.0)
        return Comparison(passed=False, reason="wrong_values", message=_mismatch(name, out, ref, bad))
    if bool(torch.isfinite(ref.sum())) or bool(torch.isfinite(ref).all()):
        ref_d, out_d = ref, out
        if not bool(torch.isfinite(out.sum())) and not bool((finite := torch.isfinite(out)).all()):
            reason = "not_written" if bool(_never_written(out).any()) else "not_finite"
            return Comparison(passed=False, reason=reason, message=_mismatch(name, out, ref, ~finite))
    else:  # infinities and NaN must stand where the reference has them
        ref_finite = torch.isfinite(ref)
        same = (out == ref) | (out.isnan() & ref.isnan()) | (ref_finite & torch.isfinite(out))
        if not bool(same.all()):
            return Comparison(passed=False, reason="not_finite", message=_mismatch(name, out, ref, ~same))
        ref_d, out_d = ref.where(ref_finite, 0.0), out.where(ref_finite, 0.0)
    norm, rms = _size(ref_d)
    scaled_atol = atol * max(1.0, rms) + slack.absolute
    if not math.isfinite(scaled_atol):
        message = f"{name}: the expected values are too large to be compared (rms {rms:.3g})"
        return Comparison(passed=False, reason="wrong_values", message=message)
    worst, max_abs, distance = _errors(out_d, ref_d, scaled_atol, rtol)
    errors = Comparison(passed=True, max_abs_error=max_abs, max_rel_error=worst * rtol)
    if not worst <= 1.0:
        bad = ~((out_d.float() - ref_d.float()).abs_() <= ref_d.float().abs().mul_(rtol).add_(scaled_atol))
        message = _mismatch(name, out, ref, bad)
        return errors.model_copy(update={"passed": False, "reason": "wrong_values", "message": message})
    if rms < 100 * atol and norm > 0 and not distance / norm <= max(room * _TINY_RELATIVE_L2, slack.relative):
        message = (
            f"{name}: the expected values are tiny (rms {rms:.3g}) and the relative error is {distance / norm:.2g}"
        )
        return errors.model_copy(update={"passed": False, "reason": "wrong_tiny_values", "message": message})
    return errors


def kernelbench_allclose(out: torch.Tensor, ref: torch.Tensor) -> bool:
    """KernelBench's own comparison of two outputs of one shape and dtype: `torch.allclose` at 1e-4, 1e-2 below float32.

    Args:
        ref: by PyTorch's default flags, as KernelBench runs its references.
    """
    if not ref.dtype.is_floating_point:
        return torch.equal(out, ref)
    tolerance = _KERNELBENCH_TOLERANCE.get(ref.dtype, 1e-4)
    size = _CHUNK_ELEMENTS[out.device.type]
    chunks = zip(out.reshape(-1).split(size), ref.reshape(-1).split(size), strict=True)
    return all(torch.allclose(r, o, atol=tolerance, rtol=tolerance) for o, r in chunks)


def norm_of(x: torch.Tensor) -> float:
    """L2 norm of finite values. Squares in float32 where these hold it, in float64 where they would overflow or vanish.

    Chunks that stay in the cache make this, as all of these loops, several times faster than whole-tensor passes.
    """
    total = 0.0
    for chunk in x.reshape(-1).split(_CHUNK_ELEMENTS[x.device.type]):
        values = chunk.float()
        squared = float(values.dot(values))
        if not _SQUARES[0] < squared < _SQUARES[1]:
            squared = float(torch.linalg.vector_norm(values, dtype=torch.float64)) ** 2
        total += squared
    return math.sqrt(total)


def _size(ref: torch.Tensor) -> tuple[float, float]:
    """L2 norm and root mean square: of all values but the largest one, where that stands in several places and is
    nearly all of it, as a mask of -1e9 is.
    """
    norm, num = norm_of(ref), max(ref.numel(), 1)
    if (rms := norm / num**0.5) > _MASKED_RMS:
        low, high = (float(x) for x in ref.aminmax())
        is_mask = ref == (low if -low > high else high)
        if (masked := int(is_mask.sum())) > 1:
            left = norm_of(ref.where(~is_mask, 0.0))
            if _MASK_RATIO * left < norm:
                return left, left / max(num - masked, 1) ** 0.5
    return norm, rms


def _errors(out: torch.Tensor, ref: torch.Tensor, atol: float, rtol: float) -> tuple[float, float, float]:
    """Largest error over its tolerance, largest absolute error, L2 norm of the errors. Of finite values; infinite where
    an error is not a number.
    """
    worst = max_abs = squared = 0.0
    size = _CHUNK_ELEMENTS[out.device.type]
    if not ref.numel():
        return 0.0, 0.0, 0.0
    for o, r in zip(out.reshape(-1).split(size), ref.reshape(-1).split(size), strict=True):
        r_f = r.float()
        error = o.float().sub(r_f).abs_()
        max_abs = _larger(max_abs, float(error.max()))
        squared += norm_of(error) ** 2
        worst = _larger(worst, float(error.div_(r_f.abs().mul_(rtol).add_(atol)).max()))
    return worst, max_abs, math.sqrt(squared)


def _larger(a: float, b: float) -> float:
    """`max` forgets what is not a number where it stands behind one."""
    return math.inf if math.isnan(b) else max(a, b)
