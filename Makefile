# Two commands do all set-up on a fresh Debian or Ubuntu: `make demo` and `make test`.
# All Python packages go into .venv; p4runtime-shell, whose pins clash with ours, into .venv-shell; Ray, for `make deep`,
# into .venv-ray, Spark into .venv-spark, an object store for tests into .venv-s3; those of other Python versions, for
# `make pythons`, into .venv-3.12 and so on.

SHELL := bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
LOCKS := requirements
# Only packages and hashes pinned in requirements/.
INSTALL := ./.ci/uv pip install --no-deps --require-hashes
SHELL_VENV := .venv-shell
RAY_VENV := .venv-ray
SPARK_VENV := .venv-spark
S3_VENV := .venv-s3
SITE_VENV := .venv-site
TOPOLOGY ?= abilene
TIME ?= virtual
SWITCH ?= millrace
ADDR ?= 127.0.0.1:9559
DEVICE ?=
ELECTION ?=
CONFIG ?=
UPGRADE ?=
MILLRACE_FUZZ_S ?= 3600
export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PIP_NO_PYTHON_VERSION_WARNING := 1
# Without bytecode files, half of a process's start would be spent on compiling our own modules.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo mininet test quick debian checked deep check lint format types layers collect pythons newest-python p4 p4-check web screenshots protos tables picture results unit unit-user unit-root shell site lock same-python clean

help:
	@echo "make demo    run the whole control loop on Abilene (TIME=virtual|kernel, TOPOLOGY=file or name)"
	@echo "make test    everything a reviewer would check: format, lint, types, layers, P4 build, each Python, tests"
	@echo "make test ARGS=PATH   only these tests"
	@echo "make quick   format, lint, layers, types and tests of files changed since the last commit"
	@echo "make deep    checks too slow for every change: programs and daemons killed hundreds of times, soaks"
	@echo "make mininet a topology under Mininet, at its prompt (SWITCH=millrace|bmv2, TOPOLOGY=file or name; root)"
	@echo "make shell   a p4runtime-shell on a running switch (ADDR=$(ADDR); CONFIG=p4info,json to push)"
	@echo "make pythons import all, compile all kernels, run the demo under each Python from 3.11 to 3.14 found here"
	@echo "make p4      compile p4/ again (needs p4c-bm2-ss)"
	@echo "make web     build the page in controller/web again (needs Node 20 or later)"
	@echo "make screenshots draw the pictures of the page in docs/start again, by a browser"
	@echo "make protos  write the Python of every .proto again (needs grpcio-tools, of the development tools)"
	@echo "make tables  write the tables that P4, Lua, Scapy layers and pages repeat (tests/derived_tables.py)"
	@echo "make picture write docs/reference/architecture.svg again from its .dot (needs Graphviz)"
	@echo "make results write docs/results again from tests/benchmarks/results"
	@echo "make site    write the documentation as a site with a search and API pages into site/"
	@echo "make lock    write $(LOCKS)/ again from pyproject.toml (UPGRADE=--upgrade: newest versions)"

$(VENV)/bin/python:
	@./.ci/prepare $(PYTHON) $(VENV)

# uv installs ten times as fast as pip, which installs it.
$(VENV)/.uv: $(LOCKS)/uv.txt | $(VENV)/bin/python
	@$(BIN)/pip install --quiet --no-compile --no-deps --require-hashes --requirement $<
	@touch $@

$(VENV)/.base: pyproject.toml $(LOCKS)/base.txt $(VENV)/.uv
	@echo "installing Millrace into $(VENV)"
	@$(INSTALL) --python $(VENV) --requirement $(LOCKS)/base.txt
	@./.ci/uv pip install --python $(VENV) --no-deps --no-build-isolation --editable .
	@touch $@

$(VENV)/.dev: $(VENV)/.base $(LOCKS)/dev.txt $(LOCKS)/torch-cpu.txt $(LOCKS)/torch-needs.txt
	@echo "installing the development tools into $(VENV)"
	@$(INSTALL) --python $(VENV) --requirement $(LOCKS)/dev.txt --requirement $(LOCKS)/torch-needs.txt
	@./.ci/torch $(VENV)
	@touch $@

# Only `make deep` fuzzes with atheris; `make test` replays its findings.
$(VENV)/.fuzz: $(VENV)/.dev $(LOCKS)/fuzz.txt
	@echo "installing atheris into $(VENV)"
	@$(INSTALL) --python $(VENV) --requirement $(LOCKS)/fuzz.txt
	@touch $@

$(SHELL_VENV)/.ready: $(LOCKS)/shell.txt $(VENV)/.uv
	@echo "installing p4runtime-shell into $(SHELL_VENV)"
	@./.ci/uv venv --clear --python $(BIN)/python $(SHELL_VENV)
	@$(INSTALL) --python $(SHELL_VENV) --requirement $<
	@touch $@

$(RAY_VENV)/.ready: $(LOCKS)/ray.txt $(VENV)/.uv
	@echo "installing Ray into $(RAY_VENV)"
	@./.ci/uv venv --clear --python $(BIN)/python $(RAY_VENV)
	@$(INSTALL) --python $(RAY_VENV) --requirement $<
	@touch $@

