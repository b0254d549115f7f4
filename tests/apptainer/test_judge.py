"""The judge with its compilers and its cells in containers: in an image, around the host's programs, and on a GPU."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from core_fixtures import make_module

from kevin.core.protocol import JudgeProtocol, TimingProtocol
from kevin.core.types import Dialect, Kernel, Outcome, Task, Verdict
from kevin.judge.device.judging import Judging
from kevin.judge.evaluate import judge_on, open_device
from kevin.judge.sandbox import isolation

pytestmark = pytest.mark.apptainer  # which share an image

Judge = Callable[..., Verdict]
DEVICES: dict[str, Judging] = {}
"""Opened once for all tests."""

REFERENCE = make_module("return torch.relu(x)", "torch.randn(512, 1024)")
CPU_RELU = """
extern "C" void launch(const float* x, float* out) {
    for (int i = 0; i < x_size; i++) out[i] = x[i] > 0 ? x[i] : 0;
}
"""
CUDA_RELU = """
__global__ void relu(const float* x, float* out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < x_size) out[i] = x[i] > 0 ? x[i] : 0;
}
extern "C" void launch(const float* x, float* out, cudaStream_t stream) {
    relu<<<(x_size + 255) / 256, 256, 0, stream>>>(x, out);
}
"""

ESCAPES = {
    "fork bomb": ("#include <unistd.h>", "while (fork() >= 0) {}"),
    "shell": ("#include <cstdlib>", 'if (!system("true")) _exit(7);'),
    "network": (
        "#include <sys/socket.h>\n#include <netinet/in.h>\n#include <arpa/inet.h>",
        "sockaddr_in to{}; to.sin_family = AF_INET; to.sin_port = htons(@PORT@);"
        " to.sin_addr.s_addr = htonl(0x7f000001); int s = socket(AF_INET, SOCK_STREAM, 0);"
        " if (!connect(s, (sockaddr*)&to, sizeof to)) _exit(7);",
    ),
    "home": ("#include <fcntl.h>", 'if (open("@HOME@", O_RDONLY) >= 0) _exit(7);'),
    "write outside of scratch": (
        "#include <fcntl.h>",
        'if (open("@HOME@.new", O_CREAT | O_WRONLY, 0600) >= 0'
        ' || open("/usr/kevin-was-here", O_CREAT | O_WRONLY, 0600) >= 0'
        ' || open("/etc/passwd", O_WRONLY) >= 0) _exit(7);',
    ),
    "another process's memory": (
        "#include <sys/uio.h>\n#include <signal.h>",
        "char c; iovec own{&c, 1}, other{(void*)0x400000, 1};"
        " if (process_vm_readv(@PID@, &own, 1, &other, 1, 0) == 1 || kill(@PID@, 0) == 0) _exit(7);",
    ),
    "another candidate": (
        "#include <dirent.h>\n#include <cstring>",
        "if (DIR* d = opendir(\"@BUILDS@\")) { int n = 0; while (dirent* e = readdir(d)) n += e->d_name[0] != '.';"
        " if (n > 1) _exit(7); }",
    ),
}
"""Headers, and code that ends the process when it got what it should not."""


def hostile(names: Sequence[str], source: str) -> str:
    """``source`` after it has tried to escape in each of these ways."""
    headers, code = zip(*(ESCAPES[name] for name in names), strict=True)
    tries = "".join(f"static int tried_{i} = [] {{ {text} return 0; }}();\n" for i, text in enumerate(code))
    return "\n".join(["#include <unistd.h>", *headers, tries, source])


@pytest.fixture
def listening() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@pytest.fixture
def secret() -> Iterator[Path]:
    """A file in the home folder."""
    path = Path.home() / f".kevin-secret-{os.getpid()}"
    path.write_text("not for candidates")
    yield path
    path.unlink()
    assert not Path(f"{path}.new").exists()


def device_in(kind: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Judging:
    """A CPU or GPU device whose candidates run in the image, or around the host's programs."""
    monkeypatch.setenv("KEVIN_APPTAINER", request.getfixturevalue("program"))
    monkeypatch.setenv("KEVIN_ISOLATION", "apptainer")
    if kind == "image":
        monkeypatch.setenv("KEVIN_JUDGE_IMAGE", str(request.getfixturevalue("image")))
    if kind == "gpu" and shutil.which("nvidia-smi") is None:
        pytest.skip("no NVIDIA GPU here")
    isolation.detect_isolation.cache_clear()
    request.addfinalizer(isolation.detect_isolation.cache_clear)
    if kind not in DEVICES:
        protocol = JudgeProtocol(
            device="cuda" if kind == "gpu" else "cpu",
            rules=(),
            timing=TimingProtocol(min_rounds=3, max_rounds=5, budget_s=0.3),
        )
        DEVICES[kind] = open_device(protocol)
    return DEVICES[kind]


