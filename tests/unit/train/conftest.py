"""For what compiles the layers of a model."""

from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def _programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Inductor's store does not tell programs for AVX2 (ATEN_CPU_CAPABILITY) from those for AVX-512: taken for each
    other, they write past the ends of their tensors. So one of its own for these tests, with its compiled headers."""
    return tmp_path_factory.mktemp("inductor")


@pytest.fixture(params=["eager", pytest.param("inductor", marks=pytest.mark.slow)])
def programs(request: pytest.FixtureRequest, _programs: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Compiled layers: traced, and run operator by operator; or as in a study, which takes minutes to compile C++.

    What another test compiled is not in memory.
    """
    import torch._dynamo
    from torch._inductor.utils import clear_caches

    torch._dynamo.reset()
    clear_caches()
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(_programs))
    compiled = torch.nn.Module.compile
    monkeypatch.setattr(
        torch.nn.Module, "compile", lambda block, **options: compiled(block, backend=request.param, **options)
    )
    yield
    clear_caches()