$(SPARK_VENV)/.ready: $(LOCKS)/spark.txt $(VENV)/.uv
	@echo "installing Spark into $(SPARK_VENV)"
	@./.ci/debian Spark java openjdk-17-jre-headless
	@./.ci/uv venv --clear --python $(BIN)/python $(SPARK_VENV)
	@$(INSTALL) --python $(SPARK_VENV) --requirement $<
	@touch $@

# moto's server, of whose packages some clash with ours, is the object store of tests.
$(S3_VENV)/.ready: $(LOCKS)/s3.txt $(VENV)/.uv
	@echo "installing an object store for tests into $(S3_VENV)"
	@./.ci/uv venv --clear --python $(BIN)/python $(S3_VENV)
	@$(INSTALL) --python $(S3_VENV) --requirement $<
	@touch $@

# An environment keeps the Python that created it: naming another one is an error.
same-python:
	@[ "$(origin PYTHON)" = file ] || ./.ci/prepare $(PYTHON) $(VENV)

$(SITE_VENV)/.ready: $(LOCKS)/docs.txt $(VENV)/.uv
	@echo "installing MkDocs into $(SITE_VENV)"
	@./.ci/uv venv --clear --python $(BIN)/python $(SITE_VENV)
	@$(INSTALL) --python $(SITE_VENV) --requirement $<
	@touch $@

demo: same-python $(VENV)/.base
	@$(BIN)/millrace demo --topology $(TOPOLOGY) --time $(TIME)

mininet: same-python $(VENV)/.base
	@./.ci/mininet $(abspath $(BIN))/python "$(TOPOLOGY)" "$(SWITCH)"

# Only tests need the Debian packages, which are installed in parallel, but after those of .ci/prepare.
test: same-python
ifeq ($(ARGS),)
	@$(MAKE) --no-print-directory --jobs=3 debian checked
	@$(MAKE) --no-print-directory unit
else
	@$(MAKE) --no-print-directory $(VENV)/.dev
	$(BIN)/python -m pytest $(ARGS)
endif

# The editing loop: checks of files changed since the last commit, and the import layers of all.
quick: $(VENV)/.dev
	@./.ci/quick

debian: | $(VENV)/bin/python
	@./.ci/debian containers docker-registry podman runc conmon busybox-static skopeo umoci docker-registry
	@./.ci/debian Mininet "" mininet iputils-ping iproute2
	@./.ci/debian tshark "" tshark
	@./.ci/debian "the page in a browser" "" chromium-headless-shell
	@./.ci/debian "a Slurm cluster" "munge slurmctld slurmd" slurmctld slurmd slurm-client munge

# A separate make, so that nothing runs from an environment that is still being installed.
checked: $(VENV)/.dev $(SHELL_VENV)/.ready
	@$(MAKE) --no-print-directory --output-sync=target check

check: types newest-python collect lint layers p4-check

lint: $(VENV)/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

format: $(VENV)/.dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

types: $(VENV)/.dev
	$(BIN)/mypy

# Check that all tests load. This also compiles them once, instead of in each test process.
collect: $(VENV)/.dev
	@mkdir -p .pytest_cache
	@$(BIN)/python -m pytest --collect-only -qq --ignore=tests/soak >.pytest_cache/collected 2>&1 || (cat .pytest_cache/collected; exit 1)

layers: $(VENV)/.dev
	$(BIN)/lint-imports

pythons: $(VENV)/.base
	@./.ci/pythons

newest-python: $(VENV)/.base
	@./.ci/pythons newest

p4-check: $(VENV)/.dev
	$(BIN)/python -m dataplane.program.build_check

p4: $(VENV)/.dev
	$(BIN)/python -m dataplane.program.build_check --compile

# The committed build is what users get; tests/controller/web/test_build.py compares it with the sources.
web: $(VENV)/.dev
	@$(BIN)/python -m tests.page_build --build

screenshots: $(VENV)/.dev
	@./.ci/debian "the page in a browser" "" chromium-headless-shell
	@$(BIN)/python -m tests.page_screenshots

protos: $(VENV)/.dev
	@PYTHON=$(BIN)/python ./.ci/protos

# Tables that P4, Lua, Scapy layers and pages repeat from code; tests/test_derived_tables.py compares them.
tables: $(VENV)/.dev
	@$(BIN)/python -m tests.derived_tables

picture:
	@./.ci/picture

results: $(VENV)/.base
	@$(BIN)/python -m tests.benchmarks.pages write

# More processes than cores, as some tests wait for a daemon or a time.
WORKERS := $(shell echo $$(($$(nproc) * 3 / 2)))
# For `make test`: only these files or tests, or any options of pytest.
ARGS ?=

ROOT_OUTPUT := .pytest_cache/root
USER_OUTPUT := .pytest_cache/user

