"""Test-time search: ways to spend the same number of kernels."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from kevin.core.types import Settings


class StrategyConfig(Settings):
    method: Literal["trajectories", "beam", "evolution"] = "trajectories"
    """``trajectories``: each by itself, as in training. ``beam``: after half of the turns only the quarter with the
    fastest kernels goes on, copied. ``evolution``: every prompt shows kernels of all the task's trajectories with
    their evaluations, drawn from the eight best so far (EvoEngineer, arXiv 2510.03760)."""
    rollout: dict[str, Any] = Field(default={})
    """Keys of ``rollout`` that differ. Of ``num_turns`` the number of trajectories follows: see ``num_kernels``."""
    num_parents: int = Field(default=3, ge=1)
    """``evolution`` only: kernels that a prompt shows, the best last; better ones are drawn more often."""


class SearchConfig(Settings):
    """Ways to spend the same number of kernels at test time, compared in ``tables/search.csv``."""

    num_kernels: int | None = Field(default=None, ge=1)
    """Kernels a task of every strategy; ``rollout.num_trajectories`` times ``rollout.num_turns`` when null."""
    strategies: dict[str, StrategyConfig] = Field(default={})
    """By a name of your choice."""
    compared: tuple[str, ...] | None = None
    """Those of them that the report compares too, by name: each is a further rollout of every compared policy. When
    null ``tables/search.csv`` compares all, and the report none."""

    @property
    def names(self) -> list[str]:
        """Of the strategies that are compared, in their order."""
        return list(self.compared or self.strategies)
