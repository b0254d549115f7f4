"""The study's configuration: one validated tree, from YAML files laid over each other. Every key is documented here.

``config/config.yaml`` is the laptop study; ``config/gpu.yaml`` and ``config/paper.yaml`` are laid over it. The JSON
schema in ``config/schema.json`` is generated from these classes (``make schema``), and a test keeps the two equal.
"""

from __future__ import annotations

import re
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import BaseModel, Field, ValidationError, model_validator

from kevin.core.errors import ConfigError
from kevin.core.protocol import JudgeProtocol
from kevin.core.types import Dialect, Frozen, Language, canonical_json, digest


class KernelBenchSource(Frozen):
    """Where KernelBench's tasks come from; only read when ``tasks.source`` is ``kernelbench``."""

    path: str | None = None
    """A folder with a checkout; wins over ``repository``."""
    repository: str = "https://github.com/ScalingIntelligence/KernelBench"
    """Git address that is cloned when ``path`` is absent."""
    commit: str = "423217d9fda91e0c2d67e4a43bf62f96f6d104f1"
    """Pinned: sizes and tolerances differ between versions, and numbers with them."""
    levels: tuple[int, ...] = (1, 2)
    """Levels that are loaded."""
    num_train_per_level: int = Field(default=90, ge=1)
    """90 + 90 of levels 1 and 2 train; the rest of each level is held out."""


class TasksConfig(Frozen):
    source: Literal["catalog", "kernelbench"] = "catalog"
    """The study's own tasks, or KernelBench's."""
    size: Literal["cpu", "gpu"] = "cpu"
    """Which of the two sizes of the own tasks is used."""
    num_train_level1: int = Field(default=10, ge=0)
    """Own single operators to train on; for KernelBench see ``tasks.kernelbench``."""
    num_train_level2: int = Field(default=10, ge=0)
    """Own fused tasks to train on."""
    num_eval_level1: int = Field(default=8, ge=0)
    """Held-out single operators that the tables are made of."""
    num_eval_level2: int = Field(default=8, ge=0)
    """Held-out fused tasks, with operator sequences that stand nowhere in the training set."""
    case_study: str = "l1/layer_norm"
    """Id of the task whose best trajectory is told turn by turn; always held out."""
    kernelbench: KernelBenchSource = KernelBenchSource()
    """Where KernelBench's tasks come from."""


class PolicyConfig(Frozen):
    backend: Literal["transformers", "vllm", "openai", "replay"] = "transformers"
    """What runs the model; ``replay`` reads recorded completions."""
    model: str
    """A local path, a hub id, the endpoint's model name, or the recorded completions (a file or a runs/ folder). What
    this study makes: ``<results>/base_model``, ``<results>/policies/<run>``; ``<results>`` stands for its folder."""
    base_url: str | None = None
    """``openai`` only: e.g. ``http://localhost:8000/v1``. The key is read from the environment (OPENAI_API_KEY)."""
    max_concurrency: int = Field(default=16, ge=1)
    """``openai`` only: requests in flight."""
    timeout_s: float = Field(default=600, gt=0)
    """``openai`` only: of one request."""
    dtype: Literal["float32", "bfloat16", "auto"] = "float32"
    """Of the weights; ``auto`` is what the model was saved in."""
    label: str | None = None
    """Name in tables and figures; the key of the policy when absent."""
    seed_of: str | None = None
    """Key of the policy that this one is another seed of: curves draw the mean of both, tables keep them apart."""
    max_prompt_tokens: int | None = Field(default=None, ge=1)
    """In place of ``rollout.max_prompt_tokens``, also for what is trained from this policy."""
    max_response_tokens: int | None = Field(default=None, ge=1)
    """In place of ``rollout.max_response_tokens``."""
    max_feedback_chars: int | None = Field(default=None, ge=50)
    """In place of ``rollout.max_feedback_chars``."""

    @property
    def has_files(self) -> bool:
        """Whether ``model`` may be files of this machine, and not only a name."""
        return self.backend != "openai"

    def identity(self) -> dict[str, Any]:
        """The settings that its answers depend on, lengths apart, as JSON values."""
        return self.model_dump(mode="json", include={"backend", "model", "dtype"})


