"""The whole study, from YAML files laid over each other."""

from __future__ import annotations

import re
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, Field, ValidationError, model_validator

from kevin.core.config.base_model import BaseModelConfig
from kevin.core.config.layers import merge, read_layers, without_removed
from kevin.core.config.policy import PolicyConfig
from kevin.core.config.rollout import JudgePoolConfig, ReportConfig, RewardConfig, RolloutConfig, SearchConfig
from kevin.core.config.tasks import TasksConfig
from kevin.core.config.train import RunConfig, TrainConfig
from kevin.core.errors import ConfigError
from kevin.core.fields import problem, valid
from kevin.core.history import HistoryConfig
from kevin.core.protocol import JudgeProtocol
from kevin.core.types import Dialect, Language, Settings, canonical_json, digest

VIEW_KEYS = ("history", "profile_feedback")
"""Of ``rollout``: what a later turn sees, which a run may choose."""
GUARD_KEYS = ("rules",)
"""Of ``judge``: what a run may be trained without. Measuring differently would change what its rewards mean."""
RANDOM_MODELS = "random_models"
"""Folder of models with random weights, below that of the results."""
_PLAYED_BY = ("backend", "dtype", "memory_share", "draft_tokens", "engine")
"""Keys of a policy that one trained from it has too."""


_LONGEST_NAME = 100
"""Bytes of a name; a file's may have 255, and says more than the name."""


def _laid_over(rollout: RolloutConfig, keys: dict[str, Any]) -> dict[str, Any]:
    return merge(rollout.model_dump(), keys)


def _with_runs(raw: dict[str, Any]) -> dict[str, Any]:
    """The policies of a raw tree, and one for each run that none of them is of, played as what it is trained from."""

    def section(tree: Any, key: str) -> dict[str, Any]:
        found = tree.get(key) if isinstance(tree, dict) else getattr(tree, key, None)
        return found if isinstance(found, dict) else {}

    policies = dict(raw["policies"])
    for name, run in section(raw, "runs").items():
        model = f"<results>/policies/{name}"
        if name not in policies and any(_own_model(policy, raw) == model for policy in policies.values()):
            continue
        own = policies.get(name, {})
        start = section(run, "train").get("init") or section(raw, "train").get("init") or "base"
        played = policies.get(start, {})
        if not (isinstance(own, dict) and isinstance(played, dict)):
            continue
        given = {"backend": played["backend"]} if played.get("backend") in ("transformers", "vllm") else {}
        if given and own.get("backend", given["backend"]) == given["backend"]:
            given = {key: played[key] for key in _PLAYED_BY if key in played}
        policies[name] = {**given, "model": model, **own}
    return policies


def _own_model(policy: Any, raw: dict[str, Any]) -> str:
    """The model of a raw policy, with ``<results>`` for the study's own folder."""
    model = str(policy.get("model") if isinstance(policy, dict) else getattr(policy, "model", ""))
    folder = f"{str(raw.get('results', 'results')).rstrip('/')}/"
    return f"<results>/{model.removeprefix(folder)}" if model.startswith(folder) else model


