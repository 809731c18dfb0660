# Each target makes its own virtual environment; all that it needs is Python 3.11 or newer, and make.
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11 python; do \
	command -v $$p >/dev/null 2>&1 && $$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
	&& echo $$p && break; done)
VENV ?= .venv
BIN := $(VENV)/bin
# One worker more than there are processors, since tests of networks often wait.
WORKERS ?= $(shell $(PYTHON) -c 'import os; print((os.cpu_count() or 1) + 1)')

.PHONY: demo test test-all test-browser cover lint bench soak docs pictures gallery screenshots wheel clean help

help:
	@echo "make demo          find the best arm on the paper's instance, with a picture at the end"
	@echo "make test          the fast tests: a few minutes, every contract at least once"
	@echo "make test-all      all tests except soak and browser tests"
	@echo "make test-browser  the reports in a real Chromium, which must be installed"
	@echo "make soak          the long campaigns"
	@echo "make cover         test-all with coverage (slower)"
	@echo "make lint          ruff and mypy"
	@echo "make bench         the benchmarks: tables on screen, numbers in out/"
	@echo "make docs          the documentation, in docs/_build/html"
	@echo "make pictures      the pictures and the notebooks' output in docs, made anew"
	@echo "make gallery       a picture of every screen, in docs/gallery.md; needs Chromium"
	@echo "make screenshots   the pictures of pages on the home page; needs a Chromium"
	@echo "make wheel         a wheel in dist/, tried out in an empty environment"

# One stamp per set of extras: a set is installed again when the project's requirements change.
$(VENV)/.%: pyproject.toml constraints.txt
	@test -n "$(PYTHON)" || { echo "bestarm needs Python 3.11 or newer on the PATH (or: make PYTHON=/path/to/python)"; exit 2; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[$*]'
	@touch $@

demo: $(VENV)/.report
	@mkdir -p out
	$(BIN)/python examples/side_by_side.py examples/target-detection.toml out/demo.png

test: $(VENV)/.dev
	$(BIN)/python -m pytest -n $(WORKERS)

test-all: $(VENV)/.dev
	$(BIN)/python -m pytest -n $(WORKERS) -m 'not soak and not browser'

test-browser: $(VENV)/.browser
	$(BIN)/python -m pytest -m browser tests/browser

cover: $(VENV)/.dev
	$(BIN)/python -m pytest -n $(WORKERS) -m 'not soak and not browser' --cov

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(VENV)/.bench
	@# best-arm asks for an old SciPy that it does not need here
	@$(BIN)/python -c 'import best_arm' 2>/dev/null || $(BIN)/python -m pip install --quiet --no-deps best-arm==0.1.1
	@mkdir -p out
	$(BIN)/python -m benchmarks

soak: $(VENV)/.dev
	$(BIN)/python -m pytest -n auto -m soak

docs: $(VENV)/.docs
	$(BIN)/sphinx-build -W --keep-going -b html docs docs/_build/html
	$(BIN)/python docs/check_html.py docs/_build/html

pictures: $(VENV)/.dev
	$(BIN)/python docs/pictures.py
	$(BIN)/python docs/rooms.py
	$(BIN)/python docs/schema.py
	$(BIN)/python docs/notebooks.py
	BESTARM_PICTURES=docs/images/made $(BIN)/python -m pytest -n 0 -m '' tests/house/test_docs.py -k "test_every_block_of_a_page_runs and (start or tutorial or federation or mesh or bring)"

screenshots: $(VENV)/.dev
	$(BIN)/python docs/showcase.py

gallery: $(VENV)/.browser
	$(BIN)/python docs/gallery.py

wheel: $(VENV)/.dev
	$(BIN)/python -m build
	$(BIN)/python -m pytest -n 0 -m soak tests/house/test_release.py

clean:
	rm -rf $(VENV) out docs/_build .pytest_cache .mypy_cache .ruff_cache .hypothesis
