rule run_search:
    """One policy on all held-out splits, its kernels spent in the way of one strategy."""
    input:
        policy_files,
        tasks="<results>/tasks.parquet",
        image=IMAGE_DIGEST,
    output:
        expand(
            "<results>/search/{{strategy}}/{{policy}}-{split}/turns.parquet",
            split=targets.splits,
        ),
    log:
        "<results>/logs/run_search-{strategy}-{policy}.log",
    benchmark:
        "<results>/benchmarks/run_search-{strategy}-{policy}.tsv"
    threads: machine.threads
    resources:
        **machine.share(gpus=machine.needs.gpus),
    params:
        config=CONFIG,
        depends=lambda wildcards: digests.strategy(wildcards.policy, wildcards.strategy),
        store=STORE,
        splits=repeat("--split", targets.splits),
        files=lambda wildcards, output: repeat("--out", output),
    shell:
        "kevin --log {log:q} rollout --config {params.config:q} --tasks {input.tasks:q} --policy {wildcards.policy:q}"
        " --strategy {wildcards.strategy:q} --store {params.store:q} {params.splits} {params.files}"
