"""The command line as a person meets it: help, configuration, verdicts, batches, errors and exit codes."""

from __future__ import annotations

import errno
import inspect
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from cli_fixtures import BROKEN, GOOD, REFERENCE, ROOT, WRONG, kevin_here
from typer.main import get_command
from typer.testing import CliRunner

from kevin.api.batch import read_pairs, read_records, speedup_interval
from kevin.api.pairs import make_protocol
from kevin.cli import entry
from kevin.cli.app import REPLACED, app
from kevin.core.candidate import guess_dialect, make_kernel
from kevin.core.config.docs import json_schema, markdown, sections
from kevin.core.errors import DataError, UsageError
from kevin.core.fields import field_docs
from kevin.core.types import Round


@pytest.fixture
def files(tmp_path: Path) -> Path:
    for name, text in {"ref.py": REFERENCE, "good.cpp": GOOD, "wrong.cpp": WRONG, "broken.cpp": BROKEN}.items():
        (tmp_path / name).write_text(text)
    return tmp_path


# --- help and configuration --------------------------------------------------------------------------------------


def test_help_groups_commands_for_a_newcomer() -> None:
    run = kevin_here("--help")
    assert run.returncode == 0
    hand, steps = run.stdout.split("Study steps (called by Snakemake)")
    assert "With a kernel in hand" in hand
    for name in ("judge", "tasks", "config"):
        assert f" {name} " in hand
    for name in ("base-model", "baselines", "rollout", "ceiling", "score", "table", "figure", "report"):
        assert f" {name} " in steps


def test_each_split_of_a_rollout_has_a_file_of_its_own(tmp_path: Path) -> None:
    common = ("rollout", "--tasks", "t", "--policy", "base", "--store", "s", "--split", "level1", "--split", "level2")
    one, other = tmp_path / "a/turns.parquet", tmp_path / "a/others.parquet"
    for files in ((one,), (one, other)):
        run = kevin_here(*common, *(f"--out={file}" for file in files))
        assert run.returncode == 2 and "each split needs a file of its own, in a folder of its own" in run.stderr


def test_schema_and_reference_are_in_step_with_the_code() -> None:
    assert json.loads((ROOT / "config/schema.json").read_text()) == json_schema(), "run: make schema"
    assert (ROOT / "config/README.md").read_text() == markdown(), "run: make schema"


def test_every_key_is_explained() -> None:
    unexplained = [f"{prefix}{name}" for prefix, m, _ in sections() for name in m.model_fields.keys() - field_docs(m)]
    assert unexplained == []


def test_config_show_names_the_file_that_set_a_key(tmp_path: Path) -> None:
    overlay = tmp_path / "more.yaml"
    overlay.write_text("rollout:\n  num_turns: 7\n")
    run = kevin_here("config", "show", "-c", "config/config.yaml", "-c", overlay)
    rows = {line.split()[0]: line.split()[1:] for line in run.stdout.splitlines()}
    assert rows["rollout.num_turns"] == [str(overlay), "7"]
    assert rows["policies.base.model"] == ["config/config.yaml", '"results/base_model"']
    assert rows["reward.gamma"] == ["default", "0.4"]


def test_a_model_that_cannot_be_read_is_told_before_anything_is_judged(tmp_path: Path) -> None:
    overlay, out = tmp_path / "here.yaml", tmp_path / "tasks.parquet"
    overlay.write_text("base_model: {init: /no/such/model}\n")
    run = kevin_here("past", "tasks", "-c", "config/config.yaml", "-c", "config/gpu.yaml", "-c", overlay, "--out", out)
    assert run.returncode != 0 and not out.exists()
    assert "there is no folder /no/such/model; give" in run.stderr and "Traceback" not in run.stderr


# --- tasks -------------------------------------------------------------------------------------------------------


