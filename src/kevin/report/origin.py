"""Where a folder of results comes from, and of which of its cells another folder's cannot be compared.

Read, as far as they are there: ``config.yaml`` (the resolved configuration, with the protocol's version),
``split.yaml`` (tasks), ``provenance.json`` or the metadata of a parquet file (processor, GPU, commit, versions).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple

import yaml

from kevin.core.errors import DataError, first_line
from kevin.core.provenance import machine_names
from kevin.core.types import Frozen

Reach = Literal["nothing", "times", "policies", "trained", "search", "ceiling", "everything"]
"""Cells that a difference between two studies makes incomparable: none; those that hold a time or what follows from
one; those of policies, of trained policies, under a search strategy, of the ceiling; or all."""

_CONFIG_REACH: tuple[tuple[str, Reach], ...] = (
    *((key, "nothing") for key in ("results", "evaluate", "seed", "report.", "pool.", "checks.")),
    *((f"train.{key}", "nothing") for key in ("save_every", "seed")),
    *((f"base_model.{key}", "nothing") for key in ("expected_loss", "expected_correct_share", "num_checked_kernels")),
    ("tasks.", "nothing"),  # the tasks themselves are compared
    ("search.compared", "nothing"),
    ("judge.version", "nothing"),  # told apart as the protocol's version
    ("judge.timing.", "times"),
    ("base_model.", "policies"),
    ("rollout.", "policies"),
    ("train.", "trained"),
    ("reward.", "trained"),
    ("search.", "search"),
    ("ceiling_kernels", "ceiling"),
)
"""By the start of a key, the first that fits; of any other key: everything. Another seed draws from the same."""
_POLICY_KEYS = ("backend", "model", "dtype", "max_prompt_tokens", "max_response_tokens", "max_feedback_chars")
"""Keys of a policy that its answers depend on."""


class Difference(NamedTuple):
    """One way in which two studies are not the same."""

    what: str
    """For people: ``hardware: AMD EPYC against Intel Xeon``."""
    kind: Literal["hardware", "protocol", "configuration", "tasks", "commit", "versions"]
    reach: Reach = "nothing"
    policy: str | None = None
    """The one policy that it is about; None: not about one."""
    splits: frozenset[str] = frozenset()
    """The splits that it is about; empty: all."""


class Origin(Frozen):
    """What is known of one folder; None is: not known."""

    config: dict[str, Any] | None = None
    provenance: dict[str, Any] | None = None
    splits: dict[str, dict[str, str]] | None = None
    """Of each split its tasks, by id: name and digest."""

    @cached_property
    def hardware(self) -> str | None:
        """What kernels ran on: the GPU where the study has one, else the processor."""
        if self.provenance is None:
            return None
        device = ((self.config or {}).get("judge") or {}).get("device") or "cuda"
        return ", ".join(machine_names(self.provenance, device)) or None

    @cached_property
    def protocol(self) -> int | None:
        sections = ((self.config or {}).get("judge"), (self.provenance or {}).get("protocol"))
        return next((s["version"] for s in sections if isinstance(s, dict) and "version" in s), None)

    @cached_property
    def trained(self) -> frozenset[str]:
        """Policies that a run of the study made."""
        policies = (self.config or {}).get("policies") or {}
        return frozenset(p for p, own in policies.items() if Path(str(own.get("model"))).parts[-2:-1] == ("policies",))


def read_origin(path: Path) -> Origin:
    """Of a folder, or of the folder that a table lies in. Raises DataError for a file that is there and unreadable."""
    folder = path if path.is_dir() else path.parent
    if path.is_file() and folder.name == "tables":
        folder = folder.parent
    beside = [path.with_name(f"{path.stem}.provenance.json")] if path.is_file() else []
    return Origin(
        config=_mapping(folder / "config.yaml"),
        provenance=next(filter(None, map(_mapping, [*beside, folder / "provenance.json"])), None) or _metadata(folder),
        splits=_splits(folder),
    )


def _mapping(path: Path) -> dict[str, Any] | None:
    """A YAML or JSON file's keys; None where there is no file."""
    try:
        found = yaml.safe_load(path.read_text())
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as e:
        raise DataError(f"{path}: cannot be read ({first_line(e)}); restore it or take it away") from None
    if not isinstance(found, dict):
        raise DataError(f"{path}: expected a mapping of keys at the top level; restore it or take it away")
    return found


def _metadata(folder: Path) -> dict[str, Any] | None:
    """Provenance of the first parquet file of what was measured: baselines, then scores, then anything."""
    files = sorted(folder.glob("baselines/*.parquet")) + sorted(folder.glob("scores/*.parquet"))
    for path in [*files, *sorted(folder.glob("published/*.parquet")), *sorted(folder.glob("*.parquet"))]:
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            raw = (pq.read_schema(path).metadata or {}).get(b"kevin")
        except (pa.ArrowInvalid, OSError) as e:
            raise DataError(f"{path}: cannot be read ({e}); make it again or take it away") from None
        if raw is not None:
            return dict(json.loads(raw))
    return None


