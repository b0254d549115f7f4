"""How many processes train together, as their launcher (accelerate launch, torchrun) says, and where they meet."""

from __future__ import annotations

import os
import socket


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
