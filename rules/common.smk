# The validated configuration, what each step depends on, and helpers of the other files.

import re
import shlex
import signal
import sys
from pathlib import Path

from snakemake.exceptions import WorkflowError
from snakemake.logging import logger

from kevin.cli.follow import follow
from kevin.core.config import validate_study
from kevin.core.config.study import RANDOM_MODELS
from kevin.core.config.layers import plain
from kevin.core.errors import ConfigError, UsageError
from kevin.core.provenance import SIDE_BY_SIDE
from kevin.policy.weights_place import must_be_local
from kevin.report.captions import caption_of, captions, labels_of
from kevin.report.catalogue import (
    DRAWN_ALWAYS,
    DRAWN_OF_TRAINING,
    FIGURES,
    OF_SCORES,
    OF_TRAINING,
    SPLITS,
    TABLES,
    reads,
)
from kevin.report.field import field_rollouts, field_runs
from kevin.tasks.kernelbench import is_kernelbench
from kevin.train.weights import PACKAGE, find_weights, is_packed
from kevin.workflow.digests import StudyDigests, code_digest
from kevin.workflow.folder import (
    changed_settings,
    claim_folder,
    listed,
    require_replaceable,
    save_config,
)

# Not a setting of the study: whether it may take the place of a finished one with other settings.
MAY_REPLACE = bool(config.pop("replace", False))

try:
    origin = (
        " + ".join(str(file) for file in workflow.configfiles) or "the configuration"
    )
    study = validate_study(plain(config), origin)
except ConfigError as e:
    raise WorkflowError(str(e)) from None

CEILING = "ceiling"
CONFIG = f"{study.results}/config.yaml"
# Snakemake tells of a step that is to be made again by two digests; these are the keys behind them.
CHANGES = changed_settings(study, Path(CONFIG)) if workflow.is_main_process else []
if CHANGES:
    logger.info(
        f"{study.results} was made with other settings; what depends on them is made again:\n{listed(CHANGES)}"
    )
OWN_LEVELS = () if study.tasks.source == "kernelbench" else (1, 2)
ADDED_LEVELS = () if study.tasks.source == "catalog" else study.tasks.kernelbench.levels
LEVELS = {*OWN_LEVELS, *ADDED_LEVELS}
# Levels beyond 2 are only evaluated. New fused tasks beside KernelBench's held-out ones, as in the paper.
UNSEEN = (
    study.tasks.source == "kernelbench"
    and is_kernelbench(study.tasks.kernelbench)
    and study.tasks.num_eval_level2 > 0
)
EVAL_SPLITS = [
    *(f"level{level}" for level in sorted(LEVELS)),
    *(["unseen"] if UNSEEN else []),
]
COMPARED = [*study.evaluate, *([CEILING] if study.dialect == "c_abi" else [])]
# The kernel writer knows no whole networks.
COMPARED_ON = [
    (policy, split)
    for policy in COMPARED
    for split in EVAL_SPLITS
    if policy != CEILING or split not in ("level3", "level4")
]
BASE_MODEL = f"{study.results}/base_model"
BASE_MODEL_CHECK = f"{study.results}/checks/base_model.json"
DEVICE = study.judge.device
# The runs that the report compares.
SHOWN_RUNS = [run for run in study.runs if run in map(study.made_by, study.evaluate)]
SHOWN_SEARCH = ["search"] if study.search.compared else []
SHOWN_TABLES = [
    *(name for name in OF_SCORES if name not in SPLITS or name in EVAL_SPLITS),
    *SHOWN_SEARCH,
    *(OF_TRAINING if SHOWN_RUNS else []),
]
SHOWN_FIGURES = [
    *DRAWN_ALWAYS,
    *SHOWN_SEARCH,
    *(DRAWN_OF_TRAINING if SHOWN_RUNS else []),
]

if CEILING in study.policies:
    raise WorkflowError(
        f"{origin}: policies.{CEILING}: this name is taken by the ceiling of the tables; choose another"
    )


wildcard_constraints:
    policy="|".join(map(re.escape, study.policies)),
    split="train|level[1-4]|unseen",
    table="|".join(name for name in TABLES if name not in SPLITS or name in EVAL_SPLITS),
    figure="|".join(FIGURES),
    run="|".join(map(re.escape, study.runs)) or "none",
    strategy="|".join(map(re.escape, study.search.strategies)) or "none",


# Expensive steps are made again when something that they depend on changes its meaning: see kevin.workflow.digests.
digests = StudyDigests(study)


