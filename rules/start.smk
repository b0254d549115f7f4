# What is looked at when a run starts, before its first step, and how its steps are called.

import shlex
import signal
import sys

from snakemake.logging import logger

from kevin.cli.supervisor import follow
from kevin.core.provenance import SIDE_BY_SIDE
from kevin.workflow.folder import (
    changed_settings,
    claim_folder,
    listed,
    require_own_config,
    require_replaceable,
    save_config,
)

if workflow.is_main_process:
    with refusing():
        require_own_config(study, Path(CONFIG), layers)

# Snakemake tells of a step that is to be made again by two digests; these are the keys behind them.
CHANGES = changed_settings(study, Path(CONFIG)) if workflow.is_main_process else []
if CHANGES:
    logger.info(
        f"{study.results} was made with other settings; what depends on them is made again:\n{listed(CHANGES)}"
    )

# What takes long, and is not made of other files alone.
COSTLY = (
    *("train_base_model", "judge_past", "train_policy"),
    *("run_rollouts", "run_search", "judge_ceiling", "measure_baselines"),
)


def check_models():
    """Refuse a model or a recording that is not there, and that a job needs."""
    names = {
        "run_rollouts": lambda w: w.policy,
        "run_search": lambda w: w.policy,
        "train_policy": lambda w: study.for_run(w.run).train.init,
    }
    for job in workflow.dag.needrun_jobs():
        if job.rule.name in names:
            given.require_model(study, names[job.rule.name](job.wildcards))


def check_replaced():
    """Ask before a finished study gives way to one with other settings."""
    replaced = [
        job.rule.name
        for job in workflow.dag.needrun_jobs()
        if job.rule.name in COSTLY and any(Path(file).exists() for file in job.output)
    ]
    require_replaceable(study, CHANGES, replaced, may_replace=MAY_REPLACE)


onstart:
    follow("KEVIN_MAKE_PID", signal.SIGKILL)
    with refusing():
        claim_folder(Path(".snakemake/running"))
        check_image()
        check_cluster()
        check_replaced()
    with refusing(origin):
        check_models()
    if executor := slurm_executor():
        slurm.own_jobs(executor.run_uuid, Path(".snakemake/slurm_run"))
    save_config(study, Path(CONFIG))


# `kevin` is the one beside this interpreter; it ends by itself when this process is gone (kevin.cli.supervisor). In a
# container there is neither.
if not IN_CONTAINER:
    shell.prefix(
        f'export PATH={shlex.quote(str(Path(sys.executable).parent))}:"$PATH" KEVIN_WORKFLOW_PID=$PPID'
        f" {SIDE_BY_SIDE}={machine.side_by_side}; "
    )
