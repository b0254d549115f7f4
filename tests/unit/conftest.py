"""For tests of several rooms."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest
import torch


@pytest.fixture(scope="module")
def one_thread() -> Iterator[None]:
    """For models of a few tokens, which more threads slow down: beside other tests they wait for each other tenfold.

    And a trainer that collects garbage need not look through all that was imported, which takes it most of its time.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    gc.freeze()
    yield
    torch.set_num_threads(before)
    gc.unfreeze()
