rule run_rollouts:
    """One policy on all held-out splits: trajectories of several turns, each kernel judged, with feedback."""
    input:
        policy_files,
        tasks="<results>/tasks.parquet",
        image=IMAGE_DIGEST,
    output:
        expand("<results>/rollouts/{{policy}}-{split}/turns.parquet", split=EVAL_SPLITS),
    log:
        "<results>/logs/run_rollouts-{policy}.log",
    benchmark:
        "<results>/benchmarks/run_rollouts-{policy}.tsv"
    priority: PRIORITY["rollout"]
    threads: all_cores()
    resources:
        cpus_per_task=NEEDS["threads"],
        mem_mb=NEEDS["mem_mb"],
        runtime=NEEDS["runtime"],
        gpu=NEEDS["gpu"],
    params:
        config=CONFIG,
        depends=policy_digest,
        store=f"{study.results}/store",
        splits=repeat("--split", EVAL_SPLITS),
        files=lambda wildcards, output: repeat("--out", output),
    shell:
        "kevin --log {log:q} rollout --config {params.config:q} --tasks {input.tasks:q} --policy {wildcards.policy:q}"
        " --store {params.store:q} {params.splits} {params.files}"
