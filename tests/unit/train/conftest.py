"""For what trains a model of a few tokens, which more threads only slow down."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch


@pytest.fixture(scope="module")
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def _programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Inductor's store does not tell programs for AVX2 (ATEN_CPU_CAPABILITY) from those for AVX-512: taken for each
    other, they write past the ends of their tensors. So one of its own for these tests, with its compiled headers."""
    return tmp_path_factory.mktemp("inductor")


@pytest.fixture
def own_programs(_programs: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What another test compiled is not in memory."""
    import torch._dynamo
    from torch._inductor.utils import clear_caches

    torch._dynamo.reset()
    clear_caches()
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(_programs))
    yield
    clear_caches()
