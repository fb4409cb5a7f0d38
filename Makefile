# Each target sets up what it needs, once, in .venv.
VENV := .venv/bin
SETUP := pyproject.toml scripts/setup.sh
PROTOS := proto/tokenwire/v1/inference.proto proto/tokenwire/v1/control.proto

# Agents send tools with their first request.
TOOLS := --enable-auto-tool-choice --tool-call-parser hermes --chat-template scripts/smollm2-tools.jinja

# Even where the environment forbids it, modules are compiled once: vLLM's take 12 s of every process otherwise.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: help setup serve test test-fast test-long lint format proto reference parity conformance faults deploy-test bench clean

help:  ## show this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | expand -t 14

.venv/.serve: $(SETUP)
	@scripts/setup.sh cpu
	@touch $@

.venv/.dev: $(SETUP)
	@scripts/setup.sh cpu dev
	@touch $@ .venv/.serve

setup: .venv/.dev  ## install everything into .venv

serve: .venv/.serve  ## serve the embedded model on http://127.0.0.1:8000
	@$(VENV)/tokenwire serve $(TOOLS) $(ARGS)

test: .venv/.dev  ## run the tests
	$(VENV)/pytest -m "not long" $(ARGS)

test-fast: .venv/.dev  ## run the tests that need no real engine and little time
	$(VENV)/pytest -m "not engine and not npm and not slow and not long" $(ARGS)

test-long: .venv/.dev  ## run the tests that take minutes each, most on real engines
	$(VENV)/pytest -n 0 -m long $(ARGS)

lint: .venv/.dev  ## ruff, mypy, buf
	$(VENV)/ruff check .
	$(VENV)/ruff format --check .
	$(VENV)/mypy
	$(VENV)/buf lint
	$(VENV)/buf format --diff --exit-code proto

format: .venv/.dev  ## let ruff and buf format
	$(VENV)/ruff check --fix-only .
	$(VENV)/ruff format .
	$(VENV)/buf format --write proto

proto: .venv/.dev  ## regenerate tokenwire/v1 from proto/
	$(VENV)/python -m grpc_tools.protoc -Iproto --python_out=. --pyi_out=. --grpc_python_out=. $(PROTOS)

reference: .venv/.dev  ## write docs/options.md and the chart's schema of options
	$(VENV)/python -m tokenwire.cli.reference

parity: .venv/.dev  ## compare with vLLM's own server on thousands of requests; writes docs/parity.md
	$(VENV)/python -m tests.conformance.parity --document docs/parity.md $(ARGS)

conformance: .venv/.dev  ## run clients' own code and coding agents, each in an environment of its own
	$(VENV)/python -m tests.conformance.clients $(ARGS)
	$(VENV)/python -m tests.conformance.agents

faults: .venv/.dev  ## break workers, networks and coordinators under streams; writes docs/faults.md
	$(VENV)/python -m tests.faults --document docs/faults.md $(ARGS)

.venv-deploy/.ready: .venv/.dev scripts/deploy-tools.sh tests/deploy/tools/package.json tests/deploy/tools/requirements.txt
	@scripts/setup.sh cpu dev deploy
	@scripts/deploy-tools.sh
	@touch $@

deploy-test: .venv-deploy/.ready  ## render the chart, check it, build and run images, act out a rolling update
	TOKENWIRE_BUILD_IMAGES=1 $(VENV)/pytest tests/deploy $(ARGS)

bench: .venv/.dev  ## measure; prints tables and writes JSON
	$(VENV)/python -m benchmarks $(ARGS)

clean:  ## remove what the other targets made
	rm -rf .venv .venv-deploy .mypy_cache .pytest_cache .ruff_cache .hypothesis
