# The validated configuration, and what the other files ask of it. Which files there are, on what each step depends and
# what it needs of a machine stands in src/kevin/workflow.

import re
from contextlib import contextmanager
from pathlib import Path

from snakemake.exceptions import WorkflowError

from kevin.core.config import validate_study
from kevin.core.config.layers import plain, read_layers
from kevin.core.config.study import RANDOM_MODELS
from kevin.core.errors import KevinError
from kevin.report.captions import caption_of, captions, labels_of
from kevin.report.catalogue import FIGURES, REPLACED, reads
from kevin.report.recipes import CEILING
from kevin.workflow import given, replicates
from kevin.workflow.digests import StudyDigests, code_digest
from kevin.workflow.folder import may_replace
from kevin.workflow.targets import Targets, options, repeat

# Not a setting of the study: which trainings, of a configuration that is made arm by arm.
ARMS = replicates.arms_of(config.pop("arm", None))
# In the order in which they are laid over each other; Snakemake lists those of the command line first.
layers = sorted(workflow.configfiles, key=workflow.overwrite_configfiles.__contains__)
typed = ["--config"] if workflow.config_settings.config else []
origin = " + ".join([*map(str, layers), *typed]) or "the configuration"


class Refused(WorkflowError):
    """Snakemake says of an error which lines of code it came through; of a refusal there is nothing to see in them."""

    __traceback__ = property(lambda self: None, lambda self, value: None)


@contextmanager
def refusing(place=None):
    """What this project refuses is said in its own words alone."""
    try:
        yield
    except KevinError as e:
        raise Refused(f"{place}: {e}" if place else str(e)) from None


with refusing():
    # Nor is this: whether it may take the place of a finished one with other settings.
    MAY_REPLACE = may_replace(config.pop("replace", False))
    if workflow.is_main_process:
        # Snakemake's own reading takes the last of two equal keys, and knows no order.
        read_layers([Path(layer) for layer in layers])
    study = validate_study(replicates.of_arms(plain(config), ARMS), origin)
with refusing(origin):
    given.require_folder(study)
    targets = Targets(study, ARMS)
digests = StudyDigests(study)

CONFIG = f"{study.results}/config.yaml"
STORE = f"{study.results}/store"


wildcard_constraints:
    policy="|".join(map(re.escape, study.policies)),
    split="train|level[1-4]|unseen",
    table="|".join(targets.table_names),
    figure="|".join([*FIGURES, *REPLACED]),
    run="|".join(map(re.escape, study.runs)) or "none",
    strategy="|".join(map(re.escape, study.search.strategies)) or "none",


def own_model(policy, waits):
    """What makes a policy of this study's own; of a base model whether it waits for its check, too."""
    checked = study.is_base_model(policy) and waits
    return [*targets.model(policy), *(targets.check(policy) if checked else [])]


def policy_files(wildcards):
    """Where jobs run side by side a base model is being checked while it is played already."""
    with refusing(origin):
        given.require_player(study, wildcards.policy)
    return own_model(wildcards.policy, waits=machine.side_by_side == 1)


def initial_model(wildcards):
    """The model that a run starts from, where this study makes it. With several GPUs it is checked meanwhile."""
    waits = machine.side_by_side == 1 or machine.needs.gpus == 0
    with refusing(origin):
        return own_model(given.initial_policy(study, wildcards.run), waits)


def figure_files(wildcards):
    with refusing():
        return targets.of_figure(wildcards.figure)


def looked_for(require):
    """No file of a rule, but a word where something that it reads is not there."""

    def files(wildcards):
        with refusing(origin):
            require(study)
        return []

    return files


# What `snakemake --report` shows of a file: report(<file>, **REPORTED). rules/caption.rst, a template that knows its job,
# finds the text here.
config["captions"] = {name: caption.text for name, caption in captions().items()}
REPORTED = {
    "caption": "caption.rst",
    "category": lambda wildcards, output: caption_of(output[0]).category,
    "labels": lambda wildcards, output: labels_of(output[0]),
}
# Under `params` of what is made of files alone. Each depends on all that a table may be made of: Snakemake does not miss a
# file in the middle while the last one is there, so that after a failed step an earlier one's would seem done.
OF_REPORT = {
    "config": CONFIG,
    "depends": lambda wildcards: digests.report,
    "code": code_digest(Path(workflow.basedir, "src", "kevin"), "core", "report"),
}
