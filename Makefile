# Everything runs in .venv, which the first target that needs it makes.

PYTHON ?= python3
# The TensorFlow to install when .venv is made: with the CUDA libraries where there is a GPU, the
# CPU wheel where there is none and such a wheel exists.
ifneq ($(shell command -v nvidia-smi),)
TENSORFLOW ?= tensorflow[and-cuda]
else ifeq ($(shell uname -sm),Linux x86_64)
TENSORFLOW ?= tensorflow-cpu
else
TENSORFLOW ?= tensorflow
endif
# Warnings are errors here, but not for users, who have other compilers.
export CXXFLAGS ?= -Werror
export NVCCFLAGS ?= -Werror all-warnings -Xcompiler -Werror
export TF_CPP_MIN_LOG_LEVEL ?= 2

VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --quiet --disable-pip-version-check
INSTALLED := $(VENV)/.installed
OPS := tf_gc/ops/_tf_gc_ops.so
RAY := $(VENV)/ray

NATIVE_FILES := $(shell find custom_ops -type f) build_backend/portable.cc
TEST_CC_FILES := $(foreach suffix,cc h cu cuh,\
  $(wildcard tests/*/*.$(suffix) tests/*/*/*.$(suffix)))
CLANG_FORMAT := $(BIN)/clang-format --style=file --fallback-style=Google
BUILD_FILES := BUILD MODULE.bazel sources.bzl
BUILDIFIER := npx --yes @bazel/buildifier@8.2.1

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo build wheels release test test-all test-stock test-versions test-wheels lint format bench docs clean lint-bazel cuda-report sanitize fuzz test-cuda mutants

help:
	@echo "make demo     train a small model with compressed gradients"
	@echo "make test     lint, then test each promise once"
	@echo "make test-all  lint, build the pages, then run all tests and the sanitizers"
	@echo "make test-stock  ask the stock strategies what tests/conformance asks ours"
	@echo "make test-versions  build and test with other versions of TensorFlow and Keras"
	@echo "make test-wheels  install the wheel with each Python and TensorFlow, and train"
	@echo "make lint     check format, style and types"
	@echo "make format   format the sources"
	@echo "make bench    measure the codec"
	@echo "make docs     build the pages and the API reference, in build/site"
	@echo "make build    make .venv, install the package into it, build the native ops"
	@echo "make cuda-report  compile the CUDA kernels, say what registers they need"
	@echo "make test-cuda  test and measure the CUDA kernels on this machine's GPU"
	@echo "make sanitize  attack the native code, built with sanitizers, for some seconds"
	@echo "make fuzz     the same for minutes"
	@echo "make mutants ROOM=state N=20  put faults into tf_gc/state, show those that no test sees"
	@echo "make wheels   build a wheel for all versions of TensorFlow, in dist"
	@echo "make release TAG=v0.1.0  check the versions, build wheel and sdist, publish nothing"
	@echo "make clean    remove .venv and all that was built"
	@echo
	@echo "PYTHON=python3.12          the Python to make .venv with (3.10 to 3.13)"
	@echo "TENSORFLOW=tensorflow-cpu  the TensorFlow to install when .venv is made"

demo: build
	$(BIN)/python examples/digits.py

# For two cores. Each test has threads or workers of its own, and a third process makes all of them
# slower: some tests took 235 and 223 s with three, 164 and 168 s with two.
PYTEST_PROCESSES ?= 2
test: lint build
	$(BIN)/python -m pytest -n $(PYTEST_PROCESSES) --dist worksteal $(PYTEST_ARGS)

# The tests of `make test`, all other cases of them, those that have to compile, and the pages. Lines
# that only workers and other processes of the tests run do not count as covered. With Python 3.11
# coverage takes a fifth to a quarter more processor time; `make test-all COVERAGE=` leaves it out.
COVERAGE ?= --cov --cov-report=
test-all: lint build cuda-report docs $(RAY)/.made
	$(MAKE) build/arm
	$(BIN)/python -m pytest -n $(PYTEST_PROCESSES) --dist worksteal -m "not stock" \
	  $(COVERAGE) $(PYTEST_ARGS)
	$(MAKE) sanitize
	$(if $(COVERAGE),@echo "tests ran $$($(BIN)/coverage report --format=total)% of tf_gc's lines")

# Whether the stock strategies keep the promises that ours are asked for: after a change to a promise,
# or for another TensorFlow.
test-stock: build
	$(BIN)/python -m pytest -n $(PYTEST_PROCESSES) --dist worksteal -m stock tests/conformance $(PYTEST_ARGS)

# With each TensorFlow from 2.16 on, the oldest and the newest Keras: ten minutes a pair. ONLY=2.18 or
# ONLY=2.18/3.10 takes some; with FULL=1 all tests of TensorFlow run.
test-versions:
	$(PYTHON) tests/versions.py --processes $(PYTEST_PROCESSES) $(if $(FULL),--full) \
	  $(if $(ONLY),--only $(ONLY))

# After `make wheels`, with Pythons 3.10 to 3.13 on the PATH: a minute for each pair.
test-wheels:
	$(PYTHON) tests/wheels.py $(if $(ONLY),--only $(ONLY))

# Two to four minutes for each TensorFlow; ONLY="2.20 2.21" takes some, ARM=1 is for Arm.
wheels:
	$(PYTHON) build_backend/wheels.py $(if $(ARM),--arm) $(if $(ONLY),--only $(ONLY))

# TAG is HEAD's by default. With ONLY as above it is a rehearsal.
release:
	$(PYTHON) build_backend/release.py "$(or $(TAG),$(shell git describe --tags --exact-match))" \
	  $(if $(ONLY),--only $(ONLY))

lint: $(INSTALLED) lint-bazel
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(CLANG_FORMAT) --dry-run -Werror $(NATIVE_FILES) $(TEST_CC_FILES)

# buildifier comes from npm; where there is none, the other checks must do.
lint-bazel:
	@if npm_config_fetch_retries=0 $(BUILDIFIER) --version >/dev/null 2>&1; then \
	  echo "buildifier $(BUILD_FILES)"; \
	  $(BUILDIFIER) --mode=check --lint=warn $(BUILD_FILES); \
	else \
	  echo "skipped: buildifier (needs npx and a network)"; \
	fi

format: $(INSTALLED)
	$(CLANG_FORMAT) -i $(NATIVE_FILES) $(TEST_CC_FILES)
	$(BIN)/ruff check --fix --exit-zero .
	$(BIN)/ruff format .

bench: build
	$(BIN)/python benchmarks/codec.py $(BENCH_ARGS)

# Pages link to files outside of docs, so the site has the layout of the repository.
DOCS := README.md CONTRIBUTING.md CHANGELOG.md SECURITY.md LICENSE docs examples benchmarks/results
docs: $(VENV)/.docs
	rm -rf build/pages build/site
	mkdir -p build/pages
	git ls-files -co --exclude-standard $(DOCS) | tar cf - -T - | tar xf - -C build/pages
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet
	@echo "built: build/site/index.html"

# Each part for this many seconds; more find more.
SANITIZE_SECONDS ?= 30
sanitize: $(INSTALLED)
	$(BIN)/python tests/sanitize/run.py $(SANITIZE_SECONDS)

FUZZ_SECONDS ?= 300
fuzz: $(INSTALLED)
	$(BIN)/python tests/sanitize/run.py $(FUZZ_SECONDS)

# ROOM is a folder or a module of tf_gc. Each fault runs its tests, or all if it has none of its own,
# up to the first red one; SEED=1 takes other faults, TESTS="tests/steps" other tests.
N ?= 20
SEED ?= 0
TESTS ?= $(wildcard tests/$(ROOM) tests/test_$(ROOM).py)
mutants: build $(VENV)/.mutants
	@$(BIN)/python tests/mutants.py $(ROOM) $(N) $(SEED) $(TESTS)

$(VENV)/.mutants: $(INSTALLED)
	$(PIP) install $(call EXTRA,mutants)
	@touch $@

# The kernels, the CPU's codecs and their comparison in one program; without a GPU it is built, and
# says that there is none.
NVCC ?= $(or $(shell command -v nvcc),/usr/local/cuda/bin/nvcc)
CUDA_ARCH ?= $(if $(shell command -v nvidia-smi),native,sm_90)
GPU_TEST := build/test_gpu
GPU_TEST_FILES := $(wildcard custom_ops/lib/cpu/*.cc custom_ops/lib/cuda/*.cu \
  tests/gpu/*.cc tests/gpu/*.cu)

$(GPU_TEST): $(NATIVE_FILES) $(GPU_TEST_FILES) $(wildcard tests/gpu/*.h)
	@mkdir -p $(@D)
	$(NVCC) $$(PYTHONPATH=build_backend $(PYTHON) -c 'import tf_gc_cuda; \
	  print(*tf_gc_cuda.NVCCFLAGS)') $(NVCCFLAGS) -arch=$(CUDA_ARCH) --threads 0 -I. \
	  -o $@ $(GPU_TEST_FILES)

test-cuda: $(GPU_TEST)
	$(GPU_TEST)
	@if command -v compute-sanitizer >/dev/null; then \
	  compute-sanitizer --error-exitcode 1 $(GPU_TEST) --small && \
	  compute-sanitizer --tool initcheck --error-exitcode 1 $(GPU_TEST) --small && \
	  compute-sanitizer --tool racecheck --error-exitcode 1 $(GPU_TEST) --small; \
	else \
	  echo "skipped: compute-sanitizer is not on PATH"; \
	fi
	$(GPU_TEST) --json >build/gpu.json
	mv build/gpu.json benchmarks/results/gpu.json

build: $(INSTALLED) $(OPS)

clean:
	rm -rf $(VENV) build dist *.egg-info tf_gc/ops/_build_info.py $(OPS)
	find . -name __pycache__ -prune -exec rm -rf {} +

$(VENV)/.made:
	@$(PYTHON) -c 'import sys; v = sys.version_info; \
	  sys.exit(0 if (3, 10) <= v[:2] <= (3, 13) else "tf_gc needs Python 3.10 to 3.13, " \
	  "$(PYTHON) is %d.%d. Name another: make PYTHON=python3.12" % v[:2])'
	$(PYTHON) -m venv --clear $(VENV)
	@touch $@

# The editable install builds the ops too; make rebuilds them after an edit.
$(INSTALLED): $(VENV)/.made setup.py pyproject.toml $(wildcard build_backend/*.py)
	$(PIP) install "setuptools>=77" "$(TENSORFLOW)"
	$(PIP) install --no-build-isolation --editable ".[test,examples]"
	@# By its dependencies it would bring a second TensorFlow beside tensorflow-cpu.
	$(PIP) install --no-deps "tf_keras==$$($(BIN)/python -c 'import tensorflow as tf; \
	  print(".".join(tf.__version__.split(".")[:2]))').*"
	@# BUILD finds TensorFlow's headers here.
	@ln -sfn "$$($(BIN)/python -c 'import importlib.util as u; \
	  print(u.find_spec("tensorflow").submodule_search_locations[0])')" $(VENV)/tensorflow
	@touch $@

# An extra's requirements alone: installing it would build the ops again.
EXTRA = $$($(BIN)/python -c 'import importlib.metadata as m; \
  print(*(r.partition(";")[0] for r in m.requires("tf_gc") if "\"$(1)\"" in r))')
$(VENV)/.docs: $(INSTALLED)
	$(PIP) install $(call EXTRA,docs)
	@touch $@

# Ray, for a test, beside all that is in .venv. Keras imports its pandas wherever it finds it, and
# that starts a thread.
$(RAY)/.made: $(INSTALLED)
	$(BIN)/python -m venv --clear $(RAY)
	@$(BIN)/python -c 'import site; print(f"import site; site.addsitedir({site.getsitepackages()[0]!r})")' \
	  >$$(echo $(RAY)/lib/python*/site-packages)/venv.pth
	$(RAY)/bin/python -m pip --quiet --disable-pip-version-check install "ray[train]==2.*"
	@touch $@

# The library for Arm, which tests/custom_ops/test_arm.py calls in an emulator.
STRICT := -std=c++17 -ffp-contract=off -Wall -Wextra -I.
build/arm: tests/custom_ops/arm.cc $(NATIVE_FILES)
	@mkdir -p $(@D)
	@if command -v aarch64-linux-gnu-g++ && command -v qemu-aarch64; then \
	  aarch64-linux-gnu-g++ -O3 $(STRICT) $(CXXFLAGS) -rdynamic -o $@ $< custom_ops/lib/*/*.cc; \
	else \
	  rm -f $@; echo "skipped: Arm (needs Debian's g++-aarch64-linux-gnu and qemu-user)"; \
	fi

# With or without a GPU, as for a wheel, and beside the library that is in use. tests/ops loads it.
cuda-report: build
	@if $(BIN)/python build_backend/tf_gc_cuda.py; then \
	  TF_GC_CUDA=1 TF_GC_PORTABLE=1 \
	    $(BIN)/python setup.py --quiet build_ext --build-lib build/cuda && \
	  $(BIN)/python build_backend/tf_gc_cuda.py build/cuda-kernels.log; \
	else \
	  echo "skipped: CUDA kernels (needs nvcc)"; \
	fi

$(OPS): $(NATIVE_FILES) | $(INSTALLED)
	$(BIN)/python setup.py --quiet build_ext --inplace
	@touch $@