def _splits(folder: Path) -> dict[str, dict[str, str]] | None:
    found = _mapping(folder / "split.yaml")
    if found is None:
        return None
    parts = found.get("parts")
    if not isinstance(parts, dict) or not all(isinstance(tasks, dict) for tasks in parts.values()):
        raise DataError(f"{folder / 'split.yaml'}: no split file (no tasks under parts); restore it or take it away")
    return parts


# --- two of them --------------------------------------------------------------------------------------------------


def origin_differences(stored: Origin, results: Origin) -> list[Difference]:
    """All ways in which the two are not the same, those that keep cells from being compared first."""
    found = [*_machine(stored, results), *_configuration(stored, results), *_tasks(stored, results)]
    return sorted(found, key=lambda d: d.reach == "nothing")


def _machine(a: Origin, b: Origin) -> list[Difference]:
    found = []
    for what, kind, reach in (("hardware", "hardware", "times"), ("protocol", "protocol", "everything")):
        values = [getattr(origin, what) for origin in (a, b)]
        if values[0] != values[1]:
            text = f"{what if what == 'hardware' else 'version of the judging protocol'}: {_against(*values)}"
            # Where one is not known, that is said, and the numbers are compared all the same.
            found.append(Difference(text, kind, "nothing" if None in values else reach))  # type: ignore[arg-type]
    one, other = a.provenance or {}, b.provenance or {}
    if one.get("commit") != other.get("commit"):
        found.append(Difference(f"commit: {_against(one.get('commit'), other.get('commit'))}", "commit"))
    versions = [dict(p.get("versions") or {}, python=p.get("python")) for p in (one, other)]
    for name in sorted(versions[0].keys() | versions[1].keys()):
        if versions[0].get(name) != versions[1].get(name):
            text = f"version of {name}: {_against(versions[0].get(name), versions[1].get(name))}"
            found.append(Difference(text, "versions"))
    return found


def _configuration(a: Origin, b: Origin) -> list[Difference]:
    if a.config is None or b.config is None:
        digests = [(o.provenance or {}).get("config_digest") for o in (a, b)]
        if None in digests or digests[0] == digests[1]:
            return []
        text = "configuration: another one, and what differs is not known, for one of the two has no config.yaml"
        return [Difference(text, "configuration", "everything")]
    flat = [_flat(o.config or {}) for o in (a, b)]
    heads = [{head for key in f if (head := _named(key))} for f in flat]
    found, one_sided = [], []
    for key in sorted(flat[0].keys() | flat[1].keys()):
        values = [f.get(key) for f in flat]
        name = _named(key)
        if name and not all(name in own for own in heads):
            continue  # what only one of the two has makes rows that the other has not
        if not all(key in f for f in flat):
            one_sided.append(key)
        elif values[0] != values[1]:
            found.append(Difference(f"configuration: {key}: {_against(*values)}", "configuration", *_config_reach(key)))
    if one_sided:
        some = ", ".join([*one_sided[:3], *(["..."] if len(one_sided) > 3 else [])])
        text = f"configuration: {len(one_sided)} keys are saved with one of the two only ({some})"
        found.append(Difference(text, "configuration"))
    return found


def _named(key: str) -> str | None:
    """``policies.<name>`` of ``policies.<name>.model``; likewise of runs and strategies."""
    match = re.match(r"((?:policies|runs|search\.strategies)\.[^.]*)", key)
    return match and match[1]


def _config_reach(key: str) -> tuple[Reach, str | None]:
    section, _, rest = key.partition(".")
    if section in ("policies", "runs"):
        name, _, own = rest.partition(".")
        if section == "policies" and own.split(".")[0] not in _POLICY_KEYS:
            return "nothing", None
        return "policies", name
    return next((reach for start, reach in _CONFIG_REACH if key.startswith(start)), "everything"), None


def _flat(config: Mapping[str, Any]) -> dict[str, Any]:
    """Dotted keys; in a policy's model ``<results>`` for the study's own folder."""
    found = _dotted(config, "")
    folder = str(config.get("results", "results")).rstrip("/")
    for key, value in found.items():
        if key.endswith(".model") and str(value).startswith(f"{folder}/"):
            found[key] = str(value).replace(folder, "<results>", 1)
    return found


def _dotted(tree: Mapping[str, Any], head: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in tree.items():
        if isinstance(value, dict) and value:
            found |= _dotted(value, f"{head}{key}.")
        else:
            found[f"{head}{key}"] = value
    return found


def _tasks(a: Origin, b: Origin) -> list[Difference]:
    if a.splits is None or b.splits is None:
        return []
    found = []
    for split in sorted(a.splits.keys() & b.splits.keys()):
        one, other = a.splits[split].items(), b.splits[split].items()
        if one != other:
            text = f"tasks of {split}: {len(one - other)} of the {len(one)} are not among the other's {len(other)}"
            reach: Reach = "trained" if split == "train" else "everything"
            splits = frozenset({split}) if split != "train" else frozenset()
            found.append(Difference(text, "tasks", reach, splits=splits))
    return found


def _against(one: Any, other: Any) -> str:
    return " against ".join("not known" if value is None else str(value) for value in (one, other))
