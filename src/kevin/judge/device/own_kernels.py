"""Which kernels on a profiler's list are a candidate's own: by the names that its source defines or launches.

What ran is what counts, however it was called: a module whose build failed and that fell back to PyTorch, a product
that hides in C++, a kernel of its own for the look of it beside a library's that does the work.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

from kevin.judge.screen import strip_c

_NESTED = r"\((?:[^()]|\([^()]*\))*\)"
_ATTRIBUTE = re.compile(rf"__(?:launch_bounds|cluster_dims|block_size|maxnreg|attribute)__\s*{_NESTED}")
_DEFINED = re.compile(r"__global__[^;{(]*?\b(\w+)\s*\(")
_LAUNCHED = re.compile(r"\b(\w+)\s*(?:<[^<>;{}()]*(?:<[^<>;{}()]*>[^<>;{}()]*)*>)?\s*<<<")
_HEADER_LIBRARY = re.compile(r"#\s*include\s*[<\"](cub|thrust|cutlass|cute)/")
_LIBRARIES = frozenset(["at", "c10", "torch", "caffe2", "cudnn", "cublas", "cublasLt", "cask"])
_HEADER_LIBRARIES = frozenset(["cub", "thrust", "cutlass", "cute"])
_PLUMBING = re.compile(r"FillFunctor|direct_copy_kernel|CatArrayBatchedCopy|distribution_\w*kernel")


class Shares(NamedTuple):
    """Of the time that all kernels took; copies and fills by the driver are none."""

    own: float
    foreign: float
    """A library's that compute; ones that fill, copy or draw random numbers are neither."""
    largest_foreign: str


class OwnKernels:
    """The kernels of one candidate: CUDA code, or a Python module around it."""

    def __init__(self, source: str) -> None:
        # of a module the code stands in string literals, which stripping would blank
        code = strip_c(source) if "load_inline" not in source else source
        code = _ATTRIBUTE.sub(" ", code)
        self.names = frozenset([*_DEFINED.findall(code), *_LAUNCHED.findall(code)])
        """Declared ``__global__``, or launched with ``<<<``."""
        self._libraries = _LIBRARIES | (_HEADER_LIBRARIES - set(_HEADER_LIBRARY.findall(source)))
        self._included = _HEADER_LIBRARIES - self._libraries

    def __contains__(self, profiled: str) -> bool:
        """Whether the kernel of this (demangled) name is its own, and not a library's that is called the same."""
        words = re.split(r"[<(]", profiled.replace("(anonymous namespace)", ""), maxsplit=1)[0].split()
        path = [part for part in (words[-1] if words else "").split("::") if part]
        if not path or path[0] in self._libraries:
            return False
        return path[-1] in self.names or path[0] in self._included

    def shares(self, profiled: Iterable[tuple[str, float]]) -> Shares:
        """Args: profiled: names with their times, in any unit."""
        times: defaultdict[str, float] = defaultdict(float)
        for name, time in profiled:
            if not name.startswith(("Memset", "Memcpy")):
                times[name] += time
        total = sum(times.values())
        if total <= 0:
            return Shares(0.0, 0.0, "")
        own = {name for name in times if name in self}
        foreign = sorted((n for n in times if n not in own and not _PLUMBING.search(n)), key=lambda n: -times[n])
        return Shares(
            own=sum(times[n] for n in own) / total,
            foreign=sum(times[n] for n in foreign) / total,
            largest_foreign=foreign[0] if foreign else "",
        )
