"""What a step asks of a machine, at each scale."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import NamedTuple

from kevin.core.config import Study


class Needs(NamedTuple):
    """Of a rule that judges or trains. A cluster reads them; on one machine such rules share the cores."""

    cores: int
    mem_mb: int
    runtime: int
    """Minutes."""
    gpus: int


SCALES = {
    # A laptop's training and judging take 3.9 GB, and 5 where a cluster counts pages once for each process.
    "laptop": Needs(cores=2, mem_mb=8_000, runtime=60, gpus=0),
    "gpu": Needs(cores=16, mem_mb=64_000, runtime=240, gpus=1),
    "coder": Needs(cores=16, mem_mb=96_000, runtime=720, gpus=1),
    "paper": Needs(cores=64, mem_mb=500_000, runtime=2880, gpus=8),
}
LIGHT = {"mem_mb": 2_000, "runtime": 4}
"""``resources`` of a rule that makes a file of others."""
MEMORY = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
"""Of this machine, bytes."""
_BESIDE_MEMORY = 11e9
"""Of a machine on which two of a laptop's jobs fit beside each other."""
PRIORITY = {"base_model": 3, "train": 2, "rollout": 1}
"""Of jobs that could start, those that most others wait for come first."""


class Machine:
    """The one that Snakemake runs on, as a study uses it.

    Args:
        cores: which Snakemake may use; None where it was told of none.
        gpus: the same, by ``--resources gpu=2``.
    """

    def __init__(self, study: Study, cores: int | None, gpus: int) -> None:
        self._study = study
        self._cores, self._gpus = cores, gpus
        self.needs = SCALES[study.scale]

    @property
    def side_by_side(self) -> int:
        """How many jobs of one GPU each run at a time: as many as there are. Where the study has its kernels judged on
        several, or on one of their own, a job has them all. On a laptop two: one judges while the other generates,
        trains or compiles.
        """
        if self._study.pool.device_workers > 1 or self._study.pool.gpus:
            return 1
        if self._shares_cpu:
            return 2
        return max(1, self._gpus) if self.needs.gpus == 1 else 1

    @property
    def _shares_cpu(self) -> bool:
        """Whether two jobs have a core beside the judge's, and models that fit beside each other: small, its own."""
        study = self._study
        on_cpu = study.judge.device == "cpu" and study.pool.scheduler is None and self.needs.gpus == 0
        has_room = (self._cores or 1) > study.judge.num_threads and MEMORY > _BESIDE_MEMORY
        return on_cpu and has_room and all(map(self._is_light, study.evaluate))

    def _is_light(self, policy: str) -> bool:
        study = self._study
        is_own = study.base_model.init is None and study.is_base_model(study.origins(policy)[-1])
        return is_own or study.policies[policy].backend in ("replay", "openai")

    @property
    def threads(self) -> int:
        """Of a rule that judges or trains: every core, or a job's share of them, so that nothing disturbs its clock but
        jobs that take turns with it; without a number of cores as many as the scale needs. A GPU's clock does not mind
        one core: there one is left, on which weights are unpacked, policies exported and tables made meanwhile.
        """
        if self._cores is None:
            return self.needs.cores
        left = 1 if self._study.judge.device == "cuda" else 0
        return max(1, (self._cores - left) // self.side_by_side)

    def share(self, gpus: int) -> dict[str, int]:
        """``resources`` of a rule that judges or trains, with that many GPUs at a scale that has any.

        The cores are ``cpus_per_task``, since ``threads`` is limited by the machine that Snakemake runs on.
        """
        needs = self.needs
        gpus = gpus if needs.gpus else 0
        return {"cpus_per_task": needs.cores, "mem_mb": needs.mem_mb, "runtime": needs.runtime, "gpu": gpus}

    def launcher(self, repository: Path) -> str:
        """What starts a training. Several GPUs train as one: weights, gradients and optimizer are spread over them."""
        if self.needs.gpus <= 1:
            return ""
        settings = f"{shlex.quote(str(repository))}/config/accelerate/zero3-{self.needs.gpus}.yaml"
        return f"accelerate launch --config_file {settings} --no_python "
