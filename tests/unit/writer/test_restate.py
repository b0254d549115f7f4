"""What an answer says that a module computes."""

from __future__ import annotations

import random

from past_fixtures import small_past_tasks

from kevin.tasks.render import trace_task
from kevin.writer.plan import sample_plan
from kevin.writer.restate import restated
from kevin.writer.school import answer


def test_the_lines_stand_in_an_answer():
    rng = random.Random(0)
    for task in small_past_tasks(12):
        plan = sample_plan(rng, task.plain, "cuda")
        text = answer(task.plain, task.styled.names, plan, summary="first version.", goes_on=("I decide anew.",))
        lines = restated(trace_task(task.plain).steps, task.plain.spec, task.styled.names)
        assert "this is computed:\n" + "\n".join(lines) + "\n" in text
