"""Files of a study: which there are, and of which others each is made. All follows from its configuration alone."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path

from kevin.core.config import Study
from kevin.core.errors import ConfigError
from kevin.policy.weights import is_packed
from kevin.report.catalogue import (
    DRAWN_ALWAYS,
    DRAWN_OF_TRAINING,
    FIGURES,
    OF_SCORES,
    OF_TRAINING,
    SPLITS,
    TABLES,
    Figure,
    Table,
    reads,
    require_figure,
)
from kevin.report.field import field_rollouts, field_runs
from kevin.report.recipes import CEILING
from kevin.tasks.kernelbench import is_kernelbench

NETWORKS = ("level3", "level4")
"""Splits of whole networks, which the kernel writer does not know."""
REMEDIES = {"seed", "loss", "max_grad_norm"}
"""Keys of a training whose differences the figure of training tells."""

Files = dict[str, list[str]]
"""By their names in `kevin.report.catalogue.Given`; under ``trainings`` those behind the numbers."""


class Targets:
    """Of one study. Every file stands in its folder of results."""

    def __init__(self, study: Study, arms: Sequence[str] = ()) -> None:
        """``arms``: of replicates, whose answers and kernels are all that is made (`kevin.workflow.replicates`).

        Raises:
            ConfigError: a policy whose files would be those of the ceiling.
        """
        if CEILING in study.policies:
            raise ConfigError(f"policies.{CEILING}: this name is taken by the ceiling of the tables; choose another")
        self._study, self._arms = study, arms

    def _file(self, name: str) -> str:
        return f"{self._study.results}/{name}"

    # --- what is compared ---------------------------------------------------------------------------------------

    @cached_property
    def splits(self) -> list[str]:
        """Of held-out tasks. Levels beyond 2 are only evaluated."""
        tasks = self._study.tasks
        levels: set[int] = set()
        if tasks.source != "kernelbench":
            levels |= {1, 2}
        if tasks.source != "catalog":
            levels |= set(tasks.kernelbench.levels)
        # New fused tasks beside KernelBench's held-out ones, as in the paper.
        has_unseen = tasks.source == "kernelbench" and tasks.num_eval_level2 > 0 and is_kernelbench(tasks.kernelbench)
        return [*(f"level{level}" for level in sorted(levels)), *(["unseen"] if has_unseen else [])]

    @cached_property
    def compared(self) -> list[str]:
        """Policies, and the ceiling where the kernel writer writes the study's dialect."""
        return [*self._study.evaluate, *([CEILING] if self._study.dialect == "c_abi" else [])]

    @cached_property
    def runs(self) -> list[str]:
        """Those that the report compares."""
        evaluated = {self._study.made_by(policy) for policy in self._study.evaluate}
        return [run for run in self._study.runs if run in evaluated]

    @cached_property
    def table_names(self) -> list[str]:
        """Tables that can be made; the report shows some of them."""
        return [name for name in TABLES if name not in SPLITS or name in self.splits]

    @cached_property
    def tables(self) -> list[str]:
        """Those that the report shows."""
        names = [name for name in OF_SCORES if name in self.table_names]
        names += [*self._searched, *(OF_TRAINING if self.runs else ())]
        return [self._file(f"tables/{name}.csv") for name in names]

    @cached_property
    def figures(self) -> list[str]:
        """Those that the report shows."""
        names = [*DRAWN_ALWAYS, *self._searched, *(DRAWN_OF_TRAINING if self.runs else ())]
        return [self._file(f"figures/{name}.png") for name in names]

    @cached_property
    def _searched(self) -> list[str]:
        return ["search"] if self._study.search.compared else []

    # --- files --------------------------------------------------------------------------------------------------

    @cached_property
    def base_model(self) -> str:
        return self._file("base_model")

    @cached_property
    def base_model_check(self) -> str:
        return self._file("checks/base_model.json")

    @cached_property
    def tasks(self) -> str:
        return self._file("tasks.parquet")

    @cached_property
    def baselines(self) -> str:
        return self._file(f"baselines/{self._study.judge.device}.parquet")

    @cached_property
    def _compared_on(self) -> list[tuple[str, str]]:
        pairs = [(policy, split) for policy in self.compared for split in self.splits]
        return [(policy, split) for policy, split in pairs if policy != CEILING or split not in NETWORKS]

    @cached_property
    def scores(self) -> list[str]:
        return [self._file(f"scores/{policy}-{split}.parquet") for policy, split in self._compared_on]

    @cached_property
    def turns(self) -> list[str]:
        return [self.rollout(policy, split) for policy, split in self._compared_on]

    def rollout(self, policy: str, split: str, strategy: str | None = None) -> str:
        """Turns of a policy, under a strategy of `search` if one is named."""
        folder = "rollouts" if strategy is None else f"search/{strategy}"
        return self._file(f"{folder}/{policy}-{split}/turns.parquet")

    @cached_property
    def search(self) -> list[str]:
        """Turns of every strategy that is compared."""
        return [
            self.rollout(policy, split, strategy)
            for strategy in self._study.search.names
            for policy in self._study.evaluate
            for split in self.splits
        ]

    def before_search(self, policy: str) -> list[str]:
        """What is played before a policy's search: the arms of replicates before their base model, as time may end."""
        if policy in self._arms:
            return []
        strategies = (None, *self._study.search.names)
        return [self.rollout(arm, split, s) for arm in self._arms for s in strategies for split in self.splits]

    @cached_property
    def shown_search(self) -> list[str]:
        """The same, where the report compares strategies."""
        return self.search if self._searched else []

    @cached_property
    def trainings(self) -> list[str]:
        """Those behind the report's numbers: their summaries say whether a time budget cut them."""
        return [*self._base_behind, *self._trained(self.runs)]

    @cached_property
    def _base_behind(self) -> list[str]:
        return [self.base_model] if any(self.check(policy) for policy in self._study.evaluate) else []

    def _trained(self, runs: Iterable[str]) -> list[str]:
        return [self._file(f"train/{run}/summary.json") for run in runs]

    @cached_property
    def deliverables(self) -> list[str]:
        """All that a study is made for."""
        published = self._file("published")
        if self._arms:
            return [published]
        return [self._file("report.html"), *self.tables, *self.figures, published]

    # --- of what a file is made ---------------------------------------------------------------------------------

    def check(self, policy: str) -> list[str]:
        """The check without which nothing is said of a policy: of the base model, and of what was trained from it."""
        own = policy != CEILING and self._study.is_base_model(self._study.origins(policy)[-1])
        return [self.base_model_check] if own else []

    def model(self, policy: str) -> list[str]:
        """What makes a policy of this study's own: the base model, a rehearsal's, or the export of a training run."""
        if self._study.is_base_model(policy):
            return [self.base_model]
        if self._study.policies[policy].random_shapes:
            return [self._study.policies[policy].model]
        run = self._study.made_by(policy)
        return [self._file(f"policies/{run}")] if run else []

    @cached_property
    def pretrained_from(self) -> Files:
        """What a base model is made from: weights that take long to read, which are unpacked while kernels are judged,
        and those kernels, from which its later turns go on."""
        files: Files = {}
        if is_packed(self._study.base_model.init):
            files["weights"] = [self._file("pretrained")]
        if self._study.base_model.has_past:
            files["past_tasks"] = [self._file("past/tasks.parquet")]
            files["past"] = [self._file("past/written/turns.parquet")]
        return files

    @cached_property
    def published(self) -> Files:
        """Of what the folder to publish is made."""
        if self._arms:
            played = [(arm, split) for arm in self._arms for split in self.splits]
            return {
                "tasks": [self.tasks],
                "scores": [self._file(f"scores/{arm}-{split}.parquet") for arm, split in played],
                "turns": [self.rollout(arm, split) for arm, split in played],
                "search": self.shown_search,
                "trainings": self.trainings,
            }
        return {
            "tasks": [self.tasks],
            "scores": self.scores,
            "turns": self.turns,
            "search": self.shown_search,
            "baselines": [self.baselines],
            "trainings": self.trainings,
            "tables": self.tables,
            "model": [self._file(f"policies/{run}") for run in self.runs],
        }

    def of_table(self, name: str) -> Files:
        """What a table is made of."""
        return self._made_of(TABLES[name], name)

    def of_figure(self, name: str) -> Files:
        """What a figure is made of, the store apart. Raises UsageError for one that is not drawn any more."""
        require_figure(name)
        return self._made_of(FIGURES[name], name)

    def _made_of(self, entry: Table | Figure, name: str) -> Files:
        every: Files = {
            "scores": self.scores,
            "turns": self._field_turns if name == "field" else self.turns,
            "search": self.search if name.startswith("search") else self.shown_search,
            "kernels": [self._file(f"audit/{run}.parquet") for run in self._study.audited],
            "tasks": [self.tasks],
            "baselines": [self.baselines],
            "table": [self._file(f"tables/{name}.csv")],
            "runs": self._trained(self._drawn_runs(name)),
        }
        files = {key: every[key] for key in every if key in reads(entry)}
        if not {"table", "runs"} & files.keys():
            own = {"field": field_runs(self._study), "audit": self._study.audited}
            files["trainings"] = [*self._base_behind, *self._trained(own.get(name, self.runs))]
        elif "runs" in files and isinstance(entry, Figure):
            files["trainings"] = self._base_behind
        return {key: paths for key, paths in files.items() if paths}

    @cached_property
    def _field_turns(self) -> list[str]:
        return [
            self.rollout(policy, split, strategy)
            for policy, strategy in dict.fromkeys(field_rollouts(self._study).values())
            for split in self.splits
        ]

    def _drawn_runs(self, name: str) -> list[str]:
        """Those that the report compares; all for the ablations. Where it compares none, the figure of training has
        those that differ in no more than the remedies against collapse."""
        runs = self._study.runs
        if name == "ablations":
            return list(runs)
        if name == "training" and not self.runs:
            return [
                run for run, own in runs.items() if not own.reward and not own.rollout and own.train.keys() <= REMEDIES
            ]
        return self.runs


# --- the same as options of a command -----------------------------------------------------------------------------


def repeat(option: str, values: Iterable[object]) -> str:
    """The same option once for each value, for a shell."""
    return " ".join(f"{option} {shlex.quote(str(value))}" for value in values)


def options(files: Mapping[str, Sequence[str]], *names: str) -> str:
    """Files as options of the command that takes them: of a run the folder, and at the end the summaries of trainings.

    An older base model has no summary, and then the command says nothing of it.

    Args:
        names: of those that are told, in this order; all in theirs without any.
    """
    names = names or tuple(files.keys())
    said = []
    for name in names:
        if name == "runs":
            said.append(repeat("--run-dir", (Path(run).parent for run in files[name])))
        elif name != "trainings":
            said.append(repeat(f"--{name.replace('_', '-')}", files[name]))
    trainings = [path for name in ("trainings", "runs") if name in names for path in files[name]]
    if trainings:
        said.append(repeat("--summaries", (t if t.endswith(".json") else f"{t}/summary.json" for t in trainings)))
    return " ".join(said)
