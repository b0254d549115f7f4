"""Small tasks of a past, and answers to them with verdicts that are made up."""

from __future__ import annotations

from collections.abc import Sequence

from core_fixtures import make_turn
from writer_fixtures import small_catalog, small_composed

from kevin.core import dialogue
from kevin.core.types import Language, Outcome, Turn
from kevin.writer.later_turns import Past, PastTask, past_of, past_tasks, written_answers

TASKS = [*small_catalog(), *small_composed(10)]
LARGEST = 3000
COMPILE_ERROR = 'kernel.cu(12): error: identifier "num" is undefined\n  for (idx n = 0; n < num; n++)\n  ^'


def small_past_tasks(num: int, language: Language = "cuda", *, held_out: bool = False) -> list[PastTask]:
    return past_tasks(TASKS, language, num, 0, largest=LARGEST, held_out=held_out)


def told(
    task: PastTask, completion: str, speedup: float | None = None, *, language: Language = "cuda", profile: str = ""
) -> Turn:
    """An answer as if it had been judged: correct with a speedup, else a compile error."""
    outcome = Outcome.COMPILE_ERROR if speedup is None else Outcome.CORRECT
    message = COMPILE_ERROR if speedup is None else ""
    parsed = dialogue.parse_completion(completion, "c_abi", language)
    said = {"completion": completion, "kernel": parsed.kernel, "summary": parsed.summary}
    feedback = dialogue.feedback(outcome, message, speedup) + profile
    return make_turn(task_id=task.shown.id, outcome=outcome, speedup=speedup, feedback=feedback, **said)


def written_pasts(
    tasks: Sequence[PastTask], language: Language = "cuda", num_right: int = 4, num_wrong: int = 2
) -> list[Past]:
    """Right kernels are told to be correct, the first the slowest; the others do not compile."""
    pasts = []
    for task in tasks:
        answers = written_answers(task, language, num_right, num_wrong, 0)
        turns = [
            told(task, text, 0.5 * (i + 1) if i < len(answers) - num_wrong else None, language=language)
            for i, text in enumerate(answers)
        ]
        pasts.append(past_of(task, language, turns))
    return pasts
