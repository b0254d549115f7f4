"""The same walls around the host's own programs: an image that is only a skeleton to bind them in, read-only.

Where no image can be built or fetched, this is what puts a candidate on a GPU inside of a container.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from kevin.judge.sandbox import apptainer

pytestmark = pytest.mark.apptainer

SYSTEM = ("/usr", "/lib", "/lib64", "/bin", "/sbin", "/etc/alternatives", "/etc/ld.so.cache")
REFUSED = """
import socket
try:
    socket.create_connection(("127.0.0.1", 22), timeout=2)
except OSError as e:
    print("network:", type(e).__name__)
"""


@pytest.fixture
def skeleton(program: str, tmp_path: Path) -> Path:
    """A folder with mount points and nothing in them, which Apptainer takes for an image."""
    root = tmp_path / "skeleton"
    for name in ("tmp", "var/tmp", "proc", "sys", "dev", "etc", "root", "home", "usr", "opt", ".singularity.d/libs"):
        (root / name).mkdir(parents=True)
    for name in ("passwd", "group", "hosts", "resolv.conf", "localtime"):
        (root / "etc" / name).touch()
    for path in bound():
        if path.startswith("/tmp/"):
            continue
        inside = root / path.lstrip("/")
        if Path(path).is_dir():
            inside.mkdir(parents=True, exist_ok=True)
        else:
            inside.parent.mkdir(parents=True, exist_ok=True)
            inside.touch()
    return root


def bound() -> list[str]:
    own = {sys.prefix, sys.base_prefix}
    return [path for path in (*SYSTEM, *sorted(own)) if Path(path).exists() and not path.startswith("/usr/")]


def run(skeleton: Path, code: str, nv: bool = False) -> subprocess.CompletedProcess[str]:
    env = shutil.which("env") or "/usr/bin/env"
    argv = apptainer.wrap_apptainer([env, sys.executable, "-c", code], skeleton, read_only=bound(), nv=nv)
    return subprocess.run(argv, capture_output=True, text=True, timeout=120, check=False)


def test_the_host_s_programs_run_inside_without_the_host(skeleton: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("x")
    code = f"import os, numpy; print(int(numpy.ones(3).sum()), os.path.exists('{secret}'))\n{REFUSED}"
    done = run(skeleton, code)
    assert done.stdout.splitlines()[0] == "3 False", done.stdout + done.stderr
    assert "network: " in done.stdout


@pytest.mark.gpu
def test_a_gpu_works_inside_and_the_network_does_not(skeleton: Path) -> None:
    if shutil.which("nvidia-smi") is None:
        pytest.skip("no NVIDIA GPU here")
    code = f"import torch; print(torch.ones(1024, device='cuda').sum().item(), torch.cuda.get_device_name())\n{REFUSED}"
    done = run(skeleton, code, nv=True)
    assert done.stdout.startswith("1024.0 NVIDIA"), done.stdout + done.stderr
    assert "network: " in done.stdout
