# GNU make 3.81 or later. `make` alone lists the targets.
#
# Python: the active environment if heshare is installed there from this very folder (`pip install -e .`, or
# `conda env create -f environment.yml`); otherwise .venv, which make builds from requirements.lock by itself.
# PYTHON=/path/to/python3.12 says which interpreter .venv is made with.

.DEFAULT_GOAL := help
JOBS ?= 2
# Tests wait for processes for a third of their time; a third worker uses the two cores meanwhile.
TEST_JOBS ?= $(shell expr $(JOBS) + 1)

# Same inputs, same bytes: no threads that add in another order, no clock, no locale, no hash seed; as SAME_BYTES in
# heshare/shared/processes.py (a test compares them).
export OMP_NUM_THREADS := 1
export OPENBLAS_NUM_THREADS := 1
export MKL_NUM_THREADS := 1
# OpenBLAS adds in another order on another processor unless it is set to one, and numpy's exponentials
# and logarithms have other last bits where the processor has AVX-512.
ifeq ($(shell uname -m),x86_64)
export OPENBLAS_CORETYPE := Haswell
export NPY_DISABLE_CPU_FEATURES := X86_V4 AVX512_ICL AVX512_SPR
endif
export PYTHONHASHSEED := 0
export MPLBACKEND := agg
export TZ := UTC
export LC_ALL := C.UTF-8
export SOURCE_DATE_EPOCH := 0
export JUPYTER_PREFER_ENV_PATH := 1
# Whatever else is installed for this user must not leak in; and compiled modules are stored, or every start costs seconds.
unexport PYTHONPATH PYTHONHOME PIP_USER PIP_TARGET PIP_PREFIX PIP_REQUIRE_VIRTUALENV PYTHONDONTWRITEBYTECODE

# -I keeps the current folder off the path, where heshare could always be imported.
PROBE := import sys, os, importlib.util as u; \
	here = os.path.realpath("heshare/__init__.py"); \
	found = u.find_spec("heshare"); \
	same = found is not None and os.path.realpath(found.origin or "") == here; \
	tools = all(u.find_spec(name) for name in ("papermill", "pymoo", "pytest", "xdist")); \
	own = os.path.realpath(sys.prefix) == os.path.realpath(".venv"); \
	sys.exit(not (same and tools and not own and sys.version_info >= (3, 11)))
ACTIVE := $(shell for prefix in "$$VIRTUAL_ENV" "$$CONDA_PREFIX"; do \
	if [ -n "$$prefix" ] && "$$prefix/bin/python" -I -c '$(PROBE)' >/dev/null 2>&1; then \
	echo "$$prefix/bin/python"; break; fi; done)

ifeq ($(ACTIVE),)
PY := .venv/bin/python
ENV := .venv/.ready
else
PY := "$(ACTIVE)"
ENV :=
endif

# The stamp holds the folder's name, since an environment cannot move with its folder.
STALE := $(shell [ "$$(cat .venv/.ready 2>/dev/null)" = "$(CURDIR)" ] && .venv/bin/python -c '' 2>/dev/null || echo FORCE)

.PHONY: env help headline figures beyond all claims verify reference site smoke test test-ci test-all simulate mutants lint bench calibrate live notebook lock clean FORCE

# `make help` prints the lines after `##@`, which name groups, and the text after `##` of each target.

##@ For users

help: ## list the targets
	@awk 'BEGIN {FS = ":.*## "} /^##@ / {printf "%s\n", substr($$0, 5)} \
		/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' Makefile

headline: $(ENV) ## Fig. 6 and its claims, in a minute
	@$(PY) -m heshare notebook run 04_comparison --out figures --claims

figures: $(ENV) ## Tables I to V, Figs. 1 to 11, claims, and one page (FRESH=1: run all again; SOURCE=recorded:H100: on that card)
	@$(PY) -m heshare notebook run --group paper --jobs $(JOBS) --out figures --page $(if $(FRESH),--fresh) $(if $(SOURCE),-p source=$(SOURCE))

beyond: $(ENV) ## what the paper does not have: the open choices, the effect of each part, the other systems (FRESH=1)
	@$(PY) -m heshare doctor --compile
	@$(PY) -m heshare notebook run --group beyond --jobs $(JOBS) --out figures --page $(if $(FRESH),--fresh)

all: figures beyond ## figures and beyond

claims: $(ENV) ## the table of claims and the page again, from the results in figures/
	$(PY) -m heshare notebook claims --page --out figures

verify: $(ENV) ## compare figures/ with reference/; makes Fig. 6 first if figures/ is empty
	@[ -f figures/claims.csv ] || $(MAKE) headline
	$(PY) -m heshare notebook verify --out figures

# Saved outputs stay out of git by a filter of this clone. Without its Python git goes on without the filter.
STRIP := --keep-id --extra-keys metadata.language_info
notebook: $(ENV) ## open the notebooks in JupyterLab (LAB="--no-browser --port 8899": its options)
	@case "$$(id -u) $(LAB)" in 0\ *--allow-root*) ;; 0\ *) \
		echo 'make: JupyterLab as root lets its users act as root; if that is wanted: make notebook LAB="--allow-root"' >&2; \
		exit 2;; esac
	@if [ "$$(git rev-parse --show-toplevel 2>/dev/null)" = "$(CURDIR)" ]; then \
		$(PY) -m nbstripout --install --attributes .gitattributes && \
		git config filter.nbstripout.clean "$$(git config filter.nbstripout.clean) $(STRIP)" && \
		git config filter.nbstripout.required false; \
	else echo "make: no git clone, so outputs that are saved in notebooks stay in them" >&2; fi
	env -u MPLBACKEND -u SOURCE_DATE_EPOCH $(PY) -m jupyterlab --ServerApp.root_dir="$(CURDIR)" \
		--LabApp.default_url=/lab/tree/notebooks/explore.ipynb $(LAB)

