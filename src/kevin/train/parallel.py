"""How many processes train together, as their launcher (accelerate launch, torchrun) says."""

from __future__ import annotations

import os


def process_count() -> int:
    return int(os.environ.get("WORLD_SIZE", "1"))
