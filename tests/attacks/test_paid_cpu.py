"""Wrong kernels that once were paid, and right ones beside them that must be."""

from __future__ import annotations

import pytest

from kevin.core.errors import TaskError
from kevin.core.protocol import TimingProtocol
from kevin.core.types import Outcome
from kevin.judge.evaluate import open_device

from .conftest import PROTOCOL, Judge, runner

pytestmark = pytest.mark.timing

TASK = """
import torch
class Model(torch.nn.Module):
    def forward(self, x):
        return {forward}
def get_inputs():
    return [{x}]
def get_init_inputs():
    return []
"""
SCALES = TASK.format(forward="x * 2.0 + 1.0", x="torch.randn(10003)")
RIGHT = "for (int64_t i = 0; i < x_size; i++) out[i] = x[i] * 2.0f + 1.0f;"
LAUNCH = 'extern "C" void launch(const float* x, float* out) {'
MODULE = """
import torch
from torch.utils.cpp_extension import load_inline
class ModelNew(torch.nn.Module):
    def forward(self, x):
        return {forward}
"""


def _loop(past: int) -> str:
    return f"{LAUNCH} for (int64_t i = 0; i < x_size + {past}; i++) out[i] = x[i] * 2.0f + 1.0f; }}"


@pytest.mark.parametrize("past", [1, 17, 253, 4000])
def test_a_kernel_without_its_bounds_guard_is_told_where_it_writes(judge: Judge, past: int) -> None:
    verdict = judge(SCALES, _loop(past))
    assert (verdict.outcome, verdict.reason) == (Outcome.RUNTIME_ERROR, "out_of_bounds")
    assert "writes past the end of out" in verdict.message and "out[10003]" in verdict.message


def test_a_write_before_an_output_is_seen(judge: Judge) -> None:
    verdict = judge(SCALES, f"{LAUNCH} {RIGHT} out[-3] = 0; }}")
    assert verdict.reason == "out_of_bounds" and "before the start of out" in verdict.message


@pytest.mark.parametrize(("place", "told"), [("x_size", "past the end of x"), ("-1", "before the start of x")])
def test_reads_alone_are_seen(judge: Judge, place: str, told: str) -> None:
    verdict = judge(SCALES, f"{LAUNCH} {RIGHT} volatile float one = x[{place}]; (void)one; }}")
    assert (verdict.outcome, verdict.reason) == (Outcome.RUNTIME_ERROR, "out_of_bounds")
    assert f"reads {told}" in verdict.message


def test_aligned_vector_loads_are_not_blamed(judge: Judge) -> None:
    """A user's tensors are aligned; one that ends with its page is not."""
    body = (
        "typedef float v8 __attribute__((vector_size(32))); int64_t i = 0; "
        "for (; i + 8 <= x_size; i += 8) *(v8*)(out + i) = *(const v8*)(x + i) * 2.0f + 1.0f; "
        "for (; i < x_size; i++) out[i] = x[i] * 2.0f + 1.0f;"
    )
    assert judge(SCALES, f"{LAUNCH} {body} }}").outcome is Outcome.CORRECT


def test_an_input_that_is_changed_and_restored_is_seen(judge: Judge) -> None:
    flip = "for (int64_t i = 0; i < x_size; i++) y[i] = -y[i];"
    verdict = judge(SCALES, f"{LAUNCH} float* y = (float*)x; {flip} {flip} {RIGHT} }}")
    assert (verdict.outcome, verdict.reason) == (Outcome.INCORRECT, "input_mutated")
    assert "writes to its argument x" in verdict.message


def test_zeros_are_not_right_where_squares_overflow(judge: Judge) -> None:
    task = TASK.format(forward="x * 1e18", x="torch.randn(64, 64)")
    verdict = judge(task, f"{LAUNCH} for (int64_t i = 0; i < x_size; i++) out[i] = 0; }}")
    assert (verdict.outcome, verdict.reason) == (Outcome.INCORRECT, "wrong_values")


@pytest.fixture(scope="module")
def long_judge(tmp_path_factory: pytest.TempPathFactory) -> Judge:
    """With as many rounds as a user's judge has at least."""
    protocol = PROTOCOL.model_copy(update={"timing": TimingProtocol(budget_s=0.05, warmup_s=0.02)})
    return runner(open_device(protocol), "cpp", tmp_path_factory.mktemp("builds"))


