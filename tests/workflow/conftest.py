"""Runs Snakemake in a folder of its own, on the repository's Snakefile."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MICRO = Path(__file__).with_name("micro.yaml")
SNAKEMAKE = Path(sys.executable).with_name("snakemake")

Run = Callable[..., subprocess.CompletedProcess[str]]


def command(folder: Path, *args: str | Path) -> list[str]:
    return [str(SNAKEMAKE), "--snakefile", str(ROOT / "Snakefile"), "--directory", str(folder), *map(str, args)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A working directory with the repository's configuration."""
    path = tmp_path_factory.mktemp("study")
    (path / "config").symlink_to(ROOT / "config")
    return path


@pytest.fixture(scope="module")
def snakemake(folder: Path) -> Run:
    def run(*args: str | Path, timeout: float = 300) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command(folder, *args),
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
            stdin=subprocess.DEVNULL,
            env={**os.environ, "NO_COLOR": "1"},
        )

    return run
