# What `snakemake --report` shows of a file: report(<file>, **REPORTED). Its title, category and caption stand in
# rules/captions/<tables|figures|pages>/<name>.rst.

from kevin.workflow.captions import caption_of, labels_of, read_captions

CAPTIONS = read_captions(Path(workflow.basedir, "rules/captions"))
# Where captions/caption.rst, a template that knows its job, finds the text.
config["captions"] = {name: caption.text for name, caption in CAPTIONS.items()}


def reported_category(wildcards, output):
    return caption_of(CAPTIONS, output[0]).category


def reported_labels(wildcards, output):
    return labels_of(CAPTIONS, output[0])


REPORTED = {
    "caption": "captions/caption.rst",
    "category": reported_category,
    "labels": reported_labels,
}
