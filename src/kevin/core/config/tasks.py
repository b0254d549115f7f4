"""Which tasks there are."""

from __future__ import annotations

from typing import ClassVar, Literal, Self

from pydantic import Field, model_validator

from kevin.core.types import Settings


class KernelBenchSource(Settings):
    """Where KernelBench's tasks, or yours in its layout, come from; not read when ``tasks.source`` is ``catalog``."""

    repository: ClassVar[str] = "https://github.com/ScalingIntelligence/KernelBench"
    """Git address that is cloned when ``path`` is absent."""
    commit: ClassVar[str] = "423217d9fda91e0c2d67e4a43bf62f96f6d104f1"
    """Pinned: sizes and tolerances differ between versions, and numbers with them."""
    path: str | None = None
    """A folder with a checkout, or with your tasks; when null the pinned commit is cloned from KernelBench's own place.
    """
    levels: tuple[int, ...] = (1, 2)
    """Levels that are loaded and evaluated; 3 and 4, whole networks, are never trained on."""
    num_train_per_level: int = Field(default=90, ge=1)
    """90 + 90 of levels 1 and 2 train; the rest of each level is held out. Not read where ``held_out`` names tasks."""
    held_out: tuple[str, ...] = ()
    """Tasks that are held out, by file name (``2_other_name``) or id (``kb/1/2``); all others of levels 1 and 2 train.
    Drawn by the seed where none is named."""


class TasksConfig(Settings):
    source: Literal["catalog", "kernelbench", "both"] = "catalog"
    """The study's own tasks, KernelBench's or a folder of yours in its layout, or such a folder beside the study's."""
    num_train: int = Field(default=10, ge=0)
    """Own tasks to train on, of each level: single operators and fused tasks. For KernelBench see
    ``tasks.kernelbench``."""
    num_eval_level1: int = Field(default=8, ge=0)
    """Held-out single operators that the tables are made of."""
    num_eval_level2: int = Field(default=8, ge=0)
    """Held-out fused tasks, with operator sequences that stand nowhere in the training set; with KernelBench's
    tasks they are the split ``unseen`` beside them; with a folder of yours alone there are none."""
    case_study: str = "l1/layer_norm"
    """Id of the task whose best trajectory is told turn by turn; always held out."""
    kernelbench: KernelBenchSource = KernelBenchSource()
    """Where KernelBench's tasks come from."""
    frozen: str | None = None
    """For ``kernelbench``: a file with the held-out tasks and their digests, in the form of ``split.yaml`` (all others
    train), and the seed of which new fused tasks are drawn, so that they are the same for every ``seed``. A task that
    is not as it was frozen is refused."""

    @model_validator(mode="after")
    def _there_are_some(self) -> Self:
        if self.source == "catalog" and not (self.num_train or self.num_eval_level1 or self.num_eval_level2):
            raise ValueError("there are no tasks: num_train, num_eval_level1 and num_eval_level2 are all 0")
        return self
