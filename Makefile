# Two commands matter: `make demo` and `make test`. Both set up .venv by themselves.
PYTHON ?= python3
BIN := .venv/bin
# One thread a process: two busy processes with two threads each run slower than two with one.
export OMP_NUM_THREADS := 1

# The documentation's theme advertises its successor on every build.
export NO_MKDOCS_2_WARNING := 1

.PHONY: demo test check docs bench bench-deep bench-continuous clean

demo: .venv/.run
	$(BIN)/hyq demo

test: check
	$(BIN)/pytest -n 2

check: .venv/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

docs: .venv/.dev
	$(BIN)/mkdocs build --strict --quiet
	@echo "open site/index.html; with search: $(BIN)/python -m http.server --directory site"

bench: .venv/.run
	$(BIN)/python benchmarks/lock.py

# The peers live in an environment of their own, because d3rlpy asks for an old Gymnasium.
bench-deep: .venv/.run .venv-bench/.ready
	$(BIN)/python -m benchmarks.deep --peers .venv-bench/bin/python

bench-continuous: .venv/.run .venv-bench/.ready
	$(BIN)/python -m benchmarks.continuous --peers .venv-bench/bin/python --threads 1 2 \
		--out results/continuous/benchmark.json

.venv-bench/.ready: pyproject.toml constraints.txt benchmarks/peers-constraints.txt
	$(PYTHON) -m venv .venv-bench
	.venv-bench/bin/pip install --quiet --disable-pip-version-check \
		-c constraints.txt -c benchmarks/peers-constraints.txt -e '.[bench,box2d]'
	.venv-bench/bin/pip install --quiet --disable-pip-version-check --no-deps \
		-c benchmarks/peers-constraints.txt d3rlpy
	touch $@

clean:
	rm -rf .venv .venv-bench .mypy_cache .ruff_cache .import_linter_cache .hypothesis

.venv/bin/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "hyq needs Python 3.11 or newer: make PYTHON=python3.11 ...")'
	$(PYTHON) -m venv .venv

.venv/.run: .venv/bin/python pyproject.toml constraints.txt
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e .
	touch $@

.venv/.dev: .venv/.run
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@
