"""Show of every kernel here what its first lines say, without the judge: against its reference in float64.

    python tests/mutants/show.py [--device cuda] [--only NAME]

Writes ``shown.csv``: for each file the largest error of an output over its tolerance, and what else was seen. Right
ones stay below 1, wrong ones above it, but for those whose mistake is not in the values (``shown: by construction``).
Of these is shown, on a CPU, that they write beside their output, read or write where a page is protected, or keep
memory; on a GPU, that they write beside their output, change an input or keep memory. Files whose text and task are as
they were when shown are not shown again, unless their row is taken out.
"""

from __future__ import annotations

import argparse
import copy
import csv
import ctypes
import json
import math
import mmap
import multiprocessing
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from kevin.core import abi
from kevin.judge.benchmarks.judge_errors import Mutant, as_tasks, read_mutants
from kevin.judge.inside.pages import TorchMemory
from kevin.tasks.format import init_model, load_module, make_inputs

HERE = Path(__file__).parent
COLUMNS = ("file", "task", "kind", "expect", "shown", "device", "worst", "seen", "digest")
TOLERANCE = 1e-4
PAGE, BAND_PAGES, BAND_BYTE = mmap.PAGESIZE, 16, 0xA5
KEPT_CALLS, KEPT_BYTES = 64, 8 << 20
FLAGS = {
    "cpp": ["g++", "-O2", "-std=c++17", "-fopenmp", "-shared", "-fPIC"],
    "cuda": ["nvcc", "-O2", "-std=c++17", "-arch=sm_90", "-shared", "-Xcompiler", "-fPIC", "-diag-suppress=177"],
}
SCALARS = {float: ctypes.c_double, int: ctypes.c_int64}
_libc = ctypes.CDLL(None, use_errno=True)

Launch = Callable[[list[Any], list[torch.Tensor], Sequence[torch.Tensor]], None]


def over_tolerance(out: torch.Tensor, ref: torch.Tensor, slack: torch.Tensor | float = 0.0) -> float:
    """Largest error over its tolerance; of integers, over one half. Infinite where one is not finite and the other is.

    Args:
        ref: in float64, or integers.
        slack: how far PyTorch's own default is from it, beside the tolerance.
    """
    if not ref.dtype.is_floating_point:
        return 2.0 * float((out.long() - ref.long()).abs().max())
    out, ref = out.double().cpu(), ref.double().cpu()
    both = torch.isfinite(out) & torch.isfinite(ref)
    same = (out == ref) | (out.isnan() & ref.isnan())
    if not bool((both | same).all()):
        return math.inf
    expected, error = ref[both], (out[both] - ref[both]).abs()
    scale = max(1.0, float(expected.square().mean().sqrt()))
    return float((error / (TOLERANCE * scale + TOLERANCE * expected.abs() + slack)).max())


class Case:
    """A fresh model with inputs of its own, what is right for them, and what a launcher takes beside its outputs."""

    def __init__(self, module: ModuleType, seed: int, device: str) -> None:
        self.model = init_model(module, seed).to(device)
        self.inputs = [x.to(device) if isinstance(x, torch.Tensor) else x for x in make_inputs(module, seed + 1000)]
        with torch.no_grad():
            exact = copy.deepcopy(self.model).double()(*[_double(x) for x in self.inputs])
            eager = self.model(*[x.clone() if isinstance(x, torch.Tensor) else x for x in self.inputs])
        self.expected, self.eager = _listed(exact), _listed(eager)
        buffers = [b for b in self.model.buffers() if b.dtype.is_floating_point]
        self.parameters = [p.detach() for p in (*self.model.parameters(), *buffers)]

    def outputs(self) -> list[torch.Tensor]:
        """New ones, full of what no sum survives."""
        made = [torch.empty_like(e, memory_format=torch.contiguous_format) for e in self.eager]
        for out in made:
            out.view(-1).view(torch.uint8).fill_(0xFF if out.dtype != torch.bool else 1)
        return made

    def worst(self, outputs: Sequence[torch.Tensor]) -> float:
        found = 0.0
        for out, ref, eager in zip(outputs, self.expected, self.eager, strict=True):
            if out.shape != ref.shape:
                return math.inf
            slack = 0.0
            if out.device.type == "cuda" and ref.dtype.is_floating_point:
                slack = 2.0 * float((eager.double() - ref).abs().nan_to_num(0.0, 0.0, 0.0).max())
            found = max(found, over_tolerance(out, ref, slack))
        return found


