# Everything a reader, a teacher or an author runs. `make help` lists it.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
PYTEST := $(BIN)/python -m pytest -n 2 --dist loadscope
NBVAL := --nbval --nbval-current-env --nbval-cell-timeout 300 --nbval-sanitize-with tests/nbval.cfg

.DEFAULT_GOAL := help
.PHONY: help setup book test quick lint lab notebook setup-cells export figures bench pretrain browser clean

help:  ## list the commands
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | while IFS="$$(printf '\t')" read -r name text; \
	do printf '  make %-12s %s\n' "$$name" "$$text"; done

setup: $(READY)  ## create .venv and install what the book and the tests need

$(READY): requirements.txt requirements-nodeps.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or newer is needed: make PYTHON=python3.11 …"; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install -q -r requirements.txt
	$(BIN)/python -m pip install -q --no-deps -r requirements-nodeps.txt
	$(BIN)/python -m pip install -q --no-deps -e .
	touch $@

book: $(READY)  ## build the HTML from the stored outputs; warnings are errors
	$(BIN)/jupyter-book build . --warningiserror --nitpick --keep-going --quiet
	$(BIN)/python tools/prune_book.py
	@echo "The book is ready: open _build/html/index.html"

test: lint  ## lint, unit, property and parity tests, and every notebook compared with a fresh run
	$(PYTEST) $(NBVAL) --ignore tests/browser

quick: lint  ## everything but the notebooks, in about two minutes
	$(PYTEST) --ignore tests/browser tests

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check lrm_utils tools tests bench

browser: $(READY)  ## open every page of the built book in Chromium
	LRM_BROWSER=required $(BIN)/python -m pytest tests/browser

lab: $(READY)  ## JupyterLab on the chapters
	$(BIN)/jupyter lab chapters

notebook: export  ## run one notebook and store it: make notebook NB=chapters/…/01_x.ipynb
	$(BIN)/python tools/notebooks.py run $(NB)

setup-cells: $(READY)  ## rewrite every setup cell and Colab badge from _config.yml
	$(BIN)/python tools/notebooks.py setup

export: $(READY)  ## collect the exported cells into lrm_utils/models
	$(BIN)/python tools/export.py

figures: $(READY)  ## redraw the figures of the landing page
	$(BIN)/python tools/figures.py

bench: $(READY)  ## compare speed and quality with the peers; writes lrm_utils/records
	for script in bench/*.py; do $(BIN)/python $$script || exit 1; done

pretrain: $(READY)  ## train a shipped model anew: make pretrain NAME=elmo
	@test -n "$(NAME)" || { echo "Say which model: make pretrain NAME=elmo"; exit 1; }
	$(BIN)/python -m lrm_utils.pretrain $(NAME)

clean:  ## remove the built book and every cache, but not .venv
	rm -rf _build .pytest_cache .ruff_cache .hypothesis .coverage build *.egg-info
	find . -name __pycache__ -not -path './.venv/*' -exec rm -rf {} +
