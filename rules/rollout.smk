rule run_rollouts:
    """One policy on one split: trajectories of several turns, each kernel judged, with feedback."""
    input:
        policy_files,
        tasks="<results>/tasks.parquet",
        image=IMAGE_DIGEST,
    output:
        "<results>/rollouts/{policy}-{split}/turns.parquet",
    log:
        "<results>/logs/run_rollouts-{policy}-{split}.log",
    benchmark:
        "<results>/benchmarks/run_rollouts-{policy}-{split}.tsv"
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
    shell:
        "kevin --log {log:q} rollout --config {params.config:q} --tasks {input.tasks:q} --split {wildcards.split:q}"
        " --policy {wildcards.policy:q} --store {params.store:q} --out {output:q}"
