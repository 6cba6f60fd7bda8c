# Needs make, Python 3.11 or newer with venv, and PyPI. Everything else is installed into .venv.
PY ?= python3
STAMP := .venv/installed
RUN := .venv/bin/python -m
# Most tests wait for other processes: two at a time keep two processors busy, each with servers of its own.
JOBS ?= 2

.PHONY: help dev demo test chaos check bench format clean

help: ## Show the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## /{printf "make %-8s %s\n", $$1, $$2}' Makefile

dev: $(STAMP) ## Run a whole stack and a worker until Ctrl-C
	@.venv/bin/workflow-runs dev

demo: $(STAMP) ## Watch durable runs, through a failure, a killed worker and a person's answer (HOLD=1 keeps it running, KAFKA=apache)
	@.venv/bin/workflow-runs demo $(if $(KAFKA),--kafka $(KAFKA)) $(if $(HOLD),--hold)

test: $(STAMP) ## Run every test; ARGS="-k intake" passes arguments to pytest, JOBS=0 runs them in one process
	@$(RUN) pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder $(ARGS)

chaos: $(STAMP) ## Kill workers, database and brokers under load (MINUTES=2; SEED=n repeats the choices of a run)
	@$(RUN) tests.chaos --minutes $(or $(MINUTES),2) $(if $(SEED),--seed $(SEED))

check: $(STAMP) ## Check format, lint, types and import rules
	@$(RUN) ruff format --check .
	@$(RUN) ruff check .
	@$(RUN) mypy
	@.venv/bin/lint-imports

bench: $(STAMP) ## Measure, each figure beside its raw limit in the same run
	@$(RUN) tests.bench $(ARGS)

format: $(STAMP) ## Format the code and fix what the linter can
	@$(RUN) ruff format .
	@$(RUN) ruff check --fix .

clean: ## Remove what the other targets made
	rm -rf .venv .cache build *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis

# The stamp is written last, so that an interrupted install starts over. uv installs in seconds; pip does where uv cannot.
$(STAMP): pyproject.toml
	@$(PY) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
	  || { echo 'Python 3.11 or newer is needed: make PY=/path/to/python3.11'; exit 1; }
	@$(PY) -c 'import venv, ensurepip' 2>/dev/null \
	  || { echo 'Python has no venv module: install it (on Debian: apt-get install python3-venv)'; exit 1; }
	@rm -f $@ && $(PY) -m venv .venv
	@echo 'Installing into .venv ...'
	@.venv/bin/python -m pip install -q --disable-pip-version-check uv \
	  && .venv/bin/uv pip install -q --python .venv/bin/python -e '.[dev]' \
	  || .venv/bin/python -m pip install -q --disable-pip-version-check -e '.[dev]'
	@touch $@
