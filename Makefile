# `make` alone lists what there is. Everything lives in .venv.
VENV ?= .venv
PYTHON ?= python3
BIN := $(VENV)/bin
PIP_INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt
FILES := pyproject.toml constraints.txt

.DEFAULT_GOAL := help
.PHONY: help setup serve test lint format types imports package ci clean

help: ## List the commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

# What serving needs: no torch.
$(VENV)/.serve: $(FILES) | $(BIN)/python
	$(PIP_INSTALL) --editable .
	@touch $@

# What development needs: everything.
$(VENV)/.dev: $(FILES) | $(BIN)/python
	$(PIP_INSTALL) --editable '.[torch,dashboard,loadtest,dev]'
	@touch $@ $(VENV)/.serve

setup: $(VENV)/.dev ## Create .venv with everything for development

serve: $(VENV)/.serve ## Serve the bundled classifier on port 8000 (ATTENTION=performer chooses another)
	$(BIN)/longdoc serve $(if $(ATTENTION),--attention $(ATTENTION))

test: $(VENV)/.dev ## Run all tests
	$(BIN)/python -m pytest --numprocesses auto --dist loadfile

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
	rm -rf $(VENV) dist .mypy_cache .pytest_cache .ruff_cache .import_linter_cache
