"""Every attack that was tried on the judge, as data: tests judge them, `kevin bench attacks` makes a table of them."""

from __future__ import annotations

from kevin.core.types import Device
from kevin.judge.benchmarks.attacks import c_abi_cpu, c_abi_cuda, modules, modules_cuda, swallowed
from kevin.judge.benchmarks.attacks.attack import Attack, Suite

__all__ = ["Attack", "Suite", "suites"]


def suites(device: Device) -> tuple[Suite, ...]:
    """Those that run on a device."""
    if device == "cpu":
        return (
            Suite(name="c_abi_cpu", dialect="c_abi", language="cpp", attacks=c_abi_cpu.ATTACKS | c_abi_cpu.SINGLE),
            Suite(
                name="modules_cpu",
                dialect="load_inline",
                language="cpp",
                attacks=modules.ATTACKS | modules.SINGLE | modules.CPU_ONLY | swallowed.ATTACKS,
            ),
        )
    return (
        Suite(
            name="c_abi_cuda",
            dialect="c_abi",
            language="cuda",
            attacks=c_abi_cuda.ATTACKS | _named("a stream: ", c_abi_cuda.STREAMS) | c_abi_cuda.SINGLE,
        ),
        Suite(
            name="modules_cuda",
            dialect="load_inline",
            language="cuda",
            attacks=modules.ATTACKS
            | modules.SINGLE
            | modules_cuda.ATTACKS
            | _named("a stream: ", modules_cuda.STREAMS)
            | modules_cuda.SINGLE,
        ),
    )


def _named(kind: str, attacks: dict[str, Attack]) -> dict[str, Attack]:
    """Under names that say of what kind they are; their tests have a name of their own for that."""
    return {f"{kind}{name}": attack for name, attack in attacks.items()}