@pytest.fixture(params=["image", "host", pytest.param("gpu", marks=pytest.mark.gpu)])
def judge(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, listening: int, secret: Path
) -> Judge:
    device = device_in(request.param, request, monkeypatch)
    language = "cuda" if request.param == "gpu" else "cpp"
    task = Task(id="test", level=1, name="test", source=REFERENCE, origin="user")
    names = {"PORT": listening, "HOME": secret, "PID": os.getpid(), "BUILDS": tmp_path / "builds"}

    def run(*escapes: str, change: tuple[str, str] = ("", ""), source: str | None = None) -> Verdict:
        dialect: Dialect = "load_inline" if source else "c_abi"
        if source is None:
            source = (CUDA_RELU if language == "cuda" else CPU_RELU).replace(*change)
            source = hostile(escapes, source) if escapes else source
        for name, value in names.items():
            source = source.replace(f"@{name}@", str(value))
        kernel = Kernel(dialect=dialect, language=language, source=source)
        return judge_on(device, task, kernel, device.protocol, tmp_path / "builds")

    return run


def test_honest_wrong_and_broken_kernels_are_told_apart(judge: Judge) -> None:
    honest = judge()
    assert honest.outcome is Outcome.CORRECT, honest.message
    assert honest.details["isolation"] == "apptainer"
    assert judge(change=(": 0;", ": 1;")).outcome is Outcome.INCORRECT
    assert judge(change=("float* out", "floot* out")).outcome is Outcome.COMPILE_ERROR


@pytest.mark.parametrize("escapes", [("fork bomb",), tuple(name for name in ESCAPES if name != "fork bomb")])
def test_escapes_are_refused_and_the_kernel_goes_on_alone(
    judge: Judge, escapes: tuple[str, ...], tmp_path: Path
) -> None:
    (tmp_path / "builds").mkdir()
    for other in ("a.so", "b.so"):  # other candidates
        (tmp_path / "builds" / other).touch()
    verdict = judge(*escapes)
    assert verdict.outcome is Outcome.CORRECT, f"{verdict.reason}: {verdict.message}"


def test_an_escape_that_works_would_be_seen(tmp_path: Path, listening: int, secret: Path) -> None:
    """The same code outside of a container: what the tests above look for does happen there."""
    for name in ("shell", "network", "home", "another process's memory", "another candidate"):
        builds = tmp_path / "builds"
        builds.mkdir(exist_ok=True)
        for other in ("a.so", "b.so"):
            (builds / other).touch()
        text = hostile([name], "int main() { return 0; }").replace("@PORT@", str(listening))
        text = text.replace("@PID@", str(os.getpid())).replace("@HOME@", str(secret)).replace("@BUILDS@", str(builds))
        (tmp_path / "escape.cpp").write_text(text)
        subprocess.run(["g++", "-o", str(tmp_path / "escape"), str(tmp_path / "escape.cpp")], check=True)
        assert subprocess.run([str(tmp_path / "escape")], check=False).returncode == 7, name


@pytest.mark.parametrize("kind", ["host", pytest.param("gpu", marks=pytest.mark.gpu)])
def test_modules_that_import_torch_run_inside(
    kind: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    device = device_in(kind, request, monkeypatch)
    task = Task(id="test", level=1, name="test", source=REFERENCE, origin="user")
    source = REFERENCE.replace("class Model", "class ModelNew")
    kernel = Kernel(dialect="load_inline", language="cuda" if kind == "gpu" else "cpp", source=source)
    verdict = judge_on(device, task, kernel, device.protocol, tmp_path)
    assert verdict.outcome is Outcome.CORRECT, verdict.message


def test_an_image_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, program: str) -> None:
    monkeypatch.setenv("KEVIN_JUDGE_IMAGE", str(tmp_path / "none.sif"))
    isolation.detect_isolation.cache_clear()
    with pytest.raises(Exception, match=r"none\.sif: no such image"):
        isolation.detect_isolation()