def test_one_wrong_call_in_twenty_is_found(long_judge: Judge) -> None:
    """Thirty-six calls miss it once in six times, five verdicts practically never."""
    kernel = f"static int calls; {LAUNCH} {RIGHT} if (++calls % 20 == 0) out[777] += 1; }}"
    assert any(long_judge(SCALES, kernel).outcome is Outcome.INCORRECT for _ in range(5))


@pytest.mark.parametrize("rules", [(), ("memory_leak",)])
def test_memory_that_each_call_keeps_is_a_flag_and_refused_where_that_is_enforced(
    long_judge: Judge, rules: tuple[str, ...]
) -> None:
    """With fewer rounds growth could be chance."""
    leak = "volatile char* p = (volatile char*)malloc(1 << 18); p[0] = 1;"
    verdict = long_judge(SCALES, f"#include <cstdlib>\n{LAUNCH} {leak} {RIGHT} }}", rules=rules)
    if verdict.reason == "clock_disagrees":
        pytest.skip("so much else runs on this machine that a kernel which maps memory cannot be timed")
    assert verdict.flags == ("memory_leak",)
    assert verdict.outcome is (Outcome.REFUSED if rules else Outcome.CORRECT)


def test_scratch_memory_that_is_kept_once_is_no_leak(long_judge: Judge) -> None:
    body = f"static std::vector<float> s; s.resize(1 << 20); {RIGHT}"
    verdict = long_judge(SCALES, f"#include <vector>\n{LAUNCH} {body} }}")
    assert verdict.outcome is Outcome.CORRECT and verdict.flags == ()


BESIDE = """
import ctypes
import torch
class ModelNew(torch.nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        torch.add(x * 2.0, 1.0, out=out)
        beside = ctypes.c_float.from_address(out.data_ptr() + 4 * ({element}))
        {touch}
        return out
"""


@pytest.mark.parametrize(
    ("element", "touch", "told"),
    [
        (10003, "beside.value = 1.0", "writes past the end of a tensor that it made: at byte 40012"),
        (10003 + 900, "beside.value", "reads past the end of a tensor that it made"),
        (-2, "beside.value", "reads before the start of a tensor that it made: at byte -8"),
    ],
)
def test_what_a_module_touches_beside_its_own_output_is_seen(judge: Judge, element: int, touch: str, told: str) -> None:
    verdict = judge(SCALES, BESIDE.format(element=element, touch=touch), dialect="load_inline")
    assert (verdict.outcome, verdict.reason) == (Outcome.RUNTIME_ERROR, "out_of_bounds")
    assert told in verdict.message


def test_a_module_may_use_all_of_its_own_output_and_keep_it(judge: Judge) -> None:
    source = BESIDE.format(element=10002, touch="self.kept = [out, beside.value]")
    assert judge(SCALES, source, dialect="load_inline").outcome is Outcome.CORRECT


@pytest.fixture(scope="module")
def sizes_judge(tmp_path_factory: pytest.TempPathFactory) -> Judge:
    protocol = PROTOCOL.model_copy(update={"shapes": 2})
    return runner(open_device(protocol), "cpp", tmp_path_factory.mktemp("builds"))


@pytest.mark.parametrize("forward", ["torch.cat([x[:10003] * 2.0 + 1.0, x[10003:]])", "x * 2.0 + (len(x) > 9999)"])
def test_a_module_for_one_size_is_wrong_at_longer_and_shorter_ones(sizes_judge: Judge, forward: str) -> None:
    verdict = sizes_judge(SCALES, MODULE.format(forward=forward), dialect="load_inline")
    assert (verdict.outcome, verdict.reason) == (Outcome.INCORRECT, "wrong_at_other_sizes")
    right = sizes_judge(SCALES, MODULE.format(forward="x * 2.0 + 1.0"), dialect="load_inline")
    assert right.outcome is Outcome.CORRECT and right.details["other_sizes"] == 2


TRANSPOSED = TASK.format(forward="x * 2.0", x="torch.randn(96, 64).t()")


def test_a_module_that_ignores_strides_is_wrong_on_its_tasks_own_inputs(judge: Judge) -> None:
    ignoring = MODULE.format(forward="torch.as_strided(x, x.shape, (x.shape[1], 1)) * 2.0")
    assert judge(TRANSPOSED, ignoring, dialect="load_inline").outcome is Outcome.INCORRECT
    assert judge(TRANSPOSED, MODULE.format(forward="x * 2.0"), dialect="load_inline").outcome is Outcome.CORRECT


