# The systems of the field, each a configuration over the same loop (config/field.yaml, docs/field.md).

from kevin.report.field import field_rollouts, field_runs

FIELD_TURNS = [
    (
        f"<results>/rollouts/{policy}-{split}/turns.parquet"
        if strategy is None
        else f"<results>/search/{strategy}/{policy}-{split}/turns.parquet"
    )
    for policy, strategy in dict.fromkeys(field_rollouts(study).values())
    for split in EVAL_SPLITS
]


rule compare_field:
    """Training and training-free systems side by side at equal judged kernels, with what their authors published."""
    input:
        tasks="<results>/tasks.parquet",
        turns=FIELD_TURNS,
        trainings=[
            *OWN_BASE,
            *expand("<results>/train/{run}/summary.json", run=field_runs(study)),
        ],
    output:
        csv=report("<results>/tables/field.csv", **REPORTED),
        md="<results>/tables/field.md",
        tex="<results>/tables/field.tex",
    log:
        "<results>/logs/compare_field.log",
    benchmark:
        "<results>/benchmarks/compare_field.tsv"
    resources:
        mem_mb=2000,
        runtime=4,
    params:
        config=CONFIG,
        depends=report_digest,
        code=REPORT_CODE,
        turns=lambda wildcards, input: repeat("--turns", input.turns),
        summaries=lambda wildcards, input: summaries(input.trainings),
    shell:
        "kevin --log {log:q} field --config {params.config:q} {params.turns} {params.summaries} --tasks {input.tasks:q}"
        " --out {output.csv:q}"
