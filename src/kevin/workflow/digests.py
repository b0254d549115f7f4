"""On what each expensive step of a study depends, as digests that stand in the ``params`` of its rule.

A step is made again when something that it depends on changes its meaning, never because a file was touched: what it
reads of the configuration, and the content of files that are the user's, with a version that is raised when the step's
code would make something else.
"""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from kevin.core.config import Study, section_digest
from kevin.core.identity import STEP_VERSIONS, content_digests
from kevin.core.lengths import configured_lengths
from kevin.core.protocol import judge_versions
from kevin.core.types import canonical_json, digest
from kevin.policy.load import policy_identity
from kevin.policy.weights import weights_identity


def step_digest(*parts: Any) -> str:
    """Of configuration sections and of plain values: 16 hexadecimal digits."""
    return digest(*(section_digest(p) if isinstance(p, BaseModel) else canonical_json(p) for p in parts))[:16]


def code_digest(root: Path, *packages: str) -> str:
    """Of the sources below ``root`` that a cheap step is made of: editing one of them makes its files again."""
    return step_digest(*(content_digests(root / package) for package in packages))


def _judge_digest(study: Study) -> str:
    return step_digest(*judge_versions(study.judge.device), study.judge)


class StudyDigests:
    """Of one study's steps."""

    def __init__(self, study: Study) -> None:
        self._study = study

    @cached_property
    def tasks(self) -> str:
        s = self._study
        rest = (self._task_files(), s.dialect, s.seed, s.judge.num_threads)
        return step_digest(STEP_VERSIONS["tasks"], s.tasks, s.task_size, *rest)

    def _task_files(self) -> dict[str, Any]:
        """What the tasks are read from, where that is a folder of the user's, and which are held out where a file says
        that."""
        tasks = self._study.tasks
        if tasks.source == "catalog":
            return {}
        from kevin.tasks.kernelbench import source_digests

        frozen = content_digests(Path(tasks.frozen)) if tasks.frozen else {}
        return dict(source_digests(tasks.kernelbench)) | frozen

    @cached_property
    def judge(self) -> str:
        """How kernels are judged."""
        return _judge_digest(self._study)

    @cached_property
    def kernels(self) -> str:
        """What kernels are written in."""
        return step_digest(self._study.dialect, self._study.language)

    @cached_property
    def baselines(self) -> str:
        return step_digest(self.tasks, self.judge)

    @cached_property
    def ceiling(self) -> str:
        return step_digest(STEP_VERSIONS["ceiling"], self._study.ceiling_kernels, self.tasks, self.kernels, self.judge)

    @cached_property
    def weights(self) -> str:
        """What ``base_model.init`` holds."""
        init = self._study.base_model.init
        return step_digest(init, weights_identity(init) if init else {})

    @cached_property
    def past(self) -> str:
        """The answers that later turns of the pretraining go on from."""
        return step_digest(self._past)

    @cached_property
    def base_model(self) -> str:
        return step_digest(self._base_model)

    @cached_property
    def base_model_check(self) -> str:
        model, train = self._study.base_model, self._study.train
        return step_digest(
            STEP_VERSIONS["base_model"],
            model.expected_loss,
            model.expected_correct_share,
            model.num_checked_kernels,
            train.max_task_gb,
            self.judge,
        )

    def random_model(self, name: str) -> str:
        """Of a rehearsal's policy."""
        return step_digest(self._random_model(name))

    def policy(self, name: str) -> str:
        """What the answers of a policy depend on, and how they are judged."""
        return self.rollout(name, self._study.for_policy(name).rollout)

    def strategy(self, policy: str, name: str) -> str:
        """The same under a strategy of `search`."""
        rollout = self._study.for_strategy(policy, name).rollout
        return self.rollout(policy, rollout, self._study.search.strategies[name])

    def rollout(self, policy: str, *settings: BaseModel) -> str:
        """The same under settings of its own."""
        s = self._study
        return step_digest(
            STEP_VERSIONS["rollout"],
            self._policy_parts(policy),
            *settings,
            s.base_model.max_tokens,
            s.seed,
            self.tasks,
            self.kernels,
            self.judge,
        )

    def run(self, name: str) -> str:
        """What a training run depends on."""
        return step_digest(self._run_parts(name))

    @cached_property
    def attacks(self) -> str:
        """The table of attacks, which has a protocol of its own."""
        device = self._study.judge.device
        return step_digest(STEP_VERSIONS["attacks"], *judge_versions(device), device)

    def judge_errors(self, mutants: Path) -> str:
        """The table of the judge's errors on the kernels of a folder."""
        return step_digest(STEP_VERSIONS["judge_errors"], _judge_digest(self._study), content_digests(mutants))

    def audit(self, name: str) -> str:
        """What the audit of a run's kernels depends on."""
        return step_digest(STEP_VERSIONS["audit"], self.run(name))

    @cached_property
    def report(self) -> str:
        """Of all that a table may be made of."""
        return step_digest(self._study, self.tasks, [self._policy_parts(p) for p in self._study.evaluate])

    @cached_property
    def _base_model(self) -> list[Any]:
        study = self._study
        model = study.base_model
        pretraining = model.pretraining.as_trained()
        parts = [
            STEP_VERSIONS["base_model"],
            section_digest(model.model_copy(update={"pretraining": pretraining})),
            weights_identity(model.init) if model.init else section_digest(study.transcripts_history),
            study.seed,
            self.tasks,
            self.kernels,
        ]
        return [*parts, *self._past] if model.has_past else parts

    def _random_model(self, name: str) -> list[Any]:
        shapes = content_digests(Path(self._study.policies[name].random_shapes or ""))
        return [STEP_VERSIONS["random_model"], shapes, self.tasks, self.kernels]

    @cached_property
    def _past(self) -> list[Any]:
        study = self._study
        pretraining = study.base_model.pretraining
        return [
            STEP_VERSIONS["past"],
            [pretraining.num_general, pretraining.num_past_tasks],
            [study.rollout.profile_feedback, study.rollout.feedback],
            [configured_lengths(study, name) for name in study.policies if study.is_base_model(name)],
            [study.base_model.max_tokens, study.base_model.init, study.seed, self.tasks, self.kernels, self.judge],
        ]

    def _policy_parts(self, name: str) -> list[Any]:
        """A model that this study makes counts by what it is made of."""
        settings = self._study.policies[name]
        run = self._study.made_by(name)
        made_of: Any
        if run:
            made_of = self._run_parts(run)
        elif self._study.is_base_model(name):
            made_of = self._base_model
        elif settings.random_shapes:
            made_of = self._random_model(name)
        else:
            made_of = policy_identity(settings)["files"]
        return [settings.identity(), made_of, configured_lengths(self._study, name)]

    def _run_parts(self, run: str) -> list[Any]:
        own = self._study.for_run(run)
        return [
            STEP_VERSIONS["train"],
            step_digest(own.train, own.reward, own.rollout),
            self._policy_parts(own.train.init),
            self._study.base_model.max_tokens,
            self._study.seed,
            self.tasks,
            self.kernels,
            _judge_digest(own),
        ]
