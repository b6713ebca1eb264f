# The two commands to begin with:   make run   ·   make test
# Works with GNU make 3.81, which is what macOS has.

VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --no-input
# Options for the command behind a target: make run ARGS="--tier fast=./my-model"
ARGS ?=
# The Python to build the environment with; by default the first from 3.11 on that is found.
PYTHON ?=

LOCAL := $(VENV)/.installed-local
DEV := $(VENV)/.installed-dev

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help run test test-fast coverage lint format types unit e2e bench bench-instructions bench-install bench-agents bench-clients real-models bench-state deploy-test kills soak fuzz score limits ablate faults clients size schema references pictures docs docs-commands package audit clean

help:  ## show this
	@echo "make TARGET, where TARGET is one of:"
	@sed -n 's/^\([a-z0-9-]*\):.*## \(.*\)/  \1|\2/p' $(MAKEFILE_LIST) | \
		while IFS='|' read -r name text; do printf '  %-13s %s\n' $$name "$$text"; done

run: $(LOCAL)  ## install what is needed, then start the whole local stack
	@$(BIN)/mlx-stack-proxy up $(ARGS)

test: lint types unit  ## install what is needed, then lint, check types and run all tests

lint: $(DEV)  ## ruff: rules and formatting
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(DEV)  ## mypy, strict; of tests, whether what they name is there
	$(BIN)/mypy

# Tests with real servers run last, because they depend on timing. Each of the two folders has its
# own servers and mostly waits, so the two run side by side.
unit: $(DEV)
ifeq ($(ARGS),)
	$(BIN)/pytest -rs -n auto --dist loadfile --ignore tests/e2e --ignore tests/faults
	$(BIN)/pytest -rs -n 2 --dist loadfile tests/e2e tests/faults
else
	$(BIN)/pytest -rs $(ARGS)
endif

# Only the rooms' tests: they start no process but Redis and no server but their own on loopback.
ROOMS := $(addprefix tests/,wire engine driver loop_detection tool_validation token_budget memory_pressure \
	escalation state telemetry)
test-fast: $(DEV)  ## the rules and the stores, without the whole proxy and the real stack; a minute
	$(BIN)/pytest -n auto --dist loadfile $(ROOMS) $(ARGS)

coverage: $(DEV)  ## which lines the tests of `make unit` reach, those of the real stack left out
	$(BIN)/pytest -n auto --dist loadfile --ignore tests/e2e --ignore tests/faults \
		--cov=mlx_stack_proxy --cov-report=term:skip-covered $(ARGS)

e2e: $(DEV)  ## only the tests against the real stack
	$(BIN)/pytest -rs tests/e2e $(ARGS)

bench: $(DEV)  ## what the proxy costs, beside bare relays and other gateways; a quarter of an hour
	$(BIN)/python -m benchmarks.cost $(ARGS)

bench-instructions: $(DEV)  ## what a request costs in instructions: the same on any day; needs valgrind
	@$(BIN)/python -m benchmarks.cost.instructions $(ARGS)

bench-install: $(DEV)  ## what `make bench` compares with, in build/bench; needs npm
	@$(BIN)/python -m benchmarks.cost.install

bench-state: $(DEV)  ## what each store costs, and whether it stays flat at 100,000 sessions
	@$(BIN)/python -m benchmarks.measure.bench_state $(ARGS)

real-models: $(DEV)  ## what real open models do with tools, directly and through the proxy; takes hours
	@$(BIN)/python -m benchmarks.real_models $(ARGS)

bench-agents: $(DEV)  ## does it make a weak model reliable? an agent's tasks, without it and with it
	@$(BIN)/python -m benchmarks.agents $(ARGS)

bench-clients: $(DEV)  ## real agents' tasks with a model that spoils one reply in four; installs them from npm
	@$(BIN)/python -m benchmarks.clients $(ARGS)

# Needs root on Debian and the packages mmdebstrap, buildah, runc and systemd-container.
deploy-test: $(DEV)  ## the image and the units, really run: two or three minutes, as root on Debian
	$(BIN)/pytest -rs --durations=5 tests/deployed $(ARGS)

kills: $(DEV)  ## thirty processes killed while they count: nothing is lost, nothing counted twice
	KILL_ROUNDS=30 $(BIN)/pytest --timeout 600 tests/state/test_killed.py tests/server/test_counts_survive.py $(ARGS)

soak: $(DEV)  ## half an hour of mixed load and faults: does the proxy stay as it is?
	@$(BIN)/python -m benchmarks.soak $(ARGS)

# Runs rounds with new examples until one fails; Hypothesis then prints the smallest that fails.
FUZZED := benchmarks/fuzz tests/wire/test_sse.py tests/engine/test_attempt.py \
	tests/loop_detection/test_properties.py tests/tool_validation/test_check_fuzz.py \
	tests/tool_validation/test_text_streams.py tests/tool_validation/test_schema_agreement.py \
	tests/tool_validation/test_tool_validation_fuzz.py
MINUTES ?= 60
fuzz: $(DEV)  ## the parsers of streams, tool calls and settings, for an hour; MINUTES=5 ARGS="-k sse"
	@end=$$(($$(date +%s) + 60 * $(MINUTES))); while [ $$(date +%s) -lt $$end ]; do \
		FUZZ_EXAMPLES=500 $(BIN)/pytest -q -x --timeout 3600 $(FUZZED) $(ARGS) || exit 1; done

