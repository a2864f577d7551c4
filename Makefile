# qoskit is header-only: nothing has to be built to use it. This file tests, measures and shows it.
#
# Files are found by their place: tests/<kind>/<header>_<subject>.c, bench/<header>.c, examples/<tool>/*.c.
# A source says in its first lines what it needs:
#     // proves: one sentence              (tests)
#     // links: -lfoo                      (linker flags)
#     // flags: -pthread                   (compiler flags)
#     // variants: native san              (tests: instead of those of its directory)
#     // compiler: mpicc                   (examples: instead of gcc; in the tool's main.c)

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
SHELL := bash
JOBS ?= $(shell nproc)
PREFIX ?= /usr/local
HEADER ?= htb
SECONDS ?= 60
B := build

HEADERS := $(wildcard *.h)
VERSION := $(shell sed -n 's/^.define QOS_VERSION_STRING "\(.*\)"/\1/p' qos.h)
WARNINGS := -Wall -Wextra -Wpedantic -Wconversion -Wsign-conversion -Wshadow -Wcast-align -Wundef -Werror
C_WARNINGS := $(WARNINGS) -Wstrict-prototypes
says = $(shell sed -n '1,8s,^// $(2): *,,p' $(1))

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' Makefile | sort | awk -F'\t' '{printf "  make %-12s %s\n", $$1, $$2}'

# ---- tests: a program for every source and variant -------------------------------------------------------------

# compiler for C, compiler for C++, flags, how the program is run
native := gcc -std=gnu11 $(C_WARNINGS)
native_CXX := g++
native_FLAGS := -O3
san := clang -std=gnu11 $(C_WARNINGS)
san_FLAGS := -O1 -fno-omit-frame-pointer -fsanitize=address,undefined,integer -fno-sanitize-recover=all \
    '-DQOS_ASSERT(x)=((x)?(void)0:__builtin_trap())'
san_RUN := QOS_TEST_SCALE=8
tsan := clang -std=gnu11 $(C_WARNINGS)
tsan_FLAGS := -O1 -fsanitize=thread
tsan_RUN := QOS_TEST_SCALE=8
cxx := g++ -x c++ -std=c++17 $(WARNINGS)
cxx_FLAGS := -O2
cxx_RUN := QOS_TEST_SCALE=20

CROSS := aarch64 armhf i386 s390x riscv64
CROSS_TUPLE := aarch64-linux-gnu arm-linux-gnueabihf i686-linux-gnu s390x-linux-gnu riscv64-linux-gnu
CROSS_QEMU := aarch64 arm i386 s390x riscv64
at = $(word $(3),$($(1)))
define cross_variant
$(2) := $(word $(1),$(CROSS_TUPLE))-gcc -std=gnu11 $(C_WARNINGS)
$(2)_FLAGS := -O2 -static
$(2)_RUN := QOS_TEST_SCALE=20 qemu-$(word $(1),$(CROSS_QEMU))
endef
$(foreach i,1 2 3 4 5,$(eval $(call cross_variant,$(i),$(word $(i),$(CROSS)))))

KINDS := unit property paper adversary fuzz interleave
unit_VARIANTS := native san cxx $(CROSS)
property_VARIANTS := native san $(CROSS)
paper_VARIANTS := native san
adversary_VARIANTS := native
fuzz_VARIANTS := native san
interleave_VARIANTS := native

