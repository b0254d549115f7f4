"""`kevin audit` and `kevin bench attacks` as a person meets them."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli_fixtures import kevin_here


def test_help_says_what_they_do() -> None:
    run = kevin_here("audit", "--help")
    assert run.returncode == 0
    assert all(name in run.stdout for name in ("kernels", "without guards"))
    run = kevin_here("bench", "--help")
    assert " attacks " in run.stdout


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--kernelbench", "."), "--kernelbench: its harness needs a GPU"),
        (("--only", "no such attack"), "--only: no attack on cpu has 'no such attack' in its name"),
        (("--device", "tpu"), "'tpu' is not one of 'cpu'"),
        (("--device", "cuda", "--kernelbench", "/no/such/folder"), "/no/such/folder: no such folder"),
    ],
)
def test_what_makes_no_sense_is_said(tmp_path: Path, options: tuple[str, ...], said: str) -> None:
    run = kevin_here("bench", "attacks", "--out", tmp_path, *options)
    assert run.returncode == 2 and said in run.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--only", "no such kernel"), "for cpu has 'no such kernel' in its name"),
        (("--mutants", "/no/such/folder"), "/no/such/folder: holds no kernels below it"),
        (("--kernelbench", "."), "--kernelbench: its harness needs a GPU"),
    ],
)
def test_errors_of_no_kernels(tmp_path: Path, options: tuple[str, ...], said: str) -> None:
    run = kevin_here("bench", "errors", "--out", tmp_path, *options)
    assert run.returncode == 2 and said in run.stderr
    assert not list(tmp_path.iterdir())


def test_an_audit_of_nothing(tmp_path: Path) -> None:
    run = kevin_here("table", "audit", "--kernels", tmp_path / "none.parquet", "--out", tmp_path / "audit.csv")
    assert run.returncode == 2 and f"{tmp_path}/none.parquet: no such file" in run.stderr
