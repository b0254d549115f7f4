"""What the base model from scratch is trained with: AdamW, and Muon for the matrices of the blocks, which is PyTorch's
with its Newton-Schulz iteration in float32, like matrices together.

`torch.optim.Muon` iterates in bfloat16, which a processor without native bfloat16 products emulates: that alone made
four fifths of a training step on such machines, and rounds differently wherever the products are native.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch

LEARNING_RATE = 3e-3
"""Peak of AdamW's schedule: embeddings and vectors."""
MATRIX_LEARNING_RATE = 0.02
"""Peak of Muon's schedule: the matrices of the blocks."""
COEFFICIENTS = (3.4445, -4.7750, 2.0315)
"""Of the quintic iteration: https://kellerjordan.github.io/posts/muon/"""
NUM_ITERATIONS = 5
_EPSILON = 1e-7


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
    """Orthogonalised Nesterov momentum for matrices, with decoupled weight decay (``adjust_lr_fn="original"``)."""

    def __init__(
        self, params: Iterable[torch.nn.Parameter], lr: float, momentum: float = 0.95, weight_decay: float = 0.1
    ) -> None:
        """Raises ValueError for a parameter that is no float32 matrix."""
        super().__init__(params, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})
        if any(p.ndim != 2 or p.dtype != torch.float32 for group in self.param_groups for p in group["params"]):
            raise ValueError("Muon is for float32 matrices; give vectors and other types to another optimizer")

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            by_shape: dict[torch.Size, list[torch.nn.Parameter]] = {}
            for p in group["params"]:
                if p.grad is not None:
                    by_shape.setdefault(p.shape, []).append(p)
            for shape, params in by_shape.items():
                rate = group["lr"] * math.sqrt(max(1.0, shape[0] / shape[1]))
                for p, update in zip(params, orthogonalised(self._momenta(params, group["momentum"])), strict=True):
                    p.mul_(1 - group["lr"] * group["weight_decay"]).add_(update, alpha=-rate)

    def _momenta(self, params: list[torch.nn.Parameter], momentum: float) -> torch.Tensor:
        """Nesterov updates of like matrices, (N, R, C)."""
        updates = []
        for p in params:
            assert p.grad is not None
            if "momentum_buffer" not in self.state[p]:
                self.state[p]["momentum_buffer"] = torch.zeros_like(p.grad)
            buffer = self.state[p]["momentum_buffer"].lerp_(p.grad, 1 - momentum)
            updates.append(p.grad.lerp(buffer, momentum))
        return torch.stack(updates)
