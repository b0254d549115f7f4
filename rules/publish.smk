OF_TASKS = ("tasks", "baselines")


rule publish:
    """Answers, kernels and all else of which others make each table again and judge each kernel again, with the trained
    models and a model card."""
    input:
        **targets.published,
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
        files=options(
            targets.published,
            *(name for name in targets.published if name not in OF_TASKS),
        ),
        of_tasks=options(
            targets.published,
            *(name for name in OF_TASKS if name in targets.published),
        ),
        store=STORE,
    shell:
        "kevin --log {log:q} publish --config {params.config:q} {params.files}"
        " {params.of_tasks} --store {params.store:q} --out {output:q}"
