SCORES = expand(
    "<results>/scores/{policy}-{split}.parquet", policy=COMPARED, split=EVAL_SPLITS
)
TURNS = expand(
    "<results>/rollouts/{policy}-{split}/turns.parquet",
    policy=COMPARED,
    split=EVAL_SPLITS,
)
# Trainings behind the numbers; their summaries say whether a time budget cut them.
STARTS = [*study.evaluate, *(study.for_run(run).train.init for run in SHOWN_RUNS)]
OWN_BASE = (
    [BASE_MODEL]
    if any(study.policies[p].model.rstrip("/") == BASE_MODEL for p in STARTS)
    else []
)
TRAININGS = [
    *OWN_BASE,
    *expand("<results>/train/{run}/summary.json", run=SHOWN_RUNS),
]


rule score_turns:
    """Scores, returns and best kernels so far of one policy's turns."""
    input:
        tasks="<results>/tasks.parquet",
        turns="<results>/rollouts/{policy}-{split}/turns.parquet",
        code=code("core", "report"),
    output:
        "<results>/scores/{policy}-{split}.parquet",
    log:
        "<results>/logs/score_turns-{policy}-{split}.log",
    benchmark:
        "<results>/benchmarks/score_turns-{policy}-{split}.tsv"
    wildcard_constraints:
        policy="|".join(COMPARED),
    resources:
        mem_mb=2000,
        runtime=4,
    params:
        config=CONFIG,
        depends=REPORT_DIGEST,
    shell:
        "kevin --log {log} score --config {params.config} --turns {input.turns} --tasks {input.tasks}"
        " --policy {wildcards.policy} --split {wildcards.split} --out {output}"


rule make_table:
    """One table, all compared policies and the ceiling."""
    input:
        scores=SCORES,
        baselines=f"<results>/baselines/{DEVICE}.parquet",
        trainings=TRAININGS,
        code=code("core", "report"),
    output:
        report(
            "<results>/tables/{table}.csv",
            caption="captions/table.rst",
            category="Tables",
            labels={"table": "{table}"},
        ),
    log:
        "<results>/logs/make_table-{table}.log",
    benchmark:
        "<results>/benchmarks/make_table-{table}.tsv"
    resources:
        mem_mb=2000,
        runtime=4,
    params:
        config=CONFIG,
        depends=REPORT_DIGEST,
        scores=lambda wildcards, input: repeat("--scores", input.scores),
        summaries=lambda wildcards, input: summaries(input.trainings),
    shell:
        "kevin --log {log} table {wildcards.table} --config {params.config} {params.scores} {params.summaries}"
        " --baselines {input.baselines} --out {output}"


rule draw_figure:
    """One figure as PNG and PDF, with a CSV of exactly what is plotted."""
    input:
        scores=SCORES,
        turns=TURNS,
        trainings=TRAININGS,
        code=code("core", "report"),
    output:
        report(
            "<results>/figures/{figure}.png",
            caption="captions/figure.rst",
            category="Figures",
            labels={"figure": "{figure}"},
        ),
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
        depends=REPORT_DIGEST,
        scores=lambda wildcards, input: repeat("--scores", input.scores),
        turns=lambda wildcards, input: repeat("--turns", input.turns),
        summaries=lambda wildcards, input: summaries(input.trainings),
        folder=lambda wildcards, output: str(Path(output[0]).parent),
    shell:
        "kevin --log {log} figure {wildcards.figure} --config {params.config} {params.scores} {params.turns}"
        " {params.summaries} --out-dir {params.folder}"


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
        code=code("core", "report"),
    output:
        report(
            "<results>/report.html", caption="captions/report.rst", category="Report"
        ),
    log:
        "<results>/logs/write_report.log",
    benchmark:
        "<results>/benchmarks/write_report.tsv"
    resources:
        mem_mb=2000,
        runtime=4,
    params:
        config=CONFIG,
        depends=REPORT_DIGEST,
        files=lambda wildcards, input: " ".join(
            repeat(f"--{name}", input[name])
            for name in ("tables", "figures", "scores", "turns")
        ),
        summaries=lambda wildcards, input: summaries(input.trainings),
    shell:
        "kevin --log {log} report --config {params.config} --tasks {input.tasks} --baselines {input.baselines}"
        " {params.files} {params.summaries} --out {output}"
