# Tables and figures of the catalogue (kevin.report.catalogue): what each is made of stands there.
SCORES = [f"<results>/scores/{policy}-{split}.parquet" for policy, split in COMPARED_ON]
TURNS = [
    f"<results>/rollouts/{policy}-{split}/turns.parquet"
    for policy, split in COMPARED_ON
]
# Trainings behind the numbers; their summaries say whether a time budget cut them.
OWN_BASE = [BASE_MODEL] if any(map(base_model_check, study.evaluate)) else []
TRAININGS = [
    *OWN_BASE,
    *expand("<results>/train/{run}/summary.json", run=SHOWN_RUNS),
]


rule score_turns:
    """Scores, returns and best kernels so far of one policy's turns."""
    input:
        lambda wildcards: base_model_check(wildcards.policy),
        tasks="<results>/tasks.parquet",
        turns="<results>/rollouts/{policy}-{split}/turns.parquet",
    output:
        "<results>/scores/{policy}-{split}.parquet",
    log:
        "<results>/logs/score_turns-{policy}-{split}.log",
    benchmark:
        "<results>/benchmarks/score_turns-{policy}-{split}.tsv"
    wildcard_constraints:
        policy="|".join(map(re.escape, COMPARED)),
    resources:
        mem_mb=2000,
        runtime=4,
    params:
        config=CONFIG,
        depends=report_digest,
        code=REPORT_CODE,
    shell:
        "kevin --log {log:q} score --config {params.config:q} --turns {input.turns:q} --tasks {input.tasks:q}"
        " --policy {wildcards.policy:q} --split {wildcards.split:q} --out {output:q}"


rule make_table:
    """One table of the catalogue; for papers as Markdown and LaTeX too."""
    input:
        unpack(lambda wildcards: made_of(TABLES[wildcards.table], wildcards.table)),
    output:
        csv=report("<results>/tables/{table}.csv", **REPORTED),
        md="<results>/tables/{table}.md",
        tex="<results>/tables/{table}.tex",
    log:
        "<results>/logs/make_table-{table}.log",
    benchmark:
        "<results>/benchmarks/make_table-{table}.tsv"
    resources:
        mem_mb=2000,
        runtime=4,
    params:
        config=CONFIG,
        depends=report_digest,
        code=REPORT_CODE,
        files=options,
    shell:
        "kevin --log {log:q} table {wildcards.table:q} --config {params.config:q} {params.files} --out {output.csv:q}"


rule draw_figure:
    """One figure of the catalogue as PNG and PDF, with a CSV of exactly what is plotted."""
    input:
        unpack(lambda wildcards: made_of(FIGURES[wildcards.figure], wildcards.figure)),
    output:
        report("<results>/figures/{figure}.png", **REPORTED),
        "<results>/figures/{figure}.pdf",
        "<results>/figures/{figure}.csv",
    log:
        "<results>/logs/draw_figure-{figure}.log",
    benchmark:
        "<results>/benchmarks/draw_figure-{figure}.tsv"
    resources:
        mem_mb=2000,
        runtime=4,
    params:
        config=CONFIG,
        depends=report_digest,
        code=REPORT_CODE,
        files=options,
        store=lambda wildcards: (
            f"--store {shlex.quote(f'{study.results}/store')}"
            if "store" in reads(FIGURES[wildcards.figure])
            else ""
        ),
        folder=lambda wildcards, output: str(Path(output[0]).parent),
    shell:
        "kevin --log {log:q} figure {wildcards.figure:q} --config {params.config:q} {params.files} {params.store}"
        " --out-dir {params.folder:q}"


rule publish:
    """Answers, kernels and all else of which others make each table again and judge each kernel again, with the trained
    models and a model card."""
    input:
        tasks="<results>/tasks.parquet",
        scores=SCORES,
        turns=TURNS,
        search=lambda wildcards: SEARCH_TURNS if study.search.compared else [],
        baselines=f"<results>/baselines/{DEVICE}.parquet",
        trainings=TRAININGS,
        tables=expand("<results>/tables/{table}.csv", table=SHOWN_TABLES),
        model=expand("<results>/policies/{run}", run=SHOWN_RUNS),
    output:
        directory("<results>/published"),
    log:
        "<results>/logs/publish.log",
    benchmark:
        "<results>/benchmarks/publish.tsv"
    resources:
        mem_mb=2000,
        runtime=4,
    params:
        config=CONFIG,
        depends=report_digest,
        code=REPORT_CODE,
        files=lambda wildcards, input: " ".join(
            repeat(f"--{name}", input[name])
            for name in ("scores", "turns", "search", "tables", "model")
        ),
        summaries=lambda wildcards, input: summaries(input.trainings),
        store=f"{study.results}/store",
    shell:
        "kevin --log {log:q} publish --config {params.config:q} {params.files} {params.summaries}"
        " --tasks {input.tasks:q} --baselines {input.baselines:q} --store {params.store:q} --out {output:q}"


rule write_report:
    """The study on one page that needs nothing else."""
    input:
        tasks="<results>/tasks.parquet",
        baselines=f"<results>/baselines/{DEVICE}.parquet",
        tables=expand("<results>/tables/{table}.csv", table=SHOWN_TABLES),
        figures=expand("<results>/figures/{figure}.png", figure=SHOWN_FIGURES),
        scores=SCORES,
        turns=TURNS,
        trainings=TRAININGS,
    output:
        report("<results>/report.html", **REPORTED),
    log:
        "<results>/logs/write_report.log",
    benchmark:
        "<results>/benchmarks/write_report.tsv"
    resources:
        mem_mb=2000,
        runtime=4,
    params:
        config=CONFIG,
        depends=report_digest,
        code=REPORT_CODE,
        files=lambda wildcards, input: " ".join(
            repeat(f"--{name}", input[name])
            for name in ("tables", "figures", "scores", "turns")
        ),
        summaries=lambda wildcards, input: summaries(input.trainings),
    shell:
        "kevin --log {log:q} report --config {params.config:q} --tasks {input.tasks:q} --baselines {input.baselines:q}"
        " {params.files} {params.summaries} --out {output:q}"
