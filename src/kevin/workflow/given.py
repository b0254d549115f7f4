"""What no step of a study makes: models, recordings, tasks and weights of the user's. One that is not there is told of
in a dry run, before anything is made for it; one that was read already is not missed.
"""

from __future__ import annotations

from pathlib import Path

from kevin.core.config import Study
from kevin.core.errors import ConfigError
from kevin.policy.weights import PACKAGE, find_weights, must_be_local


def require_folder(study: Study) -> None:
    """Raises ConfigError where a file stands in the place of the folder of results, or of one above it."""
    results = Path(study.results)
    for folder in (results, *results.parents):
        if folder.exists() and not folder.is_dir():
            raise ConfigError(f"results: {folder} is a file, and results need a folder; name another")


def require_model(study: Study, policy: str) -> None:
    """Raises ConfigError for a model or a recording that is not there, and that the study does not make."""
    settings = study.policies[policy]
    is_made = study.is_base_model(policy) or study.made_by(policy) is not None or settings.random_shapes is not None
    is_local = settings.backend == "replay" or must_be_local(settings.model)
    if settings.has_files and is_local and not is_made and not Path(settings.model).exists():
        raise ConfigError(
            f"policies.{policy}.model: there is no {Path(settings.model).absolute()}, and no step of this study makes "
            f"it; its own models are <results>/base_model and <results>/policies/<run>"
        )


def require_player(study: Study, policy: str) -> None:
    """As `require_model`, of a policy without any answers."""
    results = Path(study.results)
    for folder in (f"rollouts/{policy}-*", f"search/*/{policy}-*"):
        if any(results.glob(f"{folder}/turns.parquet")):
            return
    require_model(study, policy)


def initial_policy(study: Study, run: str) -> str:
    """The policy that a training starts from; where it is not done, as `require_model`."""
    policy = study.for_run(run).train.init
    if not Path(study.results, "train", run, "summary.json").exists():
        require_model(study, policy)
    return policy


def require_tasks(study: Study) -> None:
    """Raises ConfigError for a folder of tasks that is not there."""
    folder = study.tasks.kernelbench.path if study.tasks.source != "catalog" else None
    if folder is None or Path(study.results, "tasks.parquet").exists():
        return
    if not Path(folder).expanduser().is_dir():
        raise ConfigError(f"tasks.kernelbench.path: there is no folder {folder} in {Path.cwd()}")


def require_weights(study: Study) -> None:
    """Raises ConfigError for pretrained weights that are not there. A package may be installed until they are read."""
    init = study.base_model.init
    if init and not init.startswith(PACKAGE) and not Path(study.results, "base_model").exists():
        find_weights(init)
