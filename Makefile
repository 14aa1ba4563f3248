# Requirements: Python 3.11 or newer, and make. Everything else is installed on demand.
# `make help` lists the targets.

PYTHON ?= $(shell for p in python3.11 python3.12 python3.13 python3.14 python3; do \
	command -v $$p >/dev/null 2>&1 && $$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo $$p; break; }; done)
VENV := .venv
BIN := $(VENV)/bin
UV := $(BIN)/uv
PYTEST := $(BIN)/python -m pytest
WORKERS ?= 2

.DEFAULT_GOAL := help
.PHONY: help install develop demo test test-e2e check format lock generate real image bench soak rules clean setup deploy-webhook verify logs-webhook teardown

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  \033[1m%-10s\033[0m %s\n", $$1, $$2}' $(MAKEFILE_LIST)

install: $(VENV)/.runtime ## create .venv with the command .venv/bin/apportion

develop: $(VENV)/.develop ## install, plus the tools for tests and checks

demo: $(VENV)/.runtime ## demonstrate MIG slices on an embedded cluster
	@$(BIN)/apportion demo

test: $(VENV)/.develop ## run all tests; tests on a real cluster run only after `make real`
	$(PYTEST) -q -n $(WORKERS)

export FOCUS
test-e2e: $(VENV)/.develop ## run the end-to-end tests on the current kubeconfig; FOCUS="GPU slices" selects tests by regex
	APPORTION_E2E=1 $(PYTEST) tests/e2e -v -p no:randomly -p no:cacheprovider

check: $(VENV)/.develop ## check format, lint rules, types, import layers and generated files
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python tools/check_tree.py

format: $(VENV)/.develop ## format the code
	$(BIN)/ruff format
	$(BIN)/ruff check --fix

real: $(VENV)/.develop ## build the real control plane and node for the tests (minutes; cached)
	$(BIN)/python tools/real/build.py

image: $(VENV)/.develop ## build the container image as an OCI archive, without Docker
	$(BIN)/python tools/image/build.py

bench: $(VENV)/.develop ## run the benchmarks together with their baselines
	$(BIN)/apportion lab bench
	$(BIN)/python -m benchmarks.api
	$(BIN)/python -m benchmarks.admission
	$(BIN)/python -m benchmarks.node
	$(BIN)/python -m benchmarks.scheduling
	$(BIN)/python -m benchmarks.gang
	$(BIN)/python -m benchmarks.queues
	$(BIN)/python -m benchmarks.waiting
	$(BIN)/python -m benchmarks.sharing

soak: $(VENV)/.develop ## run the soak tests in full
	APPORTION_SOAK=1 $(PYTEST) -m soak -s --timeout 0

rules: $(VENV)/.develop ## show the result of each rule of docs/behaviour.md in the last test run
	@test -f .cache/rule-outcomes.json || $(PYTEST) -q
	@$(BIN)/python tools/rules.py

lock: $(VENV)/.develop ## update the pinned dependencies
	$(UV) pip compile -q requirements/build.in --generate-hashes --no-emit-index-url --no-header --python-version 3.11 --universal -o requirements/build.txt
	$(UV) pip compile -q pyproject.toml --generate-hashes --no-emit-index-url --no-header --python-version 3.11 --universal -o requirements/runtime.txt
	$(UV) pip compile -q pyproject.toml --group dev --generate-hashes --no-emit-index-url --no-header --python-version 3.11 --universal -o requirements/dev.txt

generate: $(VENV)/.develop ## generate stubs, CRDs and tables from their sources
	$(BIN)/python tools/generate/protos.py
	$(BIN)/python tools/generate/crds.py
	$(BIN)/python tools/generate/workload_parameters.py
	$(BIN)/python tools/generate/fields.py
	$(BIN)/python tools/generate/internal_pod_form.py
	$(BIN)/python tools/generate/merge_rules.py

setup: $(VENV)/.runtime ## start a simulated cluster with static MIG devices (examples/mig-fallback)
	@$(MAKE) --no-print-directory -C examples/mig-fallback setup

deploy-webhook: $(VENV)/.runtime ## install the fallback webhook on that cluster
	@$(MAKE) --no-print-directory -C examples/mig-fallback deploy-webhook

verify: $(VENV)/.runtime ## show the nodes, devices and components of that cluster
	@$(MAKE) --no-print-directory -C examples/mig-fallback verify

logs-webhook: $(VENV)/.runtime ## follow the log of the webhook
	@$(MAKE) --no-print-directory -C examples/mig-fallback logs-webhook

teardown: $(VENV)/.runtime ## delete that cluster
	@$(MAKE) --no-print-directory -C examples/mig-fallback clean

clean: ## delete everything that make created in this directory
	rm -rf $(VENV) .cache .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache dist

$(UV): requirements/build.txt
	@test -n "$(PYTHON)" || { echo "apportion needs Python 3.11 or newer; install it, or name one: make PYTHON=/path/to/python3" >&2; exit 2; }
	@echo "setting up $(VENV) with $(PYTHON)"
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install -q --disable-pip-version-check --require-hashes -r requirements/build.txt
	@touch $@

$(VENV)/.runtime: $(UV) requirements/runtime.txt pyproject.toml
	@$(UV) pip install -q --python $(VENV) --require-hashes -r requirements/runtime.txt
	@$(UV) pip install -q --python $(VENV) --no-deps --no-build-isolation -e .
	@touch $@

$(VENV)/.develop: $(VENV)/.runtime requirements/dev.txt
	@$(UV) pip install -q --python $(VENV) --require-hashes -r requirements/dev.txt
	@touch $@
