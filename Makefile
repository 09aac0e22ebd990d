# Two commands do all set-up on a fresh Debian or Ubuntu: `make demo` and `make test`.
# Everything Python goes into .venv; p4runtime-shell, whose pins clash with ours, into .venv-shell.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Modules are compiled when they are first imported: compiling all that is installed takes longer.
INSTALL := bin/pip install --quiet --no-compile
SHELL_VENV := .venv-shell
TOPOLOGY ?= abilene
TIME ?= virtual
ADDR ?= 127.0.0.1:9559
DEVICE ?= 1
ELECTION ?= 0,1
CONFIG ?=
export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PIP_NO_PYTHON_VERSION_WARNING := 1
# Half of the time in which a process starts would be spent on compiling our own modules.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo test check lint format types layers p4 p4-check unit shell clean

help:
	@echo "make demo    run the whole circle on Abilene (TIME=virtual|kernel, TOPOLOGY=file or name)"
	@echo "make test    everything a reviewer would check: format, lint, types, layers, P4 build, tests"
	@echo "make shell   a p4runtime-shell on a running switch (ADDR=$(ADDR) DEVICE=$(DEVICE); CONFIG=p4info,json to push)"
	@echo "make p4      compile p4/ again (needs p4c-bm2-ss)"

$(VENV)/bin/python:
	@./.ci/prepare $(PYTHON) $(VENV)

$(VENV)/.base: pyproject.toml | $(VENV)/bin/python
	@echo "installing millrace into $(VENV)"
	@$(VENV)/$(INSTALL) --editable .
	@touch $@

$(VENV)/.dev: pyproject.toml | $(VENV)/bin/python
	@echo "installing millrace and the development tools into $(VENV)"
	@$(VENV)/$(INSTALL) --editable '.[dev]'
	@touch $(VENV)/.base $@

# Made behind the other one: only one of the two should have to install Debian's package for it.
$(SHELL_VENV)/.ready: .ci/prepare | $(VENV)/bin/python
	@./.ci/prepare $(PYTHON) $(SHELL_VENV)
	@echo "installing p4runtime-shell into $(SHELL_VENV)"
	@$(SHELL_VENV)/$(INSTALL) 'p4runtime-shell==0.0.6' 'setuptools<81'
	@touch $@

demo: $(VENV)/.base
	@$(BIN)/millrace demo --topology $(TOPOLOGY) --time $(TIME)

test:
	@$(MAKE) --no-print-directory --jobs=2 $(VENV)/.dev $(SHELL_VENV)/.ready
	@$(MAKE) --no-print-directory --jobs=2 --output-sync=target check
	@$(MAKE) --no-print-directory unit

check: types lint layers p4-check

lint: $(VENV)/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

format: $(VENV)/.dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

types: $(VENV)/.dev
	$(BIN)/mypy

layers: $(VENV)/.dev
	$(BIN)/lint-imports

p4-check: $(VENV)/.dev
	$(BIN)/python -m dataplane.program.build_check

p4: $(VENV)/.dev
	$(BIN)/python -m dataplane.program.build_check --compile

unit: $(VENV)/.dev
	$(BIN)/python -m pytest -n auto -m "not root"
	$(BIN)/python -m pytest -n 4 -m "root and bmv2"
	$(BIN)/python -m pytest -n 4 --dist loadfile -m "root and not bmv2"

shell: $(SHELL_VENV)/.ready
	@$(SHELL_VENV)/bin/python -m p4runtime_sh --grpc-addr $(ADDR) --device-id $(DEVICE) --election-id $(ELECTION) $(if $(CONFIG),--config $(CONFIG))

clean:
	rm -rf $(VENV) $(SHELL_VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache demo-out