def _double(x: Any) -> Any:
    return x.double() if isinstance(x, torch.Tensor) and x.dtype.is_floating_point else x


def _listed(result: Any) -> list[torch.Tensor]:
    return list(result) if isinstance(result, (list, tuple)) else [result]


# --- launchers, modules ---------------------------------------------------------------------------------------------


def build(mutant: Mutant, folder: Path) -> Path:
    """The shared object of a launcher."""
    spec = as_tasks([mutant])[mutant.task].spec
    assert spec is not None
    unit, library = folder / Path(mutant.name).name, folder / "kernel.so"
    unit.write_text(abi.header(spec, mutant.language) + '#line 1 "kernel"\n' + mutant.source)
    subprocess.run([*FLAGS[mutant.language], "-o", library, unit], check=True)
    return library


def launcher(library: Path, device: str) -> Launch:
    """Calls it on inputs, parameters and outputs, and waits until it is done."""
    entry = ctypes.CDLL(str(library))[abi.LAUNCHER]
    entry.restype = None

    def launch(inputs: list[Any], parameters: list[torch.Tensor], outputs: Sequence[torch.Tensor]) -> None:
        tensors = [*inputs, *parameters, *outputs]
        arguments: list[Any] = [
            ctypes.c_void_p(x.data_ptr()) if isinstance(x, torch.Tensor) else SCALARS[type(x)](x) for x in tensors
        ]
        if device == "cuda":
            arguments.append(ctypes.c_void_p(torch.cuda.current_stream().cuda_stream))
        entry(*arguments)
        if device == "cuda":
            torch.cuda.synchronize()

    return launch


def values_of_launcher(mutant: Mutant, module: ModuleType, library: Path, device: str) -> dict[str, Any]:
    """The worst error over all calls, and what a user would see beside it: inputs changed, memory kept."""
    launch = launcher(library, device)
    worst, at, seen = 0.0, 0, []
    for call in range(mutant.calls):
        case = Case(module, call, device)
        given = [x.contiguous().clone() if isinstance(x, torch.Tensor) else x for x in case.inputs]
        parameters = [p.contiguous().clone() for p in case.parameters]
        wide, outputs = zip(*map(_banded, case.outputs()), strict=True)
        launch(given, parameters, outputs)
        for memory in wide:
            seen += _beside(memory)
        if (found := case.worst(outputs)) > worst:
            worst, at = found, call + 1
        before = [*case.inputs, *case.parameters]
        if not all(_same(a, b) for a, b in zip([*given, *parameters], before, strict=True)):
            seen.append("changes an input")
    if mutant.calls > 2 and at:
        seen.append(f"largest in call {at}")
    if mutant.kind == "leak":
        start = _memory(device)
        for _ in range(KEPT_CALLS):
            launch(given, parameters, outputs)
        if (kept := _memory(device) - start) > KEPT_BYTES:
            seen.append(f"keeps {kept / KEPT_CALLS / 2**20:.1f} MB a call")
    return {"worst": worst, "seen": seen}


def _same(a: Any, b: Any) -> bool:
    return not isinstance(a, torch.Tensor) or torch.equal(a.nan_to_num(), b.nan_to_num())


def _memory(device: str) -> int:
    if device == "cuda":
        free, total = torch.cuda.mem_get_info()
        return int(total - free)
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE


def _banded(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """A copy of a tensor between two bands of a pattern, behind the memory that holds all three."""
    band = BAND_PAGES * PAGE
    memory = torch.full((2 * band + x.nbytes,), BAND_BYTE, dtype=torch.uint8, device=x.device)
    placed = memory[band : band + x.nbytes].view(x.dtype).view(x.shape)
    return memory, placed.copy_(x)


def _beside(memory: torch.Tensor) -> list[str]:
    """What was written into the bands."""
    band, pattern = BAND_PAGES * PAGE, int.from_bytes(bytes([BAND_BYTE] * 4), "little", signed=True)
    parts = {"before": memory[:band], "behind": memory[-band:].clone()}
    hits = {where: int((part.view(torch.int32) != pattern).sum()) for where, part in parts.items()}
    return [f"writes {hit} words {where} its output" for where, hit in hits.items() if hit]


def _protected(x: torch.Tensor, flush: str, *, readable: bool) -> torch.Tensor:
    """A copy that begins or ends where a page begins that must not be touched."""
    pages = -(-x.nbytes // PAGE)
    memory = mmap.mmap(-1, (pages + 2) * PAGE)
    view = torch.frombuffer(memory, dtype=torch.uint8)
    start = PAGE if flush == "start" else (pages + 1) * PAGE - x.nbytes
    placed = view[start : start + x.nbytes].view(x.dtype).view(x.shape)
    placed.copy_(x)
    base = view.data_ptr()
    protect = [(base, PAGE, 0), (base + (pages + 1) * PAGE, PAGE, 0)]
    if readable:
        protect.append((base + PAGE, pages * PAGE, mmap.PROT_READ))
    for address, size, how in protect:
        if _libc.mprotect(ctypes.c_void_p(address), ctypes.c_size_t(size), how):
            raise OSError(ctypes.get_errno(), "mprotect")
    return placed


def touches_protected(module: ModuleType, library: Path, flush: str) -> dict[str, Any]:
    """One call with every buffer against a protected page and inputs that may only be read: a crash says enough."""
    case = Case(module, 7, "cpu")
    inputs = [
        _protected(x.contiguous(), flush, readable=True) if isinstance(x, torch.Tensor) else x for x in case.inputs
    ]
    parameters = [_protected(p, flush, readable=True) for p in case.parameters]
    launcher(library, "cpu")(inputs, parameters, [_protected(o, flush, readable=False) for o in case.outputs()])
    return {}


def reads_beside(mutant: Mutant) -> list[str]:
    """What compute-sanitizer says of one call on a GPU, with each tensor in an allocation of its own."""
    command = ["compute-sanitizer", "--print-limit", "1", sys.executable, __file__, "--call", mutant.name]
    environment = {**os.environ, "PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
    run = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    found = re.search(r"Invalid __global__ (read|write) of size \d+", run.stdout)
    return [found.group(0)] if found else []


def call_once(mutant: Mutant) -> None:
    case = Case(load_module(mutant.task_source, mutant.task), 0, "cuda")
    with tempfile.TemporaryDirectory() as folder:
        launch = launcher(build(mutant, Path(folder)), "cuda")
        launch([x.contiguous().clone() for x in case.inputs], case.parameters, case.outputs())


def values_of_module(mutant: Mutant, module: ModuleType, device: str) -> dict[str, Any]:
    """As `values_of_launcher`, of a module, on the task's own tensors as they are, strides and all."""
    own: dict[str, Any] = {}
    exec(compile(mutant.source, mutant.name, "exec"), own)
    worst, results, seen = 0.0, [], []
    memory = TorchMemory(str(Path(torch.__file__).parent / "lib/libc10.so"))
    for call in range(mutant.calls):
        case = Case(module, call, device)
        candidate = own["ModelNew"]().to(device)
        candidate.load_state_dict(case.model.state_dict())
        before = [x.clone() if isinstance(x, torch.Tensor) else x for x in case.inputs]
        if mutant.kind == "bounds_write":
            memory.install(at_end=False)
        with torch.no_grad():
            results.append(_listed(candidate(*case.inputs)))
        memory.remove()
        worst = max(worst, case.worst(results[-1]))
        if not all(_same(a, b) for a, b in zip(case.inputs, before, strict=True)):
            seen.append("changes an input")
    if memory.harm:
        seen.append("writes beside a tensor that it made")
    if len({t.data_ptr() for r in results for t in r}) < len(results):
        seen.append("two calls share memory")
    if mutant.kind == "one_size":
        wider = torch.cat([case.inputs[0], case.inputs[0]], dim=-1)[..., : 3 * case.inputs[0].shape[-1] // 2]
        with torch.no_grad():
            out, exact = _listed(candidate(wider)), _listed(case.model.double()(wider.double()))
        if out[0].shape != exact[0].shape or over_tolerance(out[0], exact[0]) > 1:
            seen.append("is wrong for a wider input")
    return {"worst": worst, "seen": seen}


# --- all of them ----------------------------------------------------------------------------------------------------


def apart(work: Callable[..., dict[str, Any]], *arguments: Any) -> dict[str, Any]:
    """In a process of its own, which may crash: ``{"signal": name}``."""
    context = multiprocessing.get_context("fork")
    receive, send = context.Pipe(duplex=False)

    def run() -> None:
        torch.set_num_threads(1)
        send.send(json.dumps(work(*arguments)))

    process = context.Process(target=run)
    process.start()
    send.close()
    try:
        answer = json.loads(receive.recv())
    except EOFError:
        answer = {}
    process.join()
    code = process.exitcode or 0
    if code > 0:
        raise RuntimeError("a kernel could not be shown, see above")
    return {**answer, "signal": signal.Signals(-code).name} if code < 0 else answer


def show(mutant: Mutant, device: str) -> dict[str, Any]:
    """The row of one file."""
    module = load_module(mutant.task_source, mutant.task)
    with tempfile.TemporaryDirectory() as folder:
        if mutant.name.endswith(".py"):
            found = apart(values_of_module, mutant, module, device)
        else:
            library = build(mutant, Path(folder))
            found = apart(values_of_launcher, mutant, module, library, device)
            for flush in ("end", "start") if device == "cpu" and mutant.kind != "leak" else ():
                answer = apart(touches_protected, module, library, flush)
                if "signal" in answer and "alignment" not in mutant.kind:
                    found.setdefault("seen", []).append(f"{answer['signal']} with pages protected at the {flush}")
            if device == "cuda" and mutant.kind == "bounds_read":
                found.setdefault("seen", []).extend(reads_beside(mutant))
    seen = [*found.get("seen", []), *([found["signal"]] if "signal" in found else [])]
    return {
        "file": mutant.name,
        **{name: getattr(mutant, name) for name in ("task", "kind", "expect", "shown", "digest")},
        "device": device,
        "worst": f"{found.get('worst', math.inf):.4g}",
        "seen": "; ".join(dict.fromkeys(seen)),
    }


def is_shown(row: dict[str, Any]) -> bool:
    """Whether a row says what the file says."""
    off = float(row["worst"]) > 1.0
    if row["expect"] == "right":
        return not off and not row["seen"]
    return off if row["shown"] == "values" else bool(row["seen"])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--only", default="", help="files whose name holds this")
    parser.add_argument("--call", default="", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    path = HERE / "shown.csv"
    rows = {row["file"]: row for row in csv.DictReader(path.open())} if path.exists() else {}
    mutants = {m.name: m for m in read_mutants(HERE)}
    if chosen.call:
        call_once(mutants[chosen.call])
        return 0
    failed = 0
    for name, mutant in mutants.items():
        if mutant.device != chosen.device or chosen.only not in name:
            continue
        try:
            if rows.get(name, {}).get("digest") != mutant.digest:
                rows[name] = show(mutant, chosen.device)
                with path.open("w", newline="") as file:
                    writer = csv.DictWriter(file, COLUMNS)
                    writer.writeheader()
                    writer.writerows(rows[key] for key in sorted(rows) if key in mutants)
            problem = "" if is_shown(rows[name]) else f"not shown: {rows[name]['worst']} {rows[name]['seen']}"
        except (subprocess.SubprocessError, RuntimeError):
            problem = "does not compile, or could not be shown"
        if problem:
            failed += 1
            sys.stdout.write(f"{name}: {problem}\n")
    sys.stdout.write(f"{len(rows)} files, {failed} not shown\n")
    return int(failed > 0)


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    torch.set_num_threads(1)
    sys.exit(main())