C_TESTS := $(filter-out tests/fuzz/driver.c,$(wildcard $(KINDS:%=tests/%/*.c)))
CC_TESTS := $(wildcard $(KINDS:%=tests/%/*.cc)) # C++ oracles: native only
TEST_PARTS := $(HEADERS) Makefile $(wildcard tests/*.h $(KINDS:%=tests/%/*.h)) tests/fuzz/driver.c
name = $(basename $(1:tests/%=%))
kind = $(word 2,$(subst /, ,$(1)))

TESTS :=
# $(1) source, $(2) variant, $(3) links, $(4) flags
define test_program
TESTS += $(2)/$(call name,$(1))
$(B)/$(2)/$(call name,$(1)): $(1) $(TEST_PARTS)
	@mkdir -p $$(@D)
	@$($(2)) -g -I. -Itests $($(2)_FLAGS) $(4) -o $$@ $(1) $(if $(filter fuzz,$(call kind,$(1))),tests/fuzz/driver.c -DFUZZ_NAME='"$(notdir $(call name,$(1)))"') $(3)
endef
define test_program_cc
TESTS += native/$(call name,$(1))
$(B)/native/$(call name,$(1)): $(1) $(TEST_PARTS)
	@mkdir -p $$(@D)
	@g++ -std=c++17 -g -O2 $(WARNINGS) -I. -Itests $(3) -o $$@ $(1) $(2)
endef
$(foreach t,$(C_TESTS),$(foreach v,$(or $(call says,$t,variants),$($(call kind,$t)_VARIANTS)),\
    $(eval $(call test_program,$t,$v,$(call says,$t,links),$(call says,$t,flags)))))
$(foreach t,$(CC_TESTS),$(eval $(call test_program_cc,$t,$(call says,$t,links),$(call says,$t,flags))))

SCRIPTS := $(wildcard tests/build/*.sh) # stage 1, side by side
REAL := $(wildcard tests/real/*.sh tests/vm/*.sh) # stage 2: real I/O, one after the other

$(B)/stage1.list: $(C_TESTS) $(CC_TESTS) $(SCRIPTS) Makefile
	@mkdir -p $(B)
	@{ $(foreach s,$(SCRIPTS),printf '%s\t%s\n' '$(s:tests/%.sh=%)' '$s';) \
	   $(foreach t,$(TESTS),printf '%s\t%s\n' '$t' '$($(firstword $(subst /, ,$t))_RUN) $(B)/$t';) } > $@
$(B)/stage2.list: $(REAL) Makefile
	@mkdir -p $(B)
	@{ :; $(foreach s,$(REAL),printf '%s\t%s\n' '$(s:tests/%.sh=%)' '$s';) } > $@

.PHONY: help test programs check plant fuzz coverage demo examples bench bench-quick figures install format lint clean
test: ## everything that must hold; ends with N passed, N failed, N skipped
	@tests/packages.sh test
	@mkdir -p $(B)
	@$(MAKE) --no-print-directory -k -j$(JOBS) programs examples >$(B)/compile.log 2>&1 || \
	    { echo "did not compile (what is missing counts as failed); build/compile.log says:"; grep -E 'error|Error' $(B)/compile.log | head -20; }
	@$(MAKE) --no-print-directory $(B)/stage1.list $(B)/stage2.list
	@ok=0; tests/run $(JOBS) $(B)/stage1.list $(B)/stage1.sum || ok=1; tests/run 1 $(B)/stage2.list $(B)/stage2.sum || ok=1; \
	    cat $(B)/stage1.sum $(B)/stage2.sum | awk '{p+=$$1; f+=$$2; s+=$$3} END {printf "%d passed, %d failed, %d skipped\n", p, f, s}'; exit $$ok

programs: $(TESTS:%=$(B)/%)

OF_HEADER = $(foreach t,$(filter native/%,$(TESTS)),$(if $(filter $(HEADER) $(HEADER)_%,$(notdir $t)),$t))
check: ## the native tests of one header, quickly: make check HEADER=htb
	@$(MAKE) --no-print-directory -j$(JOBS) $(OF_HEADER:%=$(B)/%)
	@for t in $(OF_HEADER); do $(B)/$$t || exit 1; done

plant: ## plants every bug of tests/plants/ and shows that a test catches it (also part of make test)
	@tests/packages.sh test
	@BASELINE=1 tests/build/plants.sh

fuzz: ## fuzzes one header: make fuzz HEADER=htb SECONDS=60
	@tests/packages.sh test
	@HEADER=$(HEADER) SECONDS_EACH=$(SECONDS) tests/fuzz/run.sh

coverage: ## lines and branches of every header, by clang, and what is not reached
	@tests/packages.sh test
	@tests/build/coverage.sh report

# ---- examples and benchmarks -------------------------------------------------------------------------------------

TOOLS := $(patsubst examples/%/main.c,%,$(wildcard examples/*/main.c))
COMMON_SOURCES := $(wildcard examples/common/*.c)
$(foreach v,native san,$(B)/$v/unit/common_parts): $(wildcard examples/common/*)
# $(1) tool, $(2) compiler, $(3) links, $(4) flags
define example_tool
$(B)/examples/$(1): $(wildcard examples/$(1)/*) $(COMMON_SOURCES) $(wildcard examples/common/*.h) $(HEADERS) Makefile
	@mkdir -p $$(@D)
	$(2) -std=gnu11 -O2 -g $(C_WARNINGS) -I. -Iexamples/common $(4) -o $$@ $(wildcard examples/$(1)/*.c) $(COMMON_SOURCES) $(3) -lm
endef
$(foreach t,$(TOOLS),$(eval $(call example_tool,$t,$(or $(call says,examples/$t/main.c,compiler),gcc),$(call says,examples/$t/main.c,links),$(call says,examples/$t/main.c,flags))))
# An nbdkit filter is a shared object that nbdkit loads.
$(B)/examples/nbdkit-qoskit-filter.so: examples/nbdkit/qoskit_filter.c $(HEADERS) Makefile
	@mkdir -p $(@D)
	gcc -std=gnu11 -O2 -g $(C_WARNINGS) -fPIC -shared -pthread -I. -o $@ $<

# A quickstart is one file that someone copies: nothing of examples/common.
QUICKSTARTS := $(wildcard examples/quickstart/*.c)
# $(1) source, $(2) compiler, $(3) links, $(4) flags
define quickstart_program
$(B)/examples/quickstart_$(basename $(notdir $(1))): $(1) $(HEADERS) Makefile
	@mkdir -p $$(@D)
	$(2) -std=gnu11 -O2 -g $(C_WARNINGS) -I. $(4) -o $$@ $(1) $(3)
endef
$(foreach q,$(QUICKSTARTS),$(eval $(call quickstart_program,$q,$(or $(call says,$q,compiler),gcc),$(call says,$q,links),$(call says,$q,flags))))

$(filter $(B)/examples/tokenpool_%,$(TOOLS:%=$(B)/examples/%)): $(wildcard examples/tokenpool_common/*)
examples: $(TOOLS:%=$(B)/examples/%) $(QUICKSTARTS:examples/quickstart/%.c=$(B)/examples/quickstart_%) $(B)/examples/nbdkit-qoskit-filter.so ## builds the tools of examples/ into build/examples/

BENCHES := $(basename $(notdir $(wildcard bench/*.c bench/*.cc)))
BENCH_FLAGS := -O3
define bench_program
$(B)/bench/$(basename $(notdir $(1))): $(1) $(HEADERS) $(wildcard bench/*.h) Makefile
	@mkdir -p $$(@D)
	$(if $(filter %.cc,$(1)),g++ -std=c++17 $(WARNINGS),gcc -std=gnu11 $(C_WARNINGS)) $(BENCH_FLAGS) -DBENCH_FLAGS='"$(BENCH_FLAGS)"' -I. -Ibench $(3) -o $$@ $(1) $(2) -lm
endef
$(foreach b,$(wildcard bench/*.c bench/*.cc),$(eval $(call bench_program,$b,$(call says,$b,links),$(call says,$b,flags))))

bench-programs: $(BENCHES:%=$(B)/bench/%) examples
.PHONY: bench-programs

bench: ## all figures, each beside its peer; hyperfine for whole commands
	@tests/packages.sh bench
	@$(MAKE) --no-print-directory -j$(JOBS) bench-programs
	@set -e; for b in $(BENCHES); do $(B)/bench/$$b --json $(B)/bench/$$b.jsonl; done
	@set -e; for s in $(wildcard bench/*.sh); do $$s; done

bench-quick: ## the same in under three minutes, into build/bench/<header>.jsonl
	@tests/packages.sh bench
	@$(MAKE) --no-print-directory -j$(JOBS) bench-programs
	@set -e; for b in $(BENCHES); do $(B)/bench/$$b --quick --json $(B)/bench/$$b.jsonl; done
	@set -e; for s in $(wildcard bench/*.sh); do $$s --quick; done

figures: ## the papers' figures from our runs, as SVG in build/figures/
	@tests/packages.sh bench
	@$(MAKE) --no-print-directory -j$(JOBS) bench-programs
	@mkdir -p $(B)/figures
	@set -e; for s in $(sort $(wildcard bench/figures/*.sh)); do $$s $(B)/figures; done
	@ls $(B)/figures/*.svg

demo: ## the main job on this machine's disk: tenants on one file, without and with QoS
	@tests/packages.sh demo
	@$(MAKE) --no-print-directory $(B)/examples/uring_files
	@mkdir -p $(B)/demo
	@examples/uring_files/demo.sh $(B)/demo

# ---- housekeeping ------------------------------------------------------------------------------------------------

install: ## headers and a pkg-config file: make install PREFIX=/usr/local
	@install -d '$(DESTDIR)$(PREFIX)/include/qoskit' '$(DESTDIR)$(PREFIX)/lib/pkgconfig'
	@install -m 644 $(HEADERS) '$(DESTDIR)$(PREFIX)/include/qoskit/'
	@printf 'prefix=%s\nincludedir=$${prefix}/include/qoskit\n\nName: qoskit\nDescription: storage quality of service, header-only\nVersion: %s\nCflags: -I$${includedir}\n' \
	    '$(PREFIX)' '$(VERSION)' > '$(DESTDIR)$(PREFIX)/lib/pkgconfig/qoskit.pc'
	@echo "installed $(HEADERS) and qoskit.pc below $(DESTDIR)$(PREFIX)"

FORMATTED = $(shell git ls-files '*.c' '*.h' '*.cc')
format: ## clang-format over every source
	@clang-format -i $(FORMATTED)

lint: ## clang-tidy and cppcheck, clean; formatting too
	@tests/packages.sh test
	@tests/build/lint.sh all

clean: ## removes build/
	@rm -rf $(B)
