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
        folder=lambda wildcards, input: str(Path(input[0]).parent),
        store=STORE,
    shell:
        "kevin --log {log:q} audit kernels --config {params.config:q} --run {wildcards.run:q} --run-dir {params.folder:q}"
        " --tasks {input.tasks:q} --store {params.store:q} --out {output:q}"
