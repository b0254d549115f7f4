# Where steps run. With `--profile slurm`, settings that the cluster cannot fulfil are refused before anything is
# submitted, and no job outlives the run that it belongs to. With `--software-deployment-method apptainer` every step
# runs in containers/train.sif, which is built first; its digest is an input of the steps. Docs: docs/slurm.md

from kevin.judge.sandbox import apptainer
from kevin.workflow import slurm
from kevin.workflow.resources import LIGHT, PRIORITY, Machine
from snakemake.settings.types import DeploymentMethod

settings = workflow.resource_settings
slurm.keep_names(
    settings.default_resources or {}, *settings.overwrite_resources.values()
)

IN_CONTAINER = (
    DeploymentMethod.APPTAINER in workflow.deployment_settings.deployment_method
)
IMAGE = "containers/train.sif"
IMAGE_DIGEST = [f"{IMAGE}.sha256"] if IN_CONTAINER else []
if study.pool.image:
    IMAGE_DIGEST.append(f"{study.pool.image}.sha256")

gpus = workflow.global_resources.get("gpu")
machine = Machine(
    study,
    cores=settings.cores,
    gpus=gpus.value if gpus and isinstance(gpus.value, int) else 1,
)


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
    known = slurm.partitions()
    for job in workflow.dag.get_jobs_or_groups():
        jobs = job.jobs if job.is_group() else [job]
        own_rules = {j.rule.name for j in jobs if j in wanted}
        if own_rules and not job.is_local and not own_file:
            slurm.check_job(min(own_rules), job.resources, known)


def check_image():
    """Refuse to start without Apptainer, or with another image than the one whose digest results were made with."""
    if not IN_CONTAINER:
        return
    apptainer.version()
    if Path(IMAGE).exists():
        apptainer.check_digest(Path(IMAGE))
