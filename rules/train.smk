rule train_policy:
    """Reinforcement learning on kernels judged for real; a killed run goes on from its last checkpoint."""
    input:
        initial_model,
        tasks="<results>/tasks.parquet",
        image=IMAGE_DIGEST,
    output:
        "<results>/train/{run}/summary.json",
    log:
        "<results>/logs/train_policy-{run}.log",
    benchmark:
        "<results>/benchmarks/train_policy-{run}.tsv"
    priority: PRIORITY["train"]
    threads: machine.threads
    resources:
        **machine.share(gpus=machine.needs.gpus),
    params:
        config=CONFIG,
        depends=lambda wildcards: digests.run(wildcards.run),
        launcher=machine.launcher(Path(workflow.basedir)),
        folder=subpath(output[0], parent=True),
        store=STORE,
    shell:
        "{params.launcher}kevin --log {log:q} train --config {params.config:q} --tasks {input.tasks:q} --run {wildcards.run:q}"
        " --store {params.store:q} --out {params.folder:q}"


rule export_policy:
    """The trained model and its tokenizer: a policy like any other."""
    input:
        "<results>/train/{run}/summary.json",
        image=IMAGE_DIGEST,
    output:
        directory("<results>/policies/{run}"),
    log:
        "<results>/logs/export_policy-{run}.log",
    benchmark:
        "<results>/benchmarks/export_policy-{run}.tsv"
    resources:
        mem_mb=machine.needs.mem_mb,
        runtime=30,
    params:
        depends=lambda wildcards: digests.run(wildcards.run),
        folder=subpath(input[0], parent=True),
    shell:
        "kevin --log {log:q} export-policy --run-dir {params.folder:q} --out {output:q}"


rule audit_kernels:
    """Every turn of a training with the rules that it broke and what it would have been paid without guards."""
    input:
        "<results>/train/{run}/summary.json",
        tasks="<results>/tasks.parquet",
        image=IMAGE_DIGEST,
    output:
        "<results>/audit/{run}.parquet",
    log:
        "<results>/logs/audit_kernels-{run}.log",
    benchmark:
        "<results>/benchmarks/audit_kernels-{run}.tsv"
    threads: machine.threads
    resources:
        **machine.share(gpus=1),
    params:
        config=CONFIG,
        depends=lambda wildcards: digests.audit(wildcards.run),
        folder=subpath(input[0], parent=True),
        store=STORE,
    shell:
        "kevin --log {log:q} audit kernels --config {params.config:q} --run {wildcards.run:q} --run-dir {params.folder:q}"
        " --tasks {input.tasks:q} --store {params.store:q} --out {output:q}"
