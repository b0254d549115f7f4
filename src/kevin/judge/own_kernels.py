"""Which kernels on a profiler's list are a candidate's own: by the names that its source defines or launches."""

from __future__ import annotations

import re

from kevin.judge.screen import strip_c

_NESTED = r"\((?:[^()]|\([^()]*\))*\)"
_ATTRIBUTE = re.compile(rf"__(?:launch_bounds|cluster_dims|block_size|maxnreg|attribute)__\s*{_NESTED}")
_DEFINED = re.compile(r"__global__[^;{(]*?\b(\w+)\s*\(")
_LAUNCHED = re.compile(r"\b(\w+)\s*(?:<[^<>;{}()]*(?:<[^<>;{}()]*>[^<>;{}()]*)*>)?\s*<<<")
_LIBRARIES = {"at", "c10", "torch", "caffe2", "cutlass", "cute", "cub", "thrust", "cudnn", "cublas", "cublasLt", "cask"}


def own_kernel_names(source: str) -> set[str]:
    """Functions that CUDA code, or a Python module around it, declares ``__global__`` or launches with ``<<<``."""
    # of a module the code stands in string literals, which stripping would blank
    code = strip_c(source) if "load_inline" not in source else source
    code = _ATTRIBUTE.sub(" ", code)
    return set(_DEFINED.findall(code)) | set(_LAUNCHED.findall(code))


def is_own(profiled: str, names: set[str]) -> bool:
    """Whether a kernel with this (demangled) name is one of ``names``, and not a library's of the same name."""
    words = re.split(r"[<(]", profiled.replace("(anonymous namespace)", ""), maxsplit=1)[0].split()
    path = [part for part in (words[-1] if words else "").split("::") if part]
    return bool(path) and path[0] not in _LIBRARIES and path[-1] in names