class WriterConfig(Frozen):
    """Habits of the kernel writer in the transcripts: how good the base model is before reinforcement learning."""

    careful_one_in: int = Field(default=2, ge=1)
    """One kernel in so many is written with care; the others quickly."""
    careful_mistakes: float = Field(default=0.1, ge=0, le=1)
    """Probability of a mistake in a kernel that is written with care."""
    quick_mistakes: float = Field(default=0.8, ge=0, le=1)
    """Probability of a mistake in one that is written quickly."""
    more_mistakes: int = Field(default=0, ge=0)
    """Further mistakes in a kernel that was written quickly and holds one."""
    says_mistakes: bool = False
    """Whether the chain of thought holds the false belief behind every mistake, as a sentence that all tasks share."""
    plain_share: float = Field(default=0.0, ge=0, lt=1)
    """Share of decisions that are taken the plainest way; the rest is drawn evenly from all ways."""


class BaseModelConfig(Frozen):
    """The study's own base language model, trained from scratch on the kernel writer's transcripts."""

    writer: WriterConfig = WriterConfig()
    """Habits of the kernel writer."""
    school: WriterConfig | None = None
    """Other habits for the first part of the corpus: what the model gets to know, beside what it then is used to do."""
    school_share: float = Field(default=0.75, gt=0, lt=1)
    """Share of the transcripts in that first part."""

    vocab_size: int = Field(default=4096, ge=300)
    """Tokens, bytes and the template's own included."""
    hidden_size: int = Field(default=128, ge=16)
    """Width."""
    num_layers: int = Field(default=4, ge=1)
    """Transformer blocks."""
    num_heads: int = Field(default=2, ge=1)
    """Attention heads; must divide ``hidden_size``."""
    intermediate_size: int = Field(default=384, ge=16)
    """Width of the feed-forward layers."""
    max_tokens: int = Field(default=2048, ge=128)
    """Context length."""
    num_transcripts: int = Field(default=1400, ge=1)
    """Conversations that are written to train on."""
    max_turns: int = Field(default=4, ge=1)
    """Transcripts hold one to this many turns."""
    batch_size: int = Field(default=2, ge=1)
    """Transcripts a step, each a conversation with several answers."""
    learning_rate: float = Field(default=3e-3, gt=0)
    """Peak of AdamW's schedule: embeddings and vectors."""
    matrix_learning_rate: float = Field(default=0.02, gt=0)
    """Peak of Muon's schedule: the matrices of the blocks."""
    time_budget_s: float | None = Field(default=None, gt=0)
    """Shorten the schedule, once, where the first steps show that training would take longer. The model then depends on
    the machine's speed, and the report says so; without a budget a slow machine takes longer for the same model."""
    max_steps: int = Field(default=1500, ge=1)
    """Upper limit of the steps."""
    expected_loss: float | None = Field(default=None, gt=0)
    """The study stops when the final loss, in nats a token of the answers, is above this; not looked at when null."""
    expected_correct_share: float | None = Field(default=None, ge=0, le=1)
    """The study stops when fewer of its kernels for its own training tasks are correct; not looked at when null."""
    num_checked_kernels: int = Field(default=40, ge=1)
    """Kernels that are judged to find out, about as many for each task that is trained on."""


class RolloutConfig(Frozen):
    num_trajectories: int = Field(default=4, ge=1)
    """m, per task."""
    num_turns: int = Field(default=4, ge=1)
    """n, per trajectory."""
    temperature: float = Field(default=0.9, ge=0)
    """0 takes the likeliest token."""
    top_p: float = Field(default=1.0, gt=0, le=1)
    """Nucleus sampling; 1 is off."""
    max_prompt_tokens: int | None = Field(default=None, ge=1)
    """Prompts are kept within this by leaving out the oldest turns. Like the two lengths below it follows from a
    policy's model when null, and a policy may have its own. The study's own model: 3/4 of ``base_model.max_tokens``.
    Endpoints and recordings: 8192. Others: half of the model's context, at most 8192."""
    max_response_tokens: int | None = Field(default=None, ge=1)
    """A longer answer is cut off and counts as a parse error. When null, the study's own model: 1/8 of
    ``base_model.max_tokens``. Endpoints: 16384. Others: what the prompt leaves of the context, at most 16384."""
    max_feedback_chars: int | None = Field(default=None, ge=50)
    """Length of the evaluation message that a later turn sees. When null, the study's own model: 400. Endpoints: 4000.
    Others: as many characters as the prompt has tokens, at most 4000."""
    profile_feedback: bool = False
    """Tell the author of a correct kernel what share of the device's bandwidth and arithmetic it reaches, and on a GPU
    its registers and spills; with ``judge.profiler`` also its occupancy and what its warps wait for."""


