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
