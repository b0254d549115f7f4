"""Files of people's editors: marks, encodings, coding lines; and lines that only a line feed ends."""

from __future__ import annotations

import codecs
import json
import math
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from core_fixtures import make_verdict

from kevin.api.batch import verdict_record
from kevin.api.pairs import make_task
from kevin.core import texts
from kevin.core.candidate import make_kernel
from kevin.core.config.layers import read_layer
from kevin.core.errors import UsageError
from kevin.core.protocol import JudgeProtocol
from kevin.core.texts import read_text, split_lines, strict_json
from kevin.core.types import Outcome
from kevin.judge.sandbox.cell import CandidateFailed, Cell
from kevin.judge.store import VerdictStore

SOURCE = Path(__file__).parents[3] / "src"
TEXT = 'x = "é"\n'
ENDS = "\u2028\u2029\u0085\x0b\x0c\x1c\x1d\x1e"
"""What `str.splitlines` takes for ends of lines, beside the three that are."""


@pytest.mark.parametrize(
    "data",
    [
        TEXT.encode(),
        TEXT.encode("utf-8-sig"),
        TEXT.encode("utf-16"),
        codecs.BOM_UTF16_BE + TEXT.encode("utf-16-be"),
        TEXT.encode("utf-32"),
        TEXT.replace("\n", "\r\n").encode("utf-8-sig"),
        TEXT.replace("\n", "\r").encode(),
    ],
)
@pytest.mark.parametrize("name", ["k.py", "k.cpp", "pairs.jsonl", "token"])
def test_whatever_an_editor_saves(tmp_path: Path, name: str, data: bytes) -> None:
    (tmp_path / name).write_bytes(data)
    assert read_text(tmp_path / name) == TEXT


def test_a_pipe_without_a_writer_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(texts, "_PIPE_S", 0.1)
    os.mkfifo(tmp_path / "k.cpp")
    with pytest.raises(UsageError, match=r"k\.cpp: cannot be read: a pipe that nobody writes to"):
        read_text(tmp_path / "k.cpp")


