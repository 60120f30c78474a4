# Each target installs what it requires: on a fresh machine with Python and git, any of them may be the first.
#   make demo    train mrq to swing up a pole, about four minutes; writes a page to demo/page, with videos before and after
#   make test    run the tests; PYTEST_ARGS="-n 0 -k replay" selects some and runs them in one process
#   make test-random   the same in random order; PYTEST_ARGS=--randomly-seed=N repeats an order
#   make test-python PYTHON=python3.13   the whole suite on another Python, in an environment of its own, .venv-3.13
#   make test-core   a fast part that needs no torch, on the newest Python here, in .venv-core; PYTHON=... selects another
#   make test-dreamer   run Dreamer-v3's tests, in an environment of its own: sheeprl does not fit into the first one
#   make lint    run ruff (rules and format) and mypy --strict, and check the layers of the package
#   make dist    build the sdist and the wheel, and check their metadata
#   make check-dist   install that wheel into a folder of its own and try it, without a network
#   make docs    build the site to docs/_build/html, which opens from disk; warnings are errors
#   make docs-links    the same, and try every link to the web (needs a network)
#   make bench   run every script in benchmarks/: speed, as ratios measured side by side

SHELL := /bin/bash
VERSION := import sys; print("%d.%d" % sys.version_info[:2])
# Another Python has an environment of its own.
VENV := .venv$(if $(filter test-python,$(MAKECMDGOALS)),-$(shell $(or $(PYTHON),python3) -c '$(VERSION)'))
# What is named python3.13 need not run: pyenv puts such names on PATH.
CORE = $(or $(PYTHON),$(shell for python in python3.14 python3.13 python3.12 python3.11 python3; do \
  $$python -c '' 2>/dev/null && echo $$python && break; done))
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
EXTRAS := dev,dmc,docs,metaworld,sweep,video
DREAMER := .venv-dreamer
export PIP_CONSTRAINT := $(CURDIR)/constraints.txt
export PIP_DISABLE_PIP_VERSION_CHECK := 1

# One test process per core, but at most eight, to limit memory.
WORKERS := $(shell n=$$(nproc 2>/dev/null || echo 2); echo $$((n < 8 ? n : 8)))

.PHONY: demo test test-random test-python test-core test-dreamer lint format docs docs-links dist check-dist bench clean gl browser

demo: gl $(STAMP)
	$(BIN)/revbis train --task dmc:cartpole_swingup --method mrq --observation state --preset cpu --frames 50000 --threads 1 --out demo
	$(BIN)/revbis report demo/cpu/dmc-cartpole_swingup/mrq/seed-1 --out demo/page

test: gl browser $(STAMP)
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal $(PYTEST_ARGS)

test-random:
	$(MAKE) test PYTEST_ARGS="-p randomly $(PYTEST_ARGS)"

test-python: test

test-core:
	bash tools/test-core $(CORE) .venv-core -n $(WORKERS) --dist worksteal $(PYTEST_ARGS)

# sheeprl's moviepy needs an older pillow than the tested one; every other version is the same. One test learns for minutes: it has an hour.
test-dreamer: gl
	@mkdir -p $(DREAMER)
	@sed '/^pillow==/d' constraints.txt > $(DREAMER)/constraints.txt
	@$(MAKE) --no-print-directory $(DREAMER)/.installed VENV=$(DREAMER) EXTRAS=dev,dmc,dreamer PIP_CONSTRAINT=$(CURDIR)/$(DREAMER)/constraints.txt
	$(DREAMER)/bin/python -m pytest -n $(WORKERS) --dist worksteal -o faulthandler_timeout=3720 tests/*/test_dreamer*.py $(PYTEST_ARGS)

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# Without isolation: the build backend is installed by the dev extra, in its pinned version.
dist: $(STAMP)
	rm -rf dist
	$(BIN)/python -m build --no-isolation --outdir dist .
	$(BIN)/python -m twine check --strict dist/*

check-dist: gl dist
	bash tools/check-wheel $(BIN)/python dist/*.whl

# The sources are the checkout: pages of docs/ and results/ link to each other as they do on disk.
SPHINX := $(BIN)/python -m sphinx -W --keep-going -q -E -c docs -d docs/_build/doctrees

docs: $(STAMP)
	$(SPHINX) -b html . docs/_build/html
	@echo "the site is in docs/_build/html: open docs/_build/html/docs/index.html"

docs-links: $(STAMP)
	$(SPHINX) -b linkcheck . docs/_build/linkcheck

bench: gl $(STAMP)
	@for script in benchmarks/[a-z]*.py; do echo "== $$script"; $(BIN)/python $$script || exit 1; done

# OpenGL for off-screen rendering: installed if permitted, else the command to run is printed.
gl:
	@bash tools/install-gl

# A browser for the tests of the report page, likewise.
browser:
	@bash tools/install-chromium

clean:
	rm -rf $(VENV) .venv-core $(DREAMER) demo dist docs/_build .pytest_cache .mypy_cache .ruff_cache .hypothesis

# An interpreter that was asked for is used, or refused: no other one takes its place.
ifneq ($(PYTHON),)
ASKED := $(shell $(PYTHON) -c '$(VERSION)' 2>/dev/null)
ifeq ($(filter 3.11 3.12 3.13 3.14,$(ASKED)),)
$(error PYTHON=$(PYTHON) cannot be used: revbis requires Python 3.11 to 3.14, and this $(if $(ASKED),is $(ASKED),does not run))
endif
ifneq ($(if $(filter test-core,$(MAKECMDGOALS)),,$(wildcard $(BIN)/python)),)
ifneq ($(shell $(BIN)/python -c '$(VERSION)' 2>/dev/null),$(ASKED))
$(error PYTHON=$(PYTHON) is Python $(ASKED), but $(VENV) was made with another: run make clean first)
endif
endif
endif

# The environment is created once and updated when the requirements change. PYTHON=... selects the interpreter.
$(STAMP): pyproject.toml constraints.txt
	@python=; for candidate in $(PYTHON) python3.11 python3.12 python3.13 python3.14 python3 python; do \
	  if "$$candidate" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 15))' 2>/dev/null; \
	  then python=$$candidate; break; fi; done; \
	if [ -z "$$python" ]; then echo "make: revbis requires Python 3.11 to 3.14 on PATH (or make PYTHON=/path/to/python ...)" >&2; exit 1; fi; \
	if [ ! -x $(BIN)/pip ]; then \
	  "$$python" -m venv $(VENV) || { echo "make: $$python cannot create a virtual environment; on Debian and Ubuntu run: apt-get install python3-venv" >&2; exit 1; }; fi
	$(BIN)/pip install --quiet --editable '.[$(EXTRAS)]'
	@if $(BIN)/python -c 'import sys; sys.exit(sys.version_info[:2] != (3, 13))'; \
	  then $(BIN)/pip install --quiet --no-deps dm_control; fi  # docs/start.md says why
	@touch $@
