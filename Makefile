# Every target sets up what it needs by itself and can be run again at no cost.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
SOURCES_THAT_COMPILE := $(wildcard transport/*.pyx transport/*.pxd transport/*/*.pyx)

.DEFAULT_GOAL := help
.PHONY: help demo test check format bench tools clean

help:  ## what can be made
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 10

demo: $(READY)  ## a publisher and two subscribers under 2 % loss, ending with their ledgers
	@$(BIN)/onehop demo

test: $(READY)  ## every test, with the compiled modules and again with their Python twins
	$(BIN)/python -m pytest -q
	ONEHOP_PURE_PYTHON=1 $(BIN)/python -m pytest -q -m 'twin and not compiled'

check: $(READY)  ## format, lint, types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: $(READY)  ## write the format and the fixes that are safe
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(READY)  ## latency, throughput and loss against C floors and plain pyzmq
	$(BIN)/onehop bench multicast
	$(BIN)/onehop bench zeromq

tools:  ## what some tests need beyond Python, from Debian's packages (root)
	@sh .ci/tools

clean:  ## everything that was made
	rm -rf $(VENV) build dist *.egg-info src/*.egg-info
	find transport bench -name '*.so' -delete

$(READY): pyproject.toml setup.py constraints.txt $(SOURCES_THAT_COMPILE)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || \
	  { echo "onehop needs Python 3.11 or newer as '$(PYTHON)'; install it or name another: make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || \
	  { echo "onehop needs Python's venv module; on Debian: apt-get install python3-venv" >&2; exit 1; }
	@command -v cc >/dev/null || command -v gcc >/dev/null || \
	  { echo "onehop needs a C compiler; on Debian: apt-get install gcc libc6-dev" >&2; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "setting up $(VENV) ..."
	@PIP_CONSTRAINT=constraints.txt $(BIN)/pip install --quiet --disable-pip-version-check -e '.[dev]'
	@touch $@
