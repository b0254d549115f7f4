"""Data of the report's trajectory viewer: the best trajectories of each task and policy, and all about their turns.

Texts stand once in a pool and are named by their index; prompts are made again from the task and the turns before,
since rollouts do not store them.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import pandas as pd

from kevin.core.config import Study
from kevin.core.dialogue import FENCES, conversation
from kevin.core.errors import DataError, TaskError
from kevin.core.fences import read_answer, split_thought
from kevin.core.files import read_columns, read_rows, turns_from_frame
from kevin.core.texts import strict_json
from kevin.core.types import Task, Turn
from kevin.report.recipes import CEILING, OUTCOMES, policy_label, policy_order

# --- trajectories worth showing -----------------------------------------------------------------------------------


def split_name(turns: Path) -> tuple[str, str]:
    """(policy, split) of ``<policy>-<split>/turns.parquet``. Raises DataError for another name."""
    policy, dash, split = turns.parent.name.rpartition("-")
    if not dash:
        raise DataError(f"{turns}: its folder should be named <policy>-<split>")
    return policy, split


def files_by_policy(paths: Sequence[Path], study: Study) -> dict[str, list[Path]]:
    """Files of turns by policy, in the study's order, without the ceiling."""
    files: dict[str, list[Path]] = {}
    for path in paths:
        files.setdefault(split_name(path)[0], []).append(path)
    return {policy: files[policy] for policy in policy_order([p for p in files if p != CEILING], study)}


def best_in_files(files: Sequence[Path], limit: int) -> dict[str, list[list[Turn]]]:
    """Of every task of a policy's ``turns.parquet`` files the trajectories that have a verdict, by task: those with the
    fastest correct kernel first, then by number.

    Of all other trajectories nothing but their verdicts is held in memory.
    """
    found: dict[str, list[list[Turn]]] = {}
    key = ["task_id", "trajectory"]
    for path in files:
        verdicts = read_columns(path, "turns", [*key, "outcome", "speedup"])
        known = verdicts.groupby(key, as_index=False).agg(judged=("outcome", "count"), speedup=("speedup", "max"))
        known = known[known["judged"] > 0].fillna({"speedup": 0.0})
        known = known.sort_values(["task_id", "speedup", "trajectory"], ascending=[True, False, True])
        chosen = pd.MultiIndex.from_frame(known.groupby("task_id").head(limit)[key])
        own: dict[tuple[str, int], list[Turn]] = {place: [] for place in chosen}
        turns = turns_from_frame(read_rows(path, "turns", pd.MultiIndex.from_frame(verdicts[key]).isin(chosen)))
        for turn in sorted(turns, key=lambda turn: turn.turn):
            own[turn.task_id, turn.trajectory].append(turn)
        for (task, _), trajectory in own.items():
            found.setdefault(task, []).append(trajectory)
    return found


# --- data of the viewer -------------------------------------------------------------------------------------------


MAX_THOUGHT_CHARS = 12_000
"""Longer chains of thought keep their beginning and end."""


Pool = dict[str, int]
"""Distinct texts, each with its number."""


def _add(text: str, pool: Pool) -> int:
    return pool.setdefault(text, len(pool))


