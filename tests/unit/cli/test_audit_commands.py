"""`kevin bench attacks` and `kevin bench errors` as a person meets them."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli_fixtures import kevin_here


@pytest.mark.parametrize(
    ("command", "options", "said"),
    [
        ("attacks", ("--kernelbench", "."), "--kernelbench: its harness needs a GPU"),
        ("attacks", ("--only", "no such attack"), "--only: no attack on cpu has 'no such attack' in its name"),
        ("attacks", ("--device", "tpu"), "'tpu' is not one of 'cpu'"),
        ("attacks", ("--device", "cuda", "--kernelbench", "/no/such/folder"), "/no/such/folder: no such folder"),
        ("errors", ("--only", "no such kernel"), "for cpu has 'no such kernel' in its name"),
        ("errors", ("--mutants", "/no/such/folder"), "/no/such/folder: holds no kernels below it"),
        ("errors", ("--kernelbench", "."), "--kernelbench: its harness needs a GPU"),
    ],
)
def test_what_makes_no_sense_is_said(tmp_path: Path, command: str, options: tuple[str, ...], said: str) -> None:
    run = kevin_here("bench", command, "--out", tmp_path, *options)
    assert run.returncode == 2 and said in run.stderr
    assert not list(tmp_path.iterdir())
