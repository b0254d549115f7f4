STRATEGIES = study.search.names
SEARCH_TURNS = expand(
    "<results>/search/{strategy}/{policy}-{split}/turns.parquet",
    strategy=STRATEGIES,
    policy=study.evaluate,
    split=EVAL_SPLITS,
)


rule run_search:
    """One policy on all held-out splits, its kernels spent in the way of one strategy."""
    input:
        policy_files,
        tasks="<results>/tasks.parquet",
        image=IMAGE_DIGEST,
    output:
        expand(
            "<results>/search/{{strategy}}/{{policy}}-{split}/turns.parquet",
            split=EVAL_SPLITS,
        ),
    log:
        "<results>/logs/run_search-{strategy}-{policy}.log",
    benchmark:
        "<results>/benchmarks/run_search-{strategy}-{policy}.tsv"
    threads: all_cores()
    resources:
        cpus_per_task=NEEDS["threads"],
        mem_mb=NEEDS["mem_mb"],
        runtime=NEEDS["runtime"],
        gpu=NEEDS["gpu"],
    params:
        config=CONFIG,
        depends=search_digest,
        store=f"{study.results}/store",
        splits=repeat("--split", EVAL_SPLITS),
        files=lambda wildcards, output: repeat("--out", output),
    shell:
        "kevin --log {log:q} rollout --config {params.config:q} --tasks {input.tasks:q} --policy {wildcards.policy:q}"
        " --strategy {wildcards.strategy:q} --store {params.store:q} {params.splits} {params.files}"


rule compare_search:
    """What each strategy of `search` has found, or what turns are worth under it; all compared policies."""
    input:
        tasks="<results>/tasks.parquet",
        turns=SEARCH_TURNS,
        trainings=TRAININGS,
    output:
        csv=report("<results>/tables/{search_table}.csv", **REPORTED),
        md="<results>/tables/{search_table}.md",
        tex="<results>/tables/{search_table}.tex",
    log:
        "<results>/logs/compare_search-{search_table}.log",
    benchmark:
        "<results>/benchmarks/compare_search-{search_table}.tsv"
    wildcard_constraints:
        search_table="search|search_turns",
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
        "kevin --log {log:q} search-table {wildcards.search_table:q} --config {params.config:q} {params.turns}"
        " {params.summaries} --tasks {input.tasks:q} --out {output.csv:q}"


rule draw_search:
    """The strategies of `search` by kernels and by seconds."""
    input:
        "<results>/tables/search.csv",
    output:
        report("<results>/figures/search.png", **REPORTED),
        "<results>/figures/search.pdf",
        "<results>/figures/search.csv",
    log:
        "<results>/logs/draw_search.log",
    benchmark:
        "<results>/benchmarks/draw_search.tsv"
    resources:
        mem_mb=2000,
        runtime=4,
    params:
        config=CONFIG,
        depends=report_digest,
        code=REPORT_CODE,
        folder=lambda wildcards, output: str(Path(output[0]).parent),
    shell:
        "kevin --log {log:q} search-figure --config {params.config:q} --table {input:q} --out-dir {params.folder:q}"
