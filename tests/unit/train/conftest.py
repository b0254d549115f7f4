"""For what trains a model of a few tokens, which more threads only slow down."""

from collections.abc import Iterator

import pytest
import torch


@pytest.fixture(scope="module")
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def own_programs() -> Iterator[None]:
    """Inductor's store does not tell programs for AVX2 (ATEN_CPU_CAPABILITY) from those for AVX-512: taken for each
    other, they write past the ends of their tensors. What another test compiled does not count."""
    import torch._dynamo
    from torch._inductor.utils import fresh_cache

    torch._dynamo.reset()
    with fresh_cache():
        yield
