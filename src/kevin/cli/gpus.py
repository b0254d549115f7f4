"""A GPU for each job, where the workflow runs several side by side on one machine."""

from __future__ import annotations

import fcntl
import os
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from kevin.core.provenance import jobs_side_by_side, nvidia_gpus

if TYPE_CHECKING:
    from kevin.core.config import Study

_VISIBLE = "CUDA_VISIBLE_DEVICES"
_POLL_S = 0.5

_claimed: list[int] = []
"""File descriptors of this process's GPUs, held until it ends."""


def visible_gpus() -> list[str]:
    """As CUDA_VISIBLE_DEVICES names them; all of the machine where it says nothing."""
    if (said := os.environ.get(_VISIBLE)) is not None:
        return [name.strip() for name in said.split(",") if name.strip()]
    return [str(i) for i in range(len(nvidia_gpus()))]


def claim_school_gpus(study: Study) -> None:
    """`claim_gpus` for the school of ``study``, or for judging before it.

    Raises:
        DeviceError: there are GPUs, and fewer than it asks for.
    """
    from kevin.core.config.base_model import check_pretraining_gpus

    num = study.base_model.pretraining.num_gpus
    if visible := visible_gpus():
        check_pretraining_gpus(num, len(visible))
    claim_gpus(num)


def claim_gpus(num: int, folder: Path | None = None) -> None:
    """See only ``num`` GPUs that no other job of a workflow has, from here to the end of this process.

    Nothing happens outside a workflow that runs jobs side by side, or where no more GPUs are visible. One that is not
    free yet is waited for: there are no more jobs than GPUs, but one that ends may take a moment. To be called before
    CUDA is used.

    Args:
        folder: of the lock files; the same for all jobs of a machine.
    """
    if num == 0 or jobs_side_by_side() == 1 or len(visible := visible_gpus()) <= num:
        return
    folder = folder or Path(tempfile.gettempdir())
    while len(_claimed) < num:
        mine: list[str] = []
        for name in visible:
            fd = os.open(folder / f"kevin-job-gpu-{name}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(fd)
                continue
            _claimed.append(fd)
            mine.append(name)
            if len(mine) == num:
                os.environ[_VISIBLE] = ",".join(mine)
                return
        while _claimed:  # somebody else may need one to have all that it wants
            os.close(_claimed.pop())
        time.sleep(_POLL_S)
