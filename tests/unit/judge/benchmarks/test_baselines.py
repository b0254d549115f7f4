"""Baselines: what the compiler has of earlier processes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kevin.core.errors import DeviceError
from kevin.core.protocol import JudgeProtocol
from kevin.judge.benchmarks import baselines

CACHE = "TORCHINDUCTOR_CACHE_DIR"


@pytest.mark.parametrize("named", [None, "/somewhere"])
def test_the_compiler_reuses_nothing_of_an_earlier_process(monkeypatch: pytest.MonkeyPatch, named: str | None) -> None:
    monkeypatch.delenv(CACHE, raising=False)
    if named:
        monkeypatch.setenv(CACHE, named)
    seen = []

    def no_device(protocol: JudgeProtocol) -> None:
        seen.append(os.environ[CACHE])
        assert named or not list(Path(seen[0]).iterdir())
        raise DeviceError("none here")

    monkeypatch.setattr(baselines, "open_hardware", no_device)
    with pytest.raises(DeviceError, match="none here"):
        baselines.measure_baselines([], JudgeProtocol(device="cpu"))
    assert seen[0] == named if named else not Path(seen[0]).exists()
    assert os.environ.get(CACHE) == named
