PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
DOCS_READY := .venv/.docs
CASES ?= 10000
JOBS ?= $(shell nproc 2>/dev/null || echo 2)
SEED ?= 0

# Tests whose tolerances are about rounding, and the few of them that every run of CI repeats in another rounding.
NUMERICAL := tests/contracts/test_linalg.py tests/contracts/test_losses.py tests/contracts/test_kernels.py \
	tests/contracts/test_products.py tests/contracts/test_bend.py tests/families tests/estimators/test_forward_estimators.py
FEW_NUMERICAL := tests/contracts/test_linalg.py tests/contracts/test_losses.py tests/contracts/test_kernels.py \
	tests/estimators/test_forward_estimators.py::test_float32_tiles_change_predictions_no_more_than_rounding_of_the_tiles_may \
	tests/estimators/test_forward_estimators.py::test_polished_weights_are_as_near_to_the_optimum_as_the_polish_promises
# The plainest kernels that BLAS has for this machine, and torch's without vector instructions.
CORE := $(if $(filter aarch64 arm64,$(shell uname -m)),ARMV8,Nehalem)
PLAIN := ATEN_CPU_CAPABILITY=default OPENBLAS_CORETYPE=$(CORE) MKL_CBWR=COMPATIBLE OMP_NUM_THREADS=1

# Whoever imports a package first compiles it for all: without this, where the variable is set, each process of the tests
# compiles what it imports again (15 s of a core).
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo docs browser test tests test-cluster test-long test-rounding test-rounding-quick fuzz fuzz-files check bench papers \
	clean

demo: $(READY)
	$(BIN)/python examples/demo.py

# Checks run beside the tests: type checking alone would leave a core idle.
test: $(READY)
	$(MAKE) --jobs=2 check tests

# Two workers of one thread each: two threads each would wait for one another. Whoever is done takes work from the other.
tests: $(READY)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist worksteal

# Several processes that fit one model, workers that are killed, Dask: longer than what every run should wait for.
test-cluster: $(READY)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m cluster tests

# Memory of many fits, units, sizes chosen, stages of large tables: seconds each, for what few changes touch.
test-long: $(READY)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist worksteal -m long tests

# The same numbers rounded otherwise: other instructions, other sums, rows in another order.
test-rounding: $(READY)
	$(PLAIN) $(BIN)/python -m pytest -n 2 $(NUMERICAL)
	OMP_NUM_THREADS=1 OPENBLAS_CORETYPE=$(CORE) $(BIN)/python -m pytest -n 2 $(NUMERICAL)
	OMP_NUM_THREADS=2 $(BIN)/python -m pytest $(NUMERICAL)
	OMP_NUM_THREADS=1 MERCER_TEST_ROWS=shuffled $(BIN)/python -m pytest -n 2 tests/estimators/test_forward_estimators.py

# One process: workers would take longer to start than these tests run.
test-rounding-quick: $(READY)
	$(PLAIN) $(BIN)/python -m pytest $(FEW_NUMERICAL)

# Thousands of random cases; a fault names the case that repeats it: python -m tests.fuzz --replay NAME SEED
fuzz: $(READY)
	$(BIN)/python -m tests.fuzz --cases $(CASES) --jobs $(JOBS) --seed $(SEED)

# Model files with faults: each ends in a sentence.
fuzz-files: $(READY)
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.files.fuzz --cases $(CASES) --seed $(SEED)

# The site, in build/site: nothing is fetched, and a warning is an error. What the gallery made stays for the next time.
docs: $(DOCS_READY)
	mkdir -p build/source && find build/source -mindepth 1 -maxdepth 1 ! -name gallery -exec rm -rf {} +
	cp -r docs/. CONTRIBUTING.md CHANGELOG.md build/source/
	$(BIN)/python docs/api_pages.py build/source/api.rst
	$(BIN)/python -m sphinx -W --keep-going -q -c docs -d build/doctrees build/source build/site
	@echo "The site: build/site/index.html"

# Report pages, and the site where it was built, in headless Chromium; pictures in build/screens.
browser: $(READY)
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.browser

check: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/codespell

bench: $(READY)
	$(BIN)/python benchmarks/run.py

# Cells of the five papers that are missing or of earlier code (docs/reproduce.md), from the data that MERCER_DATA names:
# hours, PAPERS="--minutes 30" within a time, or PAPERS=--quick a cell of each table in ten minutes, into build/papers.
papers: $(READY)
	$(BIN)/python benchmarks/papers/run.py $(PAPERS)

# torch comes first, by pip and pinned: a looser request would pull a far larger build. uv installs the rest, on all cores;
# it does not read pip's settings, so where it finds no index pip does the same. Python is compiled when it is imported,
# which most of the 14 000 files never are: compiling all of them takes some 40 s of one core. What the tests import is
# imported once on each core, since their workers would compile the same side by side.
ASKED := --quiet --constraint constraints.txt
PIP := $(BIN)/python -m pip install --no-compile $(ASKED)
UV := $(BIN)/python -m uv pip install --python $(BIN)/python $(ASKED)
SOME := import hypothesis, torch
OTHERS := import matplotlib.pyplot, onnxruntime, pandas, polars, pyarrow.parquet, scipy.stats, sklearn.utils.estimator_checks
$(READY): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(PIP) torch uv || $(PIP) torch
	$(UV) --editable ".[dev]" || $(PIP) --editable ".[dev]"
	$(BIN)/python -c "$(SOME)" & $(BIN)/python -c "$(OTHERS)"; $(BIN)/python -m compileall -q src; wait
	touch $@

$(DOCS_READY): $(READY)
	$(UV) --editable ".[docs]" || $(PIP) --editable ".[docs]"
	touch $@

clean:
	rm -rf .venv build src/*.egg-info
