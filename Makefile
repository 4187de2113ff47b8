# Every door starts here: `make report`, `make test`, `make lab` do all set-up themselves, once.

VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
PINNED := -m pip install --quiet --disable-pip-version-check -c constraints.txt
TORCH  := $(shell grep '^torch==' constraints.txt)
CACHE  := $${XDG_CACHE_HOME:-$$HOME/.cache}/specdec
MODEL  := $(CACHE)/smollm2-135m-bcc81830/manifest.json
SAMPLE := the_report or (exported_page and (40_respec or 41_diffuspec))
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -n 2 --dist worksteal --durations 30 --durations-min 3

# Packages are compiled when they are first imported, and that is to be kept where a shell forbids it as well.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.PHONY: help setup model report test test-fast test-long test-browser test-browser-sample gpu site lint types lab clean-cache

help:         ## this list
	@awk -F ':.*## ' '/^[a-z-]*:.*## / {printf "%-22s%s\n", $$1, $$2}' Makefile

setup: $(STAMP) model  ## virtual environment, pinned dependencies, the default model; quick when they are there

report: setup  ## compares methods on real prompts and writes results/report/report.html; ARGS="--target ..."
	$(BIN)/specdec report --out results/report $(ARGS)

test: setup   ## every test but the long ones, notebooks included
	$(PYTEST) -m "not cuda and not long and not browser" $(ARGS)

test-fast: setup  ## the tests without the notebooks
	$(PYTEST) -m "not cuda and not long and not browser and not notebooks" $(ARGS)

test-long: setup  ## the long ones alone, with the extra seq2seq; CONTRIBUTING.md says what they are
	@sh .ci/install $(BIN)/python --no-build-isolation -e '.[test,seq2seq]'
	$(BIN)/python -m pytest -q -m long $(ARGS)

gpu: setup    ## tests, costs and all methods on a CUDA device, resumable: results/gpu; ARGS="--minutes 10"
	$(BIN)/specdec gpu --out results/gpu --device cuda $(ARGS)

test-browser: setup  ## every notebook, page and control in Chromium; ARGS="-k tour" for some of them
	@$(BIN)/python -m tests.chromium
	$(BIN)/python -m pytest -q -m browser $(ARGS)

test-browser-sample: setup  ## the report and the pages of two notebooks in Chromium, where there is one; CI runs it
	@if $(BIN)/python -m tests.chromium; then $(BIN)/python -m pytest -q -m browser -k "$(SAMPLE)"; \
	else echo "the sample of the browser tests did not run: this machine has no Chromium that starts"; fi

site: setup   ## all notebooks as a static site in results/site, offline; open results/site/index.html
	$(BIN)/specdec site --out results/site $(ARGS)

lint: setup   ## ruff over everything
	$(BIN)/ruff check .

types: setup  ## basedpyright in basic mode over the package
	$(BIN)/basedpyright

lab: setup    ## JupyterLab, opened on the tour
	$(BIN)/specdec lab

clean-cache:  ## removes the converted models and everything else in the cache, after saying what
	@if [ -d "$(CACHE)" ]; then echo "removing $(CACHE):"; du -sh "$(CACHE)"/*; rm -rf -- "$(CACHE)"; \
	else echo "nothing to remove, there is no $(CACHE)"; fi

# torch comes first, by its exact version and from where pip finds it: an open range, or another index, may bring
# gigabytes of another build. .ci/install brings the rest, torch's own needs included.
# The stamp is touched last, so an interrupted installation is taken up again; a half-made environment is made anew.
$(STAMP): pyproject.toml constraints.txt
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || \
	{ python=$$(sh .ci/python) && echo "making $(VENV) with $$python" && "$$python" -m venv --clear $(VENV); }
	@echo "installing pinned dependencies into $(VENV), a minute or more the first time"
	@$(BIN)/python $(PINNED) --no-deps setuptools $(TORCH)
	@sh .ci/install $(BIN)/python --no-build-isolation -e '.[test]'
	@touch $@

# Only the presence of the model is looked at here; its files are checked whenever it is loaded.
model: $(STAMP)  ## the default model alone, fetched and converted where it is not there
	@[ -f "$(MODEL)" ] || $(BIN)/python -m specdec_lib.hub.locate