@pytest.mark.parametrize(("before", "between"), [("", "0"), ("", "0.3"), ("0.05", "0.3")])
def test_a_pipe_is_read_to_its_end(before: str, between: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also one whose writer takes longer than is waited for the first one."""
    monkeypatch.setattr(texts, "_PIPE_S", 0.2)
    os.mkfifo(tmp_path / "k.cpp")
    says = (
        f'sleep {before or 0}; exec > k.cpp; sleep {between}; printf "int a;\\n"; sleep {between}; printf "int b;\\n"'
    )
    with subprocess.Popen(["sh", "-c", says], cwd=tmp_path):
        assert read_text(tmp_path / "k.cpp") == "int a;\nint b;\n"


def test_a_pipe_of_a_shell_is_read(tmp_path: Path) -> None:
    """As behind ``/dev/stdin`` or ``<(...)``, from one that has ended, or said nothing, as well."""
    for said in ("int a;\n", ""):
        read, write = os.pipe()
        os.write(write, said.encode())
        os.close(write)
        assert read_text(f"/dev/fd/{read}") == said
        os.close(read)


@pytest.mark.parametrize(
    "line",
    [
        "# -*- coding: latin-1 -*-",
        "#!/usr/bin/python\n# vim: fileencoding=iso8859-15 :",
        "# \u00e9, coding: latin-1 \u00e9",
    ],
)
def test_the_coding_line_of_a_module_is_honoured(tmp_path: Path, line: str) -> None:
    (tmp_path / "k.py").write_bytes(f"{line}\n{TEXT}".encode("latin-1"))
    assert read_text(tmp_path / "k.py") == f"{line}\n{TEXT}"
    (tmp_path / "k.cpp").write_bytes(f"{line}\n{TEXT}".encode("latin-1"))
    with pytest.raises(UsageError, match=r"k\.cpp: not a text file"):
        read_text(tmp_path / "k.cpp")


@pytest.mark.parametrize(
    "data",
    [
        TEXT.encode("latin-1"),
        b"# coding: no-such\nx = 1\n",
        b"# coding: rot13\nx = 1\n",
        codecs.BOM_UTF16_LE + b"x",
        b"x\0 \0=\0 \0001\0",
    ],
)
def test_what_is_no_text_is_named(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "k.py").write_bytes(data)
    with pytest.raises(UsageError, match=r"k\.py: not a text file"):
        read_text(tmp_path / "k.py")


@pytest.mark.parametrize("name", ["a\0b", "\ud83d"])
def test_what_is_no_name_of_a_file(name: str) -> None:
    with pytest.raises(UsageError, match="not the name of a file"):
        read_text(name)


def test_a_mark_in_a_text_that_was_read_elsewhere_is_no_part_of_a_kernel() -> None:
    for source in ("int a;\n", "import torch\n"):
        assert make_kernel("\ufeff" + source, "", "auto", JudgeProtocol()).source == source
        assert make_task("\ufeff" + source).source == source


@pytest.mark.parametrize(("name", "text"), [("a.yaml", "seed: 7\n"), ("a.json", '{"seed": 7}')])
def test_configuration_files_may_have_a_mark(tmp_path: Path, name: str, text: str) -> None:
    for encoding in ("utf-8-sig", "utf-16", "utf-32"):
        (tmp_path / name).write_text(text, encoding=encoding)
        assert read_layer(tmp_path / name) == {"seed": 7}


def test_lines_end_at_a_line_feed_alone() -> None:
    assert split_lines(f"a{ENDS}\nb") == [f"a{ENDS}", "b"]
    assert (split_lines(""), split_lines("a\n"), split_lines("\na\n\n")) == ([], ["a"], ["", "a", ""])


@pytest.mark.parametrize(
    "value",
    [math.inf, -math.inf, math.nan, {"a": [1.5, {"b": math.nan}], "c": (math.inf,)}, [{"x": 3.4e38}, None, "é"]],
)
@pytest.mark.parametrize("options", [{}, {"indent": 1}, {"ensure_ascii": False, "sort_keys": True}])
def test_json_is_what_every_parser_reads(value: Any, options: Any) -> None:
    def refuse(word: str) -> None:
        raise AssertionError(word)

    found = json.loads(strict_json(value, **options), parse_constant=refuse)
    assert found == json.loads(json.dumps(value), parse_constant=lambda word: None)


def test_a_verdict_on_an_exception_that_says_half_a_surrogate_pair_can_be_kept(tmp_path: Path) -> None:
    """As of a module that raises ``ValueError(chr(0xD83D))``."""
    with pytest.raises(CandidateFailed) as failed:
        Cell.raise_for(json.loads('{"error": "said \\ud83d"}'))
    found = {"reason": failed.value.reason, "message": failed.value.message, "details": {"stalls": "\ud83d"}}
    VerdictStore(tmp_path).put(verdict := make_verdict(failed.value.outcome, **found))
    assert VerdictStore(tmp_path).get("k") == verdict
    assert (verdict.message, verdict.details) == ("said ?", {"stalls": "?"})


def test_what_a_kernel_says_moves_no_cursor() -> None:
    """As of ``#error`` with sequences that clear the screen and name another outcome."""
    said = "a\x1b]0;title\x07\x1b[2J\x9bH\x7f\r\0\tb\n\\ é\u2028"
    told = "a\\x1b]0;title\\x07\\x1b[2J\\x9bH\\x7f\\x0d\\x00\tb\n\\ é\u2028"
    details: Any = {"failed_build": said, "bound_us": 1.5}
    verdict = make_verdict(Outcome.COMPILE_ERROR, reason=said, message=said, details=details)
    assert (verdict.reason, verdict.message) == (told, told)
    assert verdict.details == {"failed_build": told, "bound_us": 1.5}
    assert type(verdict).model_validate_json(verdict.model_dump_json()) == verdict


def test_a_verdict_with_infinite_errors_is_printed_as_json() -> None:
    numbers: Any = {"max_abs_error": math.inf, "max_rel_error": math.nan, "details": {"bound": -math.inf}}
    record = json.loads(strict_json(verdict_record(make_verdict(Outcome.INCORRECT, **numbers))))
    assert (record["max_abs_error"], record["max_rel_error"], record["details"]) == (None, None, {"bound": None})


@pytest.mark.parametrize(("call", "instead"), [(".splitlines(", "split_lines"), ("json.dump", "strict_json")])
def test_there_is_one_way_to_do_it(call: str, instead: str) -> None:
    """Not in a sandbox, nor in the scripts that KernelBench's own interpreter runs: these have the standard library."""
    apart = ("texts.py", "benchmarks/harness.py", "judge/inside/", "judge/sandbox/")
    paths = [path for path in SOURCE.rglob("*.py") if not any(part in str(path) for part in apart)]
    assert len(paths) > 200
    assert [str(path) for path in paths if call in path.read_text()] == [], f"see kevin.core.texts.{instead}"
