# Few targets, one word each; `make help` explains them. Only `.venv/.ready` and `.venv-lint/.ready` are files.

PYTHON ?= python3
ARGS ?=
# One of each line that is supported.
VERSIONS ?= 3.5.10 3.6.4 3.7.2 3.8.4 3.9.4

PY := .venv/bin/python
# Pinned, so that a release of either does not turn a clean tree dirty. Tools, not dependencies of the project.
LINTERS := mypy==2.4.1 ruff==0.17.5
PIP_INSTALL := -m pip --disable-pip-version-check --quiet install

.DEFAULT_GOAL := help
.PHONY: help test bench lint differential interop conformance zookeeper clean

help:
	@echo 'make test          run the whole test suite; ARGS="-k watch" goes to pytest'
	@echo 'make bench         measure lock hand-over latency; ARGS=--real on a real ZooKeeper'
	@echo 'make lint          run mypy --strict and ruff over everything'
	@echo 'make differential  compare the server in memory with a real one, at random; ARGS="--minutes 10"'
	@echo 'make interop       try other clients on the server in memory, and beside our recipes; fetched for it; ARGS=lines'
	@echo 'make conformance   what holds on any server, on each of VERSIONS="3.5.10 3.9", fetched one after the other'
	@echo 'make zookeeper     fetch a real ZooKeeper into .zookeeper/; ARGS=3.8 names another line, ARGS=3.8.4 a version'
	@echo 'make clean         remove everything that these targets made'
	@echo
	@echo 'PYTHON=python3.12 uses another Python (3.11 or newer). What is missing, .venv and ZooKeeper, is made on the way.'

test: .venv/.ready
	@$(PY) -m zkwire.testing.fetch --if-missing
	$(PY) -m tests $(ARGS)

bench: .venv/.ready
	$(PY) bench/handover.py $(ARGS)

differential: .venv/.ready
	@$(PY) -m zkwire.testing.fetch --if-missing
	$(PY) -m tests.differential $(ARGS)

interop: .venv/.ready
	@$(PY) -m zkwire.testing.fetch --if-missing
	$(PY) -m tests.interop $(ARGS)

# mypy reads the types of pytest and hypothesis from .venv.
lint: .venv/.ready .venv-lint/.ready
	.venv-lint/bin/mypy --python-executable $(PY)
	.venv-lint/bin/ruff check
	.venv-lint/bin/ruff format --check

zookeeper:
	$(PYTHON) -m zkwire.testing.fetch $(ARGS)

conformance: .venv/.ready
	$(PY) -m tests.conformance.matrix $(VERSIONS) $(ARGS)

clean:
	rm -rf .venv .venv-lint .zookeeper .hypothesis .mypy_cache .pytest_cache .ruff_cache build dist *.egg-info
	find . -name __pycache__ -prune -exec rm -rf {} +

# `venv` is checked by what it needs: Debian ships Python without ensurepip unless python3-venv is installed.
.venv/.ready: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo '$(PYTHON) is not Python 3.11 or newer: say PYTHON=...' >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null \
		|| { echo '$(PYTHON) cannot make a virtual environment: on Debian, apt-get install python3-venv' >&2; exit 1; }
	$(PYTHON) -m venv --clear .venv
	$(PY) $(PIP_INSTALL) --editable '.[dev]'
	@touch $@

.venv-lint/.ready: Makefile .venv/.ready
	$(PYTHON) -m venv --clear .venv-lint
	.venv-lint/bin/python $(PIP_INSTALL) $(LINTERS)
	@touch $@
