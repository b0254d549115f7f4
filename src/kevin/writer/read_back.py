"""From an answer back to the plan that it says it follows."""

from __future__ import annotations

from kevin.core.fences import THINK_CLOSE, THINK_OPEN
from kevin.core.types import Language, Task
from kevin.writer.plan import Plan, plan_space
from kevin.writer.slots import sentence


def read_plan(task: Task, language: Language, completion: str) -> Plan | None:
    """The plan whose sentences stand in the chain of thought of an answer to ``task``; None where there is not one.

    A decision that is not said, or said in two ways, takes its plainest value. Mistakes cannot be read.
    """
    thought = completion.partition(THINK_CLOSE)[0].removeprefix(THINK_OPEN)
    lines = {line.strip() for line in thought.split("\n")}
    space = plan_space(task, language)
    said = {slot: [v for v in values if sentence(slot, v) in lines] for slot, values in space.items()}
    if not any(len(values) == 1 for values in said.values()):
        return None
    slots = tuple((slot, said[slot][0] if len(said[slot]) == 1 else values[0]) for slot, values in space.items())
    return Plan(language=language, slots=slots)