@pytest.mark.parametrize("x", ["torch.randn(96, 64).t()", "torch.randn(48).expand(5000, 48)"])
def test_a_launcher_is_given_contiguous_inputs(judge: Judge, x: str) -> None:
    """Which take more memory than an expanded one has."""
    kernel = f"{LAUNCH} for (int64_t i = 0; i < x_size; i++) out[i] = x[i] * 2.0f; }}"
    verdict = judge(TASK.format(forward="x * 2.0", x=x), kernel)
    assert verdict.outcome is Outcome.CORRECT


@pytest.mark.parametrize("x", ["torch.randn(64, 96)[:, ::2]", "torch.randn(1, 48).expand(64, 48)"])
def test_sliced_and_expanded_inputs_reach_a_module_as_they_are(judge: Judge, x: str) -> None:
    task = TASK.format(forward="x * 2.0", x=x)
    dense = "x * 2.0 if not x.is_contiguous() else x"
    assert judge(task, MODULE.format(forward=dense), dialect="load_inline").outcome is Outcome.CORRECT


def test_an_expanded_input_has_room_for_fewer_rows_of_its_own(judge: Judge) -> None:
    task = TASK.format(forward="x * 2.0", x="torch.randn(48).expand(5000, 48)")
    verdict = judge(task, MODULE.format(forward="x * 2.0"), dialect="load_inline")
    assert (verdict.outcome, verdict.flags, verdict.details["fewer_rows"]) == (Outcome.CORRECT, (), "passed")


def test_a_flag_is_given_to_a_launcher(judge: Judge) -> None:
    task = TASK.format(forward="x * 2.0", x="torch.randn(9), True").replace("(self, x)", "(self, x, twice)")
    launch = 'extern "C" void launch(const float* x, bool twice, float* out) {'
    body = "for (int64_t i = 0; i < x_size; i++) out[i] = x[i] * (twice ? 2 : 3);"
    assert judge(task, f"{launch} {body} }}").outcome is Outcome.CORRECT


def test_a_reference_that_works_in_place_takes_a_right_kernel(judge: Judge) -> None:
    task = TASK.format(forward="x.mul_(2.0)", x="torch.randn(10003)")
    kernel = f"{LAUNCH} for (int64_t i = 0; i < x_size; i++) out[i] = x[i] * 2.0f; }}"
    assert judge(task, kernel).outcome is Outcome.CORRECT
    assert judge(task, MODULE.format(forward="x.mul_(2.0)"), dialect="load_inline").outcome is Outcome.CORRECT
    assert judge(task, kernel.replace("2.0f", "3.0f")).outcome is Outcome.INCORRECT


def test_a_reference_with_a_memory_is_refused(judge: Judge) -> None:
    task = SCALES.replace(
        "    def forward(self, x):\n        return x * 2.0 + 1.0",
        "    calls = 0\n    def forward(self, x):\n        self.calls += 1\n        return x * self.calls",
    )
    with pytest.raises(TaskError, match="other outputs"):
        judge(task, f"{LAUNCH} {RIGHT} }}")


def test_nested_outputs_are_compared_leaf_by_leaf(judge: Judge) -> None:
    task = TASK.format(forward="(x * 2.0, (x + 1.0, x - 1.0))", x="torch.randn(1000)")
    launch = 'extern "C" void launch(const float* x, float* out0, float* out1, float* out2) {'
    body = "for (int64_t i = 0; i < x_size; i++) { out0[i] = x[i] * 2; out1[i] = x[i] + 1; out2[i] = x[i] - 1; }"
    assert judge(task, f"{launch} {body} }}").outcome is Outcome.CORRECT
    nested = MODULE.format(forward="(x * 2.0, [x + 1.0, x - 1.0])")
    assert judge(task, nested, dialect="load_inline").outcome is Outcome.CORRECT
    wrong = judge(task, nested.replace("x - 1.0", "x - 1.1"), dialect="load_inline")
    assert wrong.outcome is Outcome.INCORRECT and "out2" in wrong.message


@pytest.mark.parametrize("output", ["None", "'text'", "{'a': x}"])
def test_outputs_that_cannot_be_compared_are_named(judge: Judge, output: str) -> None:
    with pytest.raises(TaskError, match="forward returned a"):
        judge(TASK.format(forward=f"(x, ({output}, x))", x="torch.randn(10)"), f"{LAUNCH} }}")


