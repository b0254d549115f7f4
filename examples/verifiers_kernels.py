"""An environment for `verifiers` (0.4): a model writes kernels over several turns, `kevin serve` says what they do.

With this folder on PYTHONPATH: vf-eval verifiers-kernels --env.taskset.references DIR
"""

import asyncio
from pathlib import Path

import verifiers.v1 as vf
from kevin_client import judge

PROMPT = 'Write a C++ kernel, extern "C" void launch(...), in one ```cpp block, for this PyTorch module:\n\n'


class KernelConfig(vf.TasksetConfig):
    references: Path = Path("references")
    """A folder of modules in KernelBench's format."""


class KernelData(vf.TaskData):
    reference: str


class KernelTask(vf.Task[KernelData, vf.State, vf.TaskConfig]):
    pass


class KernelTaskset(vf.Taskset[KernelTask, KernelConfig]):
    def load(self):
        for path in sorted(self.config.references.glob("*.py")):
            text = path.read_text("utf-8-sig")
            yield KernelTask(KernelData(name=path.stem, prompt=PROMPT + text, reference=text), self.config.task)


class KernelEnvConfig(vf.EnvConfig):
    writer: vf.AgentConfig = vf.AgentConfig(harness={"id": "null"}, runtime=vf.SubprocessConfig())  # it only talks
    num_turns: int = 4


class KernelEnv(vf.Env[KernelEnvConfig]):
    async def run(self, task, agents):
        """The reward is the best turn's score; each next turn is told what the judge said of the last."""
        scores = []
        async with agents.writer.interaction(task) as interaction:
            segment = await interaction.turn()
            while not segment.terminated:
                [result] = await asyncio.to_thread(judge, [(task.data.reference, segment.last_reply or "")], "answer")
                if "error" in result:
                    raise vf.TaskError(result["error"]["message"])
                scores.append(result["score"])
                if len(scores) == self.config.num_turns:
                    break
                verdict = result["verdict"]
                speedup = f", {result['speedup']:.2f}x as fast as PyTorch" if result["speedup"] else ""
                segment = await interaction.turn(f"{verdict['outcome']}{speedup}. {verdict['message']}\nImprove it.")
        interaction.trace.record_reward("kernel", max(scores, default=0.0), 1.0)


__all__ = ["KernelEnv", "KernelTaskset"]