def test_tasks_can_be_shown_outside_of_a_study_s_folder(tmp_path: Path) -> None:
    source = kevin_here("tasks", "show", "l1/softmax", cwd=tmp_path)
    assert source.returncode == 0, source.stderr
    assert "class Model" in source.stdout
    (tmp_path / "task.py").write_text(source.stdout)
    prompt = kevin_here("tasks", "show", "task.py", "--prompt", cwd=tmp_path)
    assert 'extern "C"' in prompt.stdout
    missing = kevin_here("tasks", "show", "l1/softmax", "--config", "none.yaml", cwd=tmp_path)
    assert (missing.returncode, missing.stdout) == (2, "")
    assert "none.yaml: no such configuration file" in missing.stderr


def test_an_unknown_task_is_named(tmp_path: Path) -> None:
    run = kevin_here("tasks", "show", "l1/nothing", "--tasks", tmp_path / "none.parquet")
    assert run.returncode == 2
    assert "l1/nothing" in run.stderr


def test_listing_without_a_study_says_how_to_make_it(tmp_path: Path) -> None:
    run = kevin_here("tasks", "list", "--tasks", tmp_path / "tasks.parquet")
    assert run.returncode == 2
    assert "snakemake" in run.stderr


# --- one kernel --------------------------------------------------------------------------------------------------


def test_judge_correct_kernel_for_people(files: Path) -> None:
    """Five seconds: the first one to judge in this process imports torch."""
    run = kevin_here("judge", "--task-file", files / "ref.py", "--kernel", files / "good.cpp")
    assert run.returncode == 0, run.stderr
    for word in ("correct", "Speedup", "95 % interval", "Kernel", "Reference", "Isolation", "Flags"):
        assert word in run.stdout


@pytest.mark.parametrize(
    ("kernel", "outcome", "told"),
    [("wrong.cpp", "incorrect", "expected"), ("broken.cpp", "compile_error", "'y' was not declared")],
)
def test_a_failed_kernel_still_has_a_verdict(files: Path, kernel: str, outcome: str, told: str) -> None:
    run = kevin_here("judge", "--task-file", files / "ref.py", "--kernel", files / kernel)
    assert run.returncode == 0
    assert outcome in run.stdout and told in run.stdout
    assert "Speedup" not in run.stdout


def test_json_holds_the_verdict_and_the_store_answers_the_second_time(files: Path) -> None:
    args = ("--task-file", files / "ref.py", "--kernel", files / "good.cpp", "--store", files / "store", "--json")
    first, second = (kevin_here("judge", *args) for _ in range(2))
    assert first.returncode == 0, first.stderr
    verdict = json.loads(first.stdout)
    assert verdict == json.loads(second.stdout)
    assert verdict["outcome"] == "correct"
    low, high = verdict["speedup_interval"]
    assert 0 < low <= verdict["speedup"] <= high
    assert verdict["timing"]["median_us"] > 0


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ([], "--task-file FILE"),
        (["--task-file", "ref.py", "--kernel", "nowhere.cpp"], "nowhere.cpp: no such file"),
        (["--task-file", "nowhere.py", "--kernel", "good.cpp"], "nowhere.py: no such file"),
        (["--task-file", "good.cpp", "--kernel", "good.cpp"], "good.cpp"),
        (["--task-file", "ref.py", "--kernel", "good.cpp", "--rules", "no_such_rule"], "no_such_rule"),
        (["--task-file", "ref.py", "--kernel", "good.cu"], "needs device cuda"),
        (["--batch", "pairs.jsonl"], "--out FILE"),
        (["--task-file", "ref.py", "--kernel", "good.cpp", "--precision", "bfloat16"], "bfloat16 is not judged"),
        (["--task-file", "ref.py", "--kernel", "good.cpp", "--store", "ref.py"], "a file; --store names a folder"),
        (["--task-file", "ref.py", "--kernel", "good.cpp", "--store", "ref.py/a/b"], "ref.py is a file; --store"),
        (
            ["--task-file", "ref.py", "--kernel", "good.cpp", "--memcheck"],
            "on a CPU every kernel's memory is checked\n",
        ),
        (["--kernle", "good.cpp"], "No such option"),
    ],
)
def test_bad_usage_is_one_message_and_exit_code_2(files: Path, args: list[str], said: str) -> None:
    (files / "good.cu").write_text(GOOD)
    run = kevin_here("judge", *args, cwd=files)
    assert run.returncode == 2
    assert said in run.stderr
    assert "Traceback" not in run.stderr


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("attacks --kernelbench .", "--kernelbench: its harness needs a GPU"),
        ("attacks --only unheard-of", "--only: no attack on cpu has 'unheard-of' in its name"),
        ("attacks --device tpu", "'tpu' is not one of 'cpu'"),
        ("attacks --device cuda --kernelbench /no/such/folder", "/no/such/folder: no such folder"),
        ("errors --only unheard-of", "for cpu has 'unheard-of' in its name"),
        ("errors --mutants /no/such/folder", "/no/such/folder: holds no kernels below it"),
        ("errors --kernelbench .", "--kernelbench: its harness needs a GPU"),
    ],
)
def test_a_benchmark_that_makes_no_sense_is_told_before_it_begins(tmp_path: Path, command: str, said: str) -> None:
    run = kevin_here("bench", *command.split(), "--out", tmp_path)
    assert run.returncode == 2 and said in run.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("path", ["/proc/none/x.json", f"{'x' * 300}.json", "file/x.json", "dangling/x.json", "loop"])
