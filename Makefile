# `make demo` and `make test` set everything up by themselves; nothing is installed outside .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
comma := ,
READY := $(VENV)/.ready
MARKDOWN = $(wildcard *.md docs/*.md docs/*/*.md config/*.md config/*/*.md)
BOARD = docs/results/leaderboard.csv
# Tests start hundreds of interpreters: the first one compiles modules for all.
unexport PYTHONDONTWRITEBYTECODE
# Every start of Snakemake loads the plug-in for Slurm, which takes half a second: only where jobs can be submitted.
EXTRAS := dev,fast$(if $(shell command -v sbatch 2>/dev/null),$(comma)slurm)
INSTALL = $(BIN)/python -m pip install --quiet --constraint requirements.lock

.PHONY: help setup setup-slurm demo test test-runs test-graphs test-slurm lint format picture leaderboard clean

help:
	@echo "make setup   .venv with the pinned packages of requirements.lock (PYTHON=python3.12 chooses another Python)"
	@echo "make setup-slurm  the plug-in for Slurm too, which make setup installs where it finds sbatch"
	@echo "make demo    the default experiment on the embedded corpus, and where its report is"
	@echo "make test    the tests, in three processes: some wait most of the time"
	@echo "make test-runs  those of whole runs of the workflow, which are made first"
	@echo "make test-graphs  those that export further graphs to ONNX Runtime, which takes minutes"
	@echo "make test-slurm  those on a real Slurm that it starts (as root, with Debian's munge, slurmctld, slurmd, slurm-client)"
	@echo "make lint    what CI checks beside the tests; make format repairs most of it"
	@echo "make picture docs/workflow.svg from docs/workflow.dot (needs graphviz)"
	@echo "make leaderboard  the tables of README and docs/results from $(BOARD); RESULTS=results/demo adds its rows"
	@echo "make clean   removes .venv and caches; downloads, results, work, logs and benchmarks stay"

setup: $(READY)

$(READY): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Continuum needs Python 3.11 or newer, this is " + sys.version.split()[0] + "; name another: make setup PYTHON=python3.11")'
	$(PYTHON) -m venv $(VENV)
	$(INSTALL) torch
	$(INSTALL) --editable ".[$(EXTRAS)]"
	@touch $@

setup-slurm: setup
	$(INSTALL) --editable ".[slurm]"

demo: setup
	$(BIN)/snakemake --profile config/profiles/default --config experiment=demo
	@echo "The report is results/demo/report/index.html: open it in a browser."

test: setup
	$(BIN)/python -m pytest -n 3 --dist loadfile --no-loadscope-reorder

test-runs: setup
	$(BIN)/python -m pytest -m "runs and not slurm" --timeout 1200 -n 3 --dist loadfile --no-loadscope-reorder tests/test_*.py tests/unit/training/test_distributed.py

test-graphs: setup
	$(BIN)/python -m pytest -m graphs -n 2 --dist loadfile tests/unit/engines tests/unit/runtime tests/unit/serving

test-slurm: setup-slurm
	$(BIN)/python -m pytest -m slurm tests/test_slurm.py

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/snakefmt --check Snakefile rules
	$(BIN)/mdformat --check $(MARKDOWN)
	$(BIN)/snakemake --lint

format: setup
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/snakefmt Snakefile rules
	$(BIN)/mdformat $(MARKDOWN)

picture:
	dot -Tsvg docs/workflow.dot -o docs/workflow.svg

leaderboard: setup
	$(BIN)/continuum leaderboard $(BOARD) $(RESULTS) --output $(BOARD) --pages $$(grep -l '<!-- leaderboard:' README.md docs/results/*.md)

clean:
	rm -rf $(VENV) .pytest_cache .ruff_cache .mypy_cache .hypothesis *.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
