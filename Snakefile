# The study as files: `snakemake` makes everything, `snakemake results/tables/level2.csv` one of them.
# Stages are in rules/, settings in config/, the work itself in the `kevin` commands that the rules call.

from snakemake.utils import min_version

min_version("9.27")


configfile: "config/config.yaml"


# Read only with --software-deployment-method apptainer; otherwise rules run in the environment of snakemake itself.
container: "containers/train.sif"


include: "rules/common.smk"
include: "rules/cluster.smk"
include: "rules/start.smk"


pathvars:
    results=study.results,


include: "rules/containers.smk"
include: "rules/tasks.smk"
include: "rules/past.smk"
include: "rules/base_model.smk"
include: "rules/judge.smk"
include: "rules/rollout.smk"
include: "rules/train.smk"
include: "rules/report.smk"
include: "rules/publish.smk"


rule all:
    """Every table and figure, and the page that shows them."""
    default_target: True
    input:
        targets.deliverables,