def own_model(policy):
    """What makes a policy of this study's own: the base model, or the export of a training run. With several GPUs a base
    model is being checked while others train and play it already.
    """
    if study.is_base_model(policy):
        return [BASE_MODEL, *(base_model_check(policy) if side_by_side() == 1 else [])]
    if study.policies[policy].random_shapes:
        return [study.policies[policy].model]
    run = study.made_by(policy)
    return [f"{study.results}/policies/{run}"] if run else []


def base_model_check(policy):
    """The check without which nothing is said of a policy: of the base model, and of what was trained from it."""
    made = policy != CEILING and study.is_base_model(study.origins(policy)[-1])
    return [BASE_MODEL_CHECK] if made else []


def run_digest(wildcards):
    return digests.run(wildcards.run)


def policy_digest(wildcards):
    return digests.policy(wildcards.policy)


def random_model_digest(wildcards):
    return digests.random_model(wildcards.policy)


def search_digest(wildcards):
    return digests.strategy(wildcards.policy, wildcards.strategy)


def report_digest(wildcards):
    """Of all that a table may be made of. Where a step failed, what was made of an earlier one would else seem done:
    Snakemake does not miss a file in the middle while the last one is there."""
    return digests.report


def policy_files(wildcards):
    """A dry run tells of a model that is not there, too; one whose answers are there already is not missed."""
    folders = [f"rollouts/{wildcards.policy}-*", f"search/*/{wildcards.policy}-*"]
    if not any(
        file
        for folder in folders
        for file in Path(study.results).glob(f"{folder}/turns.parquet")
    ):
        require_model(wildcards.policy)
    return own_model(wildcards.policy)


def task_files(wildcards):
    """No file; a dry run tells of a folder of tasks that is not there, too, unless they were read already."""
    folder = study.tasks.kernelbench.path if study.tasks.source != "catalog" else None
    if folder is not None and not Path(study.results, "tasks.parquet").exists():
        if not Path(folder).expanduser().is_dir():
            raise WorkflowError(
                f"{origin}: tasks.kernelbench.path: there is no folder {folder} in {Path.cwd()}"
            )
    return []


def weight_files(wildcards):
    """No file; the same of pretrained weights, but for those of a package, which may be installed until then."""
    init = study.base_model.init
    try:
        if init and not init.startswith(PACKAGE) and not Path(BASE_MODEL).exists():
            find_weights(init)
    except ConfigError as e:
        raise WorkflowError(f"{origin}: {e}") from None
    return []


REPORT_CODE = code_digest(Path(workflow.basedir, "src", "kevin"), "core", "report")


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
# core, so that nothing else disturbs its clock, or all but one where that is a GPU's. A laptop's training and judging
# take 3.9 GB, and 5 where a cluster counts pages once for each process that shares them.
SCALES = {
    "laptop": {"threads": 2, "mem_mb": 8000, "runtime": 60, "gpu": 0},
    "gpu": {"threads": 16, "mem_mb": 64000, "runtime": 240, "gpu": 1},
    "coder": {"threads": 16, "mem_mb": 96000, "runtime": 720, "gpu": 1},
    "paper": {"threads": 64, "mem_mb": 500000, "runtime": 2880, "gpu": 8},
}
NEEDS = SCALES[study.scale]
# Of jobs that could start, those that most others wait for come first.
PRIORITY = {"base_model": 3, "train": 2, "rollout": 1}


def side_by_side():
    """How many jobs of one GPU each run at a time on this machine: as many as it has GPUs, by ``--resources gpu=2``.
    Where the study has its kernels judged on several, or on one of their own, a job has them all.
    """
    given = workflow.global_resources.get("gpu")
    gpus = given.value if given and isinstance(given.value, int) else 1
    shared = study.pool.device_workers > 1 or study.pool.gpus
    return 1 if shared or NEEDS["gpu"] != 1 else max(1, gpus)


