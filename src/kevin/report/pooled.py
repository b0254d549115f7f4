"""Studies of one recipe, each by a seed of its own, as one, of which all tables are made over all seeds."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

from kevin.core.config import Study, load_study, validate_study
from kevin.core.errors import DataError
from kevin.core.files import read_metadata, read_parquet, whole_folder, write_csv, write_parquet, write_text
from kevin.core.identity import differences
from kevin.core.texts import strict_json
from kevin.report.published import KERNELS, Published, model_card
from kevin.report.recipes import CEILING, first_seed
from kevin.report.scores import joined_names, told_machines

_OF_ONE = {"seed", "results", "pool"}
"""Keys of the configuration in which studies of one recipe may differ."""


def recipe_of(study: Study) -> dict[str, Any]:
    """The settings that further seeds of a study share with it; paths in their own folder count as one."""
    other = dict.fromkeys(_OF_ONE, True)
    dumped: dict[str, Any] = study.model_dump(mode="json", exclude={**other, "tasks": {"kernelbench": {"path"}}})
    for policy in dumped["policies"].values():
        policy["model"] = policy["model"].replace(study.results, "<results>", 1)
    return dumped


def pool(folders: Sequence[Path], out: Path) -> Path:
    """Write a folder as `kevin publish` does, of several such folders. Returns ``out``.

    The first one's policies keep their names; those of another are further seeds of these (``seed_of``), named with its
    seed. Each study may have tasks of its own. Of what has one value for each task, such as what the ceiling found and
    baselines, the first one's counts. What trainings left, and rollouts of ``search``, are not in it.

    Raises:
        DataError: studies differ in more than their seed, two have the same one, or of two tasks the name is the same.
    """
    published = [Published(folder) for folder in folders]
    studies = [load_study([files.config], judges=False) for files in published]
    seeds = [study.seed for study in studies]
    for folder, study in zip(folders, studies, strict=True):
        if told := next(differences(recipe_of(studies[0]), recipe_of(study)), None):
            raise DataError(f"{folder}: not made as {folders[0]} was: {told}")
        if seeds.count(study.seed) > 1:
            raise DataError(f"{folder}: seed {study.seed} is there twice")
    with whole_folder(out) as made:
        own = Published(made)
        answers = pd.concat([_answers(*pair, studies[0]) for pair in zip(published, studies, strict=True)])
        once = answers["policy"].ne(CEILING) | ~answers.duplicated(["policy", "task_id", "trajectory", "turn"])
        write_csv(own.answers, answers[once])
        machines = [names for files in published for names in told_machines(files.answers, studies[0].judge.device)]
        origin = {
            "hardware": joined_names(machines),
            "machines": machines,
            "seeds": seeds,
            "num_answers": int(once.sum()),
        }
        write_text(own.answers.with_suffix(".json"), strict_json(origin, indent=1) + "\n")
        if all(files.baselines.exists() for files in published):
            frames = [pd.read_csv(files.baselines) for files in published]
            write_csv(own.baselines, _once(frames, ["task_id", "baseline"]))
        tasks = _once([read_parquet(files.tasks, "tasks")[0] for files in published], ["task_id", "digest"])
        if len(twice := tasks[tasks.duplicated("task_id")]):
            raise DataError(f"{twice['task_id'].iloc[0]}: two tasks have this name")
        write_parquet(own.tasks, tasks, "tasks", read_metadata(published[0].tasks, "tasks"))
        kernels = _once([read_parquet(files.kernels, KERNELS)[0] for files in published], ["task_id", "kernel_digest"])
        judged = read_metadata(published[0].kernels, KERNELS)
        write_parquet(own.kernels, kernels, KERNELS, judged, compression="zstd")
        study = _config(studies, folders[0])
        write_text(own.config, yaml.safe_dump(study.model_dump(mode="json"), sort_keys=False))
        write_text(own.card, model_card(study, kernels, judged))
    return out


def _once(frames: Sequence[pd.DataFrame], key: list[str]) -> pd.DataFrame:
    return pd.concat(frames, ignore_index=True).drop_duplicates(key)


def _name(policy: str, study: Study, first: Study) -> str:
    """Of a policy of one of the studies, among all of them."""
    return policy if study.seed == first.seed or policy == CEILING else f"{policy}_{study.seed}"


def _answers(files: Published, study: Study, first: Study) -> pd.DataFrame:
    found = pd.read_csv(files.answers, dtype="str", keep_default_na=False)
    if "strategy" in found:
        found = found[found["strategy"] == ""].drop(columns="strategy")
    return found.assign(policy=[_name(policy, study, first) for policy in found["policy"]])


def _config(studies: Sequence[Study], origin: Path) -> Study:
    """The first one's, with the others' policies and runs."""
    first, *others = studies
    tree: dict[str, Any] = first.model_dump(mode="json")
    for study in others:
        for policy, config in study.model_dump(mode="json")["policies"].items():
            made = study.made_by(policy)
            model = str(Path(first.results, "policies", _name(made, study, first))) if made else config["model"]
            own = {"model": model, "seed_of": first_seed(policy, study)}
            tree["policies"][_name(policy, study, first)] = config | own
        tree["evaluate"] += [_name(policy, study, first) for policy in study.evaluate]
        for name, run in study.model_dump(mode="json")["runs"].items():
            init = run["train"].get("init", study.train.init)
            train = run["train"] | {"init": _name(init, study, first)}
            tree["runs"][_name(name, study, first)] = run | {"train": train}
    return validate_study(tree, str(origin))
