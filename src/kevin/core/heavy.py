"""The import of torch, which is most of the start of whatever needs it."""

from __future__ import annotations

import gc
import sys


def import_torch() -> None:
    """Without looking for garbage: there is none in all that it makes, and the search is an eighth of its time."""
    if "torch" in sys.modules:
        return  # what lives by now may become garbage, and a collection would never find it again
    gc.disable()
    try:
        import torch  # noqa: F401
    finally:
        gc.freeze()  # nor is it looked for there later
        gc.enable()
