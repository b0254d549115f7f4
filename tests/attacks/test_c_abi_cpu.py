"""Attacks and honest controls in the c_abi dialect on the CPU. Each attack must fail, each control must pass.

Their sources are data: `kevin.judge.benchmarks.attacks`. The numbers in brackets are kinds, see docs/audit.md.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kevin.core.types import Outcome
from kevin.judge.benchmarks.attacks.c_abi_cpu import ATTACKS, BODY, CORRECT, HEAD, RELU, reaches_out

from .conftest import check_attack
from .controls import C_ABI_CPU as CONTROLS

pytestmark = pytest.mark.timing


@pytest.mark.parametrize("name", CONTROLS)
def test_control_passes(judge, name: str) -> None:
    verdict = judge(RELU, CONTROLS[name], rules=("no_kernel", "harness_access", "try_except", "pass_statement"))
    assert verdict.outcome is Outcome.CORRECT, (verdict.reason, verdict.message)
    assert verdict.timing is not None and verdict.speedup is not None and verdict.trials_passed == verdict.num_trials


LIMITS = {"endless_constexpr": {"build_timeout_s": 2.0}}
"""An attack that is to run into one need not be waited for as long as an honest kernel."""
TOLD = {
    "endless_template": "template instantiation depth exceeds",
    "wrong_signature": "conflicting declaration",
    "background_thread (1, 3)": "std::system_error",  # there are no threads beyond the protocol's
}
"""What stops an attack says, so that no mistake in the attack passes for that."""
CLOCK = ATTACKS["clock_stands_still (6)"]


@pytest.mark.parametrize("name", [name for name in ATTACKS if ATTACKS[name] is not CLOCK])
def test_attack_gains_nothing(judge, name: str) -> None:
    verdict = check_attack(judge, ATTACKS[name], "c_abi", **LIMITS.get(name, {}))
    if ATTACKS[name].expect != "correct":
        assert verdict.timing is None and verdict.speedup is None
    assert TOLD.get(name, "") in verdict.message


@pytest.mark.parametrize("name", {a.control: name for name, a in ATTACKS.items() if a.control != CORRECT}.values())
def test_the_honest_kernel_beside_an_attack_passes(judge, name: str) -> None:
    verdict = judge(ATTACKS[name].reference, ATTACKS[name].control)
    assert verdict.outcome is Outcome.CORRECT, (verdict.reason, verdict.message)


THROWS = {
    "an exception": ('throw std::runtime_error("no such\\nrow");', "std::runtime_error: no such\nrow"),
    "one with many words": ("throw std::invalid_argument(std::string(4000, 120));", "std::invalid_argument: xxxxx"),
    "an int": ("throw 7;", "int"),
    "a text": ('throw "no such row";', "char const*"),
    "out of a function that must not": ('[]() noexcept { throw std::out_of_range("5"); }();', "std::out_of_range: 5"),
}


@pytest.mark.parametrize("name", THROWS)
def test_an_uncaught_exception_is_told_with_its_words(judge, name: str) -> None:
    statement, words = THROWS[name]
    verdict = judge(RELU, f"#include <stdexcept>\n#include <string>\n{HEAD} {{ {statement} }}")
    assert (verdict.outcome, verdict.reason) == (Outcome.RUNTIME_ERROR, "uncaught_exception")
    assert verdict.message.startswith(f"uncaught exception: {words}")
    assert len(verdict.message) < 1000


def test_a_kernel_that_catches_its_own_exceptions(judge) -> None:
    """An honest control: what it says of them on the way does not matter."""
    say = 'std::fputs("terminate called after throwing an instance of nothing", stderr);'
    caught = f'try {{ throw std::runtime_error("mine"); }} catch (const std::exception&) {{ {say} }}'
    verdict = judge(RELU, f"#include <cstdio>\n#include <stdexcept>\n{HEAD} {{ {caught} {BODY} }}")
    assert verdict.outcome is Outcome.CORRECT, verdict.message


def test_limits_cannot_be_raised_again(judge) -> None:
    """The kernel is right only while the hard limits are as low as the soft ones."""
    fixed = " && ".join(
        f"!getrlimit({name}, &r) && r.rlim_max == r.rlim_cur && r.rlim_max != RLIM_INFINITY"
        for name in ("RLIMIT_AS", "RLIMIT_FSIZE")
    )
    verdict = judge(RELU, f"#include <sys/resource.h>\n{HEAD} {{ struct rlimit r; if ({fixed}) {{ {BODY} }} }}")
    assert verdict.outcome is Outcome.CORRECT, verdict.message


def test_other_files_are_out_of_reach(judge, tmp_path: Path) -> None:
    """(49) the kernel stays correct only while the call fails."""
    (tmp_path / "secret").write_text("reference")
    assert judge(RELU, reaches_out(f'open("{tmp_path}/secret", 0)')).outcome is Outcome.CORRECT


RESIZE = 'extern "C" int ftruncate(int, long) noexcept;\n'


@pytest.mark.parametrize("size", ["0", "1l << 30"])
def test_the_judges_memory_keeps_its_size(judge, size: str) -> None:
    """The kernel stays correct only while no call succeeds; cut off, the memory would end the judge."""
    resizes = f"for (int f = 3; f < 256; f++) if (!ftruncate(f, {size})) return;"
    verdict = judge(RELU, f"{RESIZE}{HEAD} {{ {resizes} {BODY} }}")
    assert verdict.outcome is Outcome.CORRECT, verdict.message


@pytest.mark.parametrize("keeps", [True, False])
def test_a_leak_of_shared_memory_is_seen(judge, keeps: bool) -> None:
    """And none in a kernel that gives it back."""
    end = "" if keeps else "munmap(p, 400000);"
    maps = f"char* p = (char*)mmap(nullptr, 400000, 3, MAP_SHARED | MAP_ANONYMOUS, -1, 0); p[0] = 1; {end}"
    verdict = judge(RELU, f"#include <sys/mman.h>\n{HEAD} {{ {maps} {BODY} }}")
    assert verdict.outcome is Outcome.CORRECT, verdict.message
    assert ("memory_leak" in verdict.flags) is keeps


def test_clock_rebound_inside_gains_nothing(judge) -> None:
    """(6) the cell's clock replaced: a kernel that interposes clock_gettime is still timed by the host."""
    gains = []
    for _ in range(3):  # on a busy machine one of two timings may be off; a clock that stands still gains every time
        honest, forged = judge(RELU, CLOCK.control), check_attack(judge, CLOCK, "c_abi")
        assert honest.outcome is Outcome.CORRECT
        if forged.outcome is not Outcome.CORRECT:  # it ran, and was found out
            return
        gains.append(forged.speedup / honest.speedup)
        if gains[-1] < 2:
            return
    pytest.fail(f"it gains: {gains}")


def test_no_process_outlives_its_verdict(judge) -> None:
    import psutil

    def children() -> set[int]:
        every = psutil.Process(os.getpid()).children(recursive=True)
        return {p.pid for p in every if p.status() != psutil.STATUS_ZOMBIE}

    judge(RELU, CORRECT)  # what times eager PyTorch on this task stays until the task is forgotten
    before = children()
    judge(RELU, HEAD + "{ for (volatile int k = 0;;) k = k + 1; }")
    assert children() == before
