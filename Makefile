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
AGAIN  ?= # of `make test`: run what has passed as well
export AGAIN
LAB    ?= cifar10
BOOK_LANGUAGE ?= # of `make book`, `pdf` and `lab`: zh_CN
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
AXE          := axe-playwright-python==0.1.8
ENV_STAMP    := $(VENV)/.stamp
TORCH_STAMP  := $(VENV)/.stamp-$(TORCHVISION)
BENCH_STAMP  := $(VENV)/.stamp-bench
SAMPLE_STAMP := $(DATA)/sample/.stamp

.PHONY: help env torch sample book translate pdf links test test-all references matrix status lint lab bench clean distclean

help: ## list what can be made
	@echo "usage: make TARGET"
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  \1\t\2/p' $(firstword $(MAKEFILE_LIST)) | expand -t 12

env: $(ENV_STAMP) ## create .venv with everything in it (PYTHON=python3.12 MINDSPORE=2.10.0: another one)
	@echo "environment: $(VENV), $$($(BIN)/python --version), MindSpore $(MINDSPORE); command line: $(BIN)/labkit"

torch: $(TORCH_STAMP) ## install PyTorch as well: what part 2 and the tests compare with
	@echo "PyTorch: $$($(BIN)/python -c 'import torch; print(torch.__version__)'), in .venv"

sample: $(SAMPLE_STAMP) ## make the environment and the small offline data set, data/sample

book: $(SAMPLE_STAMP) ## execute the chapters and build _build/html/index.html: 20 minutes, later seconds (BOOK_LANGUAGE=zh_CN: in Chinese as well)
	@$(BIN)/python book/build.py $(if $(BOOK_LANGUAGE),--language $(BOOK_LANGUAGE))

translate: book ## take what the pages say into the Chinese catalogues, and list what is to be translated
	@$(BIN)/python book/translation.py

links: book ## build the book, check every link and name that needs no network; list the others in _build/links.txt
	@$(BIN)/python book/links.py $(ARGS)

pdf: book ## build the book, print it as one PDF, _build/pdf/resnet50-on-mindspore.pdf (needs Chromium with chromedriver)
	@$(BIN)/python book/pdf.py $(BOOK_LANGUAGE)

test: $(SAMPLE_STAMP) ## what to run before a commit: style, code, book, notebooks, pages (ARGS=... for pytest)
	@$(BIN)/python tests/run.py $(ARGS)

test-all: $(SAMPLE_STAMP) $(TORCH_STAMP) ## every test there is, with PyTorch installed for it
	@$(BIN)/python tests/run.py --all $(ARGS)

references: book ## take what the built book shows as what tests/notebooks expects; read the difference
	@$(BIN)/python tests/notebooks/references.py
	@git diff --stat tests/notebooks/references

matrix: ## the quick tests on each Python and MindSpore that is supported, for the set-up page (ARGS=3.12-2.10.0: one)
	@PATH="$(SYSTEM_PATH)" python3 tests/matrix.py $(ARGS)

status: ## say what is out of date: environment, data, book, records; builds nothing
	@if [ -x $(BIN)/python ]; then $(BIN)/python book/status.py; \
	else echo "environment: no .venv, so nothing is built yet; run \`make book\`"; fi

lint: $(ENV_STAMP) ## check the style of all Python files, and the direction of labkit's imports
	@$(BIN)/ruff check .
	@$(BIN)/lint-imports --no-cache --no-logo

lab: $(SAMPLE_STAMP) ## open your copy of a lab in JupyterLab (LAB=cifar10, imagenet or thor)
	@$(BIN)/python -m grader.release $(LAB) $(LAB_FILE) $(BOOK_LANGUAGE)
	@echo "make lab: JupyterLab with $(LAB_FILE) open: yours, no build changes it. Ctrl-C twice ends it."
	@echo "          Where no browser opens, open the address below that begins with http."
	@$(BIN)/jupyter lab --notebook-dir=. --LabApp.default_url=/lab/tree/$(LAB_FILE) \
	  $$([ "$$(id -u)" != 0 ] || echo --allow-root) $(ARGS)

