# Everything runs in .venv; `demo` needs the light base install only, the other targets need all extras.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --quiet --disable-pip-version-check
# Extras stay in the lock: without them pip takes the newest release for `name[extra]`, and stops at its missing hash.
COMPILE := $(BIN)/uv pip compile --quiet --no-header --no-strip-extras --generate-hashes --python-version 3.11 pyproject.toml
DEMO_FLAGS ?=
SECONDS ?= 600
AXE ?= 4.14.1
PORT ?= 8437
FUZZERS ?= tests/fuzz tests/folder/test_flips.py tests/folder/test_failing_disk.py
# Workers that each start a thread per core for small matrices only wait for one another.
ONE_THREAD := OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1
# One more than there are cores: tests of servers and browsers wait most of the time.
WORKERS := $(shell echo $$(( $$(getconf _NPROCESSORS_ONLN) + 1 )))

.DEFAULT_GOAL := help
.PHONY: swagger help setup demo serve-demo test test-long fuzz check format lock axe bench clean

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-9s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/base.stamp: requirements/base.txt requirements/build.txt pyproject.toml | $(BIN)/python
	$(PIP) install --require-hashes --requirement requirements/base.txt
	$(PIP) install --require-hashes --requirement requirements/build.txt
	$(PIP) install --no-deps --no-build-isolation --editable .
	@touch $@

$(VENV)/all.stamp: requirements/all.txt requirements/torch.txt lab/pyproject.toml $(VENV)/base.stamp
	$(PIP) install --require-hashes --requirement requirements/all.txt
	$(PIP) install --requirement requirements/torch.txt
	$(PIP) install --no-deps --no-build-isolation --editable lab
	@touch $@

serve-demo: $(VENV)/all.stamp  ## the service and its page on the demonstration's deployment, PORT=8437
	$(BIN)/expunge demo --serve --port $(PORT)

# Without a browser the tests that need one are skipped, and say so.
$(VENV)/browser.stamp: lab/experiments/chromium.py $(VENV)/all.stamp
	-$(BIN)/python lab/experiments/chromium.py --set-up && touch $@

setup: $(VENV)/all.stamp $(VENV)/browser.stamp  ## a .venv with everything, for working on the code

demo: $(VENV)/base.stamp  ## train, predict, delete, add, and watch plain SISA fail
	$(BIN)/expunge demo $(DEMO_FLAGS)

test: $(VENV)/all.stamp $(VENV)/browser.stamp  ## the whole test suite but for the tests that take long
	$(ONE_THREAD) $(BIN)/python -m pytest --numprocesses $(WORKERS) --dist worksteal

test-long: $(VENV)/all.stamp $(VENV)/browser.stamp  ## the tests that take long, and no others
	$(ONE_THREAD) $(BIN)/python -m pytest --numprocesses $(WORKERS) --dist worksteal -m long

fuzz: $(VENV)/all.stamp  ## try folders, models, certificates, files and disks at random, SECONDS=600 of each kind
	EXPUNGE_FUZZ_SECONDS=$(SECONDS) $(ONE_THREAD) $(BIN)/python -m pytest --numprocesses $(WORKERS) --dist worksteal -s -m "long or not long" $(FUZZERS)

check: $(VENV)/all.stamp  ## format, lint, types, import contract
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(VENV)/all.stamp  ## rewrite the code in the project's format
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

lock: $(VENV)/all.stamp  ## resolve the dependencies anew
	$(COMPILE) --upgrade --extra dev --output-file requirements/all.txt
	$(COMPILE) --constraint requirements/all.txt --output-file requirements/base.txt
	$(COMPILE) --constraint requirements/all.txt --extra service --output-file requirements/service.txt
	printf "hatchling==1.33.0\neditables\n" | $(BIN)/uv pip compile --quiet --no-header --generate-hashes --constraint requirements/all.txt --output-file requirements/build.txt -

swagger: $(VENV)/all.stamp  ## fetch the newest Swagger UI for the service's /docs (needs npm)
	$(BIN)/python lab/experiments/swagger.py

axe: $(VENV)/all.stamp  ## fetch the checker of accessibility that the tests use, AXE=4.14.1
	$(BIN)/python lab/experiments/axe.py $(AXE)

bench: $(VENV)/all.stamp  ## measure, and write docs/benchmarks.md
	$(BIN)/expunge bench --out docs/benchmarks.md

clean:  ## remove .venv and caches
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
