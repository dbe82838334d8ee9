# Every task of the repository; `make help` lists them. Needs Python 3.11+, Java 17+ and make; setup brings the rest.

.DEFAULT_GOAL := help
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c

BIN := .venv/bin
READY := .venv/headrace-ready
STORE ?= local
# Processes of tests beside each other on two cores, a file to one of them, in the order of tests/schedule.py: two take
# first what computes, three what waits (for Airflow, browsers, servers). The quick ones do not wait.
BESIDE := -n 5 --dist loadfile --no-loadscope-reorder
BESIDE_QUICK := -n 2 --dist loadfile --no-loadscope-reorder
# Where few tests are quick, and importing takes long
NOT_QUICK := browser cluster sinks conformance/test_paper_figures.py simulation/test_abs_figures.py
# As setup finds it: on PATH, or what it has installed
UV = $(or $(shell command -v uv),.headrace/uv/bin/uv)
# A file system in memory, where there is one: on a disk the quick tests wait for it a quarter of their time
MEMORY := $(wildcard /dev/shm)

export PATH := $(CURDIR)/$(BIN):$(PATH)
# Airflow, the tests and Spark's workers are many processes of Python: compiling what they import in each takes longer.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup screenshots demo demo-reach up down minio minio-stop kafka kafka-stop kafka-kills archive diagrams figures bench-abs test test-unit test-browser test-connectors test-topology test-long fuzz kills airflow-kills exhaustive mutations dist release images test-images images-remove check fmt docs clean

help: ## List the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | awk -F'\t' '{ printf "  %-14s %s\n", $$1, $$2 }'

setup: ## Install everything into .venv and the cache (again: only what changed)
	scripts/setup.sh $(ARGS)
	@touch $(READY)

# What the other targets stand on: setup, again when what it installs has changed.
$(READY): uv.lock pyproject.toml scripts/setup.sh
	scripts/setup.sh
	@touch $@

demo: $(READY) ## Land real flights, run both pipelines under a real Airflow, show the results (STORE=s3: on MinIO)
	$(BIN)/python -m scripts.demo --store $(STORE)

demo-reach: $(READY) ## Kafka to two pipelines to PostgreSQL, Delta and Iceberg, read by psql, DuckDB, pyiceberg and Spark; then a rollback
	$(BIN)/python -m scripts.demo_reach

up: $(READY) ## Start Airflow on loopback and leave it running
	$(BIN)/python -m scripts.up

down: $(READY) ## Stop what `make up`, `make minio` and `make kafka` started
	$(BIN)/python -m scripts.down
	$(BIN)/python -m scripts.minio_server stop
	$(BIN)/python -m scripts.kafka stop

minio: $(READY) ## Get MinIO (PATH, cache, or go install), start it on loopback and leave it running
	$(BIN)/python -m scripts.minio_server start

minio-stop: $(READY) ## Stop the MinIO that `make minio` started
	$(BIN)/python -m scripts.minio_server stop

kafka: $(READY) ## Get Kafka's jars (Maven), start a broker on loopback and leave it running
	$(BIN)/python -m scripts.kafka start

kafka-stop: $(READY) ## Stop the broker that `make kafka` started
	$(BIN)/python -m scripts.kafka stop

kafka-kills: $(READY) ## Kill landers, runs and the broker under a topic that gets records meanwhile; each counts once (KILLS=100, SEED=1; STORE=s3: on MinIO)
	HEADRACE_KILLS_STORE=$(STORE) HEADRACE_KAFKA_KILLS=$(or $(KILLS),100) HEADRACE_KILLS_SEED=$(or $(SEED),1) $(BIN)/pytest -s --timeout=0 tests/sources/test_kafka_kills.py

archive: $(READY) ## Build the class-data archive that halves the start of Spark's JVM, if setup could not
	$(BIN)/python -m scripts.spark_archive

diagrams: $(READY) ## Write docs/protocol.md and its diagrams, the states of the barrier protocol, from its tables
	$(BIN)/python -m scripts.diagrams

figures: $(READY) ## Draw docs/figures: the Dataflow paper's from pipelines on Spark (ARGS="--executor reference": without), those of the ABS paper from the simulator (10 min)
	$(BIN)/python -m scripts.figures $(ARGS)
	$(BIN)/python -m scripts.abs_figures

bench-abs: $(READY) ## What snapshots cost the engine: 100 million rows in 1 to 100 epochs, into docs/figures (ARGS="--rows 1000000000 --epochs 10 20 50 100": the paper's billion)
	$(BIN)/python -m benchmarks.abs --out docs/figures/abs_measured.json $(ARGS)
	$(BIN)/python -m scripts.abs_figures --draw-only

screenshots: $(READY) ## Take the pictures of the pages in Airflow's UI, light and dark; those of the documentation go to docs (ARGS="NAME...": only these; needs Chromium; 3 min)
	$(BIN)/python -m scripts.screenshots $(ARGS)

test: $(READY) ## All tests (BROWSER=1, CONNECTORS=1: with those of test-browser, of test-connectors; ARGS="..." goes to pytest)
	$(BIN)/pytest -m "not topology$(if $(BROWSER),, and not browser)$(if $(CONNECTORS),, and not connectors)" $(or $(ARGS),$(BESIDE))