def all_cores():
    """Every core of this machine, or a job's share of them; of a cluster's node, as many as the scale needs. A GPU's clock
    does not mind one core: there one is left, on which weights are unpacked, policies exported and tables made meanwhile.
    """
    left = 1 if DEVICE == "cuda" else 0
    try:
        return max(1, (workflow.cores - left) // side_by_side())
    except WorkflowError:
        return NEEDS["threads"]


def initial_model(wildcards):
    """The model that a run starts from, where this study makes it."""
    init = study.for_run(wildcards.run).train.init
    if not Path(study.results, "train", wildcards.run, "summary.json").exists():
        require_model(init)
    return own_model(init)


# Several GPUs train as one: weights, gradients and optimizer are spread over them.
LAUNCHER = (
    f"accelerate launch --config_file {shlex.quote(workflow.basedir)}/config/accelerate/zero3-{NEEDS['gpu']}.yaml"
    " --no_python "
    if NEEDS["gpu"] > 1
    else ""
)


def require_model(policy):
    """Refuse a model or a recording that is not there, before anything is made for it."""
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


def check_models():
    for job in workflow.dag.needrun_jobs():
        names = {
            "run_rollouts": lambda w: w.policy,
            "run_search": lambda w: w.policy,
            "train_policy": lambda w: study.for_run(w.run).train.init,
        }
        if job.rule.name in names:
            require_model(names[job.rule.name](job.wildcards))


# What takes long, and is not made of other files alone.
COSTLY = (
    *("train_base_model", "judge_past", "train_policy"),
    *("run_rollouts", "run_search", "judge_ceiling", "measure_baselines"),
)


def check_replaced():
    """Ask before a finished study gives way to one with other settings."""
    replaced = [
        job.rule.name
        for job in workflow.dag.needrun_jobs()
        if job.rule.name in COSTLY and any(Path(file).exists() for file in job.output)
    ]
    try:
        require_replaceable(study, CHANGES, replaced, may_replace=MAY_REPLACE)
    except UsageError as e:
        raise WorkflowError(str(e)) from None


def claim():
    try:
        claim_folder(Path(".snakemake/running"))
    except UsageError as e:
        raise WorkflowError(str(e)) from None


onstart:
    follow("KEVIN_MAKE_PID", signal.SIGKILL)
    claim()
    check_image()
    check_cluster()
    check_models()
    check_replaced()
    own_jobs()
    save_config(study, Path(CONFIG))


# `kevin` is the one beside this interpreter; it ends by itself when this process is gone (kevin.cli.follow).
shell.prefix(
    f'export PATH={shlex.quote(str(Path(sys.executable).parent))}:"$PATH" KEVIN_WORKFLOW_PID=$PPID'
    f" {SIDE_BY_SIDE}={side_by_side()}; "
)


# What `snakemake --report` shows of a file: report(<file>, **REPORTED). rules/caption.rst, a template that knows its job,
# finds the text here.
config["captions"] = {name: caption.text for name, caption in captions().items()}
REPORTED = {
    "caption": "caption.rst",
    "category": lambda wildcards, output: caption_of(output[0]).category,
    "labels": lambda wildcards, output: labels_of(output[0]),
}


FIELD_TURNS = [
    (
        f"<results>/rollouts/{policy}-{split}/turns.parquet"
        if strategy is None
        else f"<results>/search/{strategy}/{policy}-{split}/turns.parquet"
    )
    for policy, strategy in dict.fromkeys(field_rollouts(study).values())
    for split in EVAL_SPLITS
]


def drawn_runs(name):
    """Those that the report compares; all for the ablations. For stability those that differ in no more than what it is
    about, of all where the report compares none."""
    if name == "ablations":
        return list(study.runs)
    if name == "stability" and not SHOWN_RUNS:
        return [
            name
            for name, run in study.runs.items()
            if not run.reward
            and not run.rollout
            and run.train.keys() <= {"seed", "loss", "max_grad_norm"}
        ]
    return SHOWN_RUNS


def trained(runs):
    return expand("<results>/train/{run}/summary.json", run=runs)


def made_of(entry, name):
    """The files that a table or figure is made of, by their names in the catalogue; and the trainings behind them."""
    needed = reads(entry)
    shown = study.search.compared or name.startswith("search")
    every = {
        "scores": SCORES,
        "turns": FIELD_TURNS if name == "field" else TURNS,
        "search": SEARCH_TURNS if shown else [],
        "runs": trained(drawn_runs(name)),
        "kernels": expand("<results>/audit/{run}.parquet", run=study.audited),
        "tasks": "<results>/tasks.parquet",
        "baselines": f"<results>/baselines/{DEVICE}.parquet",
        "table": f"<results>/tables/{name}.csv",
    }
    files = {key: every[key] for key in needed if key != "store"}
    if not {"table", "runs"} & set(needed):
        own = {"field": field_runs(study), "audit": study.audited}
        files["trainings"] = [*OWN_BASE, *trained(own.get(name, SHOWN_RUNS))]
    elif "runs" in needed and name in FIGURES:
        files["trainings"] = OWN_BASE
    return files


def options(wildcards, input):
    """Each input as an option of the command."""
    named = ("scores", "turns", "search", "kernels", "tasks", "baselines", "table")
    given = {key: input[key] for key in named if key in input.keys()}
    said = [
        repeat(f"--{key}", [files] if isinstance(files, str) else files)
        for key, files in given.items()
    ]
    runs = input.get("runs", [])
    said.append(repeat("--run-dir", [Path(run).parent for run in runs]))
    said.append(summaries([*input.get("trainings", []), *runs]))
    return " ".join(filter(None, said))
