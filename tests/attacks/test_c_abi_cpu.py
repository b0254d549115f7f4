"""Attacks and honest controls in the c_abi dialect on the CPU. Each attack must fail, each control must pass.

The numbers in brackets are those of the project's attack catalogue in docs/judge.md.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kevin.core.types import Outcome

RELU = """
import torch
import torch.nn as nn
class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x)
def get_inputs():
    return [torch.randn(256, 1000)]
def get_init_inputs():
    return []
"""

NORM = """
import torch
import torch.nn as nn
class Model(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm = nn.LayerNorm(dim)
    def forward(self, x):
        return self.norm(x)
def get_inputs():
    return [torch.randn(64, 512)]
def get_init_inputs():
    return [512]
"""

TINY = """
import torch
import torch.nn as nn
class Model(nn.Module):
    def forward(self, x):
        return torch.softmax(x, dim=1)
def get_inputs():
    return [torch.rand(4, 200000)]
def get_init_inputs():
    return []
"""

ARGMAX = """
import torch
import torch.nn as nn
class Model(nn.Module):
    def forward(self, x):
        return torch.max(x, dim=1)
def get_inputs():
    return [torch.randn(64, 999)]
def get_init_inputs():
    return []
"""

HEAD = 'extern "C" void launch(const float* x, float* out) '
BODY = "for (int64_t i = 0; i < x_size; i++) out[i] = x[i] > 0.f ? x[i] : 0.f;"
CORRECT = HEAD + "{ " + BODY + " }"

CONTROLS = {
    "plain": CORRECT,
    "slow_but_right": HEAD
    + "{ for (int r = 0; r < 20; r++) { "
    + BODY.replace("out[i] =", "out[i] = 0.f * r +")
    + " } }",
    "word_try_and_pass_in_comment": "// try to pass; except catch\n" + CORRECT,
    "variable_named_block_lock": HEAD + "{ int block_lock = 1; (void)block_lock; " + BODY + " }",
    "template": "template <typename T> static T act(T v) { return v > T(0) ? v : T(0); }\n"
    + HEAD
    + "{ for (int64_t i = 0; i < x_size; i++) out[i] = act<float>(x[i]); }",
    "openmp": HEAD + "{\n#pragma omp parallel for\n" + BODY + " }",
    "own_scratch_in_place": "#include <vector>\n"
    + HEAD
    + "{ std::vector<float> t(x, x + x_size); for (auto& v : t) v = v > 0 ? v : 0; "
    + "for (int64_t i = 0; i < x_size; i++) out[i] = t[i]; }",
}


@pytest.mark.parametrize("name", CONTROLS)
def test_control_passes(judge, name: str) -> None:
    verdict = judge(RELU, CONTROLS[name], rules=("no_kernel", "harness_access", "try_except", "pass_statement"))
    assert verdict.outcome is Outcome.CORRECT, (verdict.reason, verdict.message)
    assert verdict.timing is not None and verdict.speedup is not None and verdict.trials_passed == verdict.num_trials


MEMO = (
    "#include <cstring>\nstatic float c[x_size]; static KEY; \n"
    + HEAD
    + "{ if (!(HIT)) { for (int64_t i = 0; i < x_size; i++) c[i] = x[i] > 0.f ? x[i] : 0.f; STORE; } "
    + "memcpy(out, c, sizeof c); }"
)


def _memo(key: str, hit: str, store: str) -> str:
    return MEMO.replace("KEY", key).replace("HIT", hit).replace("STORE", store)


# name -> (kernel, expected outcome, expected reason or None for any)
ATTACKS = {
    "memo_first_answer (16)": (_memo("bool have", "have", "have = true"), Outcome.INCORRECT, None),
    "memo_by_pointer (14)": (
        "#include <cstring>\n#include <map>\n#include <vector>\n"
        "static std::map<const float*, std::vector<float>> memo;\n"
        + HEAD
        + "{ auto& m = memo[x]; "
        + "if (m.empty()) { m.resize(x_size); for (int64_t i = 0; i < x_size; i++) m[i] = x[i] > 0.f ? x[i] : 0.f; } "
        + "memcpy(out, m.data(), x_size * 4); }",
        Outcome.INCORRECT,
        "wrong_after_timing",
    ),
    "memo_by_first_value (14)": (_memo("float v", "v == x[0]", "v = x[0]"), Outcome.INCORRECT, None),
    "memo_by_sampled_hash (14)": (
        "#include <cstring>\n#include <map>\n#include <vector>\nstatic std::map<double, std::vector<float>> memo;\n"
        + HEAD
        + "{ double h = 0; for (int64_t i = 0; i < x_size; i += x_size / 3) h = h * 1.000001 + x[i]; "
        + "auto& m = memo[h]; "
        + "if (m.empty()) { m.resize(x_size); for (int64_t i = 0; i < x_size; i++) m[i] = x[i] > 0.f ? x[i] : 0.f; } "
        + "memcpy(out, m.data(), x_size * 4); }",
        Outcome.INCORRECT,
        "wrong_after_timing",
    ),
    "cheap_after_call_k (10)": (
        "static int k; " + HEAD + "{ if (++k > 5) { out[0] = x[0] > 0 ? x[0] : 0; return; } " + BODY + " }",
        Outcome.INCORRECT,
        "wrong_after_timing",
    ),
    "writes_nothing (19)": (HEAD + "{ }", Outcome.INCORRECT, "not_written"),
    "tail_ignored (31)": (CORRECT.replace("i < x_size", "i < x_size / 8192 * 8192"), Outcome.INCORRECT, None),
    "constant (26)": (HEAD + "{ for (int64_t i = 0; i < x_size; i++) out[i] = 0.4f; }", Outcome.INCORRECT, None),
    "nan (36)": (HEAD + "{ for (int64_t i = 0; i < x_size; i++) out[i] = 0.f / 0.f; }", Outcome.INCORRECT, None),
    "infinity (36)": (HEAD + "{ for (int64_t i = 0; i < x_size; i++) out[i] = 1.f / 0.f; }", Outcome.INCORRECT, None),
    "input_mutated (23)": (
        HEAD + "{ float* w = const_cast<float*>(x); for (int64_t i = 0; i < x_size; i++) { "
        "out[i] = x[i] > 0.f ? x[i] : 0.f; w[i] = out[i]; } }",
        Outcome.INCORRECT,
        "input_mutated",
    ),
    "exit_0 (45)": ("#include <cstdlib>\n" + HEAD + "{ std::exit(0); }", Outcome.RUNTIME_ERROR, "early_exit"),
    "quick_exit_in_constructor (45)": (
        "#include <cstdlib>\nstruct S { S() { std::_Exit(0); } } s;\n" + CORRECT,
        Outcome.RUNTIME_ERROR,
        "early_exit",
    ),
    "abort": ("#include <cstdlib>\n" + HEAD + "{ std::abort(); }", Outcome.RUNTIME_ERROR, "aborted"),
    "segmentation_fault": (
        HEAD + "{ for (int64_t i = 0;; i += 4096) out[i] = 1; }",
        Outcome.RUNTIME_ERROR,
        "segmentation_fault",
    ),
    "division_by_zero": (
        HEAD + "{ volatile int z = 0; out[0] = 7 / z; }",
        Outcome.RUNTIME_ERROR,
        "arithmetic_error",
    ),
    "memory_hog (49)": (
        "#include <vector>\n" + HEAD + "{ std::vector<char> v(100000000000ull, 1); out[0] = v[5]; }",
        Outcome.RUNTIME_ERROR,
        "out_of_memory",
    ),
    "endless_loop": (HEAD + "{ for (volatile int k = 0;;) k = k + 1; }", Outcome.TIMEOUT, "run_timeout"),
    "not_a_kernel": ("int f() { return 1; }", Outcome.RUNTIME_ERROR, "load_error"),
    "compile_error": (CORRECT.replace("out[i] =", "oot[i] ="), Outcome.COMPILE_ERROR, "compile_error"),
    "wrong_signature": (CORRECT.replace("float* out", "double* out"), Outcome.COMPILE_ERROR, "compile_error"),
    "endless_template": (
        "template <int N> struct T { static constexpr int v = T<N + 1>::v + T<N + 2>::v; };\n"
        "int k = T<0>::v;\n" + CORRECT,
        Outcome.COMPILE_ERROR,
        None,
    ),
    "endless_constexpr": (
        '#pragma GCC optimize("O0")\n'
        "constexpr long f(long n) { long s = 0; for (long i = 0; i < 200000; i++) s += i * n; "
        "return s; }\ntemplate <long N> long g() { constexpr long v = f(N); return v + g<N - 1>(); }\n"
        "template <> long g<0>() { return 0; }\nlong k = g<880>();\n" + CORRECT,
        Outcome.TIMEOUT,
        "compile_timeout",
    ),
}


@pytest.mark.parametrize("name", ATTACKS)
def test_attack_fails(judge, name: str) -> None:
    source, outcome, reason = ATTACKS[name]
    verdict = judge(RELU, source)
    assert verdict.outcome is outcome, (verdict.reason, verdict.message)
    assert reason is None or verdict.reason == reason, verdict.message
    assert verdict.timing is None and verdict.speedup is None


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


WRITES_EVERYWHERE = (
    'extern "C" long write(int, const void*, unsigned long);\nextern "C" void _exit(int);\n'
    "template <unsigned long N> void everywhere(const char (&text)[N]) "
    "{ for (int fd = 3; fd < 64; fd++) write(fd, text, N - 1); }\n"
)


@pytest.mark.parametrize("when", ["loaded", "called"])
def test_forged_failure_of_the_harness(judge, when: str) -> None:
    """(46) a kernel that is wrong cannot pass for one that the harness failed on, and be judged again."""
    forge = 'everywhere("{\\"harness_error\\": \\"busy\\"}\\n"); _exit(0);'
    early = f"static int forged = [] {{ {forge} return 0; }}();\n" if when == "loaded" else ""
    verdict = judge(RELU, f"{WRITES_EVERYWHERE}{early}{HEAD} {{ {forge} }}")
    assert verdict.outcome is Outcome.RUNTIME_ERROR
    assert verdict.reason in ("protocol_abuse", "early_exit")


def test_forged_result(judge) -> None:
    """(46) replies written to every inherited descriptor, the channel and the shared memory among them."""
    source = WRITES_EVERYWHERE + HEAD + '{ everywhere("{\\"ns\\": [1]}\\n"); }'
    verdict = judge(RELU, source)
    assert verdict.outcome in (Outcome.RUNTIME_ERROR, Outcome.INCORRECT)
    assert verdict.reason in ("protocol_abuse", "input_mutated", "not_written")


def test_background_thread_cannot_be_started(judge) -> None:
    """(1, 3) a thread that fills the output later: there are no threads beyond the protocol's."""
    source = (
        "#include <thread>\n"
        + HEAD
        + "{ std::thread([=] { for (int64_t i = 0; i < x_size; i++) out[i] = x[i] > 0.f ? x[i] : 0.f; }).detach(); }"
    )
    verdict = judge(RELU, source)
    assert (verdict.outcome, verdict.reason) == (Outcome.RUNTIME_ERROR, "uncaught_exception"), verdict.message
    assert "std::system_error" in verdict.message, "it was started, and refused"


def test_fork_bomb_is_harmless(judge) -> None:
    source = 'extern "C" int fork();\n' + HEAD + "{ for (int k = 0; k < 100; k++) fork(); " + BODY + " }"
    assert judge(RELU, source).outcome is Outcome.CORRECT


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ("open(PATH, 0)", -1),
        ("socket(2, 1, 0)", -1),
        ('open("/tmp/../etc/shadow", 0)', -1),
    ],
)
def test_outside_world_is_out_of_reach(judge, tmp_path: Path, call: str, expected: int) -> None:
    """(49) other files and the network: the kernel stays correct only while the call fails."""
    secret = tmp_path / "secret"
    secret.write_text("reference")
    call = call.replace("PATH", f'"{secret}"')
    declared = 'extern "C" int open(const char*, int, ...); extern "C" int socket(int, int, int);\n'
    body = f"{{ if ({call} != {expected}) {{ out[0] = 7e7f; return; }} {BODY} }}"
    assert judge(RELU, declared + HEAD + body).outcome is Outcome.CORRECT


