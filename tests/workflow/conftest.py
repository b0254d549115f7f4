"""Runs Snakemake in a folder of its own, on the repository's Snakefile."""

from __future__ import annotations

import contextlib
import io
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


def run_here(argv: list[str]) -> subprocess.CompletedProcess[str]:
    """Snakemake in this process: for what it says and does not do, without the two seconds that it takes to start."""
    from snakemake.cli import main

    out, error, code = io.StringIO(), io.StringIO(), None
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(out), contextlib.redirect_stderr(error):
        patch.chdir(Path.cwd())  # Snakemake does not go back from where it fails
        patch.setattr(sys, "argv", argv)
        try:
            main(argv[1:])
        except SystemExit as e:
            code = e.code
    said = f"{code}\n" if isinstance(code, str) else ""
    return subprocess.CompletedProcess(argv, 1 if said else int(code or 0), out.getvalue(), error.getvalue() + said)


@pytest.fixture(scope="module")
def snakemake(folder: Path) -> Run:
    """Runs Snakemake, in a process of its own where it makes something."""

    def run(*args: str | Path, timeout: float = 300) -> subprocess.CompletedProcess[str]:
        argv = command(folder, *args)
        if {"--dry-run", "--lint"} & set(argv):
            return run_here(argv)
        return subprocess.run(
            argv,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
            stdin=subprocess.DEVNULL,
            env={**os.environ, "NO_COLOR": "1"},
        )

    return run
