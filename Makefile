# `make` alone lists what there is. Everything lives in .venv.
VENV ?= .venv
PYTHON ?= python3
BIN := $(VENV)/bin
PIP_INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt
FILES := pyproject.toml constraints.txt
PEER_NAMES := litserve bentoml ray mlserver triton
# PyTriton works with Debian's Python 3.11.2 and not with later 3.11; all peers run on the same.
PEER_PYTHON ?= /usr/bin/python3

.DEFAULT_GOAL := help
.PHONY: help setup serve bench loadtest dashboard screenshots browser tools test test-fast newcomer lint format types imports package ci clean pages peers peers-setup

help: ## List the commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

# What serving needs: no torch.
$(VENV)/.serve: $(FILES) | $(BIN)/python
	$(PIP_INSTALL) --editable .
	@touch $@

# What the dashboard needs: no torch.
$(VENV)/.dashboard: $(FILES) | $(BIN)/python
	$(PIP_INSTALL) --editable '.[dashboard]'
	@touch $@

# What training, exporting and measuring need.
$(VENV)/.torch: $(FILES) | $(BIN)/python
	$(PIP_INSTALL) --editable '.[torch]'
	@touch $@

# What load tests need: no torch.
$(VENV)/.loadtest: $(FILES) | $(BIN)/python
	$(PIP_INSTALL) --editable '.[loadtest]'
	@touch $@

# What development needs: everything.
$(VENV)/.dev: $(FILES) | $(BIN)/python
	$(PIP_INSTALL) --editable '.[torch,dashboard,loadtest,dev]'
	@touch $@ $(VENV)/.serve $(VENV)/.torch $(VENV)/.dashboard $(VENV)/.loadtest

setup: $(VENV)/.dev ## Create .venv with everything for development

serve: $(VENV)/.serve ## Serve the bundled classifier on port 8000 (ATTENTION=performer chooses another)
	$(BIN)/longdoc serve $(if $(ATTENTION),--attention $(ATTENTION))

bench: $(VENV)/.torch ## Measure time and memory against length, all of it (hours; resumable)
	$(BIN)/longdoc bench

# Each peer has an environment of its own; one that cannot be installed is left out.
.venv-peers-%/.ready: benchmarks/peers/environments/%.txt
	$(PEER_PYTHON) -m venv .venv-peers-$*
	.venv-peers-$*/bin/python -m pip install --quiet --disable-pip-version-check \
		--requirement $< && touch $@ || echo "$* could not be installed and is left out"

# Longdoc, plain FastAPI and the graph without a server: the same Python as the peers.
.venv-peers-longdoc/.ready: $(FILES)
	$(PEER_PYTHON) -m venv .venv-peers-longdoc
	.venv-peers-longdoc/bin/python -m pip install --quiet --disable-pip-version-check \
		--constraint constraints.txt --editable . && touch $@

peers-setup: $(VENV)/.dev .venv-peers-longdoc/.ready $(PEER_NAMES:%=.venv-peers-%/.ready) ## Install the servers that `make peers` compares with

peers: peers-setup ## Compare with other servers (45 minutes; PEERS=--quick: 3); resumable
	$(BIN)/python -m benchmarks.peers $(PEERS)

pages: $(VENV)/.dev ## Write the pages of measured figures in docs/ from the stored results
	$(BIN)/python -m benchmarks.pages

loadtest: $(VENV)/.loadtest ## Load the bundled classifier with all kinds of callers (ARGS="…" chooses what)
	@mkdir -p runs
	$(BIN)/longdoc loadtest $(or $(ARGS),--mix all --html runs/loadtest.html)

dashboard: $(VENV)/.dashboard ## Open the dashboard on port 8501
	$(BIN)/longdoc dashboard

screenshots: $(VENV)/.dev browser ## Take the pictures of the dashboard in docs/images
	$(BIN)/python -m scripts.screenshots

browser: # Drives pages in tests and screenshots; installed only where it is missing
	scripts/install-tools chromium

tools: # What others wrote and tests drive; installed only where it is missing
	scripts/install-tools chromium haproxy

test: $(VENV)/.dev tools ## Run all tests
	$(BIN)/python -m pytest --numprocesses auto --dist loadfile

test-fast: $(VENV)/.dev ## Run the tests that take no time, at each save (under 40 s on two cores)
	$(BIN)/python -m pytest --numprocesses auto --dist load -m "not slow and not attack" --ignore tests/e2e -q

newcomer: ## Run every command of README and quick start in a fresh clone with a fresh home, timed
	scripts/newcomer

attack: $(VENV)/.dev ## Run the attacks that take minutes (installs slowhttptest and h2load)
	scripts/install-attack-tools
	$(BIN)/python -m pytest tests/attacks -m attack

lint: $(VENV)/.dev ## Check formatting and lint
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

format: $(VENV)/.dev ## Format the code and apply safe fixes
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

types: $(VENV)/.dev ## Check types (mypy, strict)
	$(BIN)/mypy

imports: $(VENV)/.dev ## Check who imports whom
	$(BIN)/lint-imports

package: $(VENV)/.dev ## Build the wheel and the source distribution
	rm -rf dist
	$(BIN)/python -m build --no-isolation --outdir dist .

ci: lint types imports test package ## Everything that must be green

clean: ## Remove what these commands made
	rm -rf $(VENV) .venv-peers-* dist .mypy_cache .pytest_cache .ruff_cache .import_linter_cache
