rule build_image:
    """An image of Apptainer and its digest. Needs the network, and unprivileged user namespaces or root."""
    input:
        definition="containers/{image}.def",
        files=[
            "containers/post.sh",
            "containers/requirements-gpu.txt",
            "requirements.lock",
        ],
    output:
        image="containers/{image}.sif",
        digest="containers/{image}.sif.sha256",
    log:
        "<results>/logs/build_image-{image}.log",
    benchmark:
        "<results>/benchmarks/build_image-{image}.tsv"
    wildcard_constraints:
        image="judge|train",
    localrule: True
    run:
        apptainer.build(Path(input.definition), Path(output.image))
