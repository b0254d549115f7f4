# The validated configuration, what each step depends on, and helpers of the other files.

import fcntl
import os
import re
import shlex
import signal
import sys
import time
from functools import cache
from pathlib import Path

import yaml
from snakemake.exceptions import WorkflowError
from snakemake.logging import logger

from kevin.cli.follow import follow
from kevin.core.config import section_digest, validate_study
from kevin.core.content import content_digests
from kevin.core.errors import ConfigError
from kevin.core.lengths import configured_lengths
from kevin.core.protocol import PROTOCOL_VERSION
from kevin.core.types import canonical_json, digest
from kevin.policy.load import must_be_local, policy_identity
from kevin.rollout.run import VERSION as ROLLOUT_VERSION
from kevin.train.weights import weights_identity

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
COMPARED = [*study.evaluate, *([CEILING] if study.dialect == "c_abi" else [])]
TABLES = [*EVAL_SPLITS, "serial_parallel", "pass_at_k", "tasks"]
FIGURES = (
    "serial_scaling",
    "parallel_scaling",
    "fast_p",
    "outcomes",
    "layernorm_case_study",
)
CONFIG = f"{study.results}/config.yaml"
BASE_MODEL = f"{study.results}/base_model"
CHECKED_BASE_MODEL = [BASE_MODEL, f"{study.results}/checks/base_model.json"]
DEVICE = study.judge.device
# The runs that the report compares.
SHOWN_RUNS = [run for run in study.runs if run in map(study.made_by, study.evaluate)]
SHOWN_TABLES = [*TABLES, *(["rl_gain", "step_time"] if SHOWN_RUNS else [])]
SHOWN_FIGURES = [*FIGURES, *(["training", "training_turns"] if SHOWN_RUNS else [])]

if CEILING in study.policies:
    raise WorkflowError(
        f"{origin}: policies.{CEILING}: this name is taken by the ceiling of the tables; choose another"
    )


wildcard_constraints:
    policy="|".join(map(re.escape, study.policies)),
    split="train|level1|level2|unseen",
    table="|".join(TABLES),
    figure="|".join(FIGURES),
    run="|".join(map(re.escape, study.runs)) or "none",
    training_figure="training|training_turns|ablations",


# Expensive steps are made again when something that they depend on changes its meaning, never because a file was
# touched: what they read of the configuration, and the content of files that are the user's, stand in their params as a
# digest, with a version that is raised when the step's code would make something else.
STEP_VERSIONS = {
    "tasks": 1,
    "base_model": 2,
    "rollout": ROLLOUT_VERSION,
    "ceiling": 1,
    "train": 1,
}


def step_digest(*parts):
    """Digest of configuration sections and plain values."""
    return digest(
        *(
            section_digest(p) if hasattr(p, "model_dump") else canonical_json(p)
            for p in parts
        )
    )[:16]


def task_files():
    """What the tasks are read from, where that is a folder of the user's."""
    if OWN_TASKS:
        return {}
    from kevin.tasks.kernelbench import source_digests

    return source_digests(study.tasks.kernelbench)


TASKS_DIGEST = step_digest(
    STEP_VERSIONS["tasks"],
    study.tasks,
    task_files(),
    study.dialect,
    study.seed,
    study.judge.num_threads,
)
JUDGE_DIGEST = step_digest(PROTOCOL_VERSION, study.judge)
KERNELS_DIGEST = step_digest(study.dialect, study.language)
BASE_MODEL_PARTS = [
    STEP_VERSIONS["base_model"],
    section_digest(study.base_model),
    weights_identity(study.base_model.init) if study.base_model.init else {},
    study.seed,
    TASKS_DIGEST,
    KERNELS_DIGEST,
]


def own_model(policy):
    """What makes a policy of this study's own: the base model, or the export of a training run."""
    if study.is_base_model(policy):
        return CHECKED_BASE_MODEL
    run = study.made_by(policy)
    return [f"{study.results}/policies/{run}"] if run else []


