# make demo        principal components of half a million image patches inside 256 MiB
# make check       format, lint, types, layers; make lint and make types are parts of it
# make test        the quick tests: every pair of values of each product, no test above 0.3 seconds
# make test-changed BASE=main   the tests below ten seconds that can see what differs from a commit, HEAD by default
# make test-long   the tests between 0.3 and ten seconds, which make test leaves out
# make tiers       measure these and those of make test, alone on the machine, and list which take how long
# make test-all    all tests: products, processes, kills, memory, a real SLURM if it is installed (several hours)
# make test-wheel  what an installed package can lack, tested on the built wheel from outside the tree
# make smoke       two runs on a real SLURM, which the tests start themselves: as root, with slurm-wlm and munge;
#                  and device kernels under a sanitizer, with g++
# make chaos       a thousand attacks on all methods, whose table goes into docs/reliability.md: as root, with gcc, e2fsprogs
#                  and SLURM, or without those kinds (hours; SEED=0, TRIALS=1000, JOBS=2)
# make peers       the tests that Dask, scikit-learn, SciPy, pynndescent and scanpy ship, run against rankfold (10 minutes)
# make fuzz        files that nobody would write, for every parser, FUZZ_SECONDS=600 for each of 16 (three hours)
# make docs       the site, into build/site: guides, reference, gallery; strict, with pictures drawn by examples/
# make bench       a pass against its physical limit (writes 16 GB under /tmp/rankfold-data once)
#
# With another interpreter: make test-all PYTHON=python3.13 VENV=.venv-3.13

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALL := $(BIN)/uv pip install --quiet --compile-bytecode --python
SECONDS := not exhaustive and not process and not slow and not slurm
QUICK := $(SECONDS) and not long
# Compiled loops, which clones share.
export NUMBA_CACHE_DIR ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/rankfold-loops
# Quick tests keep their files in memory where 8 GB are free for that. All tests keep them on a disk.
IN_MEMORY := $(shell df -k /dev/shm 2>/dev/null | awk 'NR == 2 && $$4 > 8000000 {print "TMPDIR=/dev/shm"}')
SEED := 0
TRIALS := 1000
JOBS := 2
WHEEL := build/wheel-venv/bin/python

.PHONY: demo check lint types test test-changed test-long tiers test-all test-wheel smoke chaos fuzz peers docs bench clean

demo: $(VENV)/.installed-demo
	$(BIN)/rankfold demo

test: $(VENV)/.installed-dev
	$(IN_MEMORY) $(BIN)/python -m pytest -q -n 2 -m '$(QUICK)'

BASE ?= HEAD
test-changed: $(VENV)/.installed-dev
	files=$$($(BIN)/python tests/changed.py $(BASE)) && $(IN_MEMORY) $(BIN)/python -m pytest -q -n 2 -m '$(SECONDS)' $$files

test-long: $(VENV)/.installed-dev
	$(IN_MEMORY) $(BIN)/python -m pytest -q -n 2 -m 'long and $(SECONDS)'

tiers: $(VENV)/.installed-dev
	$(IN_MEMORY) $(BIN)/python -m pytest -q -n 2 --write-long-tests -m '$(SECONDS)'

test-all: $(VENV)/.installed-dev
	$(BIN)/python -m pytest -q -n 2 --hypothesis-profile=full

# From outside the tree, so that the package found is the installed one.
test-wheel: $(VENV)/.installed-dev
	rm -rf build/lib build/bdist* build/wheel-venv dist
	$(BIN)/python -m build --wheel --installer uv --outdir dist >/dev/null
	$(BIN)/python -m venv --without-pip build/wheel-venv
	$(INSTALL) $(WHEEL) dist/*.whl --group test
	mkdir -p build/wheel-tests
	cd build/wheel-tests && ../../$(WHEEL) -m pytest -q -c ../../pyproject.toml --rootdir ../.. ../../tests/packaging

smoke: $(VENV)/.installed-dev
	$(BIN)/python -m pytest -q -n 2 'tests/cluster/slurm/test_slurm.py::test_jobs_give_the_same_bytes_as_threads[2]' \
		'tests/cluster/slurm/test_allocation.py::test_an_allocation_gives_the_same_bytes_as_threads[plain]' \
		tests/kernels/test_device_kernels.py::test_no_access_is_out_of_bounds
	$(BIN)/python benchmarks/gpu.py --tiny

chaos: $(VENV)/.installed-dev
	$(IN_MEMORY) $(BIN)/python tests/chaos/chaos.py --kind all --trials $(TRIALS) --seed $(SEED) --jobs $(JOBS) --keep

peers: $(VENV)/.installed-dev
	$(BIN)/python tests/peers/run.py

FUZZ_SECONDS ?= 600
fuzz: $(VENV)/.installed-dev
	$(BIN)/python tests/fuzz/fuzz.py --seconds $(FUZZ_SECONDS)

check: lint types
	$(BIN)/python -m pytest -q tests/architecture

lint: $(VENV)/.installed-dev
	$(BIN)/ruff format --check
	$(BIN)/ruff check

types: $(VENV)/.installed-dev
	$(BIN)/mypy
	$(BIN)/mypy --config-file benchmarks/mypy.ini benchmarks/*.py

docs: $(VENV)/.installed-docs
	$(BIN)/python docs/pages.py build/pages
	$(BIN)/sphinx-build -W --keep-going -q -b html -c docs build/pages build/site
	@echo build/site/index.html

bench: $(VENV)/.installed-dev
	$(BIN)/python benchmarks/passes.py

clean:
	rm -rf $(VENV) build dist demo-output

$(BIN)/uv:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet uv

$(VENV)/.installed-demo: pyproject.toml src/rankfold/_version.py | $(BIN)/uv
	$(INSTALL) $(BIN)/python --editable '.[demo]'
	touch $@

$(VENV)/.installed-dev: pyproject.toml src/rankfold/_version.py | $(BIN)/uv
	$(INSTALL) $(BIN)/python --editable . --group dev
	touch $@

$(VENV)/.installed-docs: pyproject.toml src/rankfold/_version.py | $(BIN)/uv
	$(INSTALL) $(BIN)/python --editable . --group docs
	touch $@