class Study(Settings):
    """The whole study."""

    scale: Literal["laptop", "gpu", "coder", "paper"] = "laptop"
    """Decides the resources of the workflow's rules."""
    seed: int = Field(default=0, ge=0, lt=2**63)
    """Seed of the task generator, the splits, the base model and the sampling."""
    dialect: Dialect = "c_abi"
    """The form of a kernel: a bare translation unit (c_abi), or a Python module that builds its sources inline."""
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
    search: SearchConfig = SearchConfig()
    """Ways to spend the same number of kernels at test time, compared."""
    reward: RewardConfig = RewardConfig()
    """Score and return."""
    judge: JudgeProtocol = JudgeProtocol()
    """The judging protocol: everything that can change a verdict."""
    pool: JudgePoolConfig = JudgePoolConfig()
    """How judging is scheduled."""
    train: TrainConfig = TrainConfig()
    """The recipe that all training runs share."""
    runs: dict[str, RunConfig] = Field(default={})
    """Training runs by name. Each is a policy of its name, too, played as the one that it is trained from: under
    ``policies`` stands only what is to be different, its ``label`` for one."""
    ceiling_kernels: int = Field(default=8, ge=1)
    """Mistake-free kernels of the kernel writer that are judged for each task, the most promising first: the tables'
    ceiling. A large number searches everything that the writer can write."""
    report: ReportConfig = ReportConfig()
    """Tables, figures and the page."""

    @property
    def language(self) -> Language:
        """What kernels are written in."""
        return self.judge.language

    @property
    def task_size(self) -> Literal["cpu", "gpu"]:
        """Which of the two sizes of the own tasks is used."""
        return "gpu" if self.judge.device == "cuda" else "cpu"

    @property
    def transcripts_history(self) -> HistoryConfig:
        """What later turns see in the transcripts that a base model is made of from scratch."""
        return self.base_model.history or self.rollout.history

    @model_validator(mode="before")
    @classmethod
    def _fill_results_in(cls, raw: Any) -> Any:
        """``<results>/...`` in a policy's model, with the folder's name; and a policy for every run."""
        if not isinstance(raw, dict) or not isinstance(raw.get("policies"), dict):
            return raw
        raw = {**raw, "policies": _with_runs(raw)}
        folder = str(raw.get("results", cls.model_fields["results"].default)).rstrip("/")

        def filled(name: str, policy: Any) -> Any:
            if isinstance(policy, dict) and policy.get("random_shapes"):
                policy = {**policy, "model": f"<results>/{RANDOM_MODELS}/{name}", "revision": None}
            model = policy.get("model") if isinstance(policy, dict) else None
            if isinstance(model, str) and model.startswith("<results>/"):
                return {**policy, "model": model.replace("<results>", folder, 1)}
            return policy

        return {**raw, "policies": {name: filled(name, policy) for name, policy in raw["policies"].items()}}

    @model_validator(mode="after")
    def _names_are_file_names(self) -> Study:
        """Policies, runs and the folder of results are parts of paths; the workflow gives some signs a meaning."""
        for key, names in (("policies", self.policies), ("runs", self.runs), ("strategies", self.search.strategies)):
            for name in names:
                if not re.fullmatch(r"\w[\w.+ -]*", name):
                    raise ValueError(f"{key}: {name!r} becomes a file's name; use letters, digits, _ . + - and spaces")
                if len(name.encode()) > _LONGEST_NAME:
                    raise ValueError(f"{key}: {name!r} becomes a file's name; {_LONGEST_NAME} bytes are enough for one")
        if not self.results or re.search(r"[{}<>\n]", self.results) or self.results.startswith("-"):
            raise ValueError(f"results: {self.results!r} cannot be a folder here; use a path without {{ }} < >")
        if self.results.startswith("~"):
            raise ValueError(f"results: {self.results!r}: only a shell knows whose home ~ is; write the whole path")
        return self

    @model_validator(mode="after")
    def _references_exist(self) -> Study:
        if not self.evaluate:
            raise ValueError("evaluate: it names no policy, and a study is of one at least")
        unknown = [p for p in self.evaluate if p not in self.policies]
        if unknown:
            raise ValueError(f"evaluate names policies that are not defined: {', '.join(unknown)}")
        if twice := [name for name in self.policies if self.evaluate.count(name) > 1]:
            raise ValueError(f"evaluate names {twice[0]} twice")
        for name, policy in self.policies.items():
            if policy.seed_of is None:
                continue
            first = self.policies.get(policy.seed_of)
            if first is None or first.seed_of is not None:
                raise ValueError(f"policies.{name}.seed_of: {policy.seed_of} is no policy with seeds of its own")
        random = [name for name, policy in self.policies.items() if policy.random_shapes]
        if random and not self.report.miniature:
            raise ValueError(
                f"policies.{random[0]}.random_shapes: no number of random weights means anything, and tables have to "
                f"say so: set report.miniature"
            )
        for key in ("policy", "against"):
            if (named := getattr(self.report.primary, key)) is not None and named not in self.policies:
                raise ValueError(f"report.primary.{key} names a policy that is not defined: {named}")
        for name in self.runs:
            self._check_run(name)
        for name in self.search.strategies:
            self._check_strategy(name)
        if unknown := [name for name in self.search.names if name not in self.search.strategies]:
            raise ValueError(f"search.compared names strategies that are not defined: {', '.join(unknown)}")
        return self

    def _check_run(self, name: str) -> None:
        run = self.for_run(name)
        if run.train.init not in self.policies:
            raise ValueError(f"runs.{name}: train.init names a policy that is not defined: {run.train.init}")
        self.origins(run.train.init)
        if unknown := self.runs[name].rollout.keys() - set(VIEW_KEYS):
            raise ValueError(f"runs.{name}.rollout: only {' and '.join(VIEW_KEYS)} here, not {min(unknown)}")
        if unknown := self.runs[name].judge.keys() - set(GUARD_KEYS):
            raise ValueError(f"runs.{name}.judge: only {' and '.join(GUARD_KEYS)} here, not {min(unknown)}")

    def _check_strategy(self, name: str) -> None:
        keys = self.search.strategies[name].rollout
        valid(RolloutConfig, _laid_over(self.rollout, keys), "search", "strategies", name, "rollout")
        if "num_trajectories" in keys:
            raise ValueError(
                f"search.strategies.{name}.rollout.num_trajectories: it follows from search.num_kernels and num_turns; "
                f"leave it out"
            )

    def for_run(self, name: str) -> Study:
        """The study with ``train``, ``reward``, ``rollout`` and ``judge`` as a run has them, without other runs."""
        if name not in self.runs:
            raise ConfigError(f"no run {name!r} in the configuration; there are {', '.join(self.runs) or 'none'}")
        run = self.runs[name]
        within = ("runs", name)
        train = valid(TrainConfig, self.train.model_dump() | run.train, *within, "train")
        reward = valid(RewardConfig, self.reward.model_dump() | run.reward, *within, "reward")
        rollout = valid(RolloutConfig, _laid_over(self.rollout, run.rollout), *within, "rollout")
        judge = valid(JudgeProtocol, merge(self.judge.model_dump(), run.judge), *within, "judge")
        own = {"train": train, "reward": reward, "rollout": rollout, "judge": judge, "runs": {}}
        return self.model_copy(update=own)

    @property
    def audited(self) -> list[str]:
        """Runs that an audit compares: those under rules of their own and their twins, which else are the same; all
        where no run has rules of its own."""
        free = [run for run in self.runs.values() if run.judge]
        twins = [run.model_copy(update={"judge": {}}) for run in free]
        return [name for name, run in self.runs.items() if run in free or run in twins] or list(self.runs)

    def with_policy(self, name: str) -> Study:
        """The study with ``name`` among its policies: one of its own, a file of recorded answers, or a model's folder,
        which is played as the model that training starts from.

        Raises:
            ConfigError: none of these.
        """
        if name in self.policies:
            return self
        own: dict[str, Any] = {"model": name}
        start = self.policies.get(self.train.init)
        if Path(name).is_file():
            own["backend"] = "replay"
        elif not Path(name).is_dir():
            known = ", ".join(self.policies)
            raise ConfigError(
                f"no policy {name!r} in the configuration, and no such file or folder; there are {known}; a model of "
                f"the hub is named under policies first"
            )
        elif start is not None and start.backend in ("transformers", "vllm"):
            own |= start.model_dump(include=set(_PLAYED_BY))
        return self.model_copy(update={"policies": {**self.policies, name: PolicyConfig.model_validate(own)}})

    def for_policy(self, policy: str) -> Study:
        """The study with later turns that see what they saw where the policy was trained."""
        run = self.made_by(policy)
        if run is None:
            return self
        rollout = RolloutConfig.model_validate(_laid_over(self.rollout, self.runs[run].rollout))
        return self.model_copy(update={"rollout": rollout})

    def for_strategy(self, policy: str, name: str) -> Study:
        """The study with the section ``rollout`` as a strategy of ``search`` has it for a policy.

        Raises:
            ConfigError: no such strategy, or its turns do not divide the number of kernels.
        """
        if name not in self.search.strategies:
            known = ", ".join(self.search.strategies) or "none"
            raise ConfigError(f"no strategy {name!r} under search.strategies in the configuration; there are {known}")
        own = self.for_policy(policy)
        keys = self.search.strategies[name].rollout
        rollout = RolloutConfig.model_validate(_laid_over(own.rollout, keys))
        num_kernels = self.search.num_kernels or self.rollout.num_trajectories * self.rollout.num_turns
        if num_kernels % rollout.num_turns:
            raise ConfigError(
                f"search.strategies.{name}: {num_kernels} kernels a task cannot be spent on trajectories of "
                f"{rollout.num_turns} turns; change search.num_kernels or its rollout.num_turns"
            )
        shape = {"num_trajectories": num_kernels // rollout.num_turns}
        return own.model_copy(update={"rollout": rollout.model_copy(update=shape)})

    def is_base_model(self, policy: str) -> bool:
        """Whether a policy is the base model that this study makes."""
        return Path(self.policies[policy].model) == Path(self.results, "base_model")

    def made_by(self, policy: str) -> str | None:
        """The run of this study that makes a policy."""
        model = Path(self.policies[policy].model)
        return model.name if model.name in self.runs and model.parent == Path(self.results, "policies") else None

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


def validate_study(raw: dict[str, Any], origin: str) -> Study:
    """Check a raw tree; every problem becomes one line that names ``origin``, the key and what is wrong with it.

    Args:
        raw: of one file, or of several laid over each other.
        origin: the files, with `` + `` between them.
    """
    raw = dict(raw)
    raw.pop("over", None)  # see `read_layers`
    raw, problems = without_removed(raw)
    try:
        study = Study.model_validate(raw)
    except ValidationError as e:
        problems += [problem(err, section=Study) for err in e.errors()]
    if problems:
        lines = "".join(f"  {text}\n" for text in problems)
        raise ConfigError(f"{origin}: the configuration is not valid:\n{lines}Every key: config/README.md")
    return study


def load_study(paths: list[Path], *, judges: bool = True, plays: bool = True) -> Study:
    """Read YAML files in order, each laid over the one before.

    Args:
        judges: False where no verdict is asked for: then files may come from code that judges by another version, and
            has keys that there are no more.
        plays: False where no policy is asked for: then files need to name none.

    Raises:
        ConfigError: see `validate_study`.
    """
    raw: dict[str, Any] = {}
    for layer in read_layers(paths):
        raw = merge(raw, layer)
    if not plays:
        raw.setdefault("policies", {"base": {"model": "<results>/base_model"}})
    if "policies" not in raw:
        raise ConfigError(
            f"{' + '.join(map(str, paths))}: there are no policies in it; a file with some keys alone is laid over "
            f"another: -c config/config.yaml -c {paths[-1]}"
        )
    if not judges:
        raw, _ = without_removed(raw)
        if isinstance(raw.get("judge"), dict):
            raw["judge"].pop("version", None)
    return validate_study(raw, " + ".join(str(p) for p in paths))
