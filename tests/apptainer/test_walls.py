"""What a program cannot do from inside, with the container alone."""

from __future__ import annotations

import os
import resource
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from kevin.judge.sandbox import apptainer

pytestmark = pytest.mark.apptainer

Inside = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def inside(image: Path) -> Inside:
    """Run Python code in the container, with no limits but the container's."""

    def run(
        code: str, read_only: Sequence[Path] = (), writable: Sequence[Path] = ()
    ) -> subprocess.CompletedProcess[str]:
        argv = apptainer.wrap_apptainer(
            [sys.executable, "-c", code], image, map(str, read_only), map(str, writable), environment={"GIVEN": "yes"}
        )
        return subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)

    return run


def test_an_honest_program_runs(inside: Inside, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "out").mkdir()
    (tmp_path / "in/data").write_text("42")
    code = (
        f"import os; data = open('{tmp_path}/in/data').read(); open('{tmp_path}/out/result', 'w').write(data);"
        " open('/tmp/scratch', 'w').write('x'); print(data, os.environ['GIVEN'], os.environ.get('SECRET'))"
    )
    os.environ["SECRET"] = "not for candidates"
    run = inside(code, [tmp_path / "in"], [tmp_path / "out"])
    assert run.stdout == "42 yes None\n", run.stderr
    assert (tmp_path / "out/result").read_text() == "42"


def test_no_network(inside: Inside) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket(socket.AF_UNIX) as hidden:
        hidden.bind("\0kevin-escape-test")
        hidden.listen()
        port = server.getsockname()[1]
        run = inside(
            "import socket\n"
            f"local, hidden, far = ('127.0.0.1', {port}), chr(0) + 'kevin-escape-test', ('9.9.9.9', 53)\n"
            "for family, address in ((socket.AF_INET, local), (socket.AF_UNIX, hidden), (socket.AF_INET, far)):\n"
            "    s = socket.socket(family); s.settimeout(5)\n"
            "    try: s.connect(address); print('connected', address)\n"
            "    except OSError as e: print('refused')\n"
            "print([name for _, name in socket.if_nameindex()])\n"
        )
    assert run.stdout.splitlines()[:3] == ["refused"] * 3, run.stdout + run.stderr
    assert run.stdout.splitlines()[3] in ("['lo']", "[]")


@pytest.fixture
def home_file() -> Iterator[Path]:
    """A file in the home of whoever runs the tests."""
    with tempfile.NamedTemporaryFile("w", dir=Path.home(), prefix=".kevin-test-") as file:
        file.write("secret of the host")
        file.flush()
        yield Path(file.name)


def test_the_host_s_home_and_files_are_not_there(inside: Inside, home_file: Path, tmp_path: Path) -> None:
    other = tmp_path / "reference.py"
    other.write_text("secret of the host")
    code = (
        "import pathlib, sys\n"
        f"for path in ('{home_file}', '{other}', '/etc/shadow', '/proc/1/root{home_file}'):\n"
        "    try: text = pathlib.Path(path).read_text(errors='replace')\n"
        "    except OSError: continue\n"
        "    print(path, 'secret of the host' in text)\n"
        f"print([p.name for p in pathlib.Path('{home_file.parent}').glob('*') if p.name == '{home_file.name}'])\n"
    )
    run = inside(code)
    assert "True" not in run.stdout and run.stdout.splitlines()[-1] == "[]", run.stdout + run.stderr


def test_nothing_is_written_outside_of_scratch(inside: Inside, image: Path, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "out").mkdir()
    before = apptainer.digest(image)
    code = (
        "import os\n"
        f"for path in ('/usr/x', '/opt/kevin/x', '/x', '/root/x', '{tmp_path}/in/x', '/sys/x'):\n"
        "    try: open(path, 'w').write('x'); print('wrote', path)\n"
        "    except OSError: pass\n"
        f"open('{tmp_path}/x', 'w').write('below /tmp, which is private')\n"
        f"os.symlink('/etc', '{tmp_path}/out/link')\n"
    )
    run = inside(code, [tmp_path / "in"], [tmp_path / "out"])
    assert run.returncode == 0 and run.stdout == "", run.stdout + run.stderr
    assert sorted(p.name for p in tmp_path.rglob("*")) == ["in", "link", "out"]
    assert apptainer.digest(image) == before


def test_limits_set_outside_hold_inside(inside: Inside) -> None:
    code = "open('/tmp/flood', 'wb').write(bytes(1 << 21))"
    assert inside(code).returncode == 0
    old = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, old[1]))
    try:
        run = inside(code)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, old)
    assert run.returncode != 0 and "File too large" in run.stderr


def test_other_processes_and_their_memory_are_not_there(inside: Inside) -> None:
    victim = subprocess.Popen(["sleep", "60"])
    try:
        run = inside(
            "import ctypes, os\n"
            f"pid = {victim.pid}\n"
            "try: open(f'/proc/{pid}/mem', 'rb'); print('opened')\n"
            "except OSError: print('refused')\n"
            "try: os.kill(pid, 9); print('killed')\n"
            "except OSError: print('refused')\n"
            "libc = ctypes.CDLL(None, use_errno=True)\n"
            "print('traced' if libc.ptrace(16, pid, 0, 0) == 0 else 'refused')\n"
            "print(sum(name.isdigit() for name in os.listdir('/proc')) < 8)\n"
        )
        assert run.stdout.splitlines() == ["refused"] * 3 + ["True"], run.stdout + run.stderr
        assert victim.poll() is None
    finally:
        victim.kill()
        victim.wait()


def test_no_capabilities_and_no_mounts(inside: Inside) -> None:
    run = inside(
        "import ctypes\n"
        "print([l.split()[1] for l in open('/proc/self/status') if l.startswith('CapEff')])\n"
        "print(ctypes.CDLL(None).mount(b'none', b'/tmp', b'tmpfs', 0, None))\n"
    )
    assert run.stdout.splitlines() == ["['0000000000000000']", "-1"], run.stderr
