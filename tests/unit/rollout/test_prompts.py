"""What a model is shown, to the letter: the first turn of every dialect, and a later turn in every view."""

from __future__ import annotations

from typing import get_args

import pytest
from core_fixtures import make_kernel
from rollout_fixtures import SETTINGS, TASKS, ScriptedJudge, ScriptedPolicy, failing, run, verdict

from golden import same_text
from kevin.core import history
from kevin.core.history import HistoryConfig, HistoryView
from kevin.core.types import Outcome

PLACE = ("l1/b", 0)
NO_CODE = {"text": "<think>I give up</think>\nI cannot."}


def asked(**changes):
    """All prompts of a trajectory: its kernels are correct, faster, not compiled, wrong, and there is none."""
    compiler = verdict(make_kernel("k"), outcome=Outcome.COMPILE_ERROR)
    script = {
        (*PLACE, 1): verdict(make_kernel("k"), speedup=1.5),
        (*PLACE, 2): verdict(make_kernel("k"), speedup=12.345),
        (*PLACE, 3): compiler.model_copy(update={"message": "kernel.cpp:3: error: 'n' was not declared"}),
        (*PLACE, 4): failing((*PLACE, 4)),
    }
    policy = ScriptedPolicy({(*PLACE, 5): NO_CODE})
    settings = SETTINGS.model_copy(update={"num_trajectories": 1, "num_turns": 6, **changes})
    run(policy, ScriptedJudge(script), settings, TASKS[:1])
    return [as_text(request.conversation) for (request,) in policy.requests]


def as_text(conversation):
    return "".join(f"=== {m.role}\n{m.content.rstrip()}\n" for m in conversation)


@pytest.mark.parametrize(("dialect", "language"), [("c_abi", "cpp"), ("c_abi", "cuda"), ("load_inline", "cuda")])
def test_first_turns(dialect, language):
    first, *_ = asked(dialect=dialect, language=language)
    same_text(f"prompts/first-{dialect}-{language}.txt", first)


@pytest.mark.parametrize("view", get_args(HistoryView))
def test_later_turns(view, monkeypatch):
    monkeypatch.setattr(history, "NUM_BEST", 2)
    *_, last = asked(history=HistoryConfig(view=view))
    same_text(f"prompts/later-{view}.txt", last)
