"""The command, a reference and kernels for it: what tests of commands and of the library share."""

from __future__ import annotations

import contextlib
import gc
import io
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kevin.cli import entry

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


def kevin_here(*args: str | Path, cwd: Path = ROOT, **env: str) -> subprocess.CompletedProcess[str]:
    """The same in this process, which has imported by now what the command needs; without its supervisor."""
    argv, code = ["kevin", *map(str, args)], None
    out, error = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(out), contextlib.redirect_stderr(error):
        patch.setattr(entry, "supervise", lambda: None)
        patch.setattr(entry, "pass_by_proxies", lambda: None)  # it is for a process of the command's own
        patch.setattr(gc, "freeze", lambda: None)  # this process goes on
        patch.setattr(sys, "argv", argv)
        patch.chdir(cwd)
        for name, value in {"COLUMNS": "120", "NO_COLOR": "1", **env}.items():
            patch.setenv(name, value)
        try:
            entry.main()
        except SystemExit as e:
            code = e.code
    return subprocess.CompletedProcess(argv, int(code or 0), out.getvalue(), error.getvalue())
