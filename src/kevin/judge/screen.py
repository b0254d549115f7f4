"""Format and hack rules that can be read off the source, before anything is compiled.

Rules look at code, never at comments or strings, and at whole identifiers: a comment that says "try" or a variable
named ``block_lock`` is nobody's business. They are the cheap first line; what they miss, the sandbox and the
measurements must still catch.
"""

from __future__ import annotations

import ast
import re

from kevin.core.abi import LAUNCHER
from kevin.core.protocol import Rule
from kevin.core.types import Frozen, Kernel

C_FORBIDDEN = frozenset([
    "fork", "vfork", "clone", "execv", "execve", "execvp", "execl", "execlp", "system", "popen", "ptrace",
    "syscall", "dlopen", "dlsym", "dlmopen", "prctl", "process_vm_readv", "process_vm_writev", "sched_setaffinity",
    "pthread_create", "socket", "connect", "exit", "_exit", "_Exit", "quick_exit", "abort", "clock_gettime",
    "gettimeofday", "setenv", "putenv", "longjmp", "sigaction", "signal",
])  # fmt: skip
"""Functions that reach beyond a kernel's arguments."""
C_FORBIDDEN_HEADERS = frozenset([
    "unistd.h", "sys/mman.h", "sys/syscall.h", "sys/ptrace.h", "sys/socket.h", "dlfcn.h", "pthread.h", "thread",
    "future", "fstream", "iostream", "filesystem", "cstdio", "stdio.h", "signal.h", "csignal", "torch/extension.h",
    "ATen/ATen.h",
])  # fmt: skip
"""Headers whose only use is to do so."""
PY_FORBIDDEN_MODULES = frozenset([
    "gc", "inspect", "ctypes", "subprocess", "os", "sys", "threading", "multiprocessing", "socket", "signal",
    "importlib", "time", "builtins", "mmap", "pickle", "traceback", "faulthandler", "atexit", "weakref", "asyncio",
    "concurrent",
])  # fmt: skip
"""Modules that reach the harness, the system or a clock."""
NN_HOLDERS = frozenset([
    "Parameter", "Module", "ModuleList", "ModuleDict", "ParameterList", "ParameterDict", "Buffer",
    "UninitializedParameter",
])  # fmt: skip
"""Parts of `torch.nn` that hold tensors or modules and compute nothing."""
TORCH_FREE = frozenset([
    "empty", "empty_like", "zeros", "zeros_like", "ones", "ones_like", "full", "full_like", "tensor", "as_tensor",
    "from_numpy", "arange", "rand", "randn", "device", "dtype", "Size", "Tensor", "no_grad", "inference_mode",
    "float32", "float16", "bfloat16", "float64", "int32", "int64", "int8", "uint8", "bool", "float", "half",
    "double", "long", "int", "is_tensor", "Generator", "manual_seed", "get_default_dtype", "set_default_dtype",
    "finfo", "iinfo", "contiguous_format", "channels_last", "jit", "cuda", "nn", "utils", "library", "version",
    "backends", "strided", "memory_format",
])  # fmt: skip
"""Of `torch`'s own names, those that compute nothing."""
TENSOR_COMPUTE = frozenset([
    "matmul", "mm", "bmm", "addmm", "baddbmm", "dot", "mv", "einsum", "softmax", "log_softmax", "relu", "relu_",
    "sigmoid", "tanh", "gelu", "silu", "conv1d", "conv2d", "conv3d", "sum", "mean", "prod", "cumsum", "cumprod",
    "norm", "var", "std", "max", "min", "amax", "amin", "argmax", "argmin", "exp", "log", "sqrt", "rsqrt", "pow",
    "clamp", "clamp_", "abs", "add", "add_", "sub", "sub_", "mul", "mul_", "div", "div_", "logsumexp", "layer_norm",
    "batch_norm", "group_norm", "instance_norm", "sort", "topk",
])  # fmt: skip
"""Methods of a tensor that compute."""


