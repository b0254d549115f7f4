"""The cell of a ``load_inline`` candidate, on CPU or GPU: a Python module with a class `ModelNew`.

Three modes. ``build``: import the module, and make and call the model where only that compiles its extensions, into a
folder; report each build. ``run``: import it again with the built extensions, no compiler and no new process allowed,
and call the model on command. ``precompile``: no candidate; compile torch's headers for the builds of others.
Standard library and torch only; it knows offsets and a weight seed, never input seeds, expected outputs or tolerances.
"""

import base64
import io
import json
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH100, PTH120

import torch
from build import Builds, build_the_rest, install, precompile
from calls import serve
from candidate import Hardware, Model, excerpt, import_candidate, is_out_of_memory, make_model
from channel import open_channel
from guard import lock_down


def main() -> None:
    channel, setup, shared_fd = open_channel()
    building = setup.get("mode") in ("build", "precompile")
    torch.set_num_threads(setup["num_threads"])
    hardware = None
    cuda = setup.get("device") == "cuda"
    # compilers name their temporary files alike in every sandbox, and /tmp may be shared
    os.environ.update({"TMPDIR": setup["build_folder"]} if building else {})
    if not building:
        try:
            hardware = Hardware(setup, shared_fd)
        except (RuntimeError, OSError) as e:
            channel.write(json.dumps({"harness_error": str(e)}).encode() + b"\n")
            return
    elif cuda and not setup.get("pretend_gpu"):
        torch.cuda.is_available()  # the driver starts with system calls that are forbidden in a moment
    guards = lock_down(
        memory_bytes=None if building or cuda else setup["memory_bytes"],
        num_threads=64 if building or cuda else setup["num_threads"],
        readable=setup["readable"],
        writable=setup["writable"] + (["/tmp", "/dev/null"] if building else []),
        allow_processes=building,
        file_bytes=(4 if setup.get("mode") == "precompile" else 1) << 30,
    )
    channel.write(json.dumps({"guards": guards}).encode() + b"\n")
    channel.readline()  # the command to load: what fails from here on is the candidate's
    if setup.get("mode") == "precompile":
        try:
            precompile(setup["build_folder"])
            reply = {"ok": True}
        except Exception as e:
            reply = {"error": excerpt(e)}
        channel.write(json.dumps(reply).encode() + b"\n")
        return
    builds = Builds(setup["build_folder"], building, setup.get("precompiled"))
    if setup.get("pretend_gpu"):
        torch.cuda.is_available = lambda: True  # to compile what a module keeps for a GPU
    try:
        install(builds)
        module = import_candidate(setup["source"])
        if building:
            reply = {"ok": True, **build_the_rest(module, setup, builds), "builds": builds.log}
        else:
            torch.manual_seed(setup["weight_seed"])
            init = torch.load(io.BytesIO(base64.b64decode(setup["init_inputs"])), weights_only=False)
            if setup["tf32"] == "off":
                torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
            made = make_model(module, init).to(hardware.device, getattr(torch, setup["precision"]))
            model = Model(setup, hardware, made)
            reply = {"ok": True}
    except BaseException as e:
        reply = {"error": excerpt(e), "builds": builds.log}
        if is_out_of_memory(e):
            reply["reason"] = "out_of_memory"
    channel.write(json.dumps(reply).encode() + b"\n")
    if not building and "error" not in reply:
        serve(channel, model, hardware)


if __name__ == "__main__":
    main()
