# The front door of ferry. CMake and the scripts in tools/ do the work; `make help` lists the targets.

PREFIX ?= /usr/local
JOBS   ?= $(shell nproc)

.PHONY: help build run test bench lint format soak install clean
.DEFAULT_GOAL := build

help:  ## this list
	@sed -n 's/^\([a-z]*\):.*## */\1|/p' $(MAKEFILE_LIST) | while IFS='|' read -r t d; do printf '  make %-8s %s\n' "$$t" "$$d"; done

build:  ## release build; the tool is build/ferry
	@tools/bootstrap build
	@tools/build release -j $(JOBS)
	@ln -sfn release/ferry build/ferry

run: build  ## make a checkpoint, reshard it to tp=4,pp=2 and back, and prove both equal
	@tools/demo $(CURDIR)/build/ferry $(CURDIR)/build/demo

test: build  ## all tests: release, with ASan and UBSan, and with TSan what has threads
	@tools/bootstrap test
	@tools/run-tests -j $(JOBS)

# All run, whichever misses its targets.
bench: build  ## measure planner, kernels, copies, models and checkpoints against limits and other programs
	@tools/bootstrap test
	@tools/bootstrap peers || echo 'bench: goes on without the peers that are not installed'
	@missed=0; set -x; \
	python3 bench/plan_bench.py --ferry build/ferry || missed=1; \
	build/release/bench/kernel_bench --check-targets || missed=1; \
	build/ferry bench --peers --check-targets || missed=1; \
	build/ferry bench reshard --check-targets || missed=1; \
	python3 bench/ckpt_bench.py --ferry build/ferry --check-targets || missed=1; \
	exit $$missed

lint: build  ## format, static analysis, layers, headers, exported symbols
	@tools/bootstrap lint
	@tools/lint -j $(JOBS)

format:  ## rewrite the C files in the style of .clang-format
	@tools/lint format-in-place

soak: build  ## the long runs: full counts of the property, fault and fuzz tests
	@tools/bootstrap test
	@tools/build release --target tests -j $(JOBS)
	ctest --preset soak -j $(JOBS)

install: build  ## install below PREFIX (default /usr/local); DESTDIR is honoured
	DESTDIR=$(DESTDIR) cmake --install build/release --prefix $(abspath $(PREFIX))

clean:  ## remove build/
	rm -rf build
