"""A thin handle on Apptainer: version, build, digest, the command line. Nothing of the study is in here.

Images are files (``.sif``); the digest of the file stands beside it in ``<image>.sha256``, and that small file is what
rules take as input. Containers do not nest: what starts them runs on the host, or in another kind of isolation.
"""

from __future__ import annotations

import functools
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from kevin.core.errors import DataError, HarnessError, SandboxError
from kevin.core.files import atomic_path, write_text

PYTHON = "/opt/kevin/bin/python"
"""The interpreter of the study's own images (containers/post.sh)."""
MINIMUM = (1, 2)
_SYSTEM_PARTITION = re.compile(r"(\d+)-\d+\s*\|\s*FS \(Squashfs/\*System")
_MOUNT_WHILE_OPEN = 'for folder; do :; done; "$@" & read -r _; kill $!; wait $!; rmdir "$folder"'
_MOUNT_TIMEOUT_S = 10.0
_keepers: list[subprocess.Popen[bytes]] = []
_CLOSED = ("--containall", "--no-home", "--no-privs", "--net", "--network", "none", "--pwd", "/tmp")


def program() -> str:
    """Path of Apptainer. Raises SandboxError without one."""
    found = os.environ.get("KEVIN_APPTAINER") or shutil.which("apptainer")
    if found is None:
        raise SandboxError(
            "Apptainer is not installed (no apptainer in PATH): install it (https://apptainer.org), load your site's"
            " module, or set KEVIN_APPTAINER to its path"
        )
    return found


def version() -> tuple[int, ...]:
    """Apptainer's version. Raises SandboxError when there is none, or one that is too old."""
    text = _run([program(), "--version"], "apptainer --version").stdout.split()[-1]
    found = tuple(int(part) for part in text.split("-")[0].split("+")[0].split(".") if part.isdigit())
    if found < MINIMUM:
        raise SandboxError(f"Apptainer {text} is too old: {'.'.join(map(str, MINIMUM))} or newer is needed")
    return found


def build(
    definition: Path, image: Path, *, arguments: Mapping[str, str] | None = None, options: Sequence[str] = ()
) -> str:
    """Build ``image`` from ``definition`` and write its digest beside it; returns the digest.

    Paths in the definition are relative to the working directory. An image that was there stays until the new one is
    complete. Raises HarnessError with the end of Apptainer's own message.
    """
    version()
    given = [part for name, value in (arguments or {}).items() for part in ("--build-arg", f"{name}={value}")]
    with atomic_path(image) as tmp:
        _run(
            [program(), "build", "--force", "--fakeroot", *options, *given, str(tmp), str(definition)], str(definition)
        )
    found = digest(image)
    write_text(digest_file(image), f"{found}  {image.name}\n")
    return found


def digest(image: Path) -> str:
    """SHA-256 of the image file, in hexadecimal. Raises DataError when it is not there."""
    try:
        with image.open("rb") as f:
            return hashlib.file_digest(f, "sha256").hexdigest()
    except FileNotFoundError:
        raise DataError(f"{image}: no such image; build it with: snakemake {image}") from None


def digest_file(image: Path) -> Path:
    return image.with_name(image.name + ".sha256")


def check_digest(image: Path) -> str:
    """The image's digest. Raises DataError when it is not the one that results were made with."""
    expected, found = digest_file(image), digest(image)
    if not expected.exists() or expected.read_text("utf-8").split()[:1] != [found]:
        raise DataError(
            f"{image}: its digest {found[:12]} is not that of {expected.name}, so earlier results were made with"
            f" another image: put that one back, or accept this one with: sha256sum {image} > {expected}"
        )
    return found


@functools.cache
def mounted(image: Path) -> Path:
    """The files of an image as a folder, until this process ends; the image itself where it cannot be mounted.

    Apptainer mounts an image anew for every start, and all that a compiler consists of is then read and unpacked again.
    """
    squashfuse = shutil.which("squashfuse")
    if squashfuse is None or not image.is_file():
        return image
    position = _SYSTEM_PARTITION.search(_run([program(), "sif", "list", str(image)], str(image)).stdout)
    if position is None:  # an encrypted image, say
        return image
    folder = Path(tempfile.mkdtemp(prefix="kevin-image-"))
    mount = [squashfuse, "-f", "-o", f"ro,offset={position[1]}", str(image), str(folder)]
    # the pipe is closed when this process ends, however it ends
    keeper = subprocess.Popen(
        ["sh", "-c", _MOUNT_WHILE_OPEN, "sh", *mount],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    deadline = time.monotonic() + _MOUNT_TIMEOUT_S
    while not folder.is_mount():
        if keeper.poll() is not None or time.monotonic() > deadline:
            keeper.kill()
            folder.rmdir()
            return image
        time.sleep(0.02)
    _keepers.append(keeper)
    return folder


def wrap_apptainer(
    argv: Sequence[str],
    image: Path,
    read_only: Iterable[str] = (),
    writable: Iterable[str] = (),
    nv: bool = False,
    environment: Mapping[str, str] | None = None,
    options: Sequence[str] = (),
) -> list[str]:
    """The command line that runs ``argv`` closed in: no network, no capabilities, own processes, nothing of the host.

    ``read_only`` and ``writable`` keep their names inside; /tmp is private and in memory; the environment is
    empty but for ``environment``. Open descriptors are passed on. ``argv[0]`` must exist in the image, except that this
    very interpreter becomes the image's (`PYTHON`). ``nv`` passes the GPUs on; ``options``
    are further ones of `apptainer exec`.
    """
    command = [program(), "--silent", "exec", *_CLOSED, *options, *(["--nv"] if nv else [])]
    for path in read_only:
        command += ["--bind", f"{path}:{path}:ro"]
    for path in writable:
        command += ["--bind", f"{path}:{path}"]
    for name, value in (environment or {}).items():
        command += ["--env", f"{name}={value}"]
    return [*command, str(image), PYTHON if argv[0] == sys.executable else argv[0], *argv[1:]]


def _run(argv: Sequence[str], what: str) -> subprocess.CompletedProcess[str]:
    try:
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
    except OSError as e:
        raise SandboxError(f"{argv[0]} could not be started ({e.strerror}): is KEVIN_APPTAINER right?") from None
    if done.returncode != 0:
        raise HarnessError(f"apptainer, {what}: exit code {done.returncode}\n{done.stderr.strip()[-2000:]}")
    return done
