"""An install without extras: the judge works, and what needs more says what to install."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import tomllib
from importlib.metadata import PackageNotFoundError, packages_distributions, requires
from pathlib import Path

import pytest
from cli_fixtures import GOOD, REFERENCE, ROOT, kevin
from packaging.utils import canonicalize_name

from kevin.cli.options import extras, missing_extra

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
HIDE = """\
from importlib.machinery import PathFinder

find_spec = PathFinder.find_spec

def find_all_but_extras(name, path=None, target=None):
    return None if name.partition(".")[0] in {modules} else find_spec(name, path, target)

PathFinder.find_spec = staticmethod(find_all_but_extras)
"""


def base_packages() -> set[str]:
    """What `pip install kevin-study` would install."""
    found, left = set[str](), list(PROJECT["dependencies"])
    while left:
        name = canonicalize_name(re.split(r"[^\w.-]", left.pop(), maxsplit=1)[0])
        if name not in found:
            found.add(name)
            with contextlib.suppress(PackageNotFoundError):
                left += [line for line in requires(name) or () if "extra ==" not in line]
    return found


@pytest.fixture
def without_extras(tmp_path: Path) -> dict[str, str]:
    """Environment variables under which every Python process lacks what is not of the base install."""
    base = base_packages() | {"kevin-study"}
    packages = packages_distributions().items()
    modules = {module for module, owners in packages if base.isdisjoint(map(canonicalize_name, owners))}
    assert {"transformers", "pandas", "aiohttp", "huggingface_hub"} <= modules and "torch" not in modules
    (tmp_path / "sitecustomize.py").write_text(HIDE.format(modules=modules))
    return {"PYTHONPATH": str(tmp_path)}


@pytest.mark.slow
def test_three_lines_judge_a_kernel_from_a_script_without_a_guard(
    without_extras: dict[str, str], tmp_path: Path
) -> None:
    """Worker processes must not run the script again, as those of multiprocessing would.

    It takes what a user's first kernel takes: a process, and the judge's, that import torch.
    """
    (tmp_path / "reference.py").write_text(REFERENCE)
    (tmp_path / "kernel.cpp").write_text(GOOD)
    script = tmp_path / "script.py"
    script.write_text(
        "from kevin import Judge\nwith Judge(device='cpu') as judge:\n"
        "    print(judge('reference.py', 'kernel.cpp').outcome)\n"
    )
    run = subprocess.run(
        [sys.executable, script],
        cwd=tmp_path,
        env={**os.environ, **without_extras},
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert (run.returncode, run.stdout) == (0, "correct\n"), run.stderr
    told = kevin("judge", "--task-file", "reference.py", "--kernel", "kernel.cpp", cwd=tmp_path, **without_extras)
    assert told.returncode == 0 and "its results match the reference" in told.stdout, told.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "told"),
    [
        ("judge --help", None),
        ("tasks show l1/relu --tasks none.parquet", None),
        ("config show", None),
        ("judge --published results/reference/laptop/published", "pip install 'kevin-study[study]'"),
        ("bench errors --out out", "pip install 'kevin-study[study]'"),
        ("plan", None),
        ("serve --no-token", "kevin serve needs aiohttp, which is not installed: pip install 'kevin-study[serve]'"),
        ("tasks list --tasks none.parquet", "pip install 'kevin-study[study]'"),
        ("tasks build --out tasks.parquet", "pip install 'kevin-study[study]'"),
        ("train --run rl_multi --tasks t --store s --out o", "pip install 'kevin-study[study]'"),
    ],
)
def test_commands_work_or_say_what_to_install(without_extras: dict[str, str], command: str, told: str | None) -> None:
    run = kevin(*command.split(), **without_extras)
    assert run.returncode == (2 if told else 0), run.stderr
    if told:
        assert told in run.stderr and run.stderr.count("\n") == 1


def test_extras_are_those_of_the_package() -> None:
    assert extras().keys() == PROJECT["optional-dependencies"].keys()
    assert {"transformers", "seaborn"} <= set(extras()["study"]) and extras()["serve"] == [
        "aiohttp",
        "prometheus_client",
    ]


def test_only_a_module_of_an_extra_is_told_so() -> None:
    error = ModuleNotFoundError("No module named 'trl.trainer'", name="trl.trainer")
    assert missing_extra(error) == "this command needs trl, which is not installed: pip install 'kevin-study[study]'"
    assert missing_extra(ModuleNotFoundError(name="nothing_like_it")) is None
