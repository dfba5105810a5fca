# `make demo` and `make test` need nothing but make and a Python 3.11 or newer.

PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
BIN := .venv/bin
STAMP := .venv/.installed

.DEFAULT_GOAL := help
.PHONY: help demo check test soak lint bench cds lock proto clean

help:
	@echo 'make demo    see a pipeline survive kill -9'
	@echo 'make check   linters, type checker and the quick tests: before each commit'
	@echo 'make test    linters, type checker, tests: what CI runs'
	@echo 'make soak    the long storms: before a release, or when what they are about has changed'
	@echo 'make lint    linters and type checker only'
	@echo 'make bench   measure against plain PySpark, PostgreSQL, bytewax and PyFlink'
	@echo 'make cds     make the class archive that lets Spark start faster'
	@echo 'make lock    choose the newest versions that pyproject.toml allows'
	@echo 'make proto   generate the messages of etcd and Flight SQL anew from their .proto files'
	@echo 'make clean   remove what these commands made'

demo: $(STAMP)
	$(BIN)/python -m demo

# What shows most mistakes in the shortest time: layers, names, formats, docs, and the rules that are pure.
CHECKED := tests/core tests/config tests/types tests/golden tests/docs tests/control/claims tests/control/catalog \
	tests/batch/pipeline tests/journals/shuffle/test_sequencing.py tests/sql tests/test_*.py

check: lint
	$(BIN)/python -m pytest -n 2 -q -m 'not spark and not slow and not soak' $(CHECKED)

test: lint
	$(BIN)/python -m pytest -n 2

soak: $(STAMP)
	$(BIN)/python -m pytest -n 2 -m soak

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(STAMP)
	$(BIN)/python -m bench batch
	$(BIN)/python -m bench exchange
	$(BIN)/python -m bench cluster
	$(BIN)/python -m bench streams
	$(BIN)/python -m bench shuffle
	$(BIN)/python -m bench gateway

cds: $(STAMP)
	$(BIN)/python -m penstock.spark.cds

# --upgrade, or the versions that are in the file already would stay.
lock: $(STAMP)
	$(BIN)/uv pip compile --upgrade --universal --python-version 3.11 --generate-hashes \
		--no-emit-index-url --no-annotate --no-header --quiet \
		--group dev --all-extras pyproject.toml --output-file requirements.lock

proto: $(STAMP)
	$(BIN)/python -m grpc_tools.protoc -I src --python_out=src --pyi_out=src src/penstock/store/etcd/wire.proto \
		src/penstock/server/flight/flightsql.proto

clean:
	rm -rf .venv .mypy_cache .pytest_cache .ruff_cache .hypothesis

# Spark alone is 450 MB, so the first install takes minutes. A class archive that cannot be made only
# costs time at each start, so that it does not fail the install.
$(STAMP): requirements.lock pyproject.toml
	@test -n '$(PYTHON)' || { echo 'Python 3.11 or newer is needed: install it, or name it with make PYTHON=…' >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
		[ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && apt-get install -y python3-venv >&2; } || { \
		echo '$(PYTHON) has no venv module: install it (Debian, Ubuntu: apt-get install python3-venv)' >&2; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --disable-pip-version-check --quiet --require-hashes -r requirements.lock
	$(BIN)/python -m pip install --disable-pip-version-check --quiet --no-deps --no-build-isolation -e .
	$(BIN)/python -m penstock.spark.cds || echo 'no class archive: Spark will start more slowly' >&2
	@touch $@
