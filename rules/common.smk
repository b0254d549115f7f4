# The validated configuration, what each step depends on, and helpers of the other files.

import fcntl
import os
import signal
import sys
import time
from pathlib import Path

import yaml
from snakemake.exceptions import WorkflowError
from snakemake.logging import logger

from kevin.cli.follow import follow
from kevin.core.config import section_digest, validate_study
from kevin.core.errors import ConfigError
from kevin.core.protocol import PROTOCOL_VERSION
from kevin.core.types import canonical_json, digest

try:
    origin = (
        " + ".join(str(file) for file in workflow.configfiles) or "the configuration"
    )
    study = validate_study(yaml.safe_load(canonical_json(config)), origin)
except ConfigError as e:
    raise WorkflowError(str(e)) from None

CEILING = "ceiling"
OWN_TASKS = study.tasks.source == "catalog"
LEVELS = (1, 2) if OWN_TASKS else study.tasks.kernelbench.levels
EVAL_SPLITS = [f"level{level}" for level in (1, 2) if level in LEVELS]
COMPARED = [*study.evaluate, *([CEILING] if OWN_TASKS else [])]
TABLES = [*EVAL_SPLITS, "serial_parallel", "tasks"]
FIGURES = (
    "serial_scaling",
    "parallel_scaling",
    "fast_p",
    "outcomes",
    "layernorm_case_study",
)
CONFIG = f"{study.results}/config.yaml"
BASE_MODEL = f"{study.results}/base_model"
DEVICE = study.judge.device
# Policies that a training run of this study makes, and the runs that the report compares.
TRAINED = {
    policy: run
    for policy, settings in study.policies.items()
    for run in study.runs
    if Path(settings.model) == Path(study.results, "policies", run)
}
SHOWN_RUNS = [run for run in study.runs if run in map(TRAINED.get, study.evaluate)]
SHOWN_TABLES = [*TABLES, *(["rl_gain", "step_time"] if SHOWN_RUNS else [])]
SHOWN_FIGURES = [*FIGURES, *(["training", "training_turns"] if SHOWN_RUNS else [])]

if CEILING in study.policies:
    raise WorkflowError(
        f"{origin}: policies.{CEILING}: this name is taken by the ceiling of the tables; choose another"
    )


wildcard_constraints:
    policy="|".join(study.policies),
    split="train|level1|level2|unseen",
    table="|".join(TABLES),
    figure="|".join(FIGURES),
    run="|".join(study.runs) or "none",
    training_figure="training|training_turns|ablations",


# Expensive steps are made again when something that they depend on changes its meaning, never because a file was
# touched: what they read of the configuration stands in their params as a digest, with a version that is raised when
# the step's code would make something else.
STEP_VERSIONS = {"tasks": 1, "base_model": 1, "rollout": 1, "ceiling": 1, "train": 1}


def step_digest(*parts):
    """Digest of configuration sections and plain values."""
    return digest(
        *(
            section_digest(p) if hasattr(p, "model_dump") else canonical_json(p)
            for p in parts
        )
    )[:16]


TASKS_DIGEST = step_digest(
    STEP_VERSIONS["tasks"], study.tasks, study.seed, study.judge.num_threads
)
JUDGE_DIGEST = step_digest(PROTOCOL_VERSION, study.judge)
KERNELS_DIGEST = step_digest(study.dialect, study.language)
REPORT_DIGEST = step_digest(study)


def policy_digest(wildcards):
    """What the answers of a policy depend on, and how they are judged."""
    return step_digest(
        STEP_VERSIONS["rollout"],
        study.policies[wildcards.policy].model_dump(
            mode="json", exclude={"label", "max_concurrency", "timeout_s"}
        ),
        study.rollout,
        study.seed,
        KERNELS_DIGEST,
        JUDGE_DIGEST,
    )


def policy_files(wildcards):
    """What makes the policies of this study's own: the base model, or the export of a training run."""
    model = study.policies[wildcards.policy].model.rstrip("/")
    run = TRAINED.get(wildcards.policy)
    own = [f"{study.results}/policies/{run}"] if run else []
    return [BASE_MODEL] if model == BASE_MODEL else own