def policy_parts(policy):
    """What a policy's answers depend on. A model that this study makes counts by what it is made of."""
    settings = study.policies[policy]
    run = study.made_by(policy)
    if run:
        made_of = run_parts(run)
    elif study.is_base_model(policy):
        made_of = BASE_MODEL_PARTS
    else:
        made_of = policy_identity(settings)["files"]
    return [settings.identity(), made_of, configured_lengths(study, policy)]


def run_parts(run):
    """What a training run depends on."""
    own = study.for_run(run)
    return [
        STEP_VERSIONS["train"],
        step_digest(own.train, own.reward, study.rollout),
        policy_parts(own.train.init),
        study.base_model.max_tokens,
        study.seed,
        TASKS_DIGEST,
        KERNELS_DIGEST,
        JUDGE_DIGEST,
    ]


def run_digest(wildcards):
    return step_digest(run_parts(wildcards.run))


def policy_digest(wildcards):
    """What the answers of a policy depend on, and how they are judged."""
    return step_digest(
        STEP_VERSIONS["rollout"],
        policy_parts(wildcards.policy),
        study.rollout,
        study.base_model.max_tokens,
        study.seed,
        TASKS_DIGEST,
        KERNELS_DIGEST,
        JUDGE_DIGEST,
    )


@cache
def study_digest():
    return step_digest(study, TASKS_DIGEST, [policy_parts(p) for p in study.evaluate])


def report_digest(wildcards):
    """Of all that a table may be made of. Where a step failed, what was made of an earlier one would else seem done:
    Snakemake does not miss a file in the middle while the last one is there."""
    return study_digest()


def policy_files(wildcards):
    return own_model(wildcards.policy)


def code(*packages):
    """Digest of the sources that a cheap step is made of: editing one of them makes its files again."""
    root = Path(workflow.basedir, "src", "kevin")
    return step_digest(*(content_digests(root / package) for package in packages))


REPORT_CODE = code("core", "report")


def repeat(option, files):
    """The same option once for each file, for a shell."""
    return " ".join(f"{option} {shlex.quote(str(file))}" for file in files)


def summaries(trainings):
    """The option for each training's summary; an older base model has none, and then nothing is said of it."""
    return repeat(
        "--summaries",
        (t if str(t).endswith(".json") else f"{t}/summary.json" for t in trainings),
    )


# Per scale: cores, memory and minutes of a rule that judges or trains, and GPUs. A cluster reads them (the cores as
# `cpus_per_task`: `threads` is limited by the machine that snakemake runs on); on one machine such a rule takes every
# core, so that nothing else disturbs its clock. A laptop's training and judging take 3.9 GB, and 5 where a cluster counts
# pages once for each process that shares them.
SCALES = {
    "laptop": {"threads": 2, "mem_mb": 8000, "runtime": 60, "gpu": 0},
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
    """The model that a run starts from, where this study makes it."""
    return own_model(study.for_run(wildcards.run).train.init)


# Several GPUs train as one: weights, gradients and optimizer are spread over them.
LAUNCHER = (
    f"accelerate launch --config_file {shlex.quote(workflow.basedir)}/config/accelerate/zero3-{NEEDS['gpu']}.yaml"
    " --no_python "
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


def check_models():
    """Refuse to start with a model or a recording that is not there, before anything is made for it."""
    for job in workflow.dag.needrun_jobs():
        names = {
            "run_rollouts": lambda w: w.policy,
            "train_policy": lambda w: study.for_run(w.run).train.init,
        }
        if job.rule.name not in names:
            continue
        policy = names[job.rule.name](job.wildcards)
        settings = study.policies[policy]
        local = settings.backend == "replay" or must_be_local(settings.model)
        if (
            settings.has_files
            and local
            and not own_model(policy)
            and not Path(settings.model).exists()
        ):
            raise WorkflowError(
                f"{origin}: policies.{policy}.model: there is no {settings.model} in {Path.cwd()}, and no step of this"
                " study makes it; its own models are <results>/base_model and <results>/policies/<run>"
            )


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
    check_models()
    own_jobs()
    save_config()


# `kevin` is the one beside this interpreter; it ends by itself when this process is gone (kevin.cli.follow).
shell.prefix(
    f'export PATH={shlex.quote(str(Path(sys.executable).parent))}:"$PATH" KEVIN_WORKFLOW_PID=$PPID; '
)
