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
        files=options(targets.published),
        store=STORE,
    shell:
        "kevin --log {log:q} publish --config {params.config:q} {params.files}"
        " --store {params.store:q} --out {output:q}"


rule compare_replicates:
    """The declared comparison, over all replicates that have published their answers here."""
    input:
        published=replicates.finished(),
    output:
        f"{replicates.FOLDER}/figures/by_task.png",
        f"{replicates.FOLDER}/figures/by_task.pdf",
        f"{replicates.FOLDER}/figures/by_task.csv",
        table=f"{replicates.FOLDER}/tables/primary.csv",
    log:
        f"{replicates.FOLDER}/logs/compare_replicates.log",
    resources:
        **LIGHT,
    params:
        code=OF_REPORT["code"],
        files=lambda wildcards, input: repeat("--published", input.published),
        figures=subpath(output[0], parent=True),
    shell:
        "kevin --log {log:q} replicates {params.files} --out {output.table:q} --figures {params.figures:q}"
