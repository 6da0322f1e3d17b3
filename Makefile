# Set-up and checks. `make help` lists the targets; nothing is needed beforehand but Python 3.11 or newer.

TORCH ?= torch==2.13.0
PYTHON ?= $(shell for p in python3.11 python3 python3.12 python3.13; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
PIP := -m pip --disable-pip-version-check
# Bytecode is kept: some hundred processes would each compile the package anew.
PYTEST := PYTHONDONTWRITEBYTECODE= .venv/bin/python -m pytest -n 2 --dist loadscope --no-loadscope-reorder
ARGS ?=
OTHER_ENVS := minigrid highway-env flappy-bird-gymnasium gymnasium-robotics

# $(call make-venv,DIRECTORY): what an interrupted attempt left there is mended, or made anew.
define make-venv
	@$(or $(PYTHON),false) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
		echo "gossamer needs Python 3.11 or newer: install python3.11, or give make PYTHON=/path/to/python" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
		echo "$(PYTHON) cannot make virtual environments: install its venv package (python3-venv)" >&2; exit 1; }
	$(PYTHON) -m venv $(1) && $(1)/bin/python $(PIP) --version >/dev/null || $(PYTHON) -m venv --clear $(1)
endef

# $(call require,COMMAND,MESSAGE): fail with one line, as pytest would skip the tests and succeed.
require = @{ $(1); } >/dev/null 2>&1 || { echo "$@: $(strip $(2))" >&2; exit 1; }

.PHONY: help install dev test test-long test-gpu test-page test-sinks test-envs lint unit docs demo bench-install bench-install-actors bench-install-replay wheel constraints clean distclean
.NOTPARALLEL:

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-22s%s\n", $$1, $$2 }' Makefile

install: .venv/.installed ## .venv with the gossamer command, Atari games and Ray

dev: .venv/.dev ## the same, with what tests and checks need

# A looser first install of torch can pull several GB of CUDA packages, so the pinned one comes first, by itself.
# Stamps are touched last: an interrupted step is done again, and a second `make install` does nothing.
.venv/.torch: constraints.txt
	$(call make-venv,.venv)
	.venv/bin/python $(PIP) install -c constraints.txt $(TORCH)
	@touch $@

.venv/.installed: .venv/.torch pyproject.toml constraints.txt
	.venv/bin/python $(PIP) install -c constraints.txt -e ".[atari,gym,ray]"
	@touch $@

.venv/.dev: .venv/.installed
	.venv/bin/python $(PIP) install -c constraints.txt -e ".[dev]"
	@touch $@

.venv/.browser: .venv/.dev
	.venv/bin/python $(PIP) install -c constraints.txt -e ".[browser]"
	@touch $@

test: lint unit ## ruff, mypy, then pytest without the long tests

test-long: dev ## the long tests: sweeps over seeds, every architecture on every launcher
	$(PYTEST) -m long $(ARGS)

test-gpu: dev ## what only a GPU can show; skipped where torch finds none
	.venv/bin/python -m pytest -m gpu tests/gpu $(ARGS)

test-page: .venv/.browser ## the live page in Debian's Chromium (packages chromium, chromium-driver)
	$(call require,command -v chromium && command -v chromedriver,\
		chromium or chromedriver is missing: install the packages chromium and chromium-driver)
	$(call require,.venv/bin/python -c "import selenium",\
		selenium cannot be imported: remove .venv and run make test-page)
	.venv/bin/python -m pytest -m page tests/page $(ARGS)

test-sinks: .venv-sinks/.installed ## logs with the real Weights & Biases, Trackio and MLflow, in .venv-sinks
	$(call require,.venv-sinks/bin/python -c "import wandb; import trackio; import mlflow; import sqlalchemy",\
		wandb trackio mlflow or sqlalchemy cannot be imported: remove .venv-sinks and run make test-sinks)
	.venv-sinks/bin/python -m pytest tests/training/sinks $(ARGS)

