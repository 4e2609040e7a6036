# Few targets, one word each; `make help` explains them.

PYTHON ?= python3
ARGS ?=
# One release of each supported line of ZooKeeper.
VERSIONS ?= 3.5.10 3.6.4 3.7.2 3.8.4 3.9.4
# host:port of a server that runs, for `make conformance` in place of these.
ADDRESS ?=
# For how long to play, where a target takes that.
MINUTES ?= 5

# How many schedules `make simulate` plays.
SEEDS ?= 2000

PY := .venv/bin/python
# Pinned, so that a release of either does not turn a clean tree dirty. Tools, not dependencies of the project.
LINTERS := mypy==2.4.1 ruff==0.17.5
BUILDER := build==1.6.1 setuptools==84.2.1 twine==7.0.0 readme-renderer[md]==46.0
SITE := sphinx==9.0.4 myst-parser==5.2.0 furo==2025.12.19
# `make thirdparty` has a file for each part, which says in comments what it needs: "# pip: ..." and "# apt: ...".
PARTS := $(wildcard tests/thirdparty/*.py)
THIRD_PARTY := mypy==2.4.1 uvloop==0.23.0 $(shell sed -n 's/^# pip: //p' $(PARTS))
DEBIAN := $(shell sed -n 's/^# apt: //p' $(PARTS))
PIP_INSTALL := -m pip --disable-pip-version-check --quiet install

# .venv/.ready says which interpreter made .venv: another one in PYTHON makes it again.
INTERPRETER := $(shell $(PYTHON) -c 'import sys; print(sys.base_prefix, "%x" % sys.hexversion)' 2>/dev/null)
ifneq ($(INTERPRETER),$(shell cat .venv/.ready 2>/dev/null))
.venv/.made: other-interpreter
endif

.DEFAULT_GOAL := help
.PHONY: help test quick mutants fuzz model bench lint dist partition chaos soak differential interop conformance
.PHONY: bench-peers bench-queues bench-all simulate thirdparty docs zookeeper clean fetched other-interpreter

help:
	@echo 'make test          run the whole test suite, in about five minutes; ARGS="-k watch" goes to pytest'
	@echo 'make quick         run the tests that need no Java, in about a minute'
	@echo 'make mutants       put deliberate faults into the code, one at a time: the tests must fail; ARGS="wire line"'
	@echo '                   ARGS="--sample 50 --seed 7" draws small changes at random, and lists those that no test notices'
	@echo 'make fuzz          give random bytes and texts to all that decodes what others send; MINUTES=5'
	@echo 'make model         play every order of events around a ticket of the waiting line; ARGS=more takes longer'
	@echo 'make bench         measure lock hand-over latency; ARGS=--real on a real ZooKeeper'
	@echo 'make bench-peers   measure the locks of other clients beside ours: kazoo, aiozk, go-zk, Rust, Curator; ARGS="--svg FILE"'
	@echo 'make bench-queues  measure the queues of kazoo beside ours, with 1 and 4 processes and 10,000 items; ARGS=--no-fsync'
	@echo 'make bench-all     run all benchmarks in turn on one real ZooKeeper, also those of other clients; ARGS="--quick --json FILE"'
	@echo 'make lint          run mypy --strict and ruff over everything'
	@echo 'make thirdparty    try the programs in docs/examples with the packages that they need, and the tests in the loops of uvloop;'
	@echo '                   needs Debian, and root for what it installs: it says what'
	@echo 'make docs          build the site from docs/ and the docstrings into build/docs; a warning is an error'
	@echo 'make dist          build the wheel and the sdist, twice with the same bytes, and try them in empty environments'
	@echo 'make simulate      play random faults on simulated ensembles in virtual time; SEEDS=10000 ARGS="--scenario lock"'
	@echo 'make partition     split real ensembles in every way under a lock: never two certain owners; ARGS="--timeouts 4"'
	@echo 'make chaos         disturb a real ensemble and its clients, and check the history; MINUTES=10, ARGS="--seed a"'
	@echo 'make soak          use everything for a long time: does memory, or anything else, grow?  MINUTES=30'
	@echo 'make differential  compare the server in memory with a real one by random operations; ARGS="--minutes 10"'
	@echo 'make interop       try other ZooKeeper clients beside our recipes'
	@echo 'make conformance   run the conformance tests on real servers of several versions; VERSIONS="3.5.10 3.9.4";'
	@echo '                   or on one that runs, of any kind, and say what it lacks; ADDRESS=host:port'
	@echo 'make zookeeper     fetch a real ZooKeeper into .zookeeper/; ARGS=3.8 names another line, ARGS=3.8.4 a version'
	@echo 'make clean         remove everything that these targets made'
	@echo
	@echo 'PYTHON=python3.12 uses another Python (3.11 or newer).  Each target makes .venv and fetches ZooKeeper when needed.'

# What the tests need is installed while ZooKeeper is fetched.
test:
	@$(MAKE) --no-print-directory --jobs=2 .venv/.ready fetched
	$(PY) -m tests $(ARGS)

quick: .venv/.ready
	$(PY) -m tests quick $(ARGS)

mutants: .venv/.ready fetched
	$(PY) -m tests.mutants $(ARGS)

fuzz: .venv/.ready
	$(PY) -m tests.fuzz --minutes $(MINUTES) $(ARGS)

model: .venv/.ready
	$(PY) -m tests.model $(ARGS)

bench: .venv/.ready
	$(PY) bench/handover.py $(ARGS)

bench-peers: .venv/.ready fetched
	$(PY) -m bench.peers $(ARGS)

bench-queues: .venv/.ready fetched
	$(PY) -m bench.peers.queues $(ARGS)

bench-all: .venv/.ready fetched
	$(PY) bench/suite.py $(ARGS)

simulate: .venv/.ready
	$(PY) -m tests.simulation --seeds $(SEEDS) $(ARGS)

partition: .venv/.ready fetched
	$(PY) -m pytest -m moment tests/ensembles
	$(PY) -m tests.partition $(ARGS)

chaos: .venv/.ready fetched
	$(PY) -m tests.chaos --minutes $(MINUTES) $(ARGS)

soak: .venv/.ready fetched
	$(PY) -m tests.soak --minutes $(MINUTES) $(ARGS)

differential: .venv/.ready fetched
	$(PY) -m tests.differential $(ARGS)

interop: .venv/.ready fetched
	$(PY) -m tests.interop $(ARGS)

# mypy reads the types of pytest and hypothesis from .venv.
lint: .venv/.ready .venv-lint/.ready
	.venv-lint/bin/mypy --python-executable $(PY)
	.venv-lint/bin/ruff check
	.venv-lint/bin/ruff format --check

thirdparty: .venv-thirdparty/.ready fetched
	.venv-thirdparty/bin/mypy docs/examples
	.venv-thirdparty/bin/python -m pytest $(PARTS)
	.venv-thirdparty/bin/python -m tests quick --loop uvloop:new_event_loop $(ARGS)

docs: .venv-docs/.ready
	.venv-docs/bin/python -m sphinx -q -n -W --keep-going -d build/doctrees docs build/docs
	@echo 'build/docs/index.html'

dist: .venv/.ready .venv-dist/.ready
	rm -rf dist
	@mkdir -p build/lib/recipes && touch build/lib/recipes/deleted.py  # a wheel that is built here must leave it out
	$(PY) -m tests.release .venv-dist/bin/python
	.venv-dist/bin/python -m twine check --strict dist/*

fetched: .venv/.made
	@$(PY) -m zkwire.testing.fetch --if-missing

zookeeper: .venv/.made
	$(PY) -m zkwire.testing.fetch $(ARGS)

conformance: .venv/.ready
	$(PY) -m tests.conformance.matrix $(or $(ADDRESS),$(VERSIONS)) $(ARGS)

clean:
	rm -rf .venv .venv-lint .venv-docs .venv-dist .venv-thirdparty .zookeeper .hypothesis .mypy_cache .pytest_cache .ruff_cache build dist *.egg-info
	find . -name __pycache__ -prune -exec rm -rf {} +

# `venv` is checked by what it needs: Debian ships Python without ensurepip unless python3-venv is installed.
.venv/.made: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo '$(PYTHON) is not Python 3.11 or newer: say PYTHON=...' >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null \
		|| { echo '$(PYTHON) cannot make a virtual environment: on Debian, apt-get install python3-venv' >&2; exit 1; }
	$(PYTHON) -m venv --clear .venv
	@touch $@

.venv/.ready: .venv/.made
	$(PY) $(PIP_INSTALL) --editable '.[dev]'
	@echo '$(INTERPRETER)' > $@

.venv-lint/.ready: Makefile .venv/.ready
	$(PYTHON) -m venv --clear .venv-lint
	.venv-lint/bin/python $(PIP_INSTALL) $(LINTERS)
	@touch $@

.venv-thirdparty/.ready: Makefile pyproject.toml $(PARTS)
	@missing=$$(for each in $(DEBIAN); do dpkg-query -W -f '$${db:Status-Abbrev}' $$each 2>/dev/null | grep -q ^ii || echo $$each; done); \
	test -z "$$missing" || { echo 'Debian packages to install:' $$missing && apt-get -qq update \
		&& DEBIAN_FRONTEND=noninteractive apt-get -qq --no-install-recommends install $$missing; } \
		|| { echo 'this needs Debian, and to be root the first time' >&2; exit 1; }
	@echo 'Python packages to install into .venv-thirdparty: $(THIRD_PARTY)'
	$(PYTHON) -m venv --clear .venv-thirdparty
	.venv-thirdparty/bin/python $(PIP_INSTALL) --editable '.[dev]' $(THIRD_PARTY)
	@touch $@

.venv-dist/.ready: Makefile .venv/.ready
	$(PYTHON) -m venv --clear .venv-dist
	.venv-dist/bin/python $(PIP_INSTALL) $(BUILDER)
	@touch $@

.venv-docs/.ready: Makefile
	$(PYTHON) -m venv --clear .venv-docs
	.venv-docs/bin/python $(PIP_INSTALL) $(SITE)
	@touch $@
