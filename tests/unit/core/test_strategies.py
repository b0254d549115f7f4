"""Ways to spend the same kernels, as the configuration says them."""

import pytest

from kevin.core.config import validate_study
from kevin.core.errors import ConfigError


class TestConfiguration:
    def study(self, **strategies):
        raw = {
            "policies": {"base": {"model": "m"}},
            "rollout": {"num_trajectories": 16, "num_turns": 8},
            "search": {"strategies": strategies},
        }
        return validate_study(raw, "my.yaml")

    @pytest.mark.parametrize(
        ("rollout", "shape"), [({}, (16, 8)), ({"num_turns": 1}, (128, 1)), ({"num_turns": 128}, (1, 128))]
    )
    def test_every_strategy_spends_the_same_kernels(self, rollout, shape):
        own = self.study(mine={"rollout": rollout}).for_strategy("base", "mine").rollout
        assert (own.num_trajectories, own.num_turns) == shape

    def test_keys_are_laid_over_those_of_the_study(self):
        study = self.study(mine={"rollout": {"history": {"view": "best_and_worst"}, "temperature": 0.3}})
        own = study.for_strategy("base", "mine").rollout
        assert (own.history.view, own.temperature) == ("best_and_worst", 0.3)
        assert study.rollout.history.view == "all"

    def test_kernels_that_do_not_divide_and_unknown_names(self):
        study = self.study(mine={"rollout": {"num_turns": 7}})
        with pytest.raises(ConfigError, match="128 kernels a task cannot be spent on trajectories of 7 turns"):
            study.for_strategy("base", "mine")
        with pytest.raises(ConfigError, match=r"no strategy .other.*there are mine"):
            study.for_strategy("base", "other")
