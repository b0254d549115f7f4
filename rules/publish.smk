rule publish:
    """Answers, kernels and all else of which others make each table again and judge each kernel again, with the trained
    models and a model card."""
    input:
        tasks="<results>/tasks.parquet",
        scores=targets.scores,
        turns=targets.turns,
        search=targets.shown_search,
        baselines=targets.baselines,
        trainings=targets.trainings,
        tables=targets.tables,
        model=expand("<results>/policies/{run}", run=targets.runs),
    output:
        directory("<results>/published"),
    log:
        "<results>/logs/publish.log",
    benchmark:
        "<results>/benchmarks/publish.tsv"
    resources:
        **LIGHT,
    params:
        **OF_REPORT,
        files=lambda wildcards, input: options(
            input, "scores", "turns", "search", "tables", "model", "trainings"
        ),
        store=STORE,
    shell:
        "kevin --log {log:q} publish --config {params.config:q} {params.files}"
        " --tasks {input.tasks:q} --baselines {input.baselines:q} --store {params.store:q} --out {output:q}"