class Hit(Frozen):
    """One rule broken, with what the author is told."""

    rule: Rule
    message: str


def strip_c(source: str) -> str:
    """C-family source with comments and string or character literals blanked out."""
    pattern = re.compile(
        r'R"(?P<d>[^()\\\s]{0,16})\(.*?\)(?P=d)"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|//[^\n]*|/\*.*?\*/',
        re.DOTALL,
    )
    return pattern.sub(lambda m: " " if m.group().startswith("/") else '""', source)


def _screen_c(kernel: Kernel) -> list[Hit]:
    # includes name headers in <> or "": read them before strings are blanked
    hits = []
    for header in re.findall(r"^[ \t]*#[ \t]*include[ \t]*[<\"]([^>\"\n]+)[>\"]", kernel.source, re.MULTILINE):
        if header in C_FORBIDDEN_HEADERS or header.startswith("/") or ".." in header:
            hits.append(Hit(rule="harness_access", message=f"#include <{header}> is not available to kernels"))
    code = strip_c(kernel.source)
    names = set(re.findall(r"[A-Za-z_]\w*", code))
    if LAUNCHER not in names:
        hits.append(Hit(rule="no_kernel", message=f"the code does not define {LAUNCHER}"))
    elif kernel.language == "cuda" and not ({"__global__"} & names):
        hits.append(Hit(rule="no_kernel", message="the code defines no __global__ kernel"))
    called = set(re.findall(r"([A-Za-z_]\w*)\s*\(", code)) & C_FORBIDDEN
    called |= {"asm"} & set(re.findall(r"\b(?:__)?(asm)(?:__)?\b", code)) if kernel.language == "cpp" else set()
    if called:
        hits.append(Hit(rule="harness_access", message=f"kernels must not use {', '.join(sorted(called))}"))
    return hits


def _dotted(node: ast.expr) -> str:
    """``a.b.c`` of nested attributes, '' for anything else."""
    parts = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(parts)]) if isinstance(node, ast.Name) else ""