test-unit: $(READY) ## The quick tests: no Spark, no S3, no Airflow, nothing slow, fewer random examples
	$(if $(MEMORY),TMPDIR=$(MEMORY)) $(BIN)/pytest -m "not spark and not s3 and not airflow and not connectors and not slow" $(NOT_QUICK:%=--ignore=tests/%) --hypothesis-profile=unit $(or $(ARGS),$(BESIDE_QUICK))

test-browser: $(READY) ## Every form of every DAG, submitted in a real browser to a real Airflow (needs Chromium; 6 min)
	$(BIN)/python -m scripts.chromium
	$(BIN)/pytest tests/browser $(ARGS)

test-connectors: $(READY) ## Sinks and sources on their servers: PostgreSQL, MinIO, Iceberg's REST catalog, Kafka (3 min)
	$(BIN)/pytest -m connectors $(or $(ARGS),$(BESIDE))

test-topology: $(READY) ## What the compose file describes, from packages: PostgreSQL, MinIO, a Spark cluster, Airflow; one DAG run (3 min)
	$(BIN)/pytest tests/cluster/test_topology.py

test-long: $(READY) ## Real runs with expiry: what they leave and cost stays the same (EPOCHS=10000)
	HEADRACE_EPOCHS=$(or $(EPOCHS),10000) $(BIN)/pytest -s --timeout=0 tests/process/test_upkeep.py tests/snapshots/test_expiry_scale.py

fuzz: $(READY) ## Every test of random examples, with fresh ones: pipelines on all executors, whole, in parts, in runs over files, ... (EXAMPLES=1000)
	HEADRACE_EXAMPLES=$(or $(EXAMPLES),1000) $(BIN)/pytest --timeout=0 -m hypothesis

kills: $(READY) ## Kill runs at every effect of a commit and at random times, and stop writers across another's commits (KILLS=1000, STOPS=100, SEED=1; SCENARIOS=parked,moves: only these; STORE=s3: on MinIO; EXECUTOR=spark: 100 kills of driver, JVM, Python worker, and of a cluster's executors and workers)
ifeq ($(EXECUTOR),spark)
	HEADRACE_SPARK_KILLS=$(or $(KILLS),100) HEADRACE_KILLS_SEED=$(or $(SEED),1) $(BIN)/pytest -s --timeout=0 tests/faults/test_spark_kills.py
else
	HEADRACE_KILLS=$(or $(KILLS),1000) HEADRACE_STOPS=$(or $(STOPS),100) HEADRACE_KILLS_SEED=$(or $(SEED),1) HEADRACE_KILLS_SCENARIOS=$(SCENARIOS) $(BIN)/pytest -s --timeout=0 tests/faults/test_kills.py -k "$(STORE) or protocol or stored"
endif

airflow-kills: $(READY) ## Kill scheduler, API server, supervisors, tasks, drivers, JVMs and Python workers of a real Airflow in every family of DAGs; clear, mark, delete runs, change the pool (KILLS=30, SEED=1; 30 min)
	HEADRACE_AIRFLOW_KILLS=$(or $(KILLS),30) HEADRACE_KILLS_SEED=$(or $(SEED),1) $(BIN)/pytest -s --timeout=0 tests/airflow/test_seeded_kills.py

exhaustive: $(READY) ## What CI does a part of: all interleavings of catalog users in larger bounds; each kind of damage to each kind of object; files that change at each moment (1 h)
	HEADRACE_INTERLEAVINGS=all HEADRACE_CORRUPTIONS=all $(BIN)/pytest --timeout=0 tests/snapshots/test_interleavings.py tests/faults/test_corruption.py tests/process/test_changing_files.py tests/read/test_pruning.py tests/kernel/test_equal_hashes.py tests/reference/test_windows.py tests/simulation/test_properties.py

mutations: $(READY) ## Deliberate mistakes in the kernel and around it: a case or a test must catch each of them
	$(BIN)/python -m scripts.mutations

dist: $(READY) ## Build the wheel and the sdist, and those of headrace-lab, into dist/
	rm -rf dist
	$(UV) build --all-packages --out-dir dist

release: $(READY) ## Build wheel, sdist, site and notes of the version, try them out on each Python, tag it (ARGS=--rehearse: no tag)
	$(BIN)/python -m scripts.release $(ARGS)

images: $(READY) ## Build the images of docker/ without a Docker engine (needs root, buildah, debootstrap; ARGS="--base IMAGE": of your own)
	$(BIN)/python -m scripts.images build $(ARGS)

test-images: $(READY) ## Run pipelines inside the images, on both executors and on a cluster (after make images)
	$(BIN)/python -m scripts.image_checks

images-remove: ## Remove the images and what buildah keeps of them
	$(BIN)/python -m scripts.images remove

check: $(READY) ## Lint, format, types, dependency contracts
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/pytest -q -n0 -p no:cacheprovider tests/tooling/test_imports.py  # no circles, which lint-imports does not see
	$(BIN)/python -m scripts.house

fmt: $(READY) ## Draw the tree of errors, write stubs and signatures, format, and fix what can be fixed
	$(BIN)/python -m scripts.errors --write
	$(BIN)/python -m scripts.stubs --write
	$(BIN)/python -m scripts.handle_options --write
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(READY) ## Build the site of the documentation into .headrace/docs; a broken link is an error
	$(BIN)/sphinx-build -q -W --keep-going -d .headrace/doctrees docs .headrace/docs
	@echo "docs: file://$(CURDIR)/.headrace/docs/index.html"

clean: ## Remove local state (stop Airflow and MinIO first: make down); keeps .venv and the cache
	rm -rf .headrace .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