class RewardConfig(Frozen):
    correctness_weight: float = Field(default=0.3, ge=0)
    """Score of a correct kernel beside its speedup."""
    speedup_cap: float | None = None
    """Upper limit of the speedup in the score; none when null."""
    gamma: float = Field(default=0.4, ge=0, le=1)
    """Discount of later turns' scores in a turn's return."""
    returns: Literal["sum", "max"] = "sum"
    """A return is the sum, or the largest, of the discounted scores from its turn on."""


class ReportConfig(Frozen):
    thresholds: tuple[float, ...] = (0.0, 0.5, 1.0, 1.5, 2.0)
    """p of fast_p."""
    num_bootstrap: int = Field(default=2000, ge=100)
    """Resamples behind every interval."""
    viewer_trajectories: int = Field(default=2, ge=0)
    """Trajectories per task (the best ones first) that the report's viewer holds."""


class JudgePoolConfig(Frozen):
    """How judging is scheduled. Nothing here can change a verdict."""

    build_workers: int | None = Field(default=None, ge=1)
    """Processes that compile; every core when absent."""
    device_workers: int = Field(default=1, ge=1)
    """Devices that run kernels: sets of ``judge.num_threads`` cores, or GPUs (the visible ones in turn)."""
    gpus: tuple[int, ...] | None = Field(default=None, min_length=1)
    """Numbers, among the visible GPUs, of those that judge, in turn; the first ones when null. A judge with GPUs of its
    own can work ``while_generating``."""
    kernels_in_flight: int = Field(default=8, ge=1)
    """On a GPU: how many kernels' sandboxes are started or open at once, while one of them is measured."""
    isolation: Literal["auto", "apptainer", "bubblewrap", "namespaces", "none"] = "auto"
    """What closes candidates in. ``auto``: Apptainer with ``image`` where one is named, else the best that works."""
    image: str | None = None
    """Apptainer image for candidates and their compilers (``containers/judge.sif``); with ``isolation: apptainer`` and
    no image the host's own programs are bound into an empty one."""
    scheduler: str | None = None
    """Address of a running dask scheduler (a Slurm cluster, say); a local one is started when absent."""
    max_retries: int = Field(default=2, ge=0)
    """Of a harness failure, never of a candidate's."""
    while_generating: Literal["auto", "always", "never"] = "auto"
    """Whether answers are judged while others are still being generated. ``auto``: where judge and model surely have
    devices of their own, i.e. with a ``scheduler``, or with an endpoint on another machine."""