def code(*packages):
    """Sources that a cheap step is made of: editing one of them makes its files again."""
    root = Path(workflow.basedir) / "src" / "kevin"
    files = (file for package in packages for file in (root / package).rglob("*"))
    return sorted(
        str(f) for f in files if f.is_file() and f.parent.name != "__pycache__"
    )


def repeat(option, files):
    """The same option once for each file."""
    return " ".join(f"{option} {file}" for file in files)


def summaries(trainings):
    """The option for each training's summary; an older base model has none, and then nothing is said of it."""
    return repeat(
        "--summaries",
        (t if str(t).endswith(".json") else f"{t}/summary.json" for t in trainings),
    )


# Per scale: cores, memory and minutes of a rule that judges or trains, and GPUs. A cluster reads them (the cores as
# `cpus_per_task`: `threads` is limited by the machine that snakemake runs on); on one machine such a rule takes every
# core, so that nothing else disturbs its clock.
SCALES = {
    "laptop": {"threads": 2, "mem_mb": 4000, "runtime": 60, "gpu": 0},
    "gpu": {"threads": 16, "mem_mb": 64000, "runtime": 240, "gpu": 1},
    "paper": {"threads": 64, "mem_mb": 500000, "runtime": 2880, "gpu": 8},
}
NEEDS = SCALES[study.scale]


def all_cores():
    """Every core of this machine; of a cluster's node, as many as the scale needs."""
    try:
        return workflow.cores
    except WorkflowError:
        return NEEDS["threads"]


def initial_model(wildcards):
    """The study's own base model, for runs that start from it."""
    init = study.for_run(wildcards.run).train.init
    own = study.policies[init].model.rstrip("/") == BASE_MODEL
    return [BASE_MODEL] if own else []


def run_digest(wildcards):
    """What a training run depends on."""
    own = study.for_run(wildcards.run)
    return step_digest(
        STEP_VERSIONS["train"],
        own.train,
        own.reward,
        own.policies[own.train.init].model,
        own.rollout,
        study.seed,
        TASKS_DIGEST,
        KERNELS_DIGEST,
        JUDGE_DIGEST,
    )


# Several GPUs train as one: weights, gradients and optimizer are spread over them.
LAUNCHER = (
    f"accelerate launch --config_file {workflow.basedir}/config/accelerate/zero3-{NEEDS['gpu']}.yaml --no_python "
    if NEEDS["gpu"] > 1
    else ""
)


LOCKS = []


def claim_folder(patience_s=15):
    """Hold this folder until the process ends, however it ends. Snakemake's own locks (switched off in
    profiles/default) outlive a run that was killed, and then stop the next one."""
    path = Path(".snakemake/running")
    path.parent.mkdir(exist_ok=True)
    file = path.open("a+")
    deadline = time.monotonic() + patience_s
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except BlockingIOError:
            if time.monotonic() > deadline:
                file.seek(0)
                raise WorkflowError(
                    f"another snakemake (process {file.read()}) is at work in {Path.cwd()}; wait until it is done"
                ) from None
            time.sleep(0.5)
        except OSError as e:
            logger.warning(
                f"no file locks here ({e}); do not start a second run in this folder"
            )
            return
    file.truncate(0)
    file.write(str(os.getpid()))
    file.flush()
    LOCKS.append(file)


def save_config():
    """The resolved configuration, beside the results; every step reads it. Not a rule's output: what a step depends on
    stands in its params, and a rule that is run again would hide those changes from the rules behind it.
    """
    from kevin.core.files import write_text

    text = yaml.safe_dump(study.model_dump(mode="json"), sort_keys=False)
    path = Path(CONFIG)
    if not path.exists() or path.read_text() != text:
        write_text(path, text)


onstart:
    follow("KEVIN_MAKE_PID", signal.SIGKILL)
    claim_folder()
    check_image()
    check_cluster()
    own_jobs()
    save_config()


# `kevin` is the one beside this interpreter; it ends by itself when this process is gone (kevin.cli.follow).
shell.prefix(
    f"export PATH='{Path(sys.executable).parent}':\"$PATH\" KEVIN_WORKFLOW_PID=$PPID; "
)
