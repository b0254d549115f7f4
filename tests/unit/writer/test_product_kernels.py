"""Kernels that differ in their products alone: which there are; on a GPU, whether they are right, and their times."""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from kevin.cli.app import app
from kevin.core import abi
from kevin.core.protocol import JudgeProtocol
from kevin.core.types import Task
from kevin.judge.correctness.compare import compare
from kevin.tasks.catalog import catalog
from kevin.tasks.format import load_module
from kevin.writer.general.tensor import TILES
from kevin.writer.product_kernels import product_kernels, shapes


def test_every_way_is_there_once_and_differs():
    pairs = list(product_kernels([*shapes(), *(t for t in catalog("gpu") if t.name == "relu")]))
    assert {task.id for task, _, _ in pairs} == {task.id for task in shapes()}
    assert len({(task.id, way) for task, way, _ in pairs}) == len({(task.id, text) for task, _, text in pairs})
    assert set(TILES) <= {way for _, way, _ in pairs}


def test_the_command_writes_what_the_judge_takes(tmp_path):
    out = tmp_path / "products.jsonl"
    result = CliRunner().invoke(app, ["bench", "products", "--out", str(out)])
    assert result.exit_code == 0, result.output
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    assert all(set(line) == {"id", "reference", "kernel"} for line in lines)
    assert len({line["id"] for line in lines}) == len(lines) and f"{len(lines)} kernels" in result.output


def _build(task: Task, text: str, path: Path) -> Path:
    source = path.with_suffix(".cu")
    source.write_text(abi.header(task.spec, "cuda") + text)
    command = ["nvcc", "-arch=native", "-O3", "-std=c++17", "-shared", "-Xcompiler", "-fPIC", "-diag-suppress=177"]
    subprocess.run([*command, "-o", str(path), str(source)], check=True, timeout=600)
    return path


def _milliseconds(call) -> float:
    """Median of twenty."""
    times = []
    for i in range(23):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        call()
        end.record()
        end.synchronize()
        times += [start.elapsed_time(end)] if i >= 3 else []
    return sorted(times)[len(times) // 2]


@pytest.mark.gpu
@pytest.mark.slow
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
def test_they_are_right_on_a_gpu_and_this_is_how_fast(tmp_path, capsys):
    """``pytest -m gpu tests/unit/writer/test_product_kernels.py`` prints a table beside eager without TF32."""
    assert not torch.backends.cuda.matmul.allow_tf32
    torch.backends.cudnn.allow_tf32 = False
    protocol = JudgeProtocol(device="cuda")
    pairs = list(product_kernels(shapes()))
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        jobs = [pool.submit(_build, t, text, tmp_path / f"k{i}.so") for i, (t, _, text) in enumerate(pairs)]
        libraries = [job.result() for job in jobs]
    wrong, stream = [], ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
    for task in shapes():
        with torch.device("cuda"), torch.no_grad():
            module = load_module(task.source, task.id)
            torch.manual_seed(0)
            model, inputs = module.Model(*module.get_init_inputs()), module.get_inputs()
            expected = model(*inputs)
            eager = _milliseconds(lambda model=model, inputs=inputs: model(*inputs))
        for (own, way, _), library in zip(pairs, libraries, strict=True):
            if own.id != task.id:
                continue
            launch, out = ctypes.CDLL(str(library)).launch, torch.full_like(expected, torch.nan)
            pointers = [ctypes.c_void_p(t.data_ptr()) for t in (*inputs, *model.parameters(), out)]
            took = _milliseconds(lambda launch=launch, pointers=pointers: launch(*pointers, stream))
            result = compare("out", out, expected, atol=protocol.atol, rtol=protocol.rtol)
            wrong += [] if result.passed else [(task.id, way)]
            with capsys.disabled():
                print(
                    f"{task.id:40} {way:12} {took:9.3f} ms, eager {eager:9.3f} ms, {eager / took:5.2f}x,"
                    f" largest error {result.max_abs_error:.2g}{'' if result.passed else ', WRONG'}"
                )
    assert wrong == []
