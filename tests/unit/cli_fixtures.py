"""The command, a reference and kernels for it: what tests of commands and of the library share."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
KEVIN = Path(sys.executable).with_name("kevin")

REFERENCE = """\
import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x) * 2.0


def get_inputs():
    return [torch.rand(64, 100) - 0.5]


def get_init_inputs():
    return []
"""
GOOD = """\
extern "C" void launch(const float* x, float* out) {
  for (int64_t i = 0; i < out_size; i++) out[i] = x[i] > 0 ? 2.0f * x[i] : 0.0f;
}
"""
WRONG = GOOD.replace("2.0f", "3.0f")
BROKEN = GOOD.replace("x[i] >", "y[i] >")


def kevin(*args: str | Path, cwd: Path = ROOT, timeout_s: float = 120, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [KEVIN, *args],
        capture_output=True,
        text=True,
        cwd=cwd,
        timeout=timeout_s,
        check=False,
        env={**os.environ, "COLUMNS": "120", "NO_COLOR": "1", **env},
    )
