"""Where a model's weights are looked for."""

from __future__ import annotations

from pathlib import Path

from kevin.core.errors import DataError, PolicyError, UsageError, first_line

_FILES = ["*.json", "*.safetensors", "*.bin", "*.model", "*.txt", "*.jinja", "*.tiktoken", "LICENSE*"]
"""Of a hub's model, what loading it and publishing what comes of it need."""


def must_be_local(model: str) -> bool:
    """A hub id is ``name`` or ``owner/name``; ``results/base_model`` is a path where there is a folder ``results``."""
    path = Path(model)
    return (
        path.is_absolute()
        or model.startswith(".")
        or len(path.parts) > 2
        or (len(path.parts) == 2 and path.parent.is_dir())
    )


def model_folder(name: str, model: str, revision: str | None) -> Path:
    """The folder of policy ``name``: its own, or of a hub's model the snapshot of that commit, downloaded if need be.

    Raises:
        DataError: no such folder, or one without a model.
        UsageError: a hub's model without a commit.
        PolicyError: the hub does not give it.
    """
    path = Path(model)
    if path.is_dir():
        if not (path / "config.json").exists():
            raise DataError(f"policies.{name}.model: {path} is not a model folder (no config.json in it)")
        return path
    if must_be_local(model):
        raise DataError(
            f"policies.{name}.model: no folder {path}; make it (snakemake {path}) or give the path of an existing model"
        )
    from huggingface_hub import snapshot_download

    if revision is None:
        raise UsageError(
            f"policies.{name}.revision: {model!r} is a hub's model (there is no folder of that name), and may change "
            f"there; name the commit that is meant{_newest(model)}"
        )
    try:
        return Path(snapshot_download(model, revision=revision, allow_patterns=_FILES))
    except (OSError, ValueError) as e:
        raise PolicyError(f"policies.{name}.model: {_refusal(model, revision, e)}") from e


def _newest(model: str) -> str:
    """The commit to name, where the hub says it."""
    from huggingface_hub import HfApi

    try:
        return f", e.g. its newest: revision: {HfApi().model_info(model, timeout=10).sha}"
    except (OSError, ValueError):
        return ""


def _refusal(model: str, revision: str, error: Exception) -> str:
    from huggingface_hub.errors import GatedRepoError, HFValidationError, RepositoryNotFoundError, RevisionNotFoundError

    page = f"https://huggingface.co/{model}"
    if isinstance(error, GatedRepoError):
        return f"the hub gives {model!r} only to those who accepted its terms: do so at {page}, then hf auth login"
    if isinstance(error, RevisionNotFoundError):
        return f"the hub's {model!r} has no commit {revision}; {page}/commits/main lists them"
    if isinstance(error, RepositoryNotFoundError | HFValidationError):
        return (
            f"there is no folder {model}, and the hub has no such model either; check the name, or log in if it is "
            f"private (hf auth login)"
        )
    return (
        f"the hub does not give {model!r}: {first_line(error)}. Check that the network reaches the hub, or give the "
        f"folder of a downloaded model (hf download {model} --revision {revision} --local-dir FOLDER)"
    )