def test_a_path_that_cannot_be_written_is_no_bug(tmp_path: Path, path: str) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "dangling").symlink_to("/proc/none/there")
    (tmp_path / "loop").symlink_to("loop")
    run = kevin_here("config", "schema", "--out", tmp_path / path if path != "loop" else tmp_path / "loop/x.json")
    assert run.returncode == 2 and run.stderr.startswith("kevin: ") and run.stderr.count("\n") == 1, run.stderr


def test_no_temporary_folder_is_no_bug(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setattr(tempfile, "_candidate_tempdir_list", lambda: ["/proc/none"])
    with pytest.raises(OSError, match="temporary") as refused:
        tempfile.gettempdir()
    with pytest.raises(SystemExit) as left:
        entry._fail_os(refused.value)
    assert left.value.code == 2 and capsys.readouterr().err.startswith("kevin: No usable temporary directory found in")


@pytest.mark.parametrize(
    ("number", "code", "said"),
    [
        (errno.EROFS, 2, "out.json: Read-only file system"),
        (errno.ENAMETOOLONG, 2, "out.json: File name too long"),
        (errno.ENOSPC, 3, "out.json: no space left on the device"),
        (errno.EMFILE, 3, "out.json: too many open files (see ulimit -n)"),
    ],
)
def test_what_the_system_says_of_a_path(capsys: pytest.CaptureFixture[str], number: int, code: int, said: str) -> None:
    with pytest.raises(SystemExit) as left:
        entry._fail_os(OSError(number, os.strerror(number), "out.json"))
    assert (left.value.code, said in capsys.readouterr().err) == (code, True)


def test_a_batch_is_not_written_into_a_stream(tmp_path: Path) -> None:
    (tmp_path / "pairs.jsonl").touch()
    os.mkfifo(tmp_path / "out")
    run = kevin_here("judge", "--batch", tmp_path / "pairs.jsonl", "--out", tmp_path / "out")
    assert run.returncode == 2 and "out: no file; --out is read again" in run.stderr


def test_debug_shows_the_traceback_and_log_keeps_the_message(files: Path) -> None:
    log = files / "run.log"
    run = kevin_here("--debug", "--log", log, "judge", "--task-file", files / "ref.py", "--kernel", "nowhere.cpp")
    assert run.returncode == 2
    assert "Traceback" in run.stderr
    assert "nowhere.cpp: no such file" in log.read_text()


@pytest.mark.slow
@pytest.mark.parametrize(
    "command",
    [
        ("figure", "search", "--table", "results/reference/laptop/search/search.csv"),
        ("figure", "audit", "--table", "results/reference/laptop/audit/audit.csv"),
    ],
)
def test_stored_results_are_drawn_by_code_that_judges_otherwise(tmp_path: Path, command: tuple[str, ...]) -> None:
    config = tmp_path / "config.yaml"
    stored = (ROOT / "results/reference/laptop/config.yaml").read_text()
    config.write_text(re.sub(r"(?m)^  version: \d+$", "  version: 1", stored))
    run = kevin_here(*command, "--config", config, "--out-dir", tmp_path)
    assert run.returncode == 0, run.stderr
    assert list(tmp_path.glob("*.png"))
    run = kevin_here("tasks", "build", "--config", config, "--out", tmp_path / "tasks.parquet")
    assert run.returncode == 2 and "judges by version" in run.stderr


def test_who_waits_longer_waits_for_each_call() -> None:
    assert make_protocol(None, run_timeout_s=60.0).call_timeout_s == 60.0
    assert make_protocol(None, run_timeout_s=60.0, call_timeout_s=5.0).call_timeout_s == 5.0


@pytest.mark.parametrize(
    ("source", "name", "dialect"),
    [
        (GOOD, "a.cpp", "c_abi"),
        (GOOD, "a.cu", "c_abi"),
        (GOOD, "", "c_abi"),
        ("import torch\nclass ModelNew: ...", "", "load_inline"),
        ("import torch\nsource = 'extern \"C\" void f();'\nclass ModelNew: ...", "", "load_inline"),
        ("anything", "a.py", "load_inline"),
    ],
)
def test_dialect_is_guessed(source: str, name: str, dialect: str) -> None:
    assert guess_dialect(source, name, "auto") == dialect
    assert make_kernel(source, "", "c_abi", make_protocol(None, rules="default", tolerance=None)).dialect == "c_abi"


def test_speedup_interval_covers_the_median_ratio() -> None:
    rounds = [Round(kernel_us=10.0, reference_us=20.0 + i) for i in range(-3, 4)]
    interval = speedup_interval(rounds)
    assert interval is not None
    assert 1.7 <= interval[0] < 2.0 < interval[1] <= 2.3
    assert speedup_interval(rounds[:2]) is None


# --- many kernels ------------------------------------------------------------------------------------------------


def write_pairs(path: Path, *pairs: tuple[Any, str, str]) -> Path:
    rows = ({"id": name, "reference": reference, "kernel": kernel} for name, reference, kernel in pairs)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def read_lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.slow
def test_batch_keeps_order_reports_bad_references_resumes_and_takes_nothing_over(tmp_path: Path) -> None:
    """Judges in worker processes, twice, which takes a while to start."""
    lazy = REFERENCE.replace("torch.relu(x)", "torch.relu(x / (type(x) is not torch.Tensor))").replace(
        "* 2.0", "* (2.0 if type(x) is not torch.Tensor else [])"
    )
    lazy = lazy.replace("64, 100", "4096, 2048")  # too large to be run for real when it is looked into
    batch = write_pairs(
        tmp_path / "pairs.jsonl",
        ("broken", REFERENCE, BROKEN),
        ("no inputs", REFERENCE.replace("def get_inputs", "def other"), GOOD),
        (7, REFERENCE, GOOD),
        ("fails only when run", lazy, GOOD),
        ("wrong", REFERENCE, WRONG),
    )
    out = tmp_path / "verdicts.jsonl"
    run = kevin_here("judge", "--batch", batch, "--out", out)
    assert run.returncode == 2, run.stderr
    assert f"{batch}:2" in run.stderr and f"{batch}:4" in run.stderr
    rows = read_lines(out)
    assert [row["id"] for row in rows] == ["broken", "no inputs", 7, "fails only when run", "wrong"]
    assert [row.get("outcome") for row in rows] == ["compile_error", None, "correct", None, "incorrect"]
    assert rows[1]["error"] == "task" and "get_inputs" in rows[1]["message"]

    first, last = rows[0], rows[-1]
    rest = [row for row in rows[1:-1] if "outcome" in row]
    out.write_text("".join(json.dumps(row) + "\n" for row in [last, *rest]) + json.dumps(first)[:50])
    again = kevin_here("judge", "--batch", batch, "--out", out)
    assert "half a line" in again.stderr and "2 of 5 are done" in again.stderr
    after = read_lines(out)
    assert [row["id"] for row in after] == [row["id"] for row in rows]
    assert after[2] == rows[2] and after[4] == rows[4]

    before = out.read_text()
    other = write_pairs(tmp_path / "other.jsonl", ("broken", REFERENCE, GOOD))
    refused = kevin_here("judge", "--batch", other, "--out", out)
    assert refused.returncode == 2 and "of another kernel" in refused.stderr
    assert out.read_text() == before


@pytest.mark.parametrize(
    "line", ["not json", '{"id": "b", "reference": "x"}', '{"id": "a", "reference": "", "kernel": ""}']
)
def test_a_malformed_line_stops_before_the_start(tmp_path: Path, line: str) -> None:
    batch = write_pairs(tmp_path / "pairs.jsonl", ("a", REFERENCE, GOOD))
    batch.write_text(batch.read_text() + line + "\n")
    with pytest.raises(UsageError, match=r"pairs\.jsonl:2: "):
        read_pairs(batch)


def test_damaged_output_is_refused_but_a_cut_last_line_is_not(tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    out.write_text('{"id": "a", "outcome": "correct"}\n{"id": "b", "error": "task"}\n{"id": "c", "outc')
    assert list(read_records(out)) == ["a"]
    out.write_text('{"id": "a"\n{"id": "b"}\n')
    with pytest.raises(DataError, match=r"out\.jsonl:1"):
        read_records(out)


# --- the step and its workflow -----------------------------------------------------------------------------------


def test_a_step_ends_when_its_workflow_is_killed(tmp_path: Path) -> None:
    workflow = subprocess.Popen(["sleep", "60"])
    waits = "import time, kevin.cli, kevin.cli.app as m; m.app = lambda: time.sleep(60); kevin.cli.main()"
    step = subprocess.Popen([sys.executable, "-c", waits], env={**os.environ, "KEVIN_WORKFLOW_PID": str(workflow.pid)})
    try:
        time.sleep(1.5)
        assert step.poll() is None
        workflow.send_signal(signal.SIGKILL)
        workflow.wait()
        assert step.wait(timeout=20) == 143
    finally:
        step.kill()
        workflow.kill()


def test_a_command_that_hands_its_options_on_hands_on_what_is_taken() -> None:
    """Imports what the commands do when they run, which takes some seconds."""

    def declared(group: Any) -> Iterator[tuple[str, Any]]:
        for command in group.commands.values():
            if hasattr(command, "commands"):
                yield from declared(command)
            elif target := getattr(command.callback, "target", None):
                yield target, command

    found = dict(declared(get_command(app)))
    assert len(found) > 5
    for target, command in found.items():
        module, _, name = target.partition(":")
        signature = inspect.signature(getattr(import_module(module), name))
        given = {param.name for param in command.params} - {"config"}
        needed = {"study"} & signature.parameters.keys() | given
        signature.bind(**dict.fromkeys(needed))


@pytest.mark.parametrize("words", [words.split() for words in REPLACED], ids=" ".join)
def test_a_command_of_an_earlier_version_names_its_replacement(words: list[str]) -> None:
    run = CliRunner().invoke(app, [*words, "x", "--out", "y"])
    assert isinstance(run.exception, UsageError) and REPLACED[" ".join(words)] in str(run.exception)
