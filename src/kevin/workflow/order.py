"""The order of `snakemake`'s arguments. profiles/default calls this, which is read before anything else."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Sequence
from pathlib import Path

from kevin.core.config.layers import read_layer
from kevin.core.errors import ConfigError

_ENDINGS = (".yaml", ".yml", ".json")


def check_order(argv: Sequence[str]) -> None:
    """``--configfile`` takes every word that follows it, so a target behind it would be read as configuration. A file
    that holds none is named, which Snakemake does not do.

    Args:
        argv: of snakemake, its own name first.

    Raises:
        SystemExit: with the sentence that says what to type.
    """
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--configfile", "--configfiles", dest="files", nargs="*", action="extend", default=[])
    files: list[str] = parser.parse_known_args(argv[1:])[0].files
    targets = [word for word in files[1:] if not _is_configuration(Path(word))]
    if targets:
        right = shlex.join(["snakemake", *targets, *(word for word in argv[1:] if word not in targets)])
        raise SystemExit(f"snakemake: {', '.join(targets)} would be read as configuration; targets come first: {right}")
    for word in files:
        try:
            read_layer(Path(word))
            Path(word).read_bytes().decode()
        except ConfigError as e:
            raise SystemExit(f"snakemake: {e}") from None
        except UnicodeDecodeError:
            raise SystemExit(f"snakemake: {word}: Snakemake reads UTF-8 alone; save it as UTF-8") from None


def _is_configuration(path: Path) -> bool:
    return path.suffix in _ENDINGS or (path.suffix == "" and path.is_file())
