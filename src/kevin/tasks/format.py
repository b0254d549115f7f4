"""KernelBench's module format: load a reference, build its model and inputs under a seed, read off its spec.

A reference defines ``Model`` (an ``nn.Module``), ``get_inputs()`` and, when the constructor takes arguments,
``get_init_inputs()``. References are trusted code: they run in this process.
"""

from __future__ import annotations

import inspect
import linecache
import logging
import re
import signal
import sys
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import FrameType, ModuleType
from typing import TYPE_CHECKING, Any, get_args

from kevin.core.errors import TaskError, UsageError
from kevin.core.texts import read_text, split_lines
from kevin.core.types import DType, Task, TaskSpec, TensorSpec, digest

if TYPE_CHECKING:
    import torch

log = logging.getLogger(__name__)

LIMIT_S = 120.0
"""Of importing a reference, of making its inputs, and of making its model, each: a loop, a wait or a download in them
would be waited for without end."""
_AGAIN_S = 1.0


class TaskHangsError(TaskError):
    """A reference did not end; trying again would only take as long again."""


class _Interrupt(BaseException):
    """Not an Exception, which references may catch."""


@contextmanager
def time_limit(what: str) -> Iterator[None]:
    """Interrupt what is inside when it takes longer than `LIMIT_S` of wall time.

    In a process's main thread only, which alone can be interrupted: that is where references are inspected before
    other threads and processes get to see them.

    Raises:
        TaskHangsError: it took too long; the text begins with ``what``.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise _Interrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, LIMIT_S, _AGAIN_S)  # once more where a bare except has swallowed it
    try:
        yield
    except _Interrupt:
        raise TaskHangsError(
            f"{what} did not end within {LIMIT_S:g} s: look for a loop, a wait or a download there, and take it out"
        ) from None
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


class SpecError(TaskError):
    """The reference works, but takes or gives what no launcher with a C interface can."""


_RESERVED = re.compile(
    "launch|stream|main|alignas|alignof|and|asm|auto|bitand|bitor|bool|break|case|catch|char|class|const|constexpr"
    "|continue|decltype|default|delete|do|double|else|enum|explicit|export|extern|false|float|for|friend|goto|if"
    "|inline|int|long|mutable|namespace|new|noexcept|not|nullptr|operator|or|private|protected|public|register"
    "|return|short|signed|sizeof|static|struct|switch|template|this|throw|true|try|typedef|typename|union|unsigned"
    "|using|virtual|void|volatile|while|xor|[a-z0-9]+_t"
)
"""Words that cannot name a launcher's argument: C++ keywords, types, and the launcher's own names."""


def load_module(source: str, name: str) -> ModuleType:
    """Execute a reference as a module of its own.

    It is registered under a name made of its content: `inspect` and dataclasses work on it, and different
    references never meet.

    Args:
        name: what errors call it: a path or a task id.

    Raises:
        TaskError: it does not compile, raises, does not end, or lacks ``Model`` or ``get_inputs``.
    """
    key = digest("module", name, source)[:16]
    module = ModuleType(f"kevin_task_{key}")
    module.__file__ = f"<{name} {key}>"
    sys.modules[module.__name__] = module
    linecache.cache[module.__file__] = (
        len(source),
        None,
        [f"{line}\n" for line in split_lines(source)],
        module.__file__,
    )
    try:
        with time_limit(f"{name}: importing the reference"):
            exec(compile(source, module.__file__, "exec", dont_inherit=True), module.__dict__)
    except TaskHangsError:
        raise
    except SyntaxError as e:
        raise TaskError(f"{name}: line {e.lineno}: {e.msg}; fix the syntax of the reference") from None
    except (Exception, SystemExit) as e:
        raise TaskError(f"{name}: {_where(e, module.__file__)}{_text(e)} while importing the reference") from e
    _require_format(module, name)
    return module


def _require_format(module: ModuleType, name: str) -> None:
    import torch

    model = getattr(module, "Model", None)
    if not (isinstance(model, type) and issubclass(model, torch.nn.Module)):
        raise TaskError(f"{name}: defines no class Model; add one derived from torch.nn.Module")
    if not callable(getattr(module, "get_inputs", None)):
        raise TaskError(f"{name}: defines no get_inputs(); add one that returns the list of forward's inputs")
    if not callable(getattr(module, "get_init_inputs", list)):
        raise TaskError(f"{name}: get_init_inputs is not a function; let it return the list of Model's arguments")


def _text(e: BaseException) -> str:
    return f"{type(e).__name__}: {e}" if str(e) else type(e).__name__


def _where(e: BaseException, file: str | None) -> str:
    """``line <n>: `` of the innermost frame inside the reference, or nothing."""
    line, tb = None, e.__traceback__
    while tb is not None:
        if tb.tb_frame.f_code.co_filename == file:
            line = tb.tb_lineno
        tb = tb.tb_next
    return f"line {line}: " if line else ""


def _title(module: ModuleType) -> str:
    """The name given to `load_module`."""
    return str(module.__file__)[1:-1].rpartition(" ")[0] if str(module.__file__).startswith("<") else module.__name__


def _list_from(module: ModuleType, function: str) -> list[Any]:
    try:
        with time_limit(f"{_title(module)}: {function}()"):
            values = getattr(module, function)()
    except TaskHangsError:
        raise
    except (Exception, SystemExit) as e:
        raise TaskError(f"{_title(module)}: {_where(e, module.__file__)}{_text(e)} in {function}()") from e
    if not isinstance(values, (list, tuple)):
        raise TaskError(f"{_title(module)}: {function}() returned a {type(values).__name__}; return a list")
    return list(values)


def init_model(module: ModuleType, seed: int) -> torch.nn.Module:
    """``Model(*get_init_inputs())`` in train mode, the seed set before each of the two, as in KernelBench."""
    import torch

    torch.manual_seed(seed)
    args = _list_from(module, "get_init_inputs") if hasattr(module, "get_init_inputs") else []
    torch.manual_seed(seed)
    try:
        with time_limit(f"{_title(module)}: Model(*get_init_inputs())"):
            model: torch.nn.Module = module.Model(*args)
    except TaskHangsError:
        raise
    except (Exception, SystemExit) as e:
        raise TaskError(f"{_title(module)}: {_where(e, module.__file__)}{_text(e)} in Model(*get_init_inputs())") from e
    return model


def make_inputs(module: ModuleType, seed: int) -> list[Any]:
    """``get_inputs()`` under a seed: tensors and numbers, on the CPU unless the reference says otherwise."""
    import torch

    torch.manual_seed(seed)
    return _list_from(module, "get_inputs")


def run_model(module: ModuleType, model: torch.nn.Module, inputs: Sequence[Any]) -> list[torch.Tensor]:
    """Outputs of one forward without gradients, tuples and lists flattened. Raises TaskError."""
    import torch

    try:
        with torch.no_grad():
            result = model(*inputs)
    except (Exception, SystemExit) as e:
        raise TaskError(f"{_title(module)}: {_where(e, module.__file__)}{_text(e)} in Model.forward") from e
    outputs = list(_flatten(result, _title(module)))
    if not outputs:
        raise TaskError(f"{_title(module)}: forward returned no tensor")
    return outputs


def _flatten(value: Any, title: str) -> Iterable[torch.Tensor]:
    import torch

    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for v in value:
            yield from _flatten(v, title)
    else:
        raise TaskError(f"{title}: forward returned a {type(value).__name__}; return tensors or a tuple of them")


# --- the spec -----------------------------------------------------------------------------------------------


def inspect_task(source: str, name: str) -> TaskSpec:
    """What goes into ``Model.forward`` and what comes out.

    A small reference runs for real. Forward of any other runs on fake tensors, which cost neither memory nor time at
    any size, unless it looks at values.

    Raises:
        TaskError: the reference is not in the format, fails, or uses a type that no kernel can be given.
    """
    module = load_module(source, name)
    from torch._subclasses.fake_tensor import FakeTensorMode

    from kevin.tasks.small import NotSmall, Small

    for mode in (Small, partial(FakeTensorMode, allow_non_fake_inputs=True)):
        try:
            with mode():
                return _read_spec(module)
        except NotSmall:
            continue
        except (TaskHangsError, SpecError):
            raise
        except TaskError as e:
            log.debug("%s: not to be inspected in this mode (%s)", name, e)
            break
    return _read_spec(module)


def _read_spec(module: ModuleType) -> TaskSpec:
    title = _title(module)
    model = init_model(module, seed=0)
    values = make_inputs(module, seed=0)
    outputs = run_model(module, model, values)
    taken: set[str] = set()
    argument_names = _input_names(model, values, title)
    inputs = [_value_spec(n, v, taken, title, is_input=True) for n, v in zip(argument_names, values, strict=True)]
    named = [*model.named_parameters(), *((n, b) for n, b in model.named_buffers() if b.is_floating_point())]
    parameters = [_value_spec(n.replace(".", "_"), p, taken, title) for n, p in named]
    names = ["out"] if len(outputs) == 1 else [f"out{i}" for i in range(len(outputs))]
    return TaskSpec(
        inputs=tuple(inputs),
        parameters=tuple(parameters),
        outputs=tuple(_value_spec(n, o, taken, title) for n, o in zip(names, outputs, strict=True)),
    )


def _input_names(model: torch.nn.Module, values: Sequence[Any], title: str) -> list[str]:
    """Argument names of forward, one a value; ``*args`` are numbered."""
    names: list[str] = []
    for p in inspect.signature(model.forward).parameters.values():
        if p.kind is p.VAR_POSITIONAL:
            names += [f"{p.name}{i}" for i in range(len(values) - len(names))]
        elif p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD):
            names.append(p.name)
    if len(names) < len(values):
        raise TaskError(f"{title}: get_inputs() returns {len(values)} inputs, forward takes {len(names)}")
    return names[: len(values)]


def _value_spec(name: str, value: Any, taken: set[str], title: str, *, is_input: bool = False) -> TensorSpec:
    import torch

    identifier = _identifier(name, taken)
    if isinstance(value, torch.Tensor):
        dtype = str(value.dtype).removeprefix("torch.")
        if dtype not in get_args(DType):
            raise SpecError(f"{title}: {name} has dtype {dtype}; kernels take {', '.join(get_args(DType))}")
        from kevin.tasks.layout import stride_of

        stride = stride_of(value) if is_input else None
        return TensorSpec(name=identifier, shape=tuple(value.shape), dtype=dtype, stride=stride)  # type: ignore[arg-type]
    scalars: dict[type, DType] = {bool: "bool", int: "int64", float: "float64"}
    if type(value) not in scalars:
        raise SpecError(f"{title}: input {name} is a {type(value).__name__}; inputs are tensors or numbers")
    return TensorSpec(name=identifier, shape=(), dtype=scalars[type(value)], kind="scalar")


def _identifier(name: str, taken: set[str]) -> str:
    """A C identifier close to ``name`` that is free, and takes it."""
    base = re.sub(r"\W", "_", name, flags=re.ASCII) or "_"
    base = f"_{base}" if base[0].isdigit() else base
    while base in taken or _RESERVED.fullmatch(base):
        base += "_"
    taken.add(base)
    return base


def task_from_file(path: Path) -> Task:
    """A user's reference as a task, inspected. Raises TaskError naming the file."""
    try:
        source = read_text(path)
    except UsageError as e:
        raise TaskError(str(e)) from None
    name = Path(path).stem
    return Task(
        id=f"user/{name}",
        level=1,
        name=name,
        source=source,
        origin="user",
        spec=inspect_task(source, str(path)),
    )
