"""Which of the workspaces that are kept goes first when memory is short."""

from __future__ import annotations

from typing import Any, cast

from kevin.judge.device.workspace import Workspace, Workspaces


class _Kept:
    """A workspace, as far as its task goes."""

    num_bytes = 1

    def __init__(self, digest: str) -> None:
        self.digest = digest


def _workspaces(digests: str) -> tuple[Workspaces, list[Any]]:
    """Idle ones, in the order in which they were last used."""
    kept, all_of_them = Workspaces(), [cast(Workspace, _Kept(d)) for d in digests]
    for workspace in all_of_them:
        kept.add(workspace)
        kept.put_back(workspace)
    return kept, all_of_them


def test_the_one_that_was_not_used_for_longest_goes_first() -> None:
    kept, (a, b, c) = _workspaces("abc")
    assert [kept.drop_oldest("b"), kept.drop_oldest(), kept.drop_oldest(), kept.drop_oldest()] == [a, b, c, None]


def test_a_tasks_last_one_is_spared_while_another_task_has_two() -> None:
    """With it goes what is expected of the task: a step's later turns come back to every task."""
    kept, (a, b1, b2, c1, c2) = _workspaces("abbcc")
    dropped = [kept.drop_oldest(spares_tasks=True) for _ in range(5)]
    assert dropped == [b1, c1, a, b2, c2]


def test_one_in_use_counts_as_the_tasks_other_one() -> None:
    kept, (a, b) = _workspaces("ab")
    another = cast(Workspace, _Kept("b"))
    kept.add(another)
    assert kept.drop_oldest(spares_tasks=True) is b
    assert kept.drop_oldest("a", spares_tasks=True) is None
    assert kept.drop_oldest(spares_tasks=True) is a and kept.tasks() == {"b"}