bench: $(BENCH_STAMP) $(SAMPLE_STAMP) ## compare speed with PyTorch's, copying, grading (ARGS=grading: one of them; installs the peers)
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
$(ENV_STAMP): requirements.txt requirements-dev.txt constraints.txt pyproject.toml
	@found=; python=; \
	for p in $(or $(PYTHON),python3.11 python3.12 python3.10 python3 python); do \
	  v=$$(PATH="$(SYSTEM_PATH)" "$$p" -c 'import platform; print(platform.python_version())' 2>/dev/null) || continue; \
	  found="$$found $$p=$$v"; \
	  PATH="$(SYSTEM_PATH)" "$$p" labkit/system/versions.py >/dev/null || continue; \
	  if PATH="$(SYSTEM_PATH)" "$$p" -c 'import venv, ensurepip' 2>/dev/null; then python=$$p; break; fi; \
	  found="$$found (without venv or pip)"; \
	done; \
	if [ -z "$$python" ]; then \
	  echo "make env: one of Python $$(sed -n 's/^PYTHONS = //p' labkit/system/versions.py | tr -d '()\042') is needed, with its venv" \
	       "and pip modules; found:$${found:- none}. Install one (Debian: python3.11-venv) or name it: make env PYTHON=/path/to/python3.12" >&2; exit 1; \
	fi; \
	if [ -n "$(CHOSEN)$(PYTHON)" -a "$(WANTED)" != "$(CHOSEN)" ] || ! $(BIN)/python -m pip --version >/dev/null 2>&1; then \
	  if [ -e $(VENV) -a ! -e $(VENV)/pyvenv.cfg ]; then \
	    echo "make env: $(VENV) exists but is not a Python environment; remove it, or name another: VENV=..." >&2; exit 1; \
	  fi; \
	  rm -rf $(VENV); \
	fi; \
	if [ ! -d $(VENV) ]; then echo "make env: creating $(VENV) with $$python and MindSpore $(MINDSPORE)"; \
	  PATH="$(SYSTEM_PATH)" "$$python" -m venv $(VENV); fi
	@rm -f $@; echo "$(WANTED)" > $(CHOICE) # now: an interrupted installation continues
	@for file in requirements constraints; do \
	  sed 's/^mindspore==.*/mindspore==$(MINDSPORE)/' $$file.txt > $(VENV)/$$file.txt; done
	@echo "make env: installing the packages: about 1.2 GB to download, 4 GB on disk, one to five minutes on a fast network"
	@for try in 1 2 3; do \
	  $(PIP) -r $(VENV)/requirements.txt -r requirements-dev.txt -c $(VENV)/constraints.txt && break; \
	  if [ $$try = 3 ]; then echo "make env: pip failed three times; its message is above. Run 'make env' again to continue." >&2; exit 1; fi; \
	  echo "make env: pip failed, trying again ($$try of 2)" >&2; sleep 5; \
	done
	@$(PIP) --no-deps $(AXE) # for its file of axe-core alone: Playwright is not needed
	@$(PIP) --no-deps --no-build-isolation -e .
	@mkdir -p $(VENV)/share/jupyter/lab/settings $(VENV)/etc/ipython
	@echo '{"@jupyterlab/docmanager-extension:plugin": {"defaultViewers": {"markdown": "Jupytext Notebook", "myst": "Jupytext Notebook"}},' \
	  '"@jupyterlab/apputils-extension:notification": {"fetchNews": "false"}}' > $(VENV)/share/jupyter/lab/settings/overrides.json
	@echo 'get_config().IPKernelApp.log_level = "ERROR"' > $(VENV)/etc/ipython/ipython_kernel_config.py # no word on TCP
	@$(BIN)/python -c 'import matplotlib.pyplot' 2>/dev/null # builds the font cache now, not in a chapter
	@$(BIN)/python -m compileall -q labkit # for the grader's sandboxes, which write no bytecode
	@touch $@

# torchvision asks for a PyTorch of its own build; its models and transforms do without (labkit/parity/pytorch.py).
$(TORCH_STAMP): requirements-torch.txt $(ENV_STAMP)
	@echo "make torch: installing PyTorch into .venv: 0.2 GB (CPU build) or several GB (CUDA build)"
	@$(PIP) -r requirements-torch.txt -c $(VENV)/constraints.txt
	@$(PIP) --no-deps $(TORCHVISION)
	@echo "make torch: the next \`make book\` executes the chapters of part 2 again, live"
	@touch $@

$(BENCH_STAMP): requirements-bench.txt $(TORCH_STAMP)
	@$(PIP) --no-deps -r requirements-bench.txt
	@rm -rf $(VENV)/etc/jupyter/jupyter_server_config.d/nbgrader.json # JupyterLab does without it
	@rm -rf $(VENV)/share/jupyter/labextensions/@jupyter/nbgrader
	@touch $@

$(SAMPLE_STAMP): data_scripts/cifar10.py data_scripts/imagenet.py data_scripts/shared.py labkit/data/files.py \
                 labkit/data/cifar10_files.py labkit/data/imagenet_files.py labkit/data/scan.py | $(ENV_STAMP)
	@echo "make sample: writing the sample data sets to $(DATA)/sample (no download)"
	@$(BIN)/python data_scripts/cifar10.py sample --force
	@$(BIN)/python data_scripts/imagenet.py sample --force
	@touch $@