@pytest.mark.parametrize("arguments", ["float* x, float* out, int n", "const float* a, const float* b, float* c"])
@pytest.mark.parametrize("head", ['extern "C" void', "void", 'extern "C" int'])
def test_the_wanted_signature_is_told(judge: Judge, head: str, arguments: str) -> None:
    verdict = judge(SCALES, f"{head} launch({arguments}) {{ {'return 0;' if 'int ' in head else ''} }}")
    assert verdict.outcome in (Outcome.COMPILE_ERROR, Outcome.RUNTIME_ERROR)
    assert 'extern "C" void launch(const float* x, float* out)' in verdict.message


PRODUCT = """
import torch
class Model(torch.nn.Module):
    def forward(self, a, b):
        return a @ b
def get_inputs():
    return [torch.randn(192, 192), torch.randn(192, 192)]
def get_init_inputs():
    return []
"""
MULTIPLY = """
#include <cstring>
#include <signal.h>
#include <sys/time.h>
static void multiply(const float* a, const float* b, float* out) {
  for (int i = 0; i < 192; i++) {
    float row[192] = {};
    for (int k = 0; k < 192; k++) for (int j = 0; j < 192; j++) row[j] += a[i * 192 + k] * b[k * 192 + j];
    std::memcpy(out + i * 192, row, sizeof row);
  }
}
"""
SAME_AGAIN = """
static float* last; static float seen[2]; static int again;
static bool same_again(const float* a, const float* b, float* out) {  // many calls in a row on one input
  again = out == last && seen[0] == a[99] && seen[1] == b[777] ? again + 1 : 0;
  last = out, seen[0] = a[99], seen[1] = b[777];
  return again > 1;
}
"""
ONE_FOR_ALL = """
static struct { const float *a, *b; float* out; bool done; } known[64];
static int num;
extern "C" void launch(const float* a, const float* b, float* out) {
  if (same_again(a, b, out)) return;
  int own = -1;
  for (int i = 0; i < num; i++) if (known[i].out == out) own = i;
  if (own >= 0 && known[own].done) { known[own].done = false; return; }
  if (own < 0) { own = num++ % 64; known[own] = {a, b, out, false}; }
  for (int i = 0; i < num; i++) { multiply(known[i].a, known[i].b, known[i].out); known[i].done = i != own; }
}
"""
AFTERWARDS = """
static const float *A, *B; static float* O; static volatile bool pending; static int calls;
static void work(int) { if (pending) { pending = false; multiply(A, B, O); } }
extern "C" void launch(const float* a, const float* b, float* out) {
  if (same_again(a, b, out)) return;
  signal(SIGALRM, work);
  if (pending && O != out) work(0);
  if (++calls <= 4) { multiply(a, b, out); return; }
  A = a; B = b; O = out; pending = true;
  itimerval soon = {{0, 0}, {0, 60}};
  setitimer(ITIMER_REAL, &soon, nullptr);
}
"""


@pytest.mark.parametrize("attack", [ONE_FOR_ALL, AFTERWARDS], ids=["one call computes all", "after the clock ended"])
def test_work_outside_of_the_timed_calls_is_found_by_the_time_that_right_outputs_take(
    judge: Judge, attack: str
) -> None:
    verdict = judge(PRODUCT, MULTIPLY + SAME_AGAIN + attack)
    assert verdict.reason in ("clock_disagrees", "wrong_after_timing"), verdict.message  # by which call is looked at


def test_an_honest_product_beside_them_is_right(judge: Judge) -> None:
    honest = 'extern "C" void launch(const float* a, const float* b, float* out) { multiply(a, b, out); }'
    verdict = judge(PRODUCT, MULTIPLY + honest)
    assert verdict.outcome is Outcome.CORRECT, verdict.message


CLOCK = """
import host, torch
from torch.utils.cpp_extension import load_inline
real = host.ColdClock.__call__
def clock(self, call, cold=True):
    real(self, call, cold)
    self.waited_ns = 0
    return 100_000
host.ColdClock.__call__ = clock
class ModelNew(torch.nn.Module):
    last = result = None
    again = 0
    def forward(self, a, b):
        now = (a.data_ptr(), a.view(-1)[99].item(), b.view(-1)[777].item())
        self.again = self.again + 1 if now == self.last else 0
        self.last = now
        if self.again < 2:
            self.result = a @ b
        return self.result
"""


def test_a_harness_clock_that_was_replaced_is_found_so_too(judge: Judge) -> None:
    large = PRODUCT.replace("192", "512")
    verdict = judge(large, CLOCK, dialect="load_inline")
    assert verdict.reason in ("clock_disagrees", "wrong_after_timing"), verdict.message