def test_clock_rebound_inside_gains_nothing(judge) -> None:
    """(6) the cell's clock replaced: a kernel that interposes clock_gettime is still timed by the host."""
    fake = (
        "#include <ctime>\n"
        'extern "C" int clock_gettime(clockid_t, struct timespec* t) noexcept '
        "{ t->tv_sec = 1; t->tv_nsec = 1; return 0; }\n"
    )
    slow = HEAD + "{ for (int r = 0; r < 60; r++) { " + BODY.replace("out[i] =", "out[i] = 0.f * r +") + " } }"
    gains = []
    for _ in range(3):  # on a busy machine one of two timings may be off; a clock that stands still gains every time
        honest, forged = judge(RELU, slow), judge(RELU, fake + slow)
        assert honest.outcome is Outcome.CORRECT
        if forged.outcome is not Outcome.CORRECT:
            assert forged.outcome in (Outcome.QUARANTINED, Outcome.INCORRECT), "it ran, and was found out"
            return
        gains.append(forged.speedup / honest.speedup)
        if gains[-1] < 2:
            return
    pytest.fail(f"it gains: {gains}")


NORM_KERNEL = """
#include <cmath>
extern "C" void launch(const float* x, const float* norm_weight, const float* norm_bias, float* out) {
  for (int64_t r = 0; r < x_d0; r++) {
    const float* p = x + r * x_d1;
    float mean = 0, var = 0;
    for (int64_t i = 0; i < x_d1; i++) mean += p[i];
    mean /= x_d1;
    for (int64_t i = 0; i < x_d1; i++) var += (p[i] - mean) * (p[i] - mean);
    const float s = 1.f / std::sqrt(var / x_d1 + 1e-5f);
    for (int64_t i = 0; i < x_d1; i++) out[r * x_d1 + i] = (p[i] - mean) * s * norm_weight[i] + norm_bias[i];
  }
}
"""


