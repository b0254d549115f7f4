"""A device without space: one sentence, nothing half written, and everything that was finished is kept."""

from __future__ import annotations

import errno
import json
import logging
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pandas as pd
import pytest
from cli_fixtures import GOOD, REFERENCE, kevin

from kevin.cli.app import LogFile
from kevin.core import files

SIZE_KB = 4096


@pytest.fixture
def device(tmp_path: Path) -> Iterator[Path]:
    """A folder on a small device of its own."""
    path = tmp_path / "device"
    path.mkdir()
    mount = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={SIZE_KB}k", "none", path], capture_output=True, text=True, check=False
    )
    if mount.returncode != 0:
        pytest.skip(f"a small device cannot be mounted here: {mount.stderr.strip()}")
    yield path
    subprocess.run(["umount", "--lazy", path], check=True)


def fill(device: Path, leave_kb: int = 0) -> Path:
    """Use up the device's space, but for so much."""
    path = device / "ballast"
    with path.open("wb", buffering=0) as f:
        try:
            while True:
                f.write(bytes(4096))
        except OSError:
            f.truncate(max(0, f.tell() - leave_kb * 1024))
    return path


def _with_torch(path: Path) -> None:
    import torch

    torch.save({"x": torch.zeros(1 << 20)}, path)


def _with_safetensors(path: Path) -> None:
    import torch
    from safetensors.torch import save_file

    save_file({"x": torch.zeros(1 << 20)}, path)


def _with_pyarrow(path: Path) -> None:
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"x": np.random.default_rng(0).random(1 << 20)}), path)


WRITERS: list[Callable[[Path], object]] = [
    lambda path: path.write_bytes(bytes(1 << 23)),
    lambda path: pd.DataFrame({"x": ["y" * 100] * (1 << 16)}).to_csv(path),
    _with_torch,
    _with_safetensors,
    _with_pyarrow,
]


@pytest.mark.parametrize("write", WRITERS, ids=["python", "pandas", "torch", "safetensors", "pyarrow"])
def test_whatever_writes_a_full_device_is_what_is_told(device: Path, write: Callable[[Path], object]) -> None:
    path = device / "there.bin"
    files.write_text(path, "before")
    fill(device, leave_kb=64)
    with pytest.raises(OSError, match=r"there\.bin") as caught, files.atomic_path(path) as tmp:
        write(tmp)
    assert (caught.value.errno, caught.value.filename) == (errno.ENOSPC, str(path))
    assert path.read_text() == "before"
    assert {p.name for p in device.iterdir()} == {"there.bin", "ballast"}
    with pytest.raises(OSError) as caught, files.whole_folder(device / "model") as folder:
        write(folder / "weights")
    assert caught.value.errno == errno.ENOSPC
    assert {p.name for p in device.iterdir()} == {"there.bin", "ballast"}


def test_errors_of_ours_stay_what_they_are(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), files.atomic_path(tmp_path / "x"):
        raise ZeroDivisionError


def test_a_line_that_was_cut_short_is_written_again(device: Path) -> None:
    path = device / "lines.jsonl"
    files.append_line(path, "1")
    ballast = fill(device)
    with pytest.raises(OSError, match=r"lines\.jsonl") as caught:
        files.append_line(path, json.dumps("2" * (1 << 14)))
    assert caught.value.errno == errno.ENOSPC
    ballast.unlink()
    files.append_line(path, "3")
    assert path.read_text() == "1\n3\n"


def test_a_log_on_a_full_device_is_silent(device: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fill(device)
    handler = LogFile(device / "log")
    try:
        for _ in range(3):
            handler.handle(logging.makeLogRecord({"msg": "x" * 10_000, "levelno": logging.INFO}))
    finally:
        fill(device).unlink()
        handler.close()
    assert capsys.readouterr().err == ""


def test_training_ends_with_the_cause_and_goes_on(
    device: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from train_fixtures import judge, make_study

    from kevin.train.grpo import KernelTrainer
    from kevin.train.run import run_training

    monkeypatch.setattr(logging.root, "handlers", [])  # other tests' commands leave some, to streams that are closed
    study, out, save = make_study(tmp_path, num_steps=2, save_every=1), device / "run", KernelTrainer.save_model
    calls: list[int] = []

    def judging(pairs: list) -> list:
        calls.append(len(pairs))
        return judge(pairs)

    def save_on_full_device(*args: object, **kwargs: object) -> None:
        fill(device, leave_kb=8)
        save(*args, **kwargs)

    with monkeypatch.context() as patch, pytest.raises(OSError, match="run/checkpoints/checkpoint-") as caught:
        patch.setattr(KernelTrainer, "save_model", save_on_full_device)
        run_training(study, "tiny", tmp_path / "tasks.parquet", out, judge=judging)
    assert caught.value.errno == errno.ENOSPC
    assert not list(out.glob("checkpoints/*")), "half a checkpoint stayed"
    (device / "ballast").unlink()
    assert len(calls) == 2, "one for each turn"
    run_training(study, "tiny", tmp_path / "tasks.parquet", out, judge=judging)
    assert json.loads((out / "summary.json").read_text())["num_steps"] == 2
    assert len(calls) <= 4, "the first step's kernels were judged again"

    fill(device)
    with pytest.raises(OSError, match=r"device/run"):
        longer = make_study(tmp_path, num_steps=3, save_every=1)
        run_training(longer, "tiny", tmp_path / "tasks.parquet", out, judge=judging)
    assert "Traceback" not in capfd.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("full", ["store", "out"])
def test_judging_says_one_sentence_and_keeps_what_it_has(device: Path, tmp_path: Path, full: str) -> None:
    pairs = [{"id": i, "reference": REFERENCE, "kernel": GOOD + f"// {i}\n"} for i in range(3)]
    batch = tmp_path / "pairs.jsonl"
    batch.write_text("".join(json.dumps(p) + "\n" for p in pairs))
    places = {"store": tmp_path / "store", "out": tmp_path} | {full: device}
    ballast = fill(device)
    command = ("judge", "--batch", batch, "--out", places["out"] / "out.jsonl", "--store", places["store"])
    stopped = kevin("--log", device / "log", *command, timeout_s=900)
    assert stopped.returncode == 3, stopped.stderr
    assert stopped.stderr.count("no space left on the device") == 1, stopped.stderr
    assert "Traceback" not in stopped.stderr and "internal error" not in stopped.stderr
    assert str(device) in stopped.stderr
    ballast.unlink()
    done = kevin(*command, timeout_s=900)
    assert done.returncode == 0, done.stderr
    assert len((places["out"] / "out.jsonl").read_text().splitlines()) == 3


def test_a_rollout_keeps_its_answers(device: Path, tmp_path: Path) -> None:
    """What the policy said before the device was full is not asked for again."""
    from kevin.core.types import Completion
    from kevin.rollout.checkpoint import Checkpoint

    checkpoint = Checkpoint(device / "checkpoint", {"a": 1})
    answer = Completion(text="x" * 3000, num_prompt_tokens=1, num_completion_tokens=1, finish_reason="stop")
    ballast = fill(device, leave_kb=16)
    with pytest.raises(OSError) as caught:
        for trajectory in range(100):
            checkpoint.add_completion(1, ("task", trajectory), answer)
    assert caught.value.errno == errno.ENOSPC
    ballast.unlink()
    kept = Checkpoint(device / "checkpoint", {"a": 1}).completions(1)
    assert set(kept) == {("task", i) for i in range(trajectory)}
    assert trajectory > 1
