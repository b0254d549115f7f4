"""Failures of the harness and of its inputs. A candidate's failure is never an exception: it is an `Outcome`.

::

    KevinError                exit code
    ├── UsageError            2   what was asked for makes no sense: fix the input
    │   ├── ConfigError           a configuration file or key
    │   ├── TaskError             a task module that is not in KernelBench's format
    │   └── DataError             a file of the study that is missing, damaged or of another version
    └── HarnessError          3   the harness could not do its work: never cached, never a reward
        ├── DeviceError           no such device, no compiler, driver trouble
        │   ├── DeviceFullError       its memory does not suffice
        │   └── DeviceLostError       a GPU that failed in the middle of the work
        ├── SandboxError          the isolation could not be set up
        ├── DiskFullError         no space is left for results
        └── PolicyError           the model or its endpoint did not answer usably
"""


class KevinError(Exception):
    """Base of every error raised on purpose; its text names the cause and the fix."""

    exit_code = 1


class UsageError(KevinError):
    exit_code = 2


class ConfigError(UsageError):
    pass


class TaskError(UsageError):
    pass


class DataError(UsageError):
    pass


class HarnessError(KevinError):
    exit_code = 3


class DeviceError(HarnessError):
    pass


class DeviceFullError(DeviceError):
    """There is too little memory on the device; with nothing beside it there may be enough."""


class DeviceLostError(DeviceError):
    """This process can use its device no longer; another one may."""


class SandboxError(HarnessError):
    pass


class DiskFullError(HarnessError):
    pass


class PolicyError(HarnessError):
    pass


def first_line(error: Exception) -> str:
    """What a library's error says first, to stand within a sentence; its type where it says nothing."""
    return str(error).strip().split("\n")[0].rstrip(".") or type(error).__name__
