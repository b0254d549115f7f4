"""One process of several: ``train_worker.py FOLDER OUT [PROCESSES]``. See train/test_parallel.py."""

import atexit
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import torch
from train_fixtures import judge, make_study

from kevin.core.config import TrainConfig
from kevin.train.run import leave_together, run_training

torch.set_num_threads(1)
folder, out = Path(sys.argv[1]), Path(sys.argv[2])
TrainConfig.updates_per_step = 1
study = make_study(folder, num_steps=3, num_trajectories=4, micro_batch_size=2)
run_training(study, "tiny", folder / "tasks.parquet", out, judge=judge)
assert torch.distributed.is_initialized() == (len(sys.argv) > 3)
if len(sys.argv) > 3:
    assert torch.distributed.get_world_size() == int(sys.argv[3])
    atexit.register(os.abort)  # an interpreter that is torn down may
leave_together()
assert len(sys.argv) == 3