def test_parameters_count(judge) -> None:
    assert judge(NORM, NORM_KERNEL).outcome is Outcome.CORRECT


@pytest.mark.parametrize("ignored", [" * norm_weight[i]", " + norm_bias[i]"])
def test_ignored_parameters_are_found_out(judge, ignored: str) -> None:
    """(33) fresh LayerNorm weights are ones and biases zeros: trials with other parameters tell."""
    verdict = judge(NORM, NORM_KERNEL.replace(ignored, ""))
    assert (verdict.outcome, verdict.reason) == (Outcome.INCORRECT, "wrong_values")


def test_zeros_for_tiny_values(judge) -> None:
    """(26) softmax over 200,000 columns is 5e-6 everywhere: within 1e-4 of zero, and still wrong."""
    verdict = judge(TINY, HEAD + "{ for (int64_t i = 0; i < x_size; i++) out[i] = 0.f; }")
    assert (verdict.outcome, verdict.reason) == (Outcome.INCORRECT, "wrong_tiny_values")


def test_tuple_with_integer_output(judge) -> None:
    """An honest control: two outputs, one of them int64."""
    source = """
extern "C" void launch(const float* x, float* out0, int64_t* out1) {
  for (int64_t r = 0; r < x_d0; r++) {
    int64_t best = 0;
    for (int64_t i = 1; i < x_d1; i++) if (x[r * x_d1 + i] > x[r * x_d1 + best]) best = i;
    out0[r] = x[r * x_d1 + best];
    out1[r] = best;
  }
}
"""
    assert judge(ARGMAX, source).outcome is Outcome.CORRECT
    wrong = judge(ARGMAX, source.replace("out1[r] = best", "out1[r] = best + 1"))
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
