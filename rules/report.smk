rule score_turns:
    """Scores, returns and best kernels so far of one policy's turns."""
    input:
        lambda wildcards: targets.check(wildcards.policy),
        tasks="<results>/tasks.parquet",
        turns="<results>/rollouts/{policy}-{split}/turns.parquet",
    output:
        "<results>/scores/{policy}-{split}.parquet",
    log:
        "<results>/logs/score_turns-{policy}-{split}.log",
    benchmark:
        "<results>/benchmarks/score_turns-{policy}-{split}.tsv"
    wildcard_constraints:
        policy="|".join(map(re.escape, targets.compared)),
    resources:
        **LIGHT,
    params:
        **OF_REPORT,
    shell:
        "kevin --log {log:q} score --config {params.config:q} --turns {input.turns:q} --tasks {input.tasks:q}"
        " --policy {wildcards.policy:q} --split {wildcards.split:q} --out {output:q}"


rule make_table:
    """One table of the catalogue; for papers as Markdown and LaTeX too."""
    input:
        unpack(lambda wildcards: targets.of_table(wildcards.table)),
    output:
        csv=report("<results>/tables/{table}.csv", **REPORTED),
        md="<results>/tables/{table}.md",
        tex="<results>/tables/{table}.tex",
    log:
        "<results>/logs/make_table-{table}.log",
    benchmark:
        "<results>/benchmarks/make_table-{table}.tsv"
    resources:
        **LIGHT,
    params:
        **OF_REPORT,
        files=lambda wildcards: options(targets.of_table(wildcards.table)),
    shell:
        "kevin --log {log:q} table {wildcards.table:q} --config {params.config:q} {params.files} --out {output.csv:q}"


rule draw_figure:
    """One figure of the catalogue as PNG and PDF, with a CSV of exactly what is plotted."""
    input:
        unpack(figure_files),
    output:
        report("<results>/figures/{figure}.png", **REPORTED),
        "<results>/figures/{figure}.pdf",
        "<results>/figures/{figure}.csv",
    log:
        "<results>/logs/draw_figure-{figure}.log",
    benchmark:
        "<results>/benchmarks/draw_figure-{figure}.tsv"
    resources:
        **LIGHT,
    params:
        **OF_REPORT,
        files=lambda wildcards: options(targets.of_figure(wildcards.figure)),
        store=lambda wildcards: repeat(
            "--store", [STORE] if "store" in reads(FIGURES[wildcards.figure]) else []
        ),
        folder=subpath(output[0], parent=True),
    shell:
        "kevin --log {log:q} figure {wildcards.figure:q} --config {params.config:q} {params.files} {params.store}"
        " --out-dir {params.folder:q}"


rule write_report:
    """The study on one page that needs nothing else."""
    input:
        tasks="<results>/tasks.parquet",
        baselines=targets.baselines,
        tables=targets.tables,
        figures=targets.figures,
        scores=targets.scores,
        turns=targets.turns,
        trainings=targets.trainings,
    output:
        report("<results>/report.html", **REPORTED),
    log:
        "<results>/logs/write_report.log",
    benchmark:
        "<results>/benchmarks/write_report.tsv"
    resources:
        **LIGHT,
    params:
        **OF_REPORT,
        files=lambda wildcards, input: options(
            input, "tables", "figures", "scores", "turns", "trainings"
        ),
    shell:
        "kevin --log {log:q} report --config {params.config:q} --tasks {input.tasks:q} --baselines {input.baselines:q}"
        " {params.files} --out {output:q}"