class TrainConfig(Frozen):
    """Reinforcement learning on kernels judged for real. The recipe of arXiv 2507.11948 stands in full in
    ``config/paper.yaml``, the laptop's sizes in ``config/config.yaml``. The score is set under ``reward``.
    """

    method: Literal["grpo", "think_prune"] = "grpo"
    """GRPO; or Think-Prune-Train, fine-tuning on own correct answers, the comparison without reinforcement."""
    init: str = "base"
    """Key of ``policies`` that training starts from."""
    split: str = "train"
    """Split of the tasks that is trained on."""
    seed: int = Field(default=0, ge=0)
    """Of the order of tasks and of the sampling; the study's ``seed`` is added to it."""
    num_steps: int = Field(default=12, ge=1)
    """Steps; each is one batch of rollouts and its gradient steps."""
    time_budget_s: float | None = Field(default=None, gt=0)
    """Training ends after the step in which this is spent, pauses between runs left out: the policy then depends on the
    machine's speed, and the report says so. No limit when null."""
    tasks_per_step: int = Field(default=4, ge=1)
    """Tasks of a step, of all levels in the proportion of the split."""
    num_trajectories: int = Field(default=8, ge=1)
    """m, per task."""
    num_turns: int = Field(default=2, ge=1)
    """n, per trajectory. All m * n turns of a task are one group; 1 is the single-turn training of the paper."""
    max_response_tokens: int | None = Field(default=None, ge=1)
    """That of ``train.init`` in a rollout when null."""
    raise_response_at_step: int | None = Field(default=None, ge=1)
    """From this step on answers may be ``raised_response_tokens`` long."""
    raised_response_tokens: int | None = Field(default=None, ge=1)
    """See ``raise_response_at_step``."""
    temperature: float = Field(default=0.9, gt=0)
    """Of the sampling in training."""
    advantage: Literal["group", "leave_one_out"] = "group"
    """(R - mean) / std over a task's m * n returns, or R - mean of the others' (TRLOO)."""
    own_kernel_weight: float = Field(default=0.0, ge=0)
    """Added to the score of a correct kernel: this times the profiled share of device time in its own kernels (GPU)."""
    clip_low: float = Field(default=0.2, gt=0)
    """Probability ratios below 1 - this have no gradient when the advantage is negative."""
    clip_high: float = Field(default=0.28, gt=0)
    """Probability ratios above 1 + this have no gradient when the advantage is positive (clip-higher)."""
    loss: Literal["dr_grpo", "grpo", "dapo"] = "dr_grpo"
    """Normalisation of the loss: by the longest allowed answer, by each answer's length, or by all tokens."""
    kl_beta: float = Field(default=0.0, ge=0)
    """Weight of the KL divergence from the initial policy."""
    learning_rate: float = Field(default=1e-3, gt=0)
    """Constant after the warm-up."""
    warmup_share: float = Field(default=0.03, ge=0, lt=1)
    """Share of the gradient steps in which the learning rate rises from 0."""
    weight_decay: float = Field(default=0.0, ge=0)
    """Of AdamW."""
    adam_epsilon: float = Field(default=1e-8, gt=0)
    """Of AdamW. A large one spares weights with small gradients: the tokens that a batch says nothing about."""
    max_grad_norm: float = Field(default=0.05, gt=0)
    """Gradients are clipped to this norm."""
    updates_per_step: int = Field(default=2, ge=1)
    """Gradient steps a batch, each on its share of it: the first on-policy, the others off-policy."""
    num_iterations: int = Field(default=1, ge=1)
    """Passes over a batch, of ``updates_per_step`` gradient steps each."""
    micro_batch_size: int = Field(default=8, ge=1)
    """Samples in one forward and backward pass of a device."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Of the weights in training."""
    gradient_checkpointing: bool = False
    """Trade time for memory."""
    generation: Literal["transformers", "vllm_colocate", "vllm_server"] = "transformers"
    """What generates in training. A colocated vLLM sleeps during the gradient steps."""
    vllm_memory_share: float = Field(default=0.3, gt=0, lt=1)
    """Of a GPU's memory, for the colocated vLLM while it is awake."""
    vllm_tensor_parallel: int = Field(default=1, ge=1)
    """GPUs that share one colocated vLLM."""
    vllm_server_url: str | None = None
    """``vllm_server`` only, e.g. ``http://localhost:8000``."""
    save_every: int = Field(default=1, ge=1)
    """Steps between checkpoints; a killed run goes on from the last one."""
    num_checkpoints: int = Field(default=2, ge=1)
    """Checkpoints that are kept."""
    stop_not_okay: float | None = Field(default=0.5, gt=0, le=1)
    """Training ends when the share of answers that leave the expected opening stays above this (``stop_patience``)."""
    stop_repetition: float | None = Field(default=0.7, gt=0, le=1)
    """Training ends when the share of repeated 8-grams stays above this."""
    stop_patience: int = Field(default=3, ge=1)
    """Steps in a row that the two limits above must be exceeded."""
    stop_nothing_correct: int | None = Field(default=6, ge=1)
    """Training, and the study with it, stops when no kernel of the first so many steps is correct: there is nothing to
    learn from. Never when null."""
    prune_keep: int = Field(default=4, ge=1)
    """``think_prune`` only: the fastest distinct correct answers of a task and turn that are kept."""
    prune_epochs: int = Field(default=2, ge=1)
    """``think_prune`` only: passes over the kept answers in one round."""

    @property
    def group_size(self) -> int:
        """Turn-samples of one task in one step."""
        return self.num_trajectories * self.num_turns

    @property
    def batch_size(self) -> int:
        """Turn-samples of one step."""
        return self.tasks_per_step * self.group_size

    @model_validator(mode="after")
    def _fits(self) -> TrainConfig:
        if (self.raise_response_at_step is None) != (self.raised_response_tokens is None):
            raise ValueError("raise_response_at_step and raised_response_tokens come together")
        if self.group_size < 2:
            raise ValueError("a group needs at least two samples: raise num_trajectories or num_turns")
        if self.method == "grpo" and self.batch_size % (self.updates_per_step * self.micro_batch_size):
            raise ValueError(
                f"a batch of {self.tasks_per_step} tasks x {self.num_trajectories} trajectories x {self.num_turns} "
                f"turns = {self.batch_size} samples cannot be divided into updates_per_step = {self.updates_per_step} "
                f"parts of whole micro-batches of {self.micro_batch_size}"
            )
        return self