.venv-sinks/.installed: pyproject.toml constraints-sinks.txt
	$(call make-venv,.venv-sinks)
	.venv-sinks/bin/python $(PIP) install -c constraints-sinks.txt $(TORCH)
	.venv-sinks/bin/python $(PIP) install -c constraints-sinks.txt -e ".[atari,gym,dev,wandb,trackio,mlflow]"
	@touch $@

test-envs: .venv-envs/.installed ## environments of other packages (MiniGrid, NetHack, EnvPool, ..), in .venv-envs
	$(call require,.venv-envs/bin/python -c "import minigrid; import highway_env; import flappy_bird_gymnasium; import nle; \
		import envpool; import gymnasium_robotics",\
		a package cannot be imported: remove .venv-envs and run make test-envs)
	.venv-envs/bin/python -m pytest tests/third_party $(ARGS)

# nle asks for one version of Gymnasium, and runs with later ones, too
.venv-envs/.installed: pyproject.toml constraints-envs.txt
	$(call make-venv,.venv-envs)
	.venv-envs/bin/python $(PIP) install -c constraints-envs.txt $(TORCH)
	.venv-envs/bin/python $(PIP) install -c constraints-envs.txt -e ".[atari,gym,dev,envpool]" $(OTHER_ENVS)
	.venv-envs/bin/python $(PIP) install -c constraints-envs.txt --no-deps nle pybind11
	@touch $@

lint: dev ## ruff (lint and format) and mypy
	.venv/bin/ruff check
	.venv/bin/ruff format --check
	.venv/bin/mypy

unit: dev
	$(PYTEST) $(ARGS)

docs: .venv/.docs ## the documentation site, in site/
	NO_MKDOCS_2_WARNING=1 .venv/bin/python -m mkdocs build --strict

.venv/.docs: .venv/.dev
	.venv/bin/python $(PIP) install -c constraints.txt -e ".[docs]"
	@touch $@

demo: install ## solve Pong while you watch, evaluate, leave a video
	@bash scripts/demo.sh

bench-install: dev .venv-peers/.installed ## add what benchmarks/ compare with: SB3, in .venv-peers

bench-install-actors: dev .venv-sample-factory/.installed .venv-rllib/.installed ## add Sample Factory and RLlib

bench-install-replay: dev .venv-replay/.installed ## add what benchmarks/ compare with: cpprb, TorchRL and SB3, in .venv-replay

.venv-sample-factory/.installed: benchmarks/peers/requirements-sample-factory.txt
	$(call make-venv,.venv-sample-factory)
	.venv-sample-factory/bin/python $(PIP) install $(TORCH)
	.venv-sample-factory/bin/python $(PIP) install --no-deps -r $<
	@touch $@

.venv-rllib/.installed: benchmarks/peers/requirements-rllib.txt
	$(call make-venv,.venv-rllib)
	.venv-rllib/bin/python $(PIP) install $(TORCH)
	.venv-rllib/bin/python $(PIP) install -r $<
	@touch $@

.venv-replay/.installed: benchmarks/peers/requirements-replay.txt
	$(call make-venv,.venv-replay)
	.venv-replay/bin/python $(PIP) install $(TORCH)
	.venv-replay/bin/python $(PIP) install -r $<
	@touch $@

.venv-peers/.installed: benchmarks/peers/requirements.txt
	$(call make-venv,.venv-peers)
	.venv-peers/bin/python $(PIP) install $(TORCH)
	.venv-peers/bin/python $(PIP) install -r $<
	@touch $@

wheel: dev ## build the wheel, try it from outside the tree
	@bash scripts/wheel.sh "$(TORCH)"

constraints: ## pin anew what a fresh install takes (Python 3.11)
	$(call make-venv,.venv-constraints)
	@bash scripts/constraints.sh "$(TORCH)" $(OTHER_ENVS)

clean: ## remove caches and what was built; environments and runs stay
	rm -rf build dist site *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find gossamer tests benchmarks examples -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

distclean: clean ## remove the environments too; runs stay
	rm -rf .venv .venv-*
