# make demo and make test do all the set-up; everything they install goes to .venv.

PYTHON ?= python3
VENV := .venv
PIP_INSTALL := $(VENV)/bin/python -m pip install -q --disable-pip-version-check -c constraints.txt

.PHONY: help demo test check clean
.DELETE_ON_ERROR:

help:
	@echo "make demo    install into $(VENV) and train InstanT on ten labels"
	@echo "make test    install what tests need, then lint, type check and run all tests"
	@echo "make check   lint and type check only"
	@echo "make clean   remove $(VENV), build files and caches; runs are kept"

demo: $(VENV)/.installed
	@$(VENV)/bin/instant demo

# torch.compile hands paths to a C++ compiler that trips over spaces: there the tests run through a link without any.
test: check
	@python=$(VENV)/bin/python; \
	case "$$PWD" in *" "*) \
		link=$$(mktemp -d) && ln -s "$$PWD" "$$link/instant" && python="$$link/instant/$$python"; \
		trap 'rm "$$link/instant" && rmdir "$$link"' EXIT;; \
	esac; \
	OMP_NUM_THREADS=1 "$$python" -m pytest -n 2 --doctest-modules tests src/instant

check: $(VENV)/.installed-test
	$(VENV)/bin/python -m ruff check .
	$(VENV)/bin/python -m ruff format --check .
	$(VENV)/bin/python -m mypy

clean:
	rm -rf $(VENV) build dist src/*.egg-info .pytest_cache .mypy_cache .ruff_cache
	find src tests docs benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +

# A stamp is written after its installation has succeeded: one that failed or was interrupted is tried again. An
# environment whose Python is too old, or does not start, or has no pip, was left half made and is made anew.

MODERN := import sys; sys.exit(sys.version_info < (3, 11))

$(VENV)/.installed: pyproject.toml constraints.txt
	@$(VENV)/bin/python -c 'import pip; $(MODERN)' 2>/dev/null || "$(PYTHON)" -c '$(MODERN)' 2>/dev/null || { \
		found=$$("$(PYTHON)" --version 2>/dev/null) || found="not there"; \
		echo "instant needs Python 3.11 or newer, but $(PYTHON) is $$found: name another, as in" \
			"make demo PYTHON=python3.11" >&2; \
		exit 1; \
	}
	@echo "creating $(VENV) and installing the pinned dependencies and instant (a few minutes the first time)"
	@$(VENV)/bin/python -c 'import pip; $(MODERN)' 2>/dev/null || "$(PYTHON)" -m venv --clear $(VENV)
	@$(PIP_INSTALL) -e .
	@touch $@

$(VENV)/.installed-test: $(VENV)/.installed
	@echo "installing what the tests need into $(VENV)"
	@$(PIP_INSTALL) -e '.[test]'
	@touch $@