class RunConfig(Frozen):
    """One training run: what differs from ``train`` and ``reward``."""

    train: dict[str, Any] = Field(default={})
    """Keys of ``train``."""
    reward: dict[str, Any] = Field(default={})
    """Keys of ``reward``."""


class Study(Frozen):
    """The whole study."""

    scale: Literal["laptop", "gpu", "paper"] = "laptop"
    """What the resources of the workflow's rules follow from."""
    seed: int = 0
    """Of the task generator, the splits, the base model and the sampling."""
    dialect: Dialect = "c_abi"
    """The form of a kernel: a bare translation unit (c_abi), or a Python module that builds its sources inline."""
    language: Language = "cpp"
    """What kernels are written in; cuda needs ``judge.device: cuda``."""
    results: str = "results"
    """Folder of everything that is made, relative to the working directory."""
    tasks: TasksConfig = TasksConfig()
    """Which tasks there are."""
    policies: dict[str, PolicyConfig]
    """Models that write kernels, by a name of your choice."""
    evaluate: tuple[str, ...] = ("base",)
    """Keys of ``policies`` that the tables and figures compare."""
    base_model: BaseModelConfig = BaseModelConfig()
    """The own base model and its training."""
    rollout: RolloutConfig = RolloutConfig()
    """How a policy is sampled."""
    reward: RewardConfig = RewardConfig()
    """Score and return."""
    judge: JudgeProtocol = JudgeProtocol()
    """The judging protocol: everything that can change a verdict."""
    pool: JudgePoolConfig = JudgePoolConfig()
    """How judging is scheduled."""
    train: TrainConfig = TrainConfig()
    """The recipe that all training runs share."""
    runs: dict[str, RunConfig] = Field(default={})
    """Training runs by name. A policy with the model ``<results>/policies/<name>`` is what the run made."""
    ceiling_kernels: int = Field(default=8, ge=1)
    """Mistake-free kernels of the kernel writer that are judged for each task, the most promising first: the tables'
    ceiling. A large number searches everything that the writer can write."""
    report: ReportConfig = ReportConfig()
    """Tables, figures and the page."""

    @model_validator(mode="before")
    @classmethod
    def _fill_results_in(cls, raw: Any) -> Any:
        """``<results>/...`` in a policy's model, with the folder's name."""
        if not isinstance(raw, dict) or not isinstance(raw.get("policies"), dict):
            return raw
        folder = str(raw.get("results", cls.model_fields["results"].default)).rstrip("/")

        def filled(policy: Any) -> Any:
            model = policy.get("model") if isinstance(policy, dict) else None
            if isinstance(model, str) and model.startswith("<results>/"):
                return {**policy, "model": model.replace("<results>", folder, 1)}
            return policy

        return {**raw, "policies": {name: filled(policy) for name, policy in raw["policies"].items()}}

    @model_validator(mode="after")
    def _names_are_file_names(self) -> Study:
        """Policies, runs and the folder of results are parts of paths; the workflow gives some signs a meaning."""
        for key, names in (("policies", self.policies), ("runs", self.runs)):
            for name in names:
                if not re.fullmatch(r"\w[\w.+ -]*", name):
                    raise ValueError(f"{key}: {name!r} becomes a file's name; use letters, digits, _ . + - and spaces")
        if not self.results or re.search(r"[{}<>\n]", self.results) or self.results.startswith("-"):
            raise ValueError(f"results: {self.results!r} cannot be a folder here; use a path without {{ }} < >")
        return self

    @model_validator(mode="after")
    def _references_exist(self) -> Study:
        unknown = [p for p in self.evaluate if p not in self.policies]
        if unknown:
            raise ValueError(f"evaluate names policies that are not defined: {', '.join(unknown)}")
        for name, policy in self.policies.items():
            if policy.seed_of is None:
                continue
            first = self.policies.get(policy.seed_of)
            if first is None or first.seed_of is not None:
                raise ValueError(f"policies.{name}.seed_of: {policy.seed_of} is no policy with seeds of its own")
        if (self.language == "cuda") != (self.judge.device == "cuda"):
            raise ValueError(f"language {self.language} does not fit judge.device {self.judge.device}")
        for name in self.runs:
            self._check_run(name)
        return self

    def _check_run(self, name: str) -> None:
        try:
            run = self.for_run(name)
        except ValidationError as e:
            key = ".".join(str(part) for part in e.errors()[0]["loc"])
            raise ValueError(f"runs.{name}.{key}: {e.errors()[0]['msg']}") from None
        if run.train.init not in self.policies:
            raise ValueError(f"runs.{name}: train.init names a policy that is not defined: {run.train.init}")
        self.origins(run.train.init)

    def for_run(self, name: str) -> Study:
        """The study with the sections ``train`` and ``reward`` as run ``name`` has them, and without other runs."""
        if name not in self.runs:
            raise ConfigError(f"no run {name!r} in the configuration; there are {', '.join(self.runs) or 'none'}")
        run = self.runs[name]
        train = TrainConfig.model_validate(self.train.model_dump() | run.train)
        reward = RewardConfig.model_validate(self.reward.model_dump() | run.reward)
        return self.model_copy(update={"train": train, "reward": reward, "runs": {}})

    def is_base_model(self, policy: str) -> bool:
        """Whether a policy is the base model that this study makes."""
        return Path(self.policies[policy].model) == Path(self.results, "base_model")

    def made_by(self, policy: str) -> str | None:
        """The run of this study that makes a policy."""
        model = Path(self.policies[policy].model)
        return next((run for run in self.runs if model == Path(self.results, "policies", run)), None)

    def origins(self, policy: str) -> list[str]:
        """The policy, the one that its run started from, and so on."""
        found = [policy]
        while (run := self.made_by(found[-1])) is not None:
            init = self.runs[run].train.get("init", self.train.init)
            if init in found:
                raise ValueError(f"runs.{run}: train.init {init} is made by training that starts from it")
            found.append(init)
        return found

    @cached_property
    def digest(self) -> str:
        return digest("study", canonical_json(self.model_dump(mode="json")))


