"""Attacks and honest controls in the c_abi dialect on the CPU. Each attack must fail, each control must pass.

Their sources are data: `kevin.judge.benchmarks.attacks`. The numbers in brackets are kinds, see docs/audit.md.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kevin.core.types import Outcome
from kevin.judge.benchmarks.attacks.c_abi_cpu import (
    ARGMAX,
    ARGMAX_KERNEL,
    ATTACKS,
    BODY,
    CONTROLS,
    CORRECT,
    FOREIGN_FILE,
    FORGED_RESULT,
    FORK_BOMB,
    HEAD,
    IGNORED,
    LATE_THREAD,
    NETWORK,
    NORM,
    NORM_KERNEL,
    RELU,
    SLOW,
    STANDING_CLOCK,
    TINY,
    ZEROS,
    forged_failure,
    reaches_out,
)

from .modules import check

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
}
"""Where the compiler stops an attack: what it says, so that no mistake in the attack passes for that."""


@pytest.mark.parametrize("name", ATTACKS)
def test_attack_fails(judge, name: str) -> None:
    attack = ATTACKS[name]
    verdict = judge(attack.reference, attack.source, **LIMITS.get(name, {}))
    check(attack, verdict)
    assert verdict.timing is None and verdict.speedup is None
    assert TOLD.get(name, "") in verdict.message


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


@pytest.mark.parametrize("when", ["loaded", "called"])
def test_forged_failure_of_the_harness(judge, when: str) -> None:
    """(46) a kernel that is wrong cannot pass for one that the harness failed on, and be judged again."""
    verdict = judge(RELU, forged_failure(when))
    assert verdict.outcome is Outcome.RUNTIME_ERROR
    assert verdict.reason in ("protocol_abuse", "early_exit")


def test_forged_result(judge) -> None:
    """(46) replies written to every inherited descriptor, the channel and the shared memory among them."""
    verdict = judge(RELU, FORGED_RESULT)
    assert verdict.outcome in (Outcome.RUNTIME_ERROR, Outcome.INCORRECT)
    assert verdict.reason in ("protocol_abuse", "input_mutated", "not_written", "out_of_bounds")


def test_background_thread_cannot_be_started(judge) -> None:
    """(1, 3) a thread that fills the output later: there are no threads beyond the protocol's."""
    verdict = judge(RELU, LATE_THREAD)
    assert (verdict.outcome, verdict.reason) == (Outcome.RUNTIME_ERROR, "uncaught_exception"), verdict.message
    assert "std::system_error" in verdict.message, "it was started, and refused"


def test_limits_cannot_be_raised_again(judge) -> None:
    """The kernel is right only while the hard limits are as low as the soft ones."""
    fixed = " && ".join(
        f"!getrlimit({name}, &r) && r.rlim_max == r.rlim_cur && r.rlim_max != RLIM_INFINITY"
        for name in ("RLIMIT_AS", "RLIMIT_FSIZE")
    )
    verdict = judge(RELU, f"#include <sys/resource.h>\n{HEAD} {{ struct rlimit r; if ({fixed}) {{ {BODY} }} }}")
    assert verdict.outcome is Outcome.CORRECT, verdict.message


def test_fork_bomb_is_harmless(judge) -> None:
    assert judge(RELU, FORK_BOMB).outcome is Outcome.CORRECT


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ("open(PATH, 0)", -1),
        (NETWORK, -1),
        (FOREIGN_FILE, -1),
    ],
)
def test_outside_world_is_out_of_reach(judge, tmp_path: Path, call: str, expected: int) -> None:
    """(49) other files and the network: the kernel stays correct only while the call fails."""
    secret = tmp_path / "secret"
    secret.write_text("reference")
    call = call.replace("PATH", f'"{secret}"')
    assert judge(RELU, reaches_out(call, expected)).outcome is Outcome.CORRECT


def test_clock_rebound_inside_gains_nothing(judge) -> None:
    """(6) the cell's clock replaced: a kernel that interposes clock_gettime is still timed by the host."""
    gains = []
    for _ in range(3):  # on a busy machine one of two timings may be off; a clock that stands still gains every time
        honest, forged = judge(RELU, SLOW), judge(RELU, STANDING_CLOCK)
        assert honest.outcome is Outcome.CORRECT
        if forged.outcome is not Outcome.CORRECT:
            assert forged.outcome in (Outcome.QUARANTINED, Outcome.INCORRECT), "it ran, and was found out"
            return
        gains.append(forged.speedup / honest.speedup)
        if gains[-1] < 2:
            return
    pytest.fail(f"it gains: {gains}")


def test_parameters_count(judge) -> None:
    assert judge(NORM, NORM_KERNEL).outcome is Outcome.CORRECT


@pytest.mark.parametrize("ignored", IGNORED)
def test_ignored_parameters_are_found_out(judge, ignored: str) -> None:
    """(33) fresh LayerNorm weights are ones and biases zeros: trials with other parameters tell."""
    verdict = judge(NORM, NORM_KERNEL.replace(ignored, ""))
    assert (verdict.outcome, verdict.reason) == (Outcome.INCORRECT, "wrong_values")


def test_zeros_for_tiny_values(judge) -> None:
    """(26) softmax over 200,000 columns is 5e-6 everywhere: within 1e-4 of zero, and still wrong."""
    verdict = judge(TINY, ZEROS)
    assert (verdict.outcome, verdict.reason) == (Outcome.INCORRECT, "wrong_tiny_values")


def test_tuple_with_integer_output(judge) -> None:
    """An honest control: two outputs, one of them int64."""
    assert judge(ARGMAX, ARGMAX_KERNEL).outcome is Outcome.CORRECT
    wrong = judge(ARGMAX, ARGMAX_KERNEL.replace("out1[r] = best", "out1[r] = best + 1"))
    assert wrong.outcome is Outcome.INCORRECT


def test_no_process_outlives_its_verdict(judge) -> None:
    import psutil

    def children() -> set[int]:
        every = psutil.Process(os.getpid()).children(recursive=True)
        return {p.pid for p in every if p.status() != psutil.STATUS_ZOMBIE}

    judge(RELU, CORRECT)  # what times eager PyTorch on this task stays until the task is forgotten
    before = children()
    judge(RELU, HEAD + "{ for (volatile int k = 0;;) k = k + 1; }")
    assert children() == before
