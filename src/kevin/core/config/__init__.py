"""The study's configuration: one validated tree, from YAML files laid over each other. Every key is documented here.

``config/config.yaml`` is the laptop study; ``config/gpu.yaml``, ``config/coder.yaml`` and ``config/paper.yaml`` are
laid over it. The JSON schema in ``config/schema.json`` is generated from these classes (``make schema``), and a test
keeps the two equal.
"""

from kevin.core.config.base_model import BaseModelConfig, PretrainingConfig, WriterConfig
from kevin.core.config.layers import merge
from kevin.core.config.policy import PolicyConfig
from kevin.core.config.rollout import (
    JudgePoolConfig,
    ReportConfig,
    RewardConfig,
    RolloutConfig,
    SearchConfig,
    StrategyConfig,
)
from kevin.core.config.study import Study, load_study, section_digest, validate_study
from kevin.core.config.tasks import KernelBenchSource, TasksConfig
from kevin.core.config.train import LoraConfig, RunConfig, TrainConfig
from kevin.core.history import HistoryConfig

__all__ = [
    "BaseModelConfig",
    "HistoryConfig",
    "JudgePoolConfig",
    "KernelBenchSource",
    "LoraConfig",
    "PolicyConfig",
    "PretrainingConfig",
    "ReportConfig",
    "RewardConfig",
    "RolloutConfig",
    "RunConfig",
    "SearchConfig",
    "StrategyConfig",
    "Study",
    "TasksConfig",
    "TrainConfig",
    "WriterConfig",
    "load_study",
    "merge",
    "section_digest",
    "validate_study",
]
