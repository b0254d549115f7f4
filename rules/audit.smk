MUTANTS = "tests/mutants"


rule table_attacks:
    """Every attack that was tried on the judge: its verdict, its honest control's, and what KernelBench says of both."""
    input:
        image=IMAGE_DIGEST,
    output:
        report("<results>/tables/attacks.csv", **REPORTED),
        "<results>/tables/attacks.md",
        "<results>/tables/attacks.tex",
        "<results>/tables/attacks.provenance.json",
    log:
        "<results>/logs/table_attacks.log",
    benchmark:
        "<results>/benchmarks/table_attacks.tsv"
    threads: all_cores()
    resources:
        cpus_per_task=NEEDS["threads"],
        mem_mb=NEEDS["mem_mb"],
        runtime=NEEDS["runtime"],
        gpu=min(1, NEEDS["gpu"]),
    params:
        depends=digests.attacks,
        device=DEVICE,
        store=f"{study.results}/store",
        folder=lambda wildcards, output: str(Path(output[0]).parent),
    shell:
        "kevin --log {log:q} bench attacks --device {params.device} --store {params.store:q} --out {params.folder:q}"


rule table_judge_errors:
    """How often the judge errs: wrong kernels that it would pay, odd right ones that it refuses, by kind."""
    input:
        image=IMAGE_DIGEST,
    output:
        report("<results>/tables/judge_errors.csv", **REPORTED),
        "<results>/tables/judge_errors.md",
        "<results>/tables/judge_errors.tex",
        "<results>/tables/judge_errors_rows.csv",
        "<results>/tables/judge_errors.provenance.json",
    log:
        "<results>/logs/table_judge_errors.log",
    benchmark:
        "<results>/benchmarks/table_judge_errors.tsv"
    threads: all_cores()
    resources:
        cpus_per_task=NEEDS["threads"],
        mem_mb=NEEDS["mem_mb"],
        runtime=NEEDS["runtime"],
        gpu=min(1, NEEDS["gpu"]),
    params:
        config=CONFIG,
        depends=digests.judge_errors(Path(workflow.basedir, MUTANTS)),
        mutants=Path(workflow.basedir, MUTANTS),
        store=f"{study.results}/store",
        folder=lambda wildcards, output: str(Path(output[0]).parent),
    shell:
        "kevin --log {log:q} bench errors --config {params.config:q} --mutants {params.mutants:q} --store {params.store:q}"
        " --out {params.folder:q}"


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
    threads: all_cores()
    resources:
        cpus_per_task=NEEDS["threads"],
        mem_mb=NEEDS["mem_mb"],
        runtime=NEEDS["runtime"],
        gpu=min(1, NEEDS["gpu"]),
    params:
        config=CONFIG,
        depends=lambda wildcards: digests.audit(wildcards.run),
        folder=lambda wildcards, input: str(Path(input[0]).parent),
        store=f"{study.results}/store",
    shell:
        "kevin --log {log:q} audit kernels --config {params.config:q} --run {wildcards.run:q} --run-dir {params.folder:q}"
        " --tasks {input.tasks:q} --store {params.store:q} --out {output:q}"