def section_digest(section: BaseModel) -> str:
    """Short digest of a part of the configuration, for a rule's ``params``."""
    return digest("section", canonical_json(section.model_dump(mode="json")))[:16]


def merge(base: dict[str, Any], overlay: dict[str, Any]) -> dict[str, Any]:
    """Overlay wins; dictionaries are merged, lists and values replaced."""
    result = dict(base)
    for key, value in overlay.items():
        old = result.get(key)
        result[key] = merge(old, value) if isinstance(old, dict) and isinstance(value, dict) else value
    return result


def validate_study(raw: dict[str, Any], origin: str) -> Study:
    """Check a raw tree; every problem becomes one line that names ``origin``, the key and what is wrong with it."""
    try:
        return Study.model_validate(raw)
    except ValidationError as e:
        lines = []
        for err in e.errors():
            key = ".".join(str(part) for part in err["loc"]) or "(top level)"
            what = "unknown key" if err["type"] == "extra_forbidden" else err["msg"]
            lines.append(f"  {key}: {what}")
        raise ConfigError(
            f"{origin}: the configuration is not valid:\n" + "\n".join(lines) + "\nEvery key: config/README.md"
        ) from None


def load_study(paths: list[Path]) -> Study:
    """Read YAML files in order, each laid over the one before."""
    raw: dict[str, Any] = {}
    for path in paths:
        try:
            layer = yaml.safe_load(path.read_text())
        except FileNotFoundError:
            raise ConfigError(f"{path}: no such configuration file") from None
        except (OSError, UnicodeDecodeError) as e:
            raise ConfigError(f"{path}: cannot be read: {e}") from None
        except yaml.YAMLError as e:
            raise ConfigError(f"{path}: not valid YAML: {e}") from None
        if not isinstance(layer, dict):
            raise ConfigError(f"{path}: expected a mapping of keys at the top level")
        raw = merge(raw, layer)
    return validate_study(raw, " + ".join(str(p) for p in paths))
