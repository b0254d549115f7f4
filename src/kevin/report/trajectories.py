"""Which trajectories are worth showing."""

from __future__ import annotations

from collections.abc import Sequence

from kevin.core.types import Turn


def best_trajectories(turns: Sequence[Turn], task_id: str, limit: int) -> list[list[Turn]]:
    """The task's trajectories that have a verdict, those with the fastest correct kernel first, then by number."""
    groups: dict[int, list[Turn]] = {}
    for t in turns:
        if t.task_id == task_id:
            groups.setdefault(t.trajectory, []).append(t)
    known = [sorted(g, key=lambda t: t.turn) for g in groups.values() if any(t.outcome is not None for t in g)]
    known.sort(key=lambda g: (-max(t.speedup or 0.0 for t in g), g[0].trajectory))
    return known[:limit]
