"""A scripted policy and a scripted judge for the tests of the loop."""

from core_fixtures import SPEC, make_kernel, make_task, make_verdict

from kevin.core.types import Completion, Outcome
from kevin.rollout.refine import refine
from kevin.rollout.settings import RolloutSettings

M, N = 3, 4


class Killed(BaseException):
    """Stands for Ctrl-C or a kill: nothing catches it."""


TASKS = [make_task("l1/b", spec=SPEC), make_task("l1/a", spec=SPEC)]
SETTINGS = RolloutSettings(
    dialect="c_abi",
    language="cpp",
    num_trajectories=M,
    num_turns=N,
    max_prompt_tokens=10**6,
    max_response_tokens=100,
    seed=7,
)


class ScriptedPolicy:
    """Writes kernel ``<task> <trajectory> <turn>`` behind a thought; ``script`` may change a place's answer."""

    name = "scripted"

    def __init__(self, script=None, die_after=None):
        self.script, self.die_after = script or {}, die_after
        self.requests, self.samplings, self.num_answers = [], [], 0

    def count_tokens(self, conversation):
        return sum(len(m.content) for m in conversation)

    def complete(self, requests, sampling, on_completion=None):
        self.requests.append(list(requests))
        self.samplings.append(sampling)
        completions = []
        for i, r in enumerate(requests):
            if self.num_answers == self.die_after:
                raise Killed
            place = (r.task_id, r.trajectory, r.turn)
            code = f"kernel {r.task_id} {r.trajectory} {r.turn}"
            text = f"<think>thought {place}</think>\n```cpp\n{code}\n```\nSummary: s{r.turn}"
            changes = self.script.get(place, {})
            if changes is None:
                completions.append(None)
                continue
            fields = {"text": text, "num_prompt_tokens": 10, "num_completion_tokens": 5, "finish_reason": "stop"}
            completion = Completion(**{**fields, **changes})
            completions.append(completion)
            self.num_answers += 1
            if on_completion is not None:
                on_completion(i, completion)
        return completions

    def asked(self):
        return [(r.task_id, r.trajectory, r.turn) for batch in self.requests for r in batch]


def verdict(kernel, outcome=Outcome.CORRECT, speedup=2.0):
    right, source = outcome is Outcome.CORRECT, kernel.source.strip()
    return make_verdict(
        outcome,
        kernel_us=1 if right else None,
        eager_us=speedup,
        key=f"key {source}",
        kernel_digest=kernel.digest,
        reason=None if right else "why",
        message=f"message for {source}",
        seconds={"check": 0.1, "admission": 0.2},
    )


class ScriptedJudge:
    """Correct with speedup ``turn + trajectory / 10``, unless the script says otherwise."""

    def __init__(self, script=None, die_at_call=None):
        self.script, self.die_at_call = script or {}, die_at_call
        self.calls = []

    def __call__(self, pairs):
        self.calls.append([k.source.strip() for _, k in pairs])
        if len(self.calls) == self.die_at_call:
            raise Killed
        results = []
        for task, kernel in pairs:
            _, task_id, trajectory, turn = kernel.source.split()
            assert task.id == task_id
            made = self.script.get((task_id, int(trajectory), int(turn)))
            results.append(made or verdict(kernel, speedup=int(turn) + int(trajectory) / 10))
        return results

    def judged(self):
        return [source for call in self.calls for source in call]


def run(policy=None, judge=None, settings=SETTINGS, tasks=TASKS, **rest):
    return refine(tasks, policy or ScriptedPolicy(), judge or ScriptedJudge(), settings, progress=False, **rest)


def places(turns):
    return [(t.task_id, t.trajectory, t.turn) for t in turns]


ALL = [(t.id, k, n) for t in TASKS for k in range(M) for n in range(1, N + 1)]


def failing(place, outcome=Outcome.INCORRECT):
    return verdict(make_kernel("kernel " + " ".join(map(str, place))), outcome=outcome)
