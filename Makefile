# One command each. `make help` lists them; nothing has to be done first.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-print-directory

PYTHON ?=
VENV   := $(CURDIR)/.venv
BIN    := $(VENV)/bin
# Which MindSpore and Python .venv was asked for; what is not said stays as it was. "default" follows requirements.txt.
CHOICE    := $(VENV)/.choice
CHOSEN    := $(shell cat $(CHOICE) 2>/dev/null)
PIN       := $(shell sed -n 's/^mindspore==//p' requirements.txt)
MINDSPORE ?= $(or $(filter-out default,$(word 1,$(CHOSEN))),$(PIN))
DATA   := $(abspath $(or $(LABKIT_DATA),$(CURDIR)/data))
ifneq ($(words $(CURDIR) $(DATA)),2)
$(error a folder's name has a space, which make cannot handle: "$(CURDIR)" or "$(DATA)")
endif
export LABKIT_DATA := $(DATA)
ARGS   ?=
LAB    ?= cifar10
BOOK_LANGUAGE ?= # of `make book`, `pdf`, `slides` and `lab`: zh_CN
LAB_FILE = work/lab-$(LAB)$(if $(BOOK_LANGUAGE),-$(BOOK_LANGUAGE)).ipynb

# .venv first for everything that runs: msrun, for one, starts `python` from PATH.
SYSTEM_PATH := $(PATH)
export PATH := $(BIN):$(PATH)
export VIRTUAL_ENV := $(VENV)
export MS_OM_PATH := $(CURDIR)/_build/mindspore
export PIP_DISABLE_PIP_VERSION_CHECK := 1
unexport PYTHONHOME PYTHONPATH

PIP := $(BIN)/python -m pip install -qq --progress-bar off --retries 5 --timeout 60
TORCHVISION  := torchvision==0.22.0
ENV_STAMP    := $(VENV)/.stamp
TORCH_STAMP  := $(VENV)/.stamp-$(TORCHVISION)
BENCH_STAMP  := $(VENV)/.stamp-bench
SAMPLE_STAMP := $(DATA)/sample/.stamp
# One chapter of a kind: trains, shows records where PyTorch is missing, copies. Tests of what a machine may lack.
SMOKE_CHAPTERS := book/1-cifar10/schedules book/2-migration/subnets book/4-cloud/object-storage
SMOKE_TESTS    := tests/parity/test_own_pair.py tests/grader/test_execution.py tests/project/test_drawings.py

.PHONY: help env torch sample book translate pdf slides smoke test test-all references lint lab bench clean distclean

help: ## list what can be made
	@echo "usage: make TARGET"
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  \1\t\2/p' $(firstword $(MAKEFILE_LIST)) | expand -t 13

env: $(ENV_STAMP) ## create .venv with everything in it (PYTHON=python3.12 MINDSPORE=2.10.0: another one)
	@echo "environment: $(VENV), $$($(BIN)/python --version), MindSpore $(MINDSPORE); command line: $(BIN)/labkit"

torch: $(TORCH_STAMP) ## install PyTorch as well: what part 2 and the tests compare with
	@echo "PyTorch: $$($(BIN)/python -c 'import torch; print(torch.__version__)'), in .venv"

sample: $(SAMPLE_STAMP) ## make the environment and the small offline data set, data/sample

book: $(SAMPLE_STAMP) ## execute the chapters and build _build/html/index.html: a quarter of an hour, later seconds (BOOK_LANGUAGE=zh_CN: in Chinese as well)
	@$(BIN)/python book/build.py $(if $(BOOK_LANGUAGE),--language $(BOOK_LANGUAGE))

translate: book ## take what the pages say into the Chinese catalogues, and list what is to be translated
	@$(BIN)/python book/translation.py

pdf: book ## build the book, print it as one PDF, _build/pdf/resnet50-on-mindspore.pdf (needs Chromium with chromedriver)
	@$(BIN)/python book/pdf.py $(BOOK_LANGUAGE)

slides: book ## build the book and slides from it, one deck a part, _build/html/book/slides (BOOK_LANGUAGE=zh_CN: in Chinese)
	@$(BIN)/python book/slides.py $(BOOK_LANGUAGE)

smoke: $(SAMPLE_STAMP) ## the least that works on any machine, two minutes: doctor, three chapters, tests that skip for a reason
	@$(BIN)/labkit doctor
	@$(BIN)/python book/build.py --only $(SMOKE_CHAPTERS)
	@$(BIN)/python -m pytest -q -m "not slow" $(SMOKE_TESTS)

test: $(SAMPLE_STAMP) ## what to run before a commit: style, code, book, labs, pages: ten minutes after `make book`
	@$(BIN)/python tests/run.py

test-all: $(SAMPLE_STAMP) $(TORCH_STAMP) ## every test there is, with PyTorch installed for it: half an hour more
	@$(BIN)/python tests/run.py --all

references: book ## take what the built book shows as what tests/notebooks expects; read the difference
	@$(BIN)/python tests/notebooks/references.py
	@git diff --stat tests/notebooks/references

lint: $(ENV_STAMP) ## check the style of all Python files, and the direction of imports
	@$(BIN)/ruff check .
	@$(BIN)/lint-imports --no-cache --no-logo

lab: $(SAMPLE_STAMP) ## open your copy of a lab in JupyterLab (LAB=cifar10, imagenet or thor)
	@$(BIN)/python -m grader.release $(LAB) $(LAB_FILE) $(BOOK_LANGUAGE)
	@echo "make lab: JupyterLab with $(LAB_FILE) open: yours, no build changes it. Ctrl-C twice ends it."
	@echo "          Where no browser opens, open the address below that begins with http."
	@$(BIN)/jupyter lab --notebook-dir=. --LabApp.default_url=/lab/tree/$(LAB_FILE) \
	  $$([ "$$(id -u)" != 0 ] || echo --allow-root) $(ARGS)

bench: $(BENCH_STAMP) $(SAMPLE_STAMP) ## compare speed with PyTorch's (ARGS=steps: one comparison of several; installs the peers)
	@$(BIN)/python -m tests.benchmarks $(ARGS)

clean: ## remove what the build made (_build, caches)
	rm -rf _build build .pytest_cache .ruff_cache
	find book/locale -name '*.mo' -delete
	find . \( -name .venv -o -name .git -o -path ./data \) -prune -o -name __pycache__ -type d -exec rm -rf {} +

distclean: clean ## remove .venv and data/sample as well
	rm -rf .venv *.egg-info $(DATA)/sample

# The environment is installed again when one of these files changes; another PYTHON or MINDSPORE makes a new one.
WANTED := $(strip $(if $(filter $(PIN),$(MINDSPORE)),default,$(MINDSPORE)) $(or $(PYTHON),$(word 2,$(CHOSEN))))
ifneq ($(WANTED),$(CHOSEN))
.PHONY: $(ENV_STAMP)
endif
$(ENV_STAMP): .ci/env requirements.txt requirements-dev.txt constraints.txt pyproject.toml
	@PATH="$(SYSTEM_PATH)" $< $(VENV) $(MINDSPORE) "$(WANTED)" $(PYTHON)

# torchvision asks for a PyTorch of its own build; its models and transforms do without (labkit/parity/pytorch.py).
$(TORCH_STAMP): requirements-torch.txt $(ENV_STAMP)
	@echo "make torch: installing PyTorch into .venv: 0.2 GB (CPU build) or several GB (CUDA build)"
	@$(PIP) -r requirements-torch.txt -c $(VENV)/constraints.txt
	@$(PIP) --no-deps $(TORCHVISION)
	@echo "make torch: the next \`make book\` executes the chapters of part 2 again, live"
	@touch $@

$(BENCH_STAMP): requirements-bench.txt $(TORCH_STAMP)
	@$(PIP) --no-deps -r requirements-bench.txt
	@touch $@

$(SAMPLE_STAMP): $(wildcard data_scripts/*.py labkit/data/*files.py) | $(ENV_STAMP)
	@echo "make sample: writing the sample data sets to $(DATA)/sample (no download)"
	@$(BIN)/python data_scripts/cifar10.py sample --force
	@$(BIN)/python data_scripts/imagenet.py sample --force
	@touch $@
