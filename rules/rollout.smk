# One engine plays all splits, which saves the start of others; where a machine has more GPUs than there are policies, a
# job and an engine for each split, so that none is idle.
A_JOB_EACH = side_by_side() > len(study.evaluate)
PLAYER = "run_rollouts-{policy}-{split}" if A_JOB_EACH else "run_rollouts-{policy}"


rule run_rollouts:
    """One policy on held-out splits: trajectories of several turns, each kernel judged, with feedback."""
    input:
        policy_files,
        tasks="<results>/tasks.parquet",
        image=IMAGE_DIGEST,
    output:
        expand(
            "<results>/rollouts/{{policy}}-{split}/turns.parquet",
            split="{split}" if A_JOB_EACH else EVAL_SPLITS,
        ),
    log:
        f"<results>/logs/{PLAYER}.log",
    benchmark:
        f"<results>/benchmarks/{PLAYER}.tsv"
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
        splits=lambda wildcards: repeat(
            "--split", [wildcards.split] if A_JOB_EACH else EVAL_SPLITS
        ),
        files=lambda wildcards, output: repeat("--out", output),
    shell:
        "kevin --log {log:q} rollout --config {params.config:q} --tasks {input.tasks:q} --policy {wildcards.policy:q}"
        " --store {params.store:q} {params.splits} {params.files}"
