# Where steps run. With `--profile slurm`, settings that the cluster cannot fulfil are refused before anything is
# submitted, and no job outlives the run that it belongs to. With `--software-deployment-method apptainer` every step
# runs in containers/train.sif, which is built first; its digest is an input of the steps. Docs: docs/slurm.md

import atexit

from kevin.judge.sandbox import apptainer
from kevin.workflow import slurm
from snakemake.settings.types import DeploymentMethod

for named in (
    workflow.resource_settings.default_resources or {},
    *workflow.resource_settings.overwrite_resources.values(),
):
    slurm.keep_names(named)


def slurm_executor():
    """The executor of this run if it is Slurm's, else None."""
    executor = getattr(workflow.scheduler, "_executor", None)
    return executor if hasattr(executor, "slurm_logdir") else None


def check_cluster():
    """Refuse what Slurm would leave in its queue for ever, with the setting to change."""
    if slurm_executor() is None:
        return
    own_file = workflow.executor_settings.partition_config
    wanted = set(workflow.dag.needrun_jobs())
    try:
        known = slurm.partitions()
        for job in workflow.dag.get_jobs_or_groups():
            own_rules = {
                j.rule.name
                for j in (job.jobs if job.is_group() else [job])
                if j in wanted
            }
            if own_rules and not job.is_local and not own_file:
                names = ("slurm_partition", "runtime", "gpu", "clusters")
                asked = {name: job.resources.get(name) for name in names}
                slurm.check_job(min(own_rules), asked, known)
    except UsageError as e:
        raise WorkflowError(str(e)) from None


def own_jobs():
    """Jobs of a run that was killed are ended before the next one writes the same files; those of this run when it
    ends. The executor cancels what it knows at that moment, which leaves out jobs that are just being submitted or
    asked about."""
    if (executor := slurm_executor()) is None:
        return
    note = Path(".snakemake/slurm_run")
    if note.exists():
        slurm.cancel_jobs(note.read_text())
    note.write_text(executor.run_uuid)
    atexit.register(slurm.cancel_jobs, executor.run_uuid)


IN_CONTAINER = (
    DeploymentMethod.APPTAINER in workflow.deployment_settings.deployment_method
)
IMAGE = "containers/train.sif"
IMAGE_DIGEST = [f"{IMAGE}.sha256"] if IN_CONTAINER else []
if study.pool.image:
    IMAGE_DIGEST.append(f"{study.pool.image}.sha256")


def check_image():
    """Refuse to start without Apptainer, or with another image than the one whose digest results were made with."""
    if not IN_CONTAINER:
        return
    from kevin.core.errors import KevinError

    try:
        apptainer.version()
        if Path(IMAGE).exists():
            apptainer.check_digest(Path(IMAGE))
    except KevinError as e:
        raise WorkflowError(str(e)) from None


# The prefix of rules/common.smk names this machine's interpreter and processes, which are not in the image.
if IN_CONTAINER:
    shell.prefix("")
