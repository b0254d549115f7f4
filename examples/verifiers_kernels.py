"""An environment for `verifiers` (0.4): a model writes kernels over several turns, `kevin serve` says what they do.

Each turn is one training sample, as Kevin trains (arXiv 2507.11948): a trace of its own, whose prompt has the earlier
answers without their thoughts, and whose reward is its score plus the discounted scores of the turns after it.

With this folder on PYTHONPATH: vf-eval verifiers-kernels --env.taskset.references DIR
"""

import asyncio
from pathlib import Path

import verifiers.v1 as vf
from kevin_client import judge, returns, told

PROMPT = 'Write a C++ kernel, extern "C" void launch(...), in one ```cpp block, for this PyTorch module:\n\n'


class KernelConfig(vf.TasksetConfig):
    references: Path = Path("references")
    """A folder of modules in KernelBench's format."""


class KernelData(vf.TaskData):
    reference: str


class KernelTask(vf.Task[KernelData, vf.State, vf.TaskConfig]):
    @property
    def key(self):
        """The turns of a task are one group, whatever stands in their prompts."""
        return self.data.name


class KernelTaskset(vf.Taskset[KernelTask, KernelConfig]):
    def load(self):
        for path in sorted(self.config.references.glob("*.py")):
            text = path.read_text("utf-8-sig")
            yield KernelTask(KernelData(name=path.stem, prompt=PROMPT + text, reference=text), self.config.task)


class KernelEnvConfig(vf.EnvConfig):
    writer: vf.AgentConfig = vf.AgentConfig(harness={"id": "null"}, runtime=vf.SubprocessConfig())  # it only talks
    num_turns: int = 4
    gamma: float = 0.4
    """What a later turn's score counts for the turn before it."""


class KernelEnv(vf.Env[KernelEnvConfig]):
    async def run(self, task, agents):
        messages = [vf.UserMessage(content=task.data.prompt)]
        traces, scores = [], []
        for _ in range(self.config.num_turns):
            trace = await agents.writer.run(task.with_data(prompt=list(messages)))
            if not trace.ok:
                break
            answer = trace.last_reply
            [result] = await asyncio.to_thread(judge, [(task.data.reference, answer)], "answer")
            if "error" in result:
                raise vf.TaskError(result["error"]["message"])
            traces.append(trace)
            scores.append(result["score"])
            messages += [vf.AssistantMessage(content=result["seen"]), vf.UserMessage(content=told(result))]
        for trace, value in zip(traces, returns(scores, self.config.gamma), strict=True):
            trace.record_reward("kernel", value, 1.0)


__all__ = ["KernelEnv", "KernelTaskset"]
