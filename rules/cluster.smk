# Where steps run. With `--profile slurm`, settings that the cluster cannot fulfil are refused before anything is
# submitted, and no job outlives the run that it belongs to. With `--software-deployment-method apptainer` every step
# runs in containers/train.sif, which is built first; its digest is an input of the steps. Docs: docs/slurm.md

import atexit
import shutil
import subprocess

from kevin.judge.sandbox import apptainer
from snakemake.settings.types import DeploymentMethod


def slurm_executor():
    """The executor of this run if it is Slurm's, else None."""
    executor = getattr(workflow.scheduler, "_executor", None)
    return executor if hasattr(executor, "slurm_logdir") else None


def slurm_minutes(limit):
    """Minutes of a time limit as sinfo prints it ([days-][[hours:]minutes:]seconds), None without one."""
    if limit in ("infinite", "n/a"):
        return None
    days, _, clock = limit.rpartition("-")
    parts = [int(part) for part in clock.split(":")]
    hours, minutes, seconds = [0, 0, 0, *parts][-3:]
    return int(days or 0) * 1440 + hours * 60 + minutes + seconds / 60


def slurm_partitions():
    """Name -> (is the default, minutes or None, holds GPUs). Raises WorkflowError without a Slurm that answers."""
    fix = "start it on a login node of the cluster, or run here by leaving out --profile slurm"
    if shutil.which("sinfo") is None or shutil.which("sbatch") is None:
        raise WorkflowError(
            f"--profile slurm: there is no Slurm on this machine (no sbatch in PATH); {fix}"
        )
    found = subprocess.run(
        ["sinfo", "--noheader", "--format", "%P|%l|%G"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    if found.returncode != 0:
        raise WorkflowError(
            f"--profile slurm: Slurm does not answer ({found.stderr.strip()}); {fix}"
        )
    partitions = {}
    for line in filter(None, found.stdout.split("\n")):
        name, limit, gres = line.split("|")
        default, gpus = name.endswith("*"), "gpu" in gres
        name = name.rstrip("*")
        gpus = gpus or partitions.get(name, (False, None, False))[2]
        partitions[name] = (default, slurm_minutes(limit), gpus)
    return partitions


def check_cluster():
    """Refuse what Slurm would leave in its queue for ever, with the setting to change."""
    if slurm_executor() is None:
        return
    partitions = slurm_partitions()
    own_file = workflow.executor_settings.partition_config
    default = next(
        (name for name, (is_default, *_) in partitions.items() if is_default), None
    )
    wanted = set(workflow.dag.needrun_jobs())
    for job in workflow.dag.get_jobs_or_groups():
        own_rules = {
            j.rule.name for j in (job.jobs if job.is_group() else [job]) if j in wanted
        }
        if not own_rules or job.is_local or own_file:
            continue
        name = min(own_rules)
        asked = job.resources.get("slurm_partition") or default
        where = f"--profile slurm, rule {name}"
        if asked is None:
            raise WorkflowError(
                f"{where}: this cluster has no default partition; set default-resources: slurm_partition in a profile"
                f" of your own to one of {', '.join(partitions)} (docs/slurm.md)"
            )
        unknown = [part for part in asked.split(",") if part not in partitions]
        if unknown:
            raise WorkflowError(
                f"{where}: slurm_partition {unknown[0]} does not exist; this cluster has {', '.join(partitions)}"
            )
        chosen = [partitions[part] for part in asked.split(",")]
        limits = [minutes for _, minutes, _ in chosen]
        minutes = job.resources.get("runtime", 0)
        if None not in limits and minutes > max(limits):
            raise WorkflowError(
                f"{where}: runtime {minutes} minutes is more than partition {asked} allows ({max(limits):.0f});"
                f" set set-resources: {name}: runtime, or another slurm_partition"
            )
        if job.resources.get("gpu") and not any(gpus for *_, gpus in chosen):
            raise WorkflowError(
                f"{where}: it needs {job.resources.gpu} GPUs and partition {asked} has none;"
                f" set set-resources: {name}: slurm_partition to one of"
                f" {', '.join(n for n, (*_, gpus) in partitions.items() if gpus) or '(none here has GPUs)'}"
            )


def cancel_jobs(run):
    """Every Slurm job of the run with this name, running or waiting."""
    subprocess.run(["scancel", "--name", run], timeout=60, check=False)


def own_jobs():
    """Jobs of a run that was killed are ended before the next one writes the same files; those of this run when it
    ends. The executor cancels what it knows at that moment, which leaves out jobs that are just being submitted or
    asked about."""
    if (executor := slurm_executor()) is None:
        return
    note = Path(".snakemake/slurm_run")
    if note.exists():
        cancel_jobs(note.read_text())
    note.write_text(executor.run_uuid)
    atexit.register(cancel_jobs, executor.run_uuid)


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
