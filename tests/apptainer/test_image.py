"""Images: how they are defined, built, known again."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from process_fixtures import until

from kevin.core.errors import DataError, HarnessError, SandboxError
from kevin.judge.sandbox import apptainer

from .conftest import FAST, HERE, ROOT, debian


def section(definition: Path, name: str) -> list[str]:
    """Lines of one section, without comments."""
    found = re.search(rf"^%{name}\n((?:[ \t#].*\n|\n)*)", definition.read_text(), re.MULTILINE)
    lines = found.group(1).splitlines() if found else []
    return [line.strip() for line in lines if line.strip() and not line.strip().startswith("#")]


def said(*argv: str | Path) -> str:
    """By Apptainer, of which these are the arguments."""
    return subprocess.run([apptainer.program(), *argv], capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("name", ["judge", "train"])
def test_bases_are_pinned_and_files_exist(name: str) -> None:
    definition = ROOT / f"containers/{name}.def"
    assert re.search(r"^From: \S+:\S+@sha256:[0-9a-f]{64}$", definition.read_text(), re.MULTILINE)
    for line in section(definition, "files"):
        assert (ROOT / line.split()[0]).exists(), line


@pytest.mark.parametrize("name", ["judge", "train"])
def test_a_twin_shares_the_setup(name: str) -> None:
    real, twin = ROOT / f"containers/{name}.def", HERE / f"{name}-twin.def"
    script = "sh /opt/kevin-build/post.sh"
    for definition in (real, twin):
        assert any(line.startswith(script) for line in section(definition, "post")), definition
    assert set(section(twin, "files")) <= set(section(real, "files"))


def test_gpu_packages_are_pinned_within_the_project_s_ranges() -> None:
    lines = (ROOT / "containers/requirements-gpu.txt").read_text().splitlines()
    pinned = dict(line.split("==") for line in lines if line and not line.startswith("#"))
    assert pinned.keys() == {"vllm", "deepspeed"}
    torch = re.search(r"^torch==(\S+)$", (ROOT / "requirements.lock").read_text(), re.MULTILINE)
    assert torch and torch.group(1) == "2.13.0", "vllm 0.31.0 was built for this one: raise both together"


def test_without_apptainer_the_message_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KEVIN_APPTAINER", raising=False)
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(SandboxError, match=r"not installed.*KEVIN_APPTAINER"):
        apptainer.version()
    monkeypatch.setenv("KEVIN_APPTAINER", "/nowhere/apptainer")
    with pytest.raises(SandboxError, match="is KEVIN_APPTAINER right"):
        apptainer.version()


def test_another_image_than_the_one_of_the_results_is_refused(tmp_path: Path) -> None:
    image = tmp_path / "train.sif"
    with pytest.raises(DataError, match="build it with: snakemake"):
        apptainer.check_digest(image)
    image.write_bytes(b"one")
    with pytest.raises(DataError, match="another image"):
        apptainer.check_digest(image)
    apptainer.digest_file(image).touch()  # as a shell leaves it where sha256sum fails
    with pytest.raises(DataError, match="another image"):
        apptainer.check_digest(image)
    apptainer.digest_file(image).write_text(f"{apptainer.digest(image)}  train.sif\n")
    assert apptainer.check_digest(image) == apptainer.digest(image)
    image.write_bytes(b"two")
    with pytest.raises(DataError, match=re.escape("train.sif.sha256")):
        apptainer.check_digest(image)


@pytest.mark.apptainer
def test_version(program: str) -> None:
    assert apptainer.version() >= apptainer.MINIMUM


@pytest.mark.apptainer
def test_an_image_knows_what_it_is(image: Path) -> None:
    assert apptainer.check_digest(image) in apptainer.digest_file(image).read_text()
    labels = json.loads(said("inspect", "--json", image))["data"]["attributes"]["labels"]
    assert labels["org.label-schema.usage.singularity.deffile.bootstrap"] == "debootstrap"
    assert "Python 3" in said("exec", image, apptainer.PYTHON, "--version")


@pytest.mark.apptainer
@pytest.mark.skipif(
    "KEVIN_TEST_ALL_IMAGES" not in os.environ, reason="a second image of minutes; KEVIN_TEST_ALL_IMAGES=1"
)
def test_the_training_twin_holds_the_study(program: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    twin = tmp_path / "train.sif"
    assert apptainer.build(HERE / "train-twin.def", twin, arguments=debian(), options=FAST) == apptainer.digest(twin)
    code = "import kevin; print(kevin.__file__)"
    assert said("exec", twin, apptainer.PYTHON, "-c", code).startswith("/opt/kevin/lib/")


@pytest.mark.apptainer
def test_a_failed_build_leaves_the_old_image(program: str, tmp_path: Path) -> None:
    definition, image = tmp_path / "broken.def", tmp_path / "broken.sif"
    definition.write_text(f"Bootstrap: localimage\nFrom: {tmp_path}/absent.sif\n")
    image.write_bytes(b"old")
    with pytest.raises(HarnessError, match="absent"):
        apptainer.build(definition, image)
    assert image.read_bytes() == b"old"
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


@pytest.mark.apptainer
def test_a_mounted_image_goes_with_the_process_that_mounted_it(image: Path, program: str) -> None:
    if shutil.which("squashfuse") is None:
        pytest.skip("squashfuse is not installed")
    code = (
        "import sys; from pathlib import Path; from kevin.judge.sandbox.apptainer import mounted;"
        "print(mounted(Path(sys.argv[1])), flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(image)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        folder = Path(process.stdout.readline().strip())
        assert (folder / "usr/bin").is_dir()
        process.kill()
    until(lambda: not folder.exists(), "the image is unmounted", 10)
