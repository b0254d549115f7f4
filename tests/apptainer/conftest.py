"""Apptainer, and a twin of the judge's image that needs no registry: built once for each state of its definition."""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

from kevin.core.errors import HarnessError
from kevin.judge.sandbox import apptainer

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
FAST = ("--mksquashfs-args", "-comp zstd -Xcompression-level 1")


def cached(name: str, *files: Path) -> Path:
    """A folder that outlives this run of the tests, named by what the files hold."""
    key = hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:12]
    folder = Path(tempfile.gettempdir()) / f"kevin-{name}-{os.geteuid()}-{key}"
    folder.mkdir(mode=0o755, exist_ok=True)
    return folder


@pytest.fixture(scope="session")
def program() -> str:
    """Apptainer's path; installed for the tests where that is possible."""
    if found := os.environ.get("KEVIN_APPTAINER") or shutil.which("apptainer"):
        return found
    if os.geteuid() != 0 or shutil.which("apt-get") is None or platform.machine() != "x86_64":
        pytest.skip("Apptainer is not here, and only root on a Debian of amd64 can install it for the tests")
    folder = cached("apptainer", HERE / "install.sh") / "prefix"
    if not (folder / "usr/bin/apptainer").exists():
        run = subprocess.run(
            [str(HERE / "install.sh"), str(folder)], capture_output=True, text=True, timeout=300, check=False
        )
        if run.returncode != 0:
            shutil.rmtree(folder, ignore_errors=True)
            pytest.skip(f"Apptainer could not be installed: {run.stderr.strip()[-300:]}")
    return str(folder / "usr/bin/apptainer")


@pytest.fixture(autouse=True)
def _use(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if "program" in request.fixturenames:
        monkeypatch.setenv("KEVIN_APPTAINER", request.getfixturevalue("program"))


def debian() -> dict[str, str]:
    """Release and mirror that this machine's own packages come from; empty elsewhere."""
    run = subprocess.run(
        ["apt-get", "indextargets", "--format", "$(RELEASE) $(SITE)"], capture_output=True, text=True, check=False
    )
    release = platform.freedesktop_os_release().get("VERSION_CODENAME", "")
    sites = [line.split()[1] for line in run.stdout.splitlines() if line.split()[:1] == [release]]
    main = [site for site in sites if site.endswith("/debian")]
    return {"release": release, "mirror": main[0]} if main else {}


@pytest.fixture(scope="session")
def image(program: str) -> Path:
    """The judge's twin."""
    definition = HERE / "judge-twin.def"
    found = cached("judge-twin", definition, ROOT / "containers/post.sh") / "judge.sif"
    if not apptainer.digest_file(found).exists():
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("KEVIN_APPTAINER", program)
            patch.chdir(ROOT)
            try:
                apptainer.build(definition, found, arguments=debian(), options=FAST)
            except HarnessError as e:
                if "Permission denied" in str(e) or "user namespace" in str(e) or "no debootstrap" in str(e):
                    pytest.skip(f"images cannot be built here: {e}")
                raise
    return found
