"""config/schema.json and config/README.md, generated from the configuration's own classes and their docstrings."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from kevin.core.config import Study
from kevin.core.fields import field_docs, models_in
from kevin.core.texts import strict_json

_INTRO = """\
# Configuration

`config.yaml` is the laptop study and what `snakemake` reads; `gpu.yaml`, `coder.yaml` and `paper.yaml` are laid over
it:

    snakemake --configfile config/gpu.yaml

A file of your own works the same way; it needs to hold only the keys that differ. Targets stand before `--configfile`,
which takes every word that follows it. Mappings are merged, lists and values replaced. A misspelt key is refused with a
message that names it, one that there is no more with its replacement. `kevin config show` prints what is in force and
which file set it; the resolved configuration is saved as `config.yaml` beside the results.

A finished study in the same folder gives way to one with other settings only with `--config replace=true`; a folder of
its own, `results: <folder>`, keeps both. A file with `over: gpu.yaml` is laid over that one, and refused without it.

What follows is generated from the code (`make schema`); `schema.json` beside it serves editors.
"""

OVER = "The file that this one is laid over; it is refused without."


def json_schema() -> dict[str, Any]:
    """JSON schema of the whole configuration, with the fields' docstrings as descriptions."""
    schema = Study.model_json_schema()
    models = {model.__name__: model for _, model, _ in sections()}
    for name, node in {**schema["$defs"], "Study": schema}.items():
        for field, text in field_docs(models[name]).items():
            node["properties"][field]["description"] = text
    schema["properties"]["over"] = {"type": "string", "description": OVER}
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


def sections(model: type[BaseModel] = Study, prefix: str = "") -> Iterator[tuple[str, type[BaseModel], str]]:
    """Every model of the tree, outermost first, as (dotted prefix, model, its docstring)."""
    yield prefix, model, inspect.cleandoc(model.__dict__.get("__doc__") or "").replace("``", "`")
    for name, field in model.model_fields.items():
        for inner, wildcard in models_in(field.annotation):
            yield from sections(inner, f"{prefix}{name}.{'<name>.' if wildcard else ''}")


def markdown() -> str:
    """The reference of every key."""
    parts = [_INTRO]
    for prefix, model, text in sections():
        parts.append(f"## {f'`{prefix[:-1]}`' if prefix else 'Top level'}\n")
        if text:
            parts.append(f"{text}\n")
        docs = field_docs(model)
        rows = ["| key | type | default | meaning |", "|---|---|---|---|"]
        for name, field in model.model_fields.items():
            kind, default = _type_name(field), _default(field)
            rows.append(f"| `{prefix}{name}` | {kind} | {default} | {docs.get(name, '')} |")
        parts.append("\n".join(rows) + "\n")
    return "\n".join(parts)


def _type_name(field: FieldInfo) -> str:
    if any(True for _ in models_in(field.annotation)):
        return "section"
    limits = [
        f"{word} {getattr(m, name)}" for m in field.metadata for name, word in _LIMITS.items() if hasattr(m, name)
    ]
    return ", ".join([_type_text(field.annotation), *limits])


_LIMITS = {"ge": "at least", "gt": "above", "le": "at most", "lt": "below"}
_PLAIN = {str: "text", int: "whole number", float: "number", bool: "true or false", type(None): "null"}


def _type_text(annotation: Any) -> str:
    origin, args = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        return " or ".join(f"`{value}`" for value in args)
    if origin is tuple:
        return f"list of {_type_text(args[0])}"
    if origin is dict:
        return "mapping of keys"
    if origin in (Union, UnionType):
        return " or ".join(_type_text(arg) for arg in args)
    return _PLAIN[annotation]


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "(required)"
    value = field.get_default(call_default_factory=True)
    if isinstance(value, BaseModel):
        return ""
    return f"`{strict_json(value)}`"
