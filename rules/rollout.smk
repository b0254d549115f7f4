# One engine plays all splits, which saves the start of others; where a machine has more GPUs than there are policies, a
# job and an engine for each split, so that none is idle.
A_JOB_EACH = machine.side_by_side > len(study.evaluate)
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
            split="{split}" if A_JOB_EACH else targets.splits,
        ),
    log:
        f"<results>/logs/{PLAYER}.log",
    benchmark:
        f"<results>/benchmarks/{PLAYER}.tsv"
    priority: PRIORITY["rollout"]
    threads: machine.threads
    resources:
        **machine.share(gpus=machine.needs.gpus),
    params:
        config=CONFIG,
        depends=lambda wildcards: digests.policy(wildcards.policy),
        store=STORE,
        splits=lambda wildcards: repeat(
            "--split", [wildcards.split] if A_JOB_EACH else targets.splits
        ),
        files=lambda wildcards, output: repeat("--out", output),
    shell:
        "kevin --log {log:q} rollout --config {params.config:q} --tasks {input.tasks:q} --policy {wildcards.policy:q}"
        " --store {params.store:q} {params.splits} {params.files}"


rule judge_ceiling:
    """The best that the kernel writer knows: what a policy trained on its transcripts can reach."""
    input:
        tasks="<results>/tasks.parquet",
        image=IMAGE_DIGEST,
    output:
        f"<results>/rollouts/{CEILING}-{{split}}/turns.parquet",
    log:
        f"<results>/logs/judge_ceiling-{{split}}.log",
    benchmark:
        "<results>/benchmarks/judge_ceiling-{split}.tsv"
    threads: machine.threads
    resources:
        **machine.share(gpus=1),
    params:
        config=CONFIG,
        depends=digests.ceiling,
        store=STORE,
    shell:
        "kevin --log {log:q} ceiling --config {params.config:q} --tasks {input.tasks:q} --split {wildcards.split:q}"
        " --store {params.store:q} --out {output:q}"


rule run_search:
    """One policy on all held-out splits, its kernels spent in the way of one strategy."""
    input:
        policy_files,
        after=lambda wildcards: ancient(targets.before_search(wildcards.policy)),
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
