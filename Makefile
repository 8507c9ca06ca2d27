# The commands of this repository. `make` alone lists them. Everything is installed into .venv, nothing outside this folder.

PYTHON ?= python3
VENV   := .venv
# The peers' own, so that what they pin never meets what the product pins.
BENCH  := .venv-bench
PY     := $(VENV)/bin/python
ARGS   ?=
# Test processes at a time: two databases side by side is what a small machine bears.
JOBS   ?= 2
PIP    := $(PY) -m pip --disable-pip-version-check --no-input install -qq
PYTEST := $(PY) -m pytest

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo demo-enrich demo-plans test check format laws races crash bench docs mutants lock clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' Makefile

demo: $(VENV)/.runtime ## real data through real workers that are killed half-way; ARGS="--json" for one object
	@$(VENV)/bin/fencepost demo $(ARGS)

demo-enrich: $(VENV)/.runtime ## three paid services over real airports, a worker killed in the middle; nobody is paid twice
	@$(PY) -m examples.enrich $(ARGS)

demo-plans: $(VENV)/.runtime ## release notes from real git history and three agents' research, killed in the middle; every result is kept once
	@$(PY) -m examples.plans $(ARGS)

test: $(VENV)/.dev ## every test but the long campaigns; ARGS goes to pytest
	@$(PYTEST) -n $(JOBS) tests $(ARGS)

# What a migration must not do to a running system; the first one runs on nothing.
LATER := $(filter-out %/0001_first.sql,$(wildcard src/fencepost/sql/migrations/*.sql))

check: $(VENV)/.dev ## format, lint, types, import floors, SQL, house rules
	@$(PY) -m ruff format --check -q . || { echo 'make format mends this' >&2; exit 1; }
	@$(PY) -m ruff check -q .
	@$(PY) -m mypy src/fencepost
	@$(PY) -m pyright
	@$(VENV)/bin/lint-imports --no-logo
	@set -- $(LATER); [ -z "$$1" ] || $(VENV)/bin/squawk "$$@"
	@$(PYTEST) -q tests/test_tidy.py

format: $(VENV)/.dev ## rewrite the Python files in the house format
	@$(PY) -m ruff check -q --fix-only . && $(PY) -m ruff format -q .

laws: $(VENV)/.dev ## the laws, one file a chapter
	@$(PYTEST) -n $(JOBS) tests/laws $(ARGS)

races: $(VENV)/.dev ## two sides at once, made to meet
	@$(PYTEST) tests/races $(ARGS)

crash: $(VENV)/.dev ## kill at every fault point, one after the other
	@$(PY) -m tests.crash --all $(ARGS)

mutants: $(VENV)/.dev ## break each guard on purpose; a test must notice
	@$(PY) -m tests.mutants $(ARGS)

bench: $(BENCH)/.bench ## measure us beside the peers and the floor; ARGS="--quick --json" for one object
	@$(BENCH)/bin/python -m bench $(ARGS)

docs: $(VENV)/.dev ## the pages of docs/ as a site in site/, with zensical
	@[ -x $(VENV)/bin/zensical ] || { \
	  echo 'docs/ is plain Markdown and reads as it is. For a site: $(PY) -m pip install zensical' >&2; exit 2; }
	@$(VENV)/bin/zensical build

lock: $(VENV)/.runtime ## resolve pyproject.toml again into the three lock files; ARGS="--upgrade" for newer versions
	@$(PIP) uv==0.13.9
	@$(LOCK) --extra embedded --extra fast pyproject.toml -o requirements.lock
	@$(LOCK) --extra embedded --extra fast --extra server --extra dev -c requirements.lock pyproject.toml \
	  -o requirements-dev.lock
	@$(LOCK) --extra embedded --extra fast --extra bench -c requirements.lock pyproject.toml -o requirements-bench.lock

# Nothing of the machine that locked may stay in a lock: no index, no host, no path.
LOCK := $(PY) -m uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
  --no-annotate --custom-compile-command 'make lock' --group build $(ARGS)

clean: ## remove what this file made, .venv too
	@rm -rf $(VENV) $(BENCH) dist site .pytest_cache .hypothesis .mypy_cache .ruff_cache .import_linter_cache
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Set-up. A stamp is made last, so an interrupted set-up is simply done again.

$(VENV)/.runtime: requirements.lock pyproject.toml | $(VENV)/.made
	@echo 'setting up: what the product needs (requirements.lock)' >&2
	@$(PIP) --require-hashes -r requirements.lock
	@$(PIP) --no-index --no-deps --no-build-isolation -e .
	@touch $@

$(VENV)/.dev: requirements-dev.lock $(VENV)/.runtime
	@echo 'setting up: what tests and checks need (requirements-dev.lock)' >&2
	@$(PIP) --require-hashes -r requirements-dev.lock
	@touch $@

# Only `make bench` needs the peers; nothing else installs them.
$(BENCH)/.bench: requirements-bench.lock $(VENV)/.runtime
	@echo 'setting up: $(BENCH), what is measured beside us (requirements-bench.lock)' >&2
	@$(VENV)/bin/python -m venv --clear $(BENCH)
	@$(BENCH)/bin/python -m pip --disable-pip-version-check --no-input install -qq --require-hashes -r requirements-bench.lock
	@$(BENCH)/bin/python -m pip --disable-pip-version-check --no-input install -qq --no-index --no-deps --no-build-isolation -e .
	@touch $@

$(VENV)/.made:
	@command -v "$(PYTHON)" >/dev/null || { \
	  echo 'Fencepost needs Python 3.11 or newer, and there is no $(PYTHON) here: install it, or say make PYTHON=...' >&2; \
	  exit 2; }
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "Fencepost needs Python 3.11 or newer; $(PYTHON) is $$("$(PYTHON)" -V 2>&1): say make PYTHON=python3.11" >&2; \
	  exit 2; }
	@"$(PYTHON)" -c 'import ensurepip, venv' 2>/dev/null || { \
	  echo '$(PYTHON) cannot make a virtual environment: install the package python3-venv, then try again' >&2; exit 2; }
	@echo 'setting up: $(VENV)' >&2
	@"$(PYTHON)" -m venv $(VENV)
	@touch $@
