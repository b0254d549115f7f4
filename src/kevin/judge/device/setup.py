"""What a cell is told before it loads its candidate."""

from __future__ import annotations

import base64
import io
from typing import Any

import torch

from kevin.core.abi import LAUNCHER
from kevin.core.protocol import JudgeProtocol
from kevin.core.types import Kernel
from kevin.judge.compile.native import Build
from kevin.judge.correctness.reference import ReferenceTask
from kevin.judge.inside.host import last_level_bytes
from kevin.judge.sandbox.bands import BAND_BYTES
from kevin.judge.sandbox.slots import PLACES, SharedSlots


def cell_setup(
    protocol: JudgeProtocol, kernel: Kernel, build: Build, reference: ReferenceTask, slots: SharedSlots
) -> dict[str, Any]:
    """Offsets, limits and, of a module, its weight seed; neither inputs' seeds nor expected outputs."""
    inputs = reference.trials[0].inputs
    setup: dict[str, Any] = {
        "device": protocol.device,
        "precision": protocol.precision,
        "tf32": protocol.tf32,
        "shared_bytes": slots.total_bytes,
        "memory_bytes": protocol.memory_mb << 20,
        "num_threads": protocol.num_threads,
        "cache_bytes": last_level_bytes(),
        "slots": [slots.arguments(i, inputs) for i in range(slots.num_slots)],
        "num_outputs": len(reference.spec.outputs),
        "band_bytes": BAND_BYTES,
        "late_pieces": [slots.late_pieces(i) for i in range(slots.num_slots)],
    }
    if protocol.device == "cpu":
        setup["guarded"] = [slots.guarded(inputs, place)[0] for place in PLACES]
    if kernel.dialect == "c_abi":
        return setup | {"library": build.path, "launcher": LAUNCHER}
    if (fewer := reference.fewer_rows) is not None:  # one more slot, in the memory of the first
        setup["slots"].append(slots.reshaped(0, fewer.inputs, fewer.outputs)[0])
    arguments = io.BytesIO()
    torch.save(reference.init_inputs, arguments)
    return setup | {
        "source": kernel.source,
        "build_folder": build.path,
        "weight_seed": reference.weight_seed,
        "init_inputs": base64.b64encode(arguments.getvalue()).decode(),
        "num_inputs": len(reference.spec.inputs),
        "parameter_names": reference.parameter_names,
    }