def viewer_data(
    best: Mapping[str, Mapping[str, Sequence[Sequence[Turn]]]],
    tasks: Sequence[Task],
    study: Study,
    *,
    max_bytes: int = 9_000_000,
) -> dict[str, Any]:
    """A JSON-serialisable tree for the page's script.

    Args:
        best: policy -> task id -> trajectories, the best first.
        tasks: in the order of the page.
        max_bytes: about what the data may take. Every task's best trajectory comes before any second one; those after
            the one that fills it are counted in ``num_left_out``.
    """
    studies = {policy: study.for_policy(policy) if policy in study.policies else study for policy in best}
    places = [(i, task, j, policy) for i, task in enumerate(tasks) for j, policy in enumerate(best)]
    deepest = max((len(found) for by_task in best.values() for found in by_task.values()), default=0)
    pool: Pool = {}
    entries: list[dict[str, Any]] = []
    size = num_left_out = 0
    for rank, (i, task, j, policy) in product(range(deepest), places):
        own = next(iter(best[policy].get(task.id, ())[rank:]), None)
        if own is None:
            continue
        if size >= max_bytes:
            num_left_out += 1
            continue
        known = len(pool)
        turns = [_turn(task, own[:n], turn, studies[policy], pool) for n, turn in enumerate(own)]
        entries.append({"task": i, "policy": j, "number": own[0].trajectory, "turns": turns})
        size += len(strict_json(turns)) + sum(len(strict_json(text)) for text in list(pool)[known:])
    return {
        "texts": list(pool),
        "tasks": [{"id": t.id, "ops": [op.name for op in t.ops], "flaws": list(t.flaws)} for t in tasks],
        "policies": [{"id": p, "label": policy_label(p, study)} for p in best],
        "outcomes": {o.value: {"label": s.label, "icon": s.icon} for o, s in OUTCOMES.items()},
        "code": FENCES[study.dialect, study.language],
        "trajectories": sorted(entries, key=lambda e: (e["task"], e["policy"])),
        "num_left_out": num_left_out,
    }


def _turn(task: Task, past: Sequence[Turn], turn: Turn, study: Study, pool: Pool) -> dict[str, Any]:
    try:
        messages = conversation(task, study.rollout.history.shown(past), dialect=study.dialect, language=study.language)
        prompt = [[m.role, _add(m.content, pool)] for m in messages]
    except TaskError:
        prompt = []
    thought, answer = split_completion(turn)
    diff_to, diff = changed(past, turn)
    return {
        "turn": turn.turn,
        "outcome": turn.outcome.value if turn.outcome is not None else None,
        "reason": turn.reason,
        "speedup": turn.speedup,
        "summary": turn.summary,
        "feedback": _add(turn.feedback, pool),
        "prompt": prompt,
        "thought": _add(_shorten(thought), pool),
        "answer": _add(_shorten(answer), pool) if turn.kernel is None else None,
        "kernel": _add(turn.kernel.source, pool) if turn.kernel is not None else None,
        "diff": _add(diff, pool) if diff is not None else None,
        "diff_to": diff_to,
        "tokens": [turn.num_prompt_tokens, turn.num_completion_tokens],
        "cut": turn.finish_reason == "length",
    }


def split_completion(turn: Turn) -> tuple[str, str]:
    """(chain of thought, answer). Without markers, what stands before the last code block counts as thought."""
    text = turn.completion
    if read_answer(text).start:
        return split_thought(text)
    if turn.kernel is not None:
        return text.split(turn.kernel.source, 1)[0].rstrip().rsplit("```", 1)[0].strip(), text.strip()
    return "", text.strip()


def changed(past: Sequence[Turn], turn: Turn) -> tuple[int | None, str | None]:
    """The last turn before that has a kernel, and the unified diff from that one to this one's."""
    before = next((t for t in reversed(past) if t.kernel is not None), None)
    if before is None or before.kernel is None:
        return None, None
    if turn.kernel is None:
        return before.turn, None
    old, new = (k.source.rstrip().split("\n") for k in (before.kernel, turn.kernel))
    names = (f"turn {before.turn}", f"turn {turn.turn}")
    return before.turn, "\n".join(difflib.unified_diff(old, new, *names, lineterm=""))


def _shorten(text: str) -> str:
    if len(text) <= MAX_THOUGHT_CHARS:
        return text
    head, tail = MAX_THOUGHT_CHARS * 3 // 4, MAX_THOUGHT_CHARS // 4
    return f"{text[:head]}\n\n[… {len(text) - head - tail:,} characters left out …]\n\n{text[-tail:]}"


def embed_json(value: Any) -> str:
    """JSON that can stand in a ``<script type="application/json">`` element, whatever text it holds."""
    text = strict_json(value, ensure_ascii=False, separators=(",", ":"))
    for char in "<>&\u2028\u2029":
        text = text.replace(char, f"\\u{ord(char):04x}")
    return text
