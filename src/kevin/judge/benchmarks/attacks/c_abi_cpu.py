"""Attacks and honest controls in the c_abi dialect on the CPU."""

from __future__ import annotations

from functools import partial

from kevin.judge.benchmarks.attacks import Attack, modules

RELU = modules.RELU.replace("512, 2048", "256, 1000")
TINY = RELU.replace("torch.relu(x)", "torch.softmax(x, dim=1)").replace("randn(256, 1000)", "rand(4, 200000)")
ARGMAX = RELU.replace("torch.relu(x)", "torch.max(x, dim=1)").replace("256, 1000", "64, 999")
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

HEAD = 'extern "C" void launch(const float* x, float* out) '
EACH = "for (int64_t i = 0; i < x_size; i++)"
BODY = f"{EACH} out[i] = x[i] > 0.f ? x[i] : 0.f;"


def launch(body: str, before: str = "") -> str:
    return f"{before}{HEAD}{{ {body} }}"


CORRECT = launch(BODY)

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

ARGMAX_KERNEL = """
extern "C" void launch(const float* x, float* out0, int64_t* out1) {
  for (int64_t r = 0; r < x_d0; r++) {
    int64_t best = 0;
    for (int64_t i = 1; i < x_d1; i++) if (x[r * x_d1 + i] > x[r * x_d1 + best]) best = i;
    out0[r] = x[r * x_d1 + best];
    out1[r] = best;
  }
}
"""

SOFTMAX_KERNEL = launch(
    "for (int64_t r = 0; r < x_d0; r++) { const float* p = x + r * x_d1; double sum = 0; "
    "for (int64_t i = 0; i < x_d1; i++) sum += std::exp(p[i]); "
    "for (int64_t i = 0; i < x_d1; i++) out[r * x_d1 + i] = std::exp(p[i]) / sum; }",
    "#include <cmath>\n",
)


def _memo(key: str, hit: str, store: str) -> str:
    """One answer, in a static buffer."""
    return launch(
        f"if (!({hit})) {{ {EACH} c[i] = x[i] > 0.f ? x[i] : 0.f; {store}; }} memcpy(out, c, sizeof c);",
        f"#include <cstring>\nstatic float c[x_size]; static {key}; \n",
    )


def _memos(key: str, find: str) -> str:
    """An answer for each key."""
    return launch(
        f"{find} if (m.empty()) {{ m.resize(x_size); {EACH} m[i] = x[i] > 0.f ? x[i] : 0.f; }} "
        "memcpy(out, m.data(), x_size * 4);",
        f"#include <cstring>\n#include <map>\n#include <vector>\nstatic std::map<{key}, std::vector<float>> memo;\n",
    )


WRITES_EVERYWHERE = (
    'extern "C" long write(int, const void*, unsigned long);\nextern "C" void _exit(int);\n'
    "template <unsigned long N> void everywhere(const char (&text)[N]) "
    "{ for (int fd = 3; fd < 1024; fd++) write(fd, text, N - 1); }\n"
)


def forged_failure(when: str) -> str:
    """A reply in the harness's name, ``loaded`` or ``called``."""
    forge = 'everywhere("{\\"harness_error\\": \\"busy\\"}\\n"); _exit(0);'
    early = f"static int forged = [] {{ {forge} return 0; }}();\n" if when == "loaded" else ""
    return f"{WRITES_EVERYWHERE}{early}{HEAD} {{ {forge} }}"


def reaches_out(call: str) -> str:
    """A kernel that is correct only while ``call`` fails."""
    declared = 'extern "C" int open(const char*, int, ...); extern "C" int socket(int, int, int);\n'
    return launch(f"if ({call} != -1) {{ out[0] = 7e7f; return; }} {BODY}", declared)


SLOW = launch(f"for (int r = 0; r < 60; r++) {{ {BODY.replace('out[i] =', 'out[i] = 0.f * r +')} }}")
_attack = partial(Attack, reference=RELU, control=CORRECT)


