"""The best trajectories, read from files without holding the others, and what the page says of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from report_fixtures import (
    make_study,
    make_task,
    make_turn,
    make_turns,
)

from kevin.core.errors import DataError
from kevin.core.files import write_turns
from kevin.core.types import Outcome, Turn
from kevin.report.viewer import best_in_files, changed, embed_json, split_completion, viewer_data


def best_trajectories(turns: list[Turn], task_id: str, limit: int) -> list[list[Turn]]:
    """Of all turns in memory."""
    groups: dict[int, list[Turn]] = {}
    for t in turns:
        if t.task_id == task_id:
            groups.setdefault(t.trajectory, []).append(t)
    known = [sorted(g, key=lambda t: t.turn) for g in groups.values() if any(t.outcome is not None for t in g)]
    known.sort(key=lambda g: (-max(t.speedup or 0.0 for t in g), g[0].trajectory))
    return known[:limit]


@pytest.mark.parametrize("limit", [0, 1, 3, 99])
def test_files_give_the_same_as_all_turns_in_memory(tmp_path: Path, limit: int) -> None:
    tasks = [make_task(name, 1) for name in ("relu", "gelu", "tanh", "lost")]
    turns = make_turns(tasks[:3], 0.3, seed=4, num_trajectories=5, num_turns=3)
    turns += [make_turn(tasks[3].id, 0, 1, None), make_turn(tasks[0].id, 7, 1, None)]
    turns += [make_turn(tasks[1].id, n, 1, Outcome.CORRECT, 2.0) for n in (9, 8)]
    files = [tmp_path / name / "turns.parquet" for name in ("p0-level1", "p0-level2")]
    write_turns(files[0], reversed([t for t in turns if t.task_id != tasks[2].id]), {})
    write_turns(files[1], [t for t in turns if t.task_id == tasks[2].id], {})
    found = best_in_files(files, limit)
    for task in tasks:
        assert found.get(task.id, []) == best_trajectories(turns, task.id, limit)


def test_a_file_of_another_kind_is_named(tmp_path: Path) -> None:
    (tmp_path / "turns.parquet").write_text("")
    with pytest.raises(DataError, match="cannot be read"):
        best_in_files([tmp_path / "turns.parquet"], 1)


@pytest.mark.parametrize("text", ["</script>", "<!--<script>", "\u2028&", '"quoted" \\', "plain"])
def test_embedded_json_reads_back_and_cannot_leave_its_element(text: str) -> None:
    embedded = embed_json({"a": text})
    assert json.loads(embedded) == {"a": text}
    assert not set("<>&\u2028\u2029") & set(embedded)


def test_the_viewer_keeps_to_its_size_with_every_tasks_best_first() -> None:
    study = make_study(1)
    tasks = [make_task(f"relu{i}", 1) for i in range(4)]
    best = {
        "p0": {
            t.id: [[make_turn(t.id, n, 1, Outcome.INCORRECT, text=f"{t.id}{n}" + "x" * 3000)] for n in range(2)]
            for t in tasks
        }
    }
    full = viewer_data(best, tasks, study)
    small = viewer_data(best, tasks, study, max_bytes=len(json.dumps(full)) * 3 // 4)
    assert full["num_left_out"] == 0 and len(full["trajectories"]) == 8
    assert small["num_left_out"] == 8 - len(small["trajectories"]) > 0
    assert {e["task"] for e in small["trajectories"]} == {0, 1, 2, 3}
    used = {t[key] for e in small["trajectories"] for t in e["turns"] for key in ("thought", "answer", "feedback")}
    assert max(i for i in used if i is not None) < len(small["texts"])


def test_long_answers_keep_beginning_and_end() -> None:
    task = make_task("relu", 1)
    turn = make_turn(task.id, 0, 1, Outcome.PARSE_ERROR, text="begin" + "x" * 50_000 + "end")
    data = viewer_data({"p0": {task.id: [[turn]]}}, [task], make_study(1))
    text = data["texts"][data["trajectories"][0]["turns"][0]["answer"]]
    assert text.startswith("begin") and text.endswith("end") and len(text) < 13_000


def turn_of(text: str) -> Turn:
    return make_turn("t", 0, 1, Outcome.INCORRECT, text=text)


def test_completions_are_split_into_thought_and_answer() -> None:
    code = "```cpp\nint x;\n```"
    assert split_completion(turn_of(f"<think>\nOkay.\n</think>\n{code}"))[0] == "Okay."
    assert split_completion(turn_of(f"First this.\n{code}"))[0] == "First this."
    assert split_completion(turn_of("<think>never closed")) == ("", "<think>never closed")
    assert split_completion(turn_of("only words")) == ("", "only words")


def test_diff_to_an_earlier_kernel() -> None:
    one, two = turn_of("```cpp\nint a;\nint b;\n```"), turn_of("```cpp\nint a;\nint c;\n```")
    none = turn_of("none")
    assert (changed([one, none], two)[1] or "").splitlines()[-2:] == ["-int b;", "+int c;"]
    assert changed([one], one) == (1, "") and changed([one], none) == (1, None) and changed([none], one) == (None, None)
