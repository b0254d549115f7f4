"""What the judge commands of a loaded ``load_inline`` candidate: calls on slots, and what a profiler sees of one."""

import json

import torch
from candidate import Hardware, Model, excerpt, is_out_of_memory, leaves


def _run(command: dict, model: Model, hardware: Hardware) -> dict:
    forward = model.model
    with torch.no_grad():
        if command["load_parameters"]:
            model.load_parameters(command["calls"][0])
        elif command["warm"]:
            model.load_parameters(command["warm"][0])
        for slot in command["warm"]:
            forward(*model.inputs[slot])
        hardware.synchronize()
        elapsed, waited, results, problems = [], [], [], []
        on_gpu = hardware.gpu is not None
        if command.get("burst"):
            return _in_a_row(command, model, hardware)
        for at, slot in enumerate(command["calls"]):
            inputs = model.inputs[slot]
            elapsed.append(
                hardware.timed(
                    lambda inputs=inputs: results.append(forward(*inputs)),
                    # on a GPU at once: the copy shows what was done when the clock stopped
                    lambda slot=slot, at=at: problems.append(model.store(slot, results[at])) if on_gpu else None,
                    model.late_pieces[slot] if command["late"] else (),
                    command["cold"],
                )
            )
            waited.append(hardware.waited_ns)
        if not on_gpu:  # when all are timed: a copy in between would leave other caches than eager finds
            problems = [model.store(slot, result) for slot, result in zip(command["calls"], results)]  # noqa: B905
        hardware.synchronize()
        if problem := next((p for p in problems if p), None) or _aliasing(results):
            return problem
    return {"ns": elapsed, "waited_ns": waited}


def _in_a_row(command: dict, model: Model, hardware: Hardware) -> dict:
    """Without a clock; results are stored when all work is done, on streams of their own too."""
    results, slots = [], command["calls"]
    for _ in range(command["burst"]):
        results.clear()
        for slot in slots:
            if command["late"]:
                hardware.deliver(model.late_pieces[slot])
            results.append(model.model(*model.inputs[slot]))
    hardware.synchronize()
    if model.own_allocations:
        return {"ns": [0] * len(slots)}
    problems = [model.store(slot, result) for slot, result in zip(slots, results)]  # noqa: B905
    hardware.synchronize()
    return next((p for p in problems if p), None) or {"ns": [0] * len(slots)}


def _aliasing(results: list) -> dict | None:
    """An error reply when two results that are alive together share memory: one static buffer is not an output."""
    tensors = [t for result in results for t in leaves(result) if t.numel()]
    if len({t.untyped_storage().data_ptr() + t.storage_offset() * t.element_size() for t in tensors}) < len(tensors):
        return {
            "error": "two calls returned the same memory: results must not be overwritten",
            "reason": "wrong_aliasing",
        }
    return None


def _profile(slot: int | None, model: Model, hardware: Hardware) -> dict:
    """Names and device microseconds of what one call ran on the GPU, as CUPTI saw it; None only starts CUPTI.

    `torch.profiler` is this with seconds of imports around it.
    """
    from torch.autograd.profiler import profile

    with torch.no_grad(), profile(use_cpu=False, use_device="cuda", use_kineto=True) as prof:
        if slot is not None:
            model.model(*model.inputs[slot])
        hardware.synchronize()
    kernels: dict = {}
    for event in prof.function_events:
        if str(event.device_type).endswith("CUDA"):
            kernels[event.name] = kernels.get(event.name, 0.0) + event.device_time_total
    return {"kernels": sorted(kernels.items(), key=lambda kv: -kv[1])[:64]}


def serve(channel, model: Model, hardware: Hardware) -> None:
    while line := channel.readline():
        command = json.loads(line)
        try:
            if "profile" in command:
                reply = _profile(command["profile"], model, hardware)
            elif "guarded" in command:
                harm = model.call_guarded(command["guarded"], command["at_end"], hardware, channel)
                reply = {"fault": harm} if harm else {"ok": True}
            elif "parameters" in command:
                reply = {"parameters": model.kept_parameters(command["parameters"])}
            else:
                reply = _run(command, model, hardware)
        except Exception as e:
            reply = {"error": excerpt(e), "reason": "out_of_memory" if is_out_of_memory(e) else "exception"}
        channel.write(json.dumps(reply).encode() + b"\n")
