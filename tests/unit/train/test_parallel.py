"""One process, two, and two with ZeRO-3 train alike: the same rollouts, losses equal to rounding."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import yaml
from train_fixtures import make_study

from kevin.train.grpo_run import meet_alone
from kevin.train.records import read_metrics

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
ACCELERATE = ROOT / "config/accelerate"
TIMEOUT_S = 900  # DeepSpeed compiles a part of itself first, beside other tests


ON_CPU = {"DS_ACCELERATOR": "cpu", "CUDA_VISIBLE_DEVICES": ""}
APART = os.environ.get("KEVIN_DEEPSPEED")
"""A folder with DeepSpeed, since Accelerate imports it wherever it finds it, in every other test too."""
WITH_DEEPSPEED = {"PYTHONPATH": os.pathsep.join(filter(None, (APART, os.environ.get("PYTHONPATH"))))} if APART else {}
needs_deepspeed = pytest.mark.skipif(
    APART is None and importlib.util.find_spec("deepspeed") is None, reason="deepspeed is not installed"
)


def train(folder, name, *launch, processes=1, devices=ON_CPU):
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false", "PYTHONFAULTHANDLER": "1"}
    run = subprocess.run(
        [
            *(sys.executable, *launch, str(HERE.parent / "train_worker.py"), str(folder), str(folder / name)),
            *([str(processes)] if processes > 1 else []),
        ],
        env=environment | devices,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert run.returncode == 0, (run.stdout + run.stderr)[-4000:]
    return read_metrics(folder / name / "metrics.jsonl")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("parallel")
    make_study(made)
    return made


@pytest.fixture(scope="module")
def alone(folder):
    return train(folder, "alone")


def same(one, other):
    assert len(one) == len(other) == 3
    for a, b in zip(one, other, strict=True):
        for key in ("score", "correct", "completion_tokens", "num_kernels"):
            assert a[key] == b[key], (a["step"], key)
        for key in ("loss", "grad_norm", "entropy"):
            assert a[key] == pytest.approx(b[key], rel=2e-4, abs=2e-5), (a["step"], key)


def test_the_launchers_files_are_there():
    """The tests of ZeRO-3 are skipped where DeepSpeed is missing, and so would not say it."""
    assert {p.name for p in ACCELERATE.glob("zero3*.yaml")} >= {"zero3-2.yaml", "zero3-cpu-2.yaml"}
    for path in ACCELERATE.glob("zero3*.yaml"):
        assert (ROOT / yaml.safe_load(path.read_text())["deepspeed_config"]["deepspeed_config_file"]).is_file()


@pytest.mark.slow
def test_two_processes(folder, alone):
    launch = ["-m", "torch.distributed.run", "--nproc_per_node", "2", "--master_port", "29711"]
    same(alone, train(folder, "two", *launch, processes=2))


@pytest.mark.slow
@needs_deepspeed
def test_two_processes_with_zero_3(folder, alone):
    config = str(ACCELERATE / "zero3-cpu-2.yaml")
    launch = ["-m", "accelerate.commands.launch", "--config_file", config, "--main_process_port", "29712"]
    same(alone, train(folder, "zero3", *launch, processes=2, devices=ON_CPU | WITH_DEEPSPEED))


@pytest.mark.gpu
@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
@needs_deepspeed
def test_two_gpus_with_zero_3(folder):
    one = train(folder, "one-gpu", devices={"CUDA_VISIBLE_DEVICES": "0"})
    config = str(ACCELERATE / "zero3-2.yaml")
    launch = ["-m", "accelerate.commands.launch", "--config_file", config, "--main_process_port", "29713"]
    two = train(folder, "two-gpus", *launch, processes=2, devices=WITH_DEEPSPEED)
    same(one, two)
    for a, b in zip(one, two, strict=True):
        print(
            f"step {a['step']}: loss {a['loss']!r} and {b['loss']!r}, grad norm {a['grad_norm']!r} {b['grad_norm']!r}"
        )


# --- where a training without a launcher meets ---------------------------------------------------------------------


@pytest.fixture
def no_launcher(monkeypatch):
    for name in ("WORLD_SIZE", "MASTER_PORT"):
        monkeypatch.setenv(name, "")  # restored afterwards, whatever is set meanwhile
        monkeypatch.delenv(name)


@pytest.mark.usefixtures("no_launcher")
def test_trainings_that_start_side_by_side_have_ports_of_their_own():
    ports = set()
    for _ in range(3):
        os.environ.pop("MASTER_PORT", None)
        meet_alone()
        ports.add(os.environ["MASTER_PORT"])
    assert len(ports) > 1
    assert "29500" not in ports


@pytest.mark.usefixtures("no_launcher")
def test_a_port_that_is_given_stays(monkeypatch):
    monkeypatch.setenv("MASTER_PORT", "1234")
    meet_alone()
    assert os.environ["MASTER_PORT"] == "1234"


@pytest.mark.usefixtures("no_launcher")
def test_processes_of_a_launcher_meet_where_it_says(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    meet_alone()
    assert "MASTER_PORT" not in os.environ