live: $(ENV) ## run the policies on this machine's NVIDIA GPUs, simulate the same, draw; 10 minutes a call (LIVE="--allow-clocks"; STAND_IN=2xH100: no GPU)
	@$(if $(STAND_IN),PYTHONPATH=tests $(PY) -m support.live_rehearsal --cluster $(STAND_IN) --figures build/rehearsal/figures,$(PY) -m heshare live --figures figures) $(LIVE)

site: $(ENV) ## the guides, the API and the results as pages that open offline: build/site
	$(PY) docs/site/build.py build/site
	@echo Open build/site/index.html

clean: ## remove what make wrote, but not .venv
	rm -rf build dist .pytest_cache .hypothesis .ruff_cache .mypy_cache
	find figures -type f ! -name README.md -exec rm -f {} +
	find figures -mindepth 1 -type d -empty -delete

##@ For contributors

test: $(ENV) ## the tests that take less than 2 s each
	$(PY) -m pytest -n $(TEST_JOBS) --dist worksteal -m "not gpu and not slow and not nightly"

test-all: $(ENV) ## every test that needs no GPU: also drills, simulated faults, fits, a recorded GPU
	$(PY) -m pytest -n $(TEST_JOBS) --dist worksteal

lint: $(ENV) ## style, format, types, direction of imports, and files that must agree
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	MYPYPATH=tests:benchmarks $(PY) -m mypy --follow-imports silent heshare benchmarks
	$(PY) -c "import sys; from importlinter.cli import lint_imports; sys.exit(lint_imports())"
	$(PY) tests/check_files.py

smoke: $(ENV) ## every notebook with tiny parameters, into build/smoke
	$(PY) -m heshare notebook run --group all --profile smoke --jobs $(JOBS) --out build/smoke --page

simulate: $(ENV) ## 10,000 simulated runs of jobs, each with the faults of its seed (SEEDS=0:1000: others)
	PYTHONPATH=tests $(PY) -m support.simulator --seeds $(or $(SEEDS),0:10000) --jobs $(JOBS)

mutants: $(ENV) ## 200 single changes of operators and constants, and which of them no test notices (MUTANTS="--seed 2")
	PYTHONPATH=tests $(PY) -m support.mutants --jobs $(JOBS) $(MUTANTS)

bench: $(ENV) ## speed and solution quality, into build/bench.json
	mkdir -p build
	PYTHONPATH=tests $(PY) benchmarks/run.py --out build/bench.json

calibrate: $(ENV) ## fit the device model again; print its errors on points left out
	$(PY) -m heshare calibrate

reference: $(ENV) ## make figures/ the reference after a change that moves results: reference/ and ARTIFACT.md
	$(PY) -m heshare notebook verify --out figures --update

lock: $(ENV) ## pin requirements.lock again after a change of pyproject.toml (UPGRADE=--upgrade: newest versions)
	$(PY) -m uv pip compile pyproject.toml --extra notebooks --extra dev --universal --python-version 3.11 --fork-strategy fewest \
		--generate-hashes --no-emit-index-url --no-annotate --custom-compile-command "make lock" --quiet \
		$(UPGRADE) --output-file requirements.lock

##@ For continuous integration

env: $(ENV) ## .venv where no environment is active, built by every other target too

test-ci: $(ENV) ## every test that needs no GPU but the nightly ones; .ci/run runs it and lint
	$(PY) -m pytest -n $(TEST_JOBS) --dist worksteal -m "not gpu and not nightly"

PIP := .venv/bin/python -m pip install --quiet --disable-pip-version-check
# uv installs in a tenth of the time of pip, which does it where uv cannot (its settings are other ones than pip's).
# The stamp is written last: an environment that was left half built is built again.
.venv/.ready: requirements.lock pyproject.toml $(STALE)
	@python=""; \
	for name in $(if $(PYTHON),"$(PYTHON)",python3.13 python3.12 python3.11 python3.14 python3); do \
		if "$$name" -c 'import sys, ensurepip, venv; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; \
		then python="$$name"; break; fi; \
	done; \
	if [ -z "$$python" ]; then \
		echo "make: found no Python 3.11 or later with the venv module$(if $(PYTHON), at $(PYTHON))." >&2; \
		echo "Install one (Debian, Ubuntu: apt install python3 python3-venv), or say where it is: make PYTHON=..." >&2; \
		exit 2; \
	fi; \
	echo "Building .venv from requirements.lock with $$("$$python" --version), once; this takes a minute or two."; \
	rm -rf .venv && "$$python" -m venv .venv
	@awk '/^uv==/ {found = 1} found {print} found && !/\\$$/ {exit}' requirements.lock > .venv/uv.txt
	@$(PIP) --require-hashes -r .venv/uv.txt && \
		.venv/bin/python -m uv pip install --quiet --system-certs --python .venv/bin/python --require-hashes -r requirements.lock || \
		$(PIP) --require-hashes -r requirements.lock
	@$(PIP) --no-index --no-deps --no-build-isolation -e .
	@echo "Compiling the numeric code and training the predictor, once; this takes about half a minute."
	@.venv/bin/python -m heshare doctor --compile
	@printf '%s' "$(CURDIR)" > .venv/.ready
