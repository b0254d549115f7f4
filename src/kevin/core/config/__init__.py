"""The study's configuration: one validated tree, from YAML files laid over each other. Every key is documented here.

``config/config.yaml`` is the laptop study; ``config/gpu.yaml`` and ``config/paper.yaml`` are laid over it. The JSON
schema in ``config/schema.json`` is generated from these classes (``make schema``), and a test keeps the two equal.
"""

from kevin.core.config.base_model import BaseModelConfig, SchoolConfig, WriterConfig
from kevin.core.config.load import load_study, merge, section_digest, validate_study
from kevin.core.config.policy import PolicyConfig
from kevin.core.config.rollout import JudgePoolConfig, ReportConfig, RewardConfig, RolloutConfig
from kevin.core.config.study import Study
from kevin.core.config.tasks import KernelBenchSource, TasksConfig
from kevin.core.config.train import RunConfig, TrainConfig

__all__ = [
    "BaseModelConfig",
    "JudgePoolConfig",
    "KernelBenchSource",
    "PolicyConfig",
    "ReportConfig",
    "RewardConfig",
    "RolloutConfig",
    "RunConfig",
    "SchoolConfig",
    "Study",
    "TasksConfig",
    "TrainConfig",
    "WriterConfig",
    "load_study",
    "merge",
    "section_digest",
    "validate_study",
]