class _ModuleScreen(ast.NodeVisitor):
    """Walks a ``load_inline`` module and collects what the rules ask about."""

    def __init__(self, extensions: frozenset[str]) -> None:
        self.extensions = extensions
        self.aliases = {"torch": "torch", "F": "torch.nn.functional", "nn": "torch.nn"}
        self.hits: list[Hit] = []
        self.has_inline = False
        self.nn_members: dict[str, str] = {}

    def _hit(self, rule: Rule, node: ast.AST, text: str) -> None:
        self.hits.append(Hit(rule=rule, message=f"line {getattr(node, 'lineno', '?')}: {text}"))

    def _full(self, node: ast.expr) -> str:
        name = _dotted(node)
        head, _, rest = name.partition(".")
        head = self.aliases.get(head, head)
        return f"{head}.{rest}" if rest else head

    def visit_Import(self, node: ast.Import) -> None:
        for a in node.names:
            self.aliases[a.asname or a.name.split(".")[0]] = a.name if a.asname else a.name.split(".")[0]
            if a.name.split(".")[0] in PY_FORBIDDEN_MODULES:
                self._hit("harness_access", node, f"import of {a.name}")

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        for a in node.names:
            self.aliases[a.asname or a.name] = f"{node.module}.{a.name}"
            self.has_inline |= a.name in ("load_inline", "load")
        if (node.module or "").split(".")[0] in PY_FORBIDDEN_MODULES:
            self._hit("harness_access", node, f"import from {node.module}")

    def visit_Try(self, node: ast.Try) -> None:
        self._hit("try_except", node, "try/except is not allowed")
        self.generic_visit(node)

    def visit_Pass(self, node: ast.Pass) -> None:
        self._hit("pass_statement", node, "pass is not allowed")

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        if node.name == "ModelNew":
            for base in node.bases:
                if self._full(base) not in ("torch.nn.Module", "Module"):
                    self._hit("inherits_model", node, f"ModelNew must derive from torch.nn.Module, not {_dotted(base)}")
        self.generic_visit(node)

    def visit_Assign(self, node: ast.Assign) -> None:
        if isinstance(node.value, ast.Call):
            made = self._full(node.value.func)
            if made.startswith("torch.nn.") and made.count(".") == 2 and made.rsplit(".", 1)[1] not in NN_HOLDERS:
                for t in node.targets:
                    if isinstance(t, ast.Attribute):
                        self.nn_members[t.attr] = made
        for t in node.targets:
            if self._full(t).startswith("torch."):
                self._hit("harness_access", node, f"assignment to {_dotted(t)}")
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        if isinstance(node.op, ast.MatMult):
            self._hit("torch_compute", node, "the @ operator computes in PyTorch")
        self.generic_visit(node)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        if node.attr in ("f_back", "f_locals", "f_globals", "__globals__", "__subclasses__", "gi_frame", "tb_frame"):
            self._hit("harness_access", node, f"use of {node.attr}")
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        name = self._full(node.func)
        last = name.rsplit(".", 1)[-1]
        self.has_inline |= last in ("load_inline", "load") and "cpp_extension" in name
        if last in ("exec", "eval", "__import__", "compile", "globals", "setattr") and "." not in name:
            self._hit("harness_access", node, f"call of {last}")
        if name.startswith(("torch.nn.functional.", "torch.ops.", "torch.linalg.", "torch.fft.", "torch.special.")) or (
            name.startswith("torch.") and name.count(".") == 1 and last not in TORCH_FREE
        ):
            self._hit("torch_compute", node, f"{name} computes in PyTorch")
        elif isinstance(node.func, ast.Attribute) and not name.startswith("torch.") and last in TENSOR_COMPUTE:
            # an extension's own function may carry any name: only names bound to modules built inline are excused
            owner = _dotted(node.func.value).split(".")[0]
            if owner not in {"math", "np", "numpy", "self", *self.extensions}:
                self._hit("torch_compute", node, f".{last}() computes in PyTorch")
        self.generic_visit(node)


def _extension_names(tree: ast.Module) -> frozenset[str]:
    """Names bound to the result of ``load_inline`` or ``load``."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
            built = _dotted(node.value.func).rsplit(".", 1)[-1] in ("load_inline", "load")
            if built:
                names |= {_dotted(t).split(".")[-1] for t in node.targets}
    return frozenset(names)


def _screen_python(kernel: Kernel) -> list[Hit]:
    try:
        tree = ast.parse(kernel.source)
    except (SyntaxError, ValueError, RecursionError):
        return []  # the build stage reports it in Python's own words
    visitor = _ModuleScreen(_extension_names(tree))
    visitor.visit(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            owner, member = node.func.value, node.func.attr
            if isinstance(owner, ast.Name) and owner.id == "self" and member in visitor.nn_members:
                text = f"line {node.lineno}: self.{member}() runs {visitor.nn_members[member]} in PyTorch"
                visitor.hits.append(Hit(rule="torch_compute", message=text))
    strings = [n.value for n in ast.walk(tree) if isinstance(n, ast.Constant) and isinstance(n.value, str)]
    code = [strip_c(s) for s in strings]
    if not visitor.has_inline:
        visitor.hits.append(Hit(rule="no_kernel", message="the module builds nothing with load_inline"))
    elif kernel.language == "cuda" and not any(re.search(r"\b__global__\b", c) for c in code):
        visitor.hits.append(Hit(rule="no_kernel", message="no string of the module holds a __global__ kernel"))
    return visitor.hits


def screen(kernel: Kernel) -> list[Hit]:
    """Every rule that the kernel breaks, enforced or not. Cheap and pure."""
    return _screen_c(kernel) if kernel.dialect == "c_abi" else _screen_python(kernel)
