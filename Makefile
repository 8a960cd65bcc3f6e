# make demo    principal components of half a million image patches inside 256 MiB
# make test    all tests
# make peers   the tests that Dask, scikit-learn, SciPy and pynndescent ship, run against rankfold (10 minutes)
# make check   format, lint, types, layers
# make bench   a pass against its physical limit (writes 16 GB under /tmp/rankfold-data once)

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo test peers check bench clean

demo: $(VENV)/.installed-demo
	$(BIN)/rankfold demo

test: $(VENV)/.installed-dev
	$(BIN)/python -m pytest -n 2

peers: $(VENV)/.installed-dev
	$(BIN)/python tests/peers/run.py

check: $(VENV)/.installed-dev
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/mypy
	$(BIN)/python -m pytest -q tests/architecture

bench: $(VENV)/.installed-dev
	$(BIN)/python benchmarks/passes.py

clean:
	rm -rf $(VENV) build dist demo-output

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade 'pip>=25.1'

$(VENV)/.installed-demo: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable '.[demo]'
	touch $@

$(VENV)/.installed-dev: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable . --group dev
	touch $@
