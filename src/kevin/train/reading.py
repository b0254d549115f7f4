"""Whether a model that went to school reads modules rightly: what its answers restate, against what they should."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kevin.core import dialogue
from kevin.core.types import Frozen, Language, Task
from kevin.policy.interface import Policy, Request, Sampling
from kevin.tasks.render import trace_task
from kevin.writer.counterpart import counterpart
from kevin.writer.restate import RIGHT, compared, readings, restated
from kevin.writer.school import unstyled

NOTHING = "It restated nothing."
_SPARE_TOKENS = 40
_TOGETHER = 16
"""Tasks whose beginnings are generated at once, those of like length together."""


class Reading(Frozen):
    """How one task's module was read."""

    task_id: str
    level: int
    right: bool
    said: str
    """What was misread, in a sentence."""


def restatement(task: Task) -> list[str] | None:
    """The lines that an answer to ``task`` should begin with; None for one that the kernel writer does not know."""
    own = task.ops and task.origin in ("catalog", "composed")
    known = unstyled(task) if own else counterpart(task)
    if known is None or known.shown.spec is None:
        return None
    return restated(trace_task(known.shown).steps, known.shown.spec, known.names)


def read_modules(
    policy: Policy, tasks: Sequence[Task], language: Language, on_read: Callable[[Reading], None] | None = None
) -> list[Reading]:
    """What the likeliest answer restates, for each of ``tasks`` that the kernel writer knows, in their order.

    Only the beginning of an answer is generated. A reading may be wrong and its kernel correct, where only a shape that
    no kernel uses is off.

    Args:
        on_read: called with each reading as soon as it is there.

    Raises:
        PolicyError: as ``policy.complete``.
    """
    known = {task.id: (task, lines) for task in tasks if (lines := restatement(task)) is not None}
    by_length = sorted(known.values(), key=lambda pair: _size(pair[1]))
    found: dict[str, Reading] = {}
    for some in (by_length[i : i + _TOGETHER] for i in range(0, len(by_length), _TOGETHER)):
        requests = [_first_turn(task, language) for task, _ in some]
        # characters are more than tokens, and leave room for what is read into a module
        sampling = Sampling(temperature=0.0, max_tokens=_SPARE_TOKENS + _size(some[-1][1]))
        for (task, lines), completion in zip(some, policy.complete(requests, sampling), strict=True):
            got = readings(completion.text) if completion else []
            said = compared(got, lines) if got else NOTHING
            found[task.id] = Reading(task_id=task.id, level=task.level, right=said == RIGHT, said=said)
            if on_read is not None:
                on_read(found[task.id])
    return [found[task_id] for task_id in known]


def _size(lines: Sequence[str]) -> int:
    return sum(map(len, lines))


def _first_turn(task: Task, language: Language) -> Request:
    conversation = dialogue.conversation(task, (), dialect="c_abi", language=language)
    return Request(conversation=conversation, task_id=task.id, trajectory=0, turn=1)