# Tests with root mostly wait, for daemons, leases and links; all others fill the cores meanwhile. Failures are repeated
# last, for readers of the output's end.
unit: $(VENV)/.dev $(S3_VENV)/.ready
	@mkdir -p .pytest_cache
	@status=0; $(MAKE) --no-print-directory --keep-going --jobs=2 unit-root unit-user || status=1; \
	cat $(ROOT_OUTPUT); \
	if [ $$status != 0 ]; then \
	sed -n -E '/^=+ (FAILURES|ERRORS) =+$$/,/^=+ short test summary/p' $(USER_OUTPUT) $(ROOT_OUTPUT); \
	grep -hE '^(FAILED|ERROR) ' $(USER_OUTPUT) $(ROOT_OUTPUT); \
	fi; exit $$status

# tests/soak is for `make deep`.
unit-user: $(VENV)/.dev
	@set -o pipefail; $(BIN)/python -m pytest --ignore=tests/soak -n $(WORKERS) -m "not root and not deep" 2>&1 | tee $(USER_OUTPUT)

# Output goes to a file, which `unit` prints at the end, so that it does not mix with the others'.
unit-root: $(VENV)/.dev
	@status=0; { \
	$(BIN)/python -m pytest --ignore=tests/soak -n 2 --dist loadfile -m "root and not bmv2 and not deep" || status=1; \
	if command -v simple_switch_grpc; then \
	$(BIN)/python -m pytest --ignore=tests/soak -n 4 -m "root and bmv2" || status=1; \
	else echo "simple_switch_grpc is not on the PATH: no test with bmv2 ran"; fi; \
	} >$(ROOT_OUTPUT) 2>&1; exit $$status

# Half a day on two cores, including four hours of fuzzing; root for tests with namespaces.
deep: export HYPOTHESIS_PROFILE = deep
deep: $(VENV)/.dev $(VENV)/.fuzz $(SHELL_VENV)/.ready $(RAY_VENV)/.ready $(SPARK_VENV)/.ready $(S3_VENV)/.ready $(SITE_VENV)/.ready
	$(MAKE) --no-print-directory site pythons
	$(BIN)/python -m pytest --ignore=tests/soak -n $(WORKERS) --timeout=3600 -m "hypothesis and not root"
	$(BIN)/python -m pytest --ignore=tests/soak -n $(WORKERS) -m "deep and not root"
	$(BIN)/python -m pytest --ignore=tests/soak -m "deep and root and not bmv2"
	$(BIN)/python -m pytest -m slow tests/soak
	$(BIN)/python -m pytest tests/soak/containers.py
	$(BIN)/python -m pytest tests/controller/workloads/centres/engines/test_engines.py
	MILLRACE_EXAMPLES=500 $(BIN)/python -m pytest tests/decoders tests/dataplane/program/test_fuzz.py tests/dataplane/switch/p4runtime
	MILLRACE_EXAMPLES=100 $(BIN)/python -m pytest --timeout=1800 tests/dataplane/switch/test_pipelines_agree.py tests/dataplane/nic/buffers
	MILLRACE_EXAMPLES=40 $(BIN)/python -m pytest --timeout=1800 tests/dataplane/switch/compiled/test_memory_safety.py tests/dataplane/native/test_guarded_arrays.py
	MILLRACE_EXAMPLES=70000 $(BIN)/python -m pytest tests/adversary
	MILLRACE_EXAMPLES=25000 $(BIN)/python -m pytest --timeout=7200 tests/controller/acceleration/running/statements
	MILLRACE_EXAMPLES=4000 $(BIN)/python -m pytest --timeout=7200 tests/controller/acceleration/running/spark tests/controller/acceleration/running/steps tests/controller/acceleration/running/tasks tests/controller/apps/cli/accel/test_on_spark.py
	$(BIN)/python -m tests.fuzzing.run --seconds $(MILLRACE_FUZZ_S)
	$(BIN)/python -m tests.soak.storage
	$(BIN)/python -m tests.soak.api
	$(BIN)/python -m tests.soak.etcd_away
	$(BIN)/python -m tests.soak.collectors --minutes 10
	$(BIN)/python -m tests.soak.up
	$(BIN)/python -m tests.soak.placement
	$(BIN)/python -m tests.soak.fluid_decisions
	$(BIN)/python tests/benchmarks/virtual_time.py --quick
	$(BIN)/python -m tests.soak.chain --minutes 30
	$(BIN)/python tests/soak/switch.py --minutes 10
	$(BIN)/python tests/soak/outliving.py --minutes 10 --kills 50

shell: $(SHELL_VENV)/.ready
	@$(SHELL_VENV)/bin/python .ci/shell.py --grpc-addr $(ADDR) $(if $(DEVICE),--device-id $(DEVICE)) $(if $(ELECTION),--election-id $(ELECTION)) $(if $(CONFIG),--config $(CONFIG))

# A broken link, or a link to a missing heading, fails.
site: $(SITE_VENV)/.ready
	@NO_MKDOCS_2_WARNING=1 $(SITE_VENV)/bin/mkdocs build --strict
	@echo "the documentation is in site/index.html"

lock: $(VENV)/.uv
	@./.ci/lock $(UPGRADE)

clean:
	rm -rf $(VENV) $(SHELL_VENV) $(RAY_VENV) $(SPARK_VENV) $(S3_VENV) $(SITE_VENV) site .venv-3.* .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache demo-out
