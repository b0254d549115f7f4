"""How many processes train together, as their launcher (accelerate launch, torchrun) says; where they meet and part."""

from __future__ import annotations

import logging
import os
import socket
import sys


def process_count() -> int:
    return int(os.environ.get("WORLD_SIZE", "1"))


def meet_alone() -> None:
    """A port of its own for a training without a launcher, which a colocated vLLM opens as well.

    TRL takes the first free one from 29500 on, and so do two trainings that start side by side on a machine.
    """
    if process_count() > 1 or os.environ.get("MASTER_PORT"):
        return
    with socket.socket() as s:
        s.bind(("localhost", 0))
        os.environ["MASTER_PORT"] = str(s.getsockname()[1])


def leave_together() -> None:
    """End this process once all have come this far; a training of one process goes on.

    Without the interpreter's own teardown: DeepSpeed keeps process groups, whose threads outlive
    ``destroy_process_group``, and what one of them aborts then would fail a training that has ended.
    """
    import torch.distributed as dist

    if process_count() == 1 or not dist.is_initialized():
        return
    dist.barrier()
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)