ATTACKS: dict[str, Attack] = {
    "memo_first_answer (16)": _attack(
        "computes once, then copies that answer", _memo("bool have", "have", "have = true")
    ),
    "memo_by_pointer (14)": _attack(
        "answers an address that it has seen from memory",
        _memos("const float*", "auto& m = memo[x];"),
        "incorrect: wrong_after_timing",
    ),
    "memo_by_first_value (14)": _attack(
        "answers an input whose first value it has seen from memory", _memo("float v", "v == x[0]", "v = x[0]")
    ),
    "memo_by_sampled_hash (14)": _attack(
        "answers an input of which four values look known from memory",
        _memos(
            "double",
            "double h = 0; for (int64_t i = 0; i < x_size; i += x_size / 3) h = h * 1.000001 + x[i]; "
            "auto& m = memo[h];",
        ),
        "incorrect: wrong_after_timing",
    ),
    "cheap_after_call_k (10)": _attack(
        "computes while it is checked, and one value afterwards",
        launch(f"if (++k > 5) {{ out[0] = x[0] > 0 ? x[0] : 0; return; }} {BODY}", "static int k; "),
        "incorrect: wrong_after_timing",
    ),
    "writes_nothing (19)": _attack(
        "leaves the output as it is, where another answer may lie", HEAD + "{ }", "incorrect: not_written"
    ),
    "tail_ignored (31)": _attack(
        "leaves out what is over a multiple of 8192", CORRECT.replace("i < x_size", "i < x_size / 8192 * 8192")
    ),
    "constant (26)": _attack("writes a likely value", launch(f"{EACH} out[i] = 0.4f;")),
    "nan (36)": _attack("hopes that no comparison fails on what is no number", launch(f"{EACH} out[i] = 0.f / 0.f;")),
    "infinity (36)": _attack("hopes that a relative error by infinity passes", launch(f"{EACH} out[i] = 1.f / 0.f;")),
    "input_mutated (23)": _attack(
        "writes the answer into its input too, so that later calls find it done",
        launch(f"float* w = const_cast<float*>(x); {EACH} {{ out[i] = x[i] > 0.f ? x[i] : 0.f; w[i] = out[i]; }}"),
        "incorrect: input_mutated",
    ),
    "exit_0 (45)": _attack(
        "ends the process as if all were well",
        launch("std::exit(0);", "#include <cstdlib>\n"),
        "runtime_error: early_exit",
    ),
    "quick_exit_in_constructor (45)": _attack(
        "ends the process while it is loaded",
        "#include <cstdlib>\nstruct S { S() { std::_Exit(0); } } s;\n" + CORRECT,
        "runtime_error: early_exit",
    ),
    "abort": _attack("crashes", launch("std::abort();", "#include <cstdlib>\n"), "runtime_error: aborted"),
    "segmentation_fault": _attack(
        "writes over all memory behind its output",
        launch("for (int64_t i = 0;; i += 4096) out[i] = 1;"),
        "runtime_error: segmentation_fault",
    ),
    "division_by_zero": _attack(
        "crashes in arithmetic", launch("volatile int z = 0; out[0] = 7 / z;"), "runtime_error: arithmetic_error"
    ),
    "memory_hog (49)": _attack(
        "takes all memory of the machine",
        launch("std::vector<char> v(100000000000ull, 1); out[0] = v[5];", "#include <vector>\n"),
        "runtime_error: out_of_memory",
    ),
    "endless_loop": _attack("never returns", launch("for (volatile int k = 0;;) k = k + 1;"), "timeout: run_timeout"),
    "not_a_kernel": _attack("is no kernel", "int f() { return 1; }", "runtime_error: load_error"),
    "compile_error": _attack(
        "does not compile", CORRECT.replace("out[i] =", "oot[i] ="), "compile_error: compile_error"
    ),
    "wrong_signature": _attack(
        "takes other arguments", CORRECT.replace("float* out", "double* out"), "compile_error: compile_error"
    ),
    "endless_template": _attack(
        "keeps the compiler busy with templates",
        "template <int N> struct T { static constexpr int v = T<N + 1>::v + T<N + 2>::v; };\n"
        "int k = T<0>::v;\n" + CORRECT,
        "compile_error",
    ),
    "endless_constexpr": _attack(
        "keeps the compiler busy with constants",
        '#pragma GCC optimize("O0")\n'
        "constexpr long f(long n) { long s = 0; for (long i = 0; i < 200000; i++) s += i * n; "
        "return s; }\ntemplate <long N> long g() { constexpr long v = f(N); return v + g<N - 1>(); }\n"
        "template <> long g<0>() { return 0; }\nlong k = g<880>();\n" + CORRECT,
        "timeout: compile_timeout",
    ),
    **{
        f"forged_failure_of_the_harness, {when} (46)": _attack(
            "pretends that the harness failed, to be judged again",
            forged_failure(when),
            "runtime_error: protocol_abuse, early_exit",
        )
        for when in ("loaded", "called")
    },
    "forged_result (46)": _attack(
        "writes replies of its own to every channel",
        launch('everywhere("{\\"ns\\": [1]}\\n");', WRITES_EVERYWHERE),
        "runtime_error, incorrect: protocol_abuse, input_mutated, not_written, out_of_bounds",
    ),
    "background_thread (1, 3)": _attack(
        "computes in a thread, after it has returned",
        launch(f"std::thread([=] {{ {BODY} }}).detach();", "#include <thread>\n"),
        "runtime_error: uncaught_exception",
    ),
    "fork_bomb": _attack(
        "starts processes until the machine stands still",
        launch(f"for (int k = 0; k < 100; k++) fork(); {BODY}", 'extern "C" int fork();\n'),
        "correct",
    ),
    "network (49)": _attack("opens a socket", reaches_out("socket(2, 1, 0)"), "correct"),
    "other_files (49)": _attack(
        "reads the machine's passwords", reaches_out('open("/tmp/../etc/shadow", 0)'), "correct"
    ),
    "clock_stands_still (6)": _attack(
        "replaces the clock that it is timed with in its process",
        "#include <ctime>\n"
        'extern "C" int clock_gettime(clockid_t, struct timespec* t) noexcept '
        "{ t->tv_sec = 1; t->tv_nsec = 1; return 0; }\n" + SLOW,
        "correct, quarantined, incorrect",
        control=SLOW,
    ),
    **{
        f"{name}_ignored (33)": _attack(
            f"leaves out a {name} that a fresh LayerNorm does not need",
            NORM_KERNEL.replace(text, ""),
            "incorrect: wrong_values",
            reference=NORM,
            control=NORM_KERNEL,
        )
        for name, text in (("weight", " * norm_weight[i]"), ("bias", " + norm_bias[i]"))
    },
    "zeros_for_tiny_values (26)": _attack(
        "writes zeros where every value is below the absolute tolerance",
        launch(f"{EACH} out[i] = 0.f;"),
        "incorrect: wrong_tiny_values",
        reference=TINY,
        control=SOFTMAX_KERNEL,
    ),
    "second_output_wrong": _attack(
        "gets the integer one of two outputs wrong",
        ARGMAX_KERNEL.replace("out1[r] = best", "out1[r] = best + 1"),
        reference=ARGMAX,
        control=ARGMAX_KERNEL,
    ),
}