score: $(DEV)  ## tool calls and loops on recorded cases
	@$(BIN)/python -m benchmarks.measure.score $(ARGS)
	@$(BIN)/python -m benchmarks.measure.score_loops
	@$(BIN)/python -m benchmarks.measure.score_peers
	@$(BIN)/python -m benchmarks.measure.score_reports

ablate: $(DEV)  ## what recorded cases lose without each format, repair, doubt and detector
	@$(BIN)/python -m benchmarks.ablation $(ARGS)

limits: $(DEV)  ## honest files that other limits on repeating text would cut, and how far a loop gets
	@$(BIN)/python -m benchmarks.measure.loop_limits $(ARGS)

faults: $(DEV)  ## what each kind of client gets after each fault: the table of benchmarks/faults.md
	@$(BIN)/python -m tests.faults $(ARGS)

clients: $(DEV)  ## real agents with a model that makes each kind of mistake; installs them from npm
	@$(BIN)/python -m tests.clients $(ARGS)

size: $(DEV)  ## lines by room, the longest files and functions
	@$(BIN)/python -m scripts.size $(ARGS)

schema: $(DEV)  ## write app/mlx_stack_proxy/config.schema.json anew, after a change of the settings; then make references
	$(BIN)/python -m scripts.settings_schema

references: $(DEV)  ## write docs/settings.md and the pictures of docs/ anew
	$(BIN)/python -m scripts.settings_page
	$(BIN)/python -m scripts.pictures

pictures: $(DEV)  ## take docs/pictures anew: the page (needs chromium and its driver), and the demo (needs `make run`)
	$(BIN)/python -m scripts.page_pictures
	$(BIN)/python -m scripts.demo_picture

# NO_MKDOCS_2_WARNING hides the theme's notice about its successor.
docs: $(DEV)  ## the documentation as a site in build/site; any dead link ends it
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

docs-commands: $(DEV)  ## run every command of README.md and docs/ as printed, as far as that goes here
	DOCS_COMMANDS=all $(BIN)/pytest -rs --timeout 120 tests/docs/test_commands.py $(ARGS)

AUDIT := build/audit/bin
audit: environment  ## known vulnerabilities of what is pinned; asks PyPI, and fails where it can't
	@test -x $(AUDIT)/pip-audit || { $(BIN)/python -m venv build/audit && \
		$(AUDIT)/python -m pip --disable-pip-version-check install --quiet pip-audit==2.10.1; }
	$(AUDIT)/pip-audit --strict --progress-spinner off --no-deps --disable-pip -r constraints.txt

package: $(DEV)  ## wheel and sdist in dist/, tried in a clean environment
	rm -rf dist build/clean
	$(BIN)/python -m hatchling build
	$(BIN)/python -m venv build/clean
	build/clean/bin/python -m pip --disable-pip-version-check install --quiet dist/*.whl
	build/clean/bin/mlx-stack-proxy --version
	build/clean/bin/python -m pip --disable-pip-version-check check
	build/clean/bin/python -m pip --disable-pip-version-check wheel --quiet --no-deps -w build/from-sdist dist/*.tar.gz

format: $(DEV)  ## let ruff put the code in order
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:  ## remove the environment and everything generated
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage
	find app benchmarks tests deploy -name __pycache__ -type d -prune -exec rm -rf {} +

# A file marks each finished installation, so that a second run has nothing to do. `dev` includes
# all of `local`.
$(LOCAL): pyproject.toml constraints.txt
	@if test -e $(DEV); then $(MAKE) --no-print-directory $(DEV); \
	else $(MAKE) --no-print-directory install EXTRAS=local; fi
	@touch $@

$(DEV): pyproject.toml constraints.txt
	@$(MAKE) --no-print-directory install EXTRAS=local,dev
	@touch $(LOCAL) $@

.PHONY: install environment
install: environment
	@echo "Installing into $(VENV) (about two minutes the first time) ..."
	@$(PIP) install --quiet -c constraints.txt -e '.[$(EXTRAS)]'
	@echo "Installed."

# An interpreter is used only if it runs and can make environments: version managers leave shims
# that don't run, and Debian ships a Python without venv.
environment:
	@if $(BIN)/python -c 'import sys, pip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; \
	then exit 0; fi; \
	found=; \
	for python in $(PYTHON) python3.11 python3.12 python3.13 python3.14 python3 python; do \
		"$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || continue; \
		found=$$python; \
		"$$python" -c 'import venv, ensurepip' 2>/dev/null || continue; \
		echo "Making $(VENV) with $$("$$python" --version) ..."; \
		rm -rf $(VENV) && "$$python" -m venv $(VENV); exit; \
	done; \
	if test -n "$$found"; then \
		echo "$$found can't make virtual environments: install its venv package" \
			"(on Debian and Ubuntu: apt install python3-venv)." >&2; \
	else \
		echo "This needs Python 3.11 or newer, and none was found: install one" \
			"(macOS: brew install python@3.13), or say where it is: make PYTHON=/path/to/python." >&2; \
	fi; \
	exit 1
