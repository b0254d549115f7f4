"""How many threads a model is run with on the CPU."""

from __future__ import annotations

import torch

_SMALL_PARAMETERS = 10_000_000


def fit_threads(num_parameters: int) -> None:
    """One thread for a model of a few million parameters: its operators are too small to share.

    Two threads gain little on an idle machine, and where another process wants a core they wait for each other: a step
    that takes 0.25 s alone was seen to take 8 s.
    """
    if num_parameters < _SMALL_PARAMETERS:
        torch.set_num_threads(1)
