"""What a candidate works on, and what its cell is told of that before it loads the candidate.

Each has one to itself while its process lives: nothing that it does there is seen by, or reaches, another candidate of
the same task that is loaded at the same time.
"""

from __future__ import annotations

import base64
import io
from collections import Counter
from dataclasses import dataclass
from typing import Any

import torch

from kevin.core.abi import LAUNCHER
from kevin.core.protocol import JudgeProtocol
from kevin.core.types import Kernel
from kevin.judge.compile.native import Build
from kevin.judge.correctness.reference import ReferenceTask
from kevin.judge.inside.host import last_level_bytes
from kevin.judge.sandbox.slots import BAND_BYTES, PLACES, SharedSlots
from kevin.tasks.layout import laid_out, like


@dataclass(eq=False)
class Workspace:
    """A task's slots, which a cell maps; ``inputs[i]``: the judge's own copy of what is in slot i, ``first``: of the
    first trial, as it lies there."""

    reference: ReferenceTask
    slots: SharedSlots
    first: list[Any]
    inputs: list[list[Any]]

    @property
    def digest(self) -> str:
        return self.reference.task.digest

    @property
    def num_bytes(self) -> int:
        return self.slots.total_bytes + sum(x.nbytes for xs in self.inputs for x in xs if isinstance(x, torch.Tensor))


def new_workspace(reference: ReferenceTask, slots: SharedSlots) -> Workspace:
    pairs = zip(reference.trials[0].inputs, slots.spec.inputs, strict=True)
    first = [laid_out(x, s.stride if slots.as_given else None) if isinstance(x, torch.Tensor) else x for x, s in pairs]
    inputs = [[like(x) if isinstance(x, torch.Tensor) else x for x in first] for _ in range(slots.num_slots)]
    for i in range(slots.num_slots):
        slots.poison_outputs(i)
    slots.bands.fill()
    return Workspace(reference, slots, first, inputs)


class Workspaces:
    """Those in use, and idle ones, which are kept for further candidates of their task. Not thread-safe."""

    def __init__(self) -> None:
        self._idle: list[Workspace] = []
        """The one that was used last stands last."""
        self._taken: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._idle) + self._taken.total()

    def tasks(self) -> set[str]:
        """Digests of the tasks that have one."""
        return {w.digest for w in self._idle} | set(+self._taken)

    def take(self, digest: str, *, as_given: bool) -> Workspace | None:
        """An idle one of a task. ``as_given``: as of `SharedSlots`."""
        for i in reversed(range(len(self._idle))):
            if self._idle[i].digest == digest and self._idle[i].slots.as_given == as_given:
                self._taken[digest] += 1
                return self._idle.pop(i)
        return None

    def add(self, workspace: Workspace) -> None:
        """A new one, which is in use."""
        self._taken[workspace.digest] += 1

    def lose(self, workspace: Workspace) -> None:
        """One that was in use, and is not kept."""
        self._taken[workspace.digest] -= 1

    def put_back(self, workspace: Workspace) -> None:
        self.lose(workspace)
        self._idle.append(workspace)

    def has_idle(self, digest: str, *, as_given: bool) -> bool:
        return any(w.digest == digest and w.slots.as_given == as_given for w in self._idle)

    def idle_bytes(self, but: str) -> int:
        """Of all idle ones but a task's."""
        return sum(w.num_bytes for w in self._idle if w.digest != but)

    def drop_oldest(self, but: str | None = None, *, spares_tasks: bool = False) -> Workspace | None:
        """The idle one, not of the task ``but``, that was not used for longest, no longer kept.

        Args:
            spares_tasks: rather one whose task has another one: with the last one goes what is expected of the task,
                which takes longer to make anew than memory does.
        """
        droppable = [i for i, workspace in enumerate(self._idle) if workspace.digest != but]
        if spares_tasks:
            num = self._taken + Counter(w.digest for w in self._idle)
            droppable.sort(key=lambda i: num[self._idle[i].digest] == 1)
        return self._idle.pop(droppable[0]) if droppable else None


def cell_setup(protocol: JudgeProtocol, kernel: Kernel, build: Build, workspace: Workspace) -> dict[str, Any]:
    """Offsets, limits and, of a module, its weight seed; neither inputs' seeds nor expected outputs."""
    reference, slots = workspace.reference, workspace.slots
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
        "late_pieces": slots.late_pieces,
    }
    if protocol.device == "cpu":
        setup["guarded"] = [slots.guarded(inputs, place)[0] for place in PLACES]
    if kernel.dialect == "c_abi":
        return setup | {"library": build.path, "launcher": LAUNCHER}
    if (fewer := reference.fewer_rows) is not None:  # one more slot, in the memory of the first
        setup["slots"].append(slots.reshaped(fewer.inputs, fewer.outputs)[0])
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
