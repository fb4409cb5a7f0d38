# Each target installs what it needs, once, into .venv.
VENV := .venv/bin
SETUP := pyproject.toml scripts/setup.sh

# Coding agents send tools with their first request.
TOOLS := --enable-auto-tool-choice --tool-call-parser hermes --chat-template scripts/smollm2-tools.jinja

# Byte-compile modules even if the environment disables it: otherwise vLLM's take 12 s of every process.
export PYTHONDONTWRITEBYTECODE :=

# ARGS are for what this make runs, not for another make in it: a test looks at what `make serve` would run.
MAKEOVERRIDES :=
unexport ARGS

.PHONY: help setup serve test test-fast test-long lint format proto reference docs plots parity conformance compat faults adversary simulate mutate gpu gpu-pack deploy-test vendor pictures bench bench-standard clean

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

test: .venv/.dev  ## run the tests; with CI=true all of them, as CI does
	$(VENV)/pytest -m "not long$(if $(CI),, and not ci)" $(ARGS)

test-fast: .venv/.dev  ## run the fast tests, without a real engine
	$(VENV)/pytest -m "not engine and not npm and not slow and not ci and not long" $(ARGS)

test-long: .venv/.dev  ## run the slow tests (minutes each), mostly on real engines
	$(VENV)/pytest -n 0 -m long $(ARGS)

lint: .venv/.dev  ## ruff, mypy, buf
	$(VENV)/ruff check .
	$(VENV)/ruff format --check .
	$(VENV)/mypy
	$(VENV)/buf lint
	$(VENV)/buf format --diff --exit-code proto

format: .venv/.dev  ## format with ruff and buf
	$(VENV)/ruff check --fix-only .
	$(VENV)/ruff format .
	$(VENV)/buf format --write proto

proto: .venv/.dev  ## regenerate tokenwire/v1 from proto/
	@scripts/proto.sh .

reference: .venv/.dev  ## write the generated pages of docs/reference, the chart's README and its schema of options
	$(VENV)/python -m tokenwire.cli.reference
	$(VENV)/python -m scripts.reference

docs: export NO_MKDOCS_2_WARNING := 1
docs: .venv/.dev  ## build the documentation as a site; a broken link or anchor is an error
	$(VENV)/mkdocs build
	@echo "Look at it: $(VENV)/python -m http.server --bind 127.0.0.1 --directory site 8080"

plots: .venv/.dev  ## draw docs/plots from the results of make bench, make faults and make gpu
	$(VENV)/python -m benchmarks.plots
	$(VENV)/python -m gpu.plots benchmarks/results/gpu/load.json docs/plots/gpu.svg

# Whole runs also compare what models that see and pool make of requests, and kill real workers under pictures and batches.
BESIDE_VLLM := $(addprefix tests/conformance/test_,pictures.py picture_embeddings.py plain_pictures.py pooling.py)
KILLED := tests/faults/test_real_engine.py tests/faults/test_real_inputs.py

parity: .venv/.dev  ## compare with vLLM's server on thousands of requests; writes docs/reference/parity.md
	$(VENV)/python -m tests.conformance.parity --document docs/reference/parity.md $(ARGS)
	$(if $(ARGS),,$(VENV)/pytest -n 0 $(BESIDE_VLLM))

conformance: .venv/.dev  ## run clients' own code and coding agents, each in its own environment
	$(VENV)/python -m tests.conformance.clients $(ARGS)
	$(VENV)/python -m tests.conformance.agents

compat: .venv/.dev  ## check every minor of vLLM, each in its own environment; writes docs/reference/compatibility.md and JSON
	$(VENV)/python -m tests.compat --document docs/reference/compatibility.md --json benchmarks/results/compat.json $(ARGS)

faults: .venv/.dev  ## inject faults into workers, networks and coordinators; writes docs/reference/faults.md and JSON
	$(VENV)/python -m tests.faults --document docs/reference/faults.md --json benchmarks/results/faults.json $(ARGS)
	$(if $(ARGS),,$(VENV)/pytest -n 0 $(KILLED))

DRAWS := 2000

adversary: .venv/.dev  ## attack a coordinator with DRAWS expensive requests beside a background client's stream
	$(VENV)/python -m tests.adversary --draws $(DRAWS) --json tests/.cache/adversary.json $(ARGS)

.venv-deploy/.ready: .venv/.dev scripts/deploy-tools.sh tests/deploy/tools/package.json tests/deploy/tools/requirements.txt
	@scripts/setup.sh cpu dev deploy
	@scripts/deploy-tools.sh
	@touch $@

gpu-pack: .venv/.dev  ## pack what a GPU machine without network lacks: gpu/README.md
	$(VENV)/python -m gpu.pack $(ARGS)

deploy-test: .venv-deploy/.ready  ## render and check the chart, build and run images, simulate a rolling update
	TOKENWIRE_BUILD_IMAGES=1 $(VENV)/pytest tests/deploy $(ARGS)

vendor:  ## fetch the library of the status page's charts anew
	@scripts/vendor-uplot.sh

pictures: .venv/.dev  ## take the pictures of the status page in docs/images: about five minutes
	TOKENWIRE_PICTURES=docs/images $(VENV)/pytest -n 0 tests/page/test_look.py

SEEDS := 10000

simulate: .venv/.dev  ## simulate SEEDS runs of whole fleets in virtual time: 10,000 take about an hour
	$(VENV)/python -m tests.simulation --seeds $(SEEDS) --processes 2 --failures tests/.cache/simulation $(ARGS)

.venv/.mutation: .venv/.dev
	@scripts/setup.sh cpu dev mutation
	@touch $@

mutate: .venv/.mutation  ## mutate the parts that promise exactness: 600 mutants take about an hour
	$(VENV)/python -m tests.mutation $(ARGS)

DEVICE := cuda

GPU_VENV := $(if $(filter cpu,$(DEVICE)),.venv,.venv-gpu)

.venv-gpu/.dev: $(SETUP)
	@VENV=.venv-gpu TORCH_BACKEND= scripts/setup.sh gpu dev
	@touch $@

gpu: $(GPU_VENV)/.dev  ## run the steps of gpu/ on this machine's GPU; DEVICE=cpu: dry, on the embedded model
	$(GPU_VENV)/bin/python -m gpu --device $(DEVICE) $(ARGS)

bench: .venv/.dev  ## run the benchmarks; prints tables and writes JSON
	$(VENV)/python -m benchmarks $(ARGS)

bench-standard: .venv/.dev  ## AIPerf and vllm bench serve against tokenwire, SMG and vLLM's server; writes JSON and a page
	$(VENV)/python -m benchmarks.standard --document docs/reference/standard-benchmarks.md $(ARGS)

clean:  ## remove everything the other targets created
	rm -rf .venv .venv-deploy site .mypy_cache .pytest_cache .ruff_cache .hypothesis
