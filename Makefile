# qoskit is header-only: nothing has to be built to use it. This file tests, measures, shows and installs it.
#
# Files are found by their place: tests/<kind>/<header>_<subject>.c, bench/<header>.c, examples/<tool>/*.c,
# examples/quickstart/<header>.c. The first eight lines of a source name what it needs:
#     // proves: one sentence              (tests)
#     // links: -lfoo                      (linker flags)
#     // flags: -pthread                   (compiler flags)
#     // variants: native san              (tests: instead of those of its directory)
#     // scale: 4                          (tests: the native run is 1/4 of the whole one, which make whole runs, in make trust)
#     // whole: san i386                   (tests: make whole runs these variants whole, too)
#     // compiler: mpicc                   (examples: instead of gcc; in the tool's main.c)
#     // shares: cluster_agent             (examples: the objects of another folder; in the tool's main.c)
#     # alone: no                          (tests on real I/O: needs hardly a processor or disk, so it runs beside the others)

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.SUFFIXES:
MAKEFLAGS += --no-builtin-rules
SHELL := bash
JOBS ?= $(shell nproc)
PREFIX ?= /usr/local
HEADER ?= htb
SECONDS ?= 60
N ?= 100
B := build

HEADERS := $(wildcard *.h)
WARNINGS := -Wall -Wextra -Wpedantic -Wconversion -Wsign-conversion -Wshadow -Wcast-align -Wundef -Werror
C_WARNINGS := $(WARNINGS) -Wstrict-prototypes

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' Makefile | sort | awk -F'\t' '{printf "  make %-15s %s\n", $$1, $$2}'

.PHONY: help test test-side test-real test-beside test-examples side-lane real-lane beside-lane browser-lane programs check plant fuzz coverage demo examples bench-programs bench bench-quick \
    figures lib install install-dev uninstall format lint clean

# ---- installation: needs nothing of what follows ---------------------------------------------------------------------

include_dir := $(DESTDIR)$(PREFIX)/include/qoskit
lib_dir := $(DESTDIR)$(PREFIX)/lib
pc_dir := $(lib_dir)/pkgconfig
cmake_dir := $(lib_dir)/cmake/qoskit
filter_dir := $(lib_dir)/nbdkit/filters
filter := $(B)/examples/nbdkit-qoskit-filter.so
man_dir := $(DESTDIR)$(PREFIX)/share/man/man1
filter_man := examples/nbdkit/nbdkit-qoskit-filter.1
VERSION := $(shell sed -n 's/^.define QOS_VERSION_STRING "\(.*\)"/\1/p' qos.h)
# Before 1.0 a minor version may change the interface, so it is the version of the shared library's symbols.
SO_VERSION := $(basename $(VERSION))
lib_so := libqoskit.so libqoskit.so.$(SO_VERSION) libqoskit.so.$(VERSION)

define pc_file
prefix=$(PREFIX)
includedir=$${prefix}/include

Name: qoskit
Description: storage quality of service, header-only; needs C11 or C++17
Version: $(VERSION)
Cflags: -I"$${includedir}" -I"$${includedir}/qoskit"
endef
define lib_pc_file
prefix=$(PREFIX)
libdir=$${prefix}/lib

Name: libqoskit
Description: storage quality of service, as a library; needs C11 or C++17
Version: $(VERSION)
Requires: qoskit = $(VERSION)
Cflags: -DQOS_DECLARE_ONLY
Libs: -L"$${libdir}" -lqoskit
endef
# The languages' standards count only where the project has the language.
define cmake_file
# find_package(qoskit) and target_link_libraries(server PRIVATE qoskit::qoskit)
# qoskit::qoskit: the headers. qoskit::shared, qoskit::static: prototypes, and the library with the bodies.
get_filename_component(qoskit_prefix "$${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)
get_property(qoskit_languages GLOBAL PROPERTY ENABLED_LANGUAGES)
set(qoskit_features)
if("C" IN_LIST qoskit_languages)
    list(APPEND qoskit_features c_std_11)
endif()
if("CXX" IN_LIST qoskit_languages)
    list(APPEND qoskit_features cxx_std_17)
endif()
if(NOT TARGET qoskit::qoskit)
    add_library(qoskit::qoskit INTERFACE IMPORTED)
    set_target_properties(qoskit::qoskit PROPERTIES
        INTERFACE_INCLUDE_DIRECTORIES "$${qoskit_prefix}/include;$${qoskit_prefix}/include/qoskit"
        INTERFACE_COMPILE_FEATURES "$${qoskit_features}")
    add_library(qoskit::shared SHARED IMPORTED)
    set_target_properties(qoskit::shared PROPERTIES IMPORTED_LOCATION "$${qoskit_prefix}/lib/libqoskit.so.$(VERSION)"
        IMPORTED_SONAME libqoskit.so.$(SO_VERSION))
    add_library(qoskit::static STATIC IMPORTED)
    set_target_properties(qoskit::static PROPERTIES IMPORTED_LOCATION "$${qoskit_prefix}/lib/libqoskit.a")
    set_target_properties(qoskit::shared qoskit::static PROPERTIES
        INTERFACE_LINK_LIBRARIES qoskit::qoskit INTERFACE_COMPILE_DEFINITIONS QOS_DECLARE_ONLY)
endif()
unset(qoskit_prefix)
unset(qoskit_languages)
unset(qoskit_features)
endef
define cmake_version_file
set(PACKAGE_VERSION $(VERSION))
string(REGEX MATCH "^[0-9]+\\.[0-9]+" qoskit_minor "$${PACKAGE_FIND_VERSION}")
if(PACKAGE_FIND_VERSION VERSION_GREATER PACKAGE_VERSION)
    set(PACKAGE_VERSION_COMPATIBLE FALSE)
elseif(NOT PACKAGE_FIND_VERSION OR "$${PACKAGE_VERSION}." MATCHES "^$${qoskit_minor}\\.")
    set(PACKAGE_VERSION_COMPATIBLE TRUE)
    if(PACKAGE_FIND_VERSION VERSION_EQUAL PACKAGE_VERSION)
        set(PACKAGE_VERSION_EXACT TRUE)
    endif()
else()
    set(PACKAGE_VERSION_COMPATIBLE FALSE)
endif()
endef
install-dev: export pc_file := $(pc_file)
install-dev: export lib_pc_file := $(lib_pc_file)
install-dev: export cmake_file := $(cmake_file)
install-dev: export cmake_version_file := $(cmake_version_file)

.PHONY: dist
dist: ## makes build/qoskit-VERSION.tar.gz of the last commit, reproducibly
	@mkdir -p $(B)
	@git archive --format=tar --prefix=qoskit-$(VERSION)/ HEAD | gzip -9n >$(B)/qoskit-$(VERSION).tar.gz
	@echo $(B)/qoskit-$(VERSION).tar.gz

# A header's bodies; the functions of qos.h are inline in those of the others.
$(B)/bodies/%.c: Makefile
	@mkdir -p $(@D)
	@{ [ $* = qos ] || printf '#include "qos.h"\n#undef QOS_API\n'; printf '#define QOS_API\n#include "%s.h"\n' $*; } >$@

# The library, and what a generator of bindings reads (docs/bindings.md). Two makes may build it at once: each file gets its
# name when it is whole.
LIB := $(B)/lib
$(LIB)/%.o: $(B)/bodies/%.c $(HEADERS)
	@mkdir -p $(@D)
	@$(CC) -std=gnu11 -O2 -g1 -fPIC -I. -c -o $@.$$$$ $< && mv $@.$$$$ $@
$(LIB)/libqoskit.a: $(HEADERS:%.h=$(LIB)/%.o)
	@$(AR) rcs $@.$$$$ $^ && mv $@.$$$$ $@
$(LIB)/libqoskit.so.$(VERSION): $(HEADERS:%.h=$(LIB)/%.o)
	@echo 'QOSKIT_$(SO_VERSION) {global: $(HEADERS:%.h=%_*;) local: *;};' >$@.symbols.$$$$ && \
	$(CC) -shared -Wl,-soname,libqoskit.so.$(SO_VERSION) -Wl,--version-script=$@.symbols.$$$$ -Wl,--no-undefined -o $@.$$$$ $^ && \
	rm $@.symbols.$$$$ && mv $@.$$$$ $@
	@ln -sf $(@F) $(LIB)/libqoskit.so.$(SO_VERSION) && ln -sf libqoskit.so.$(SO_VERSION) $(LIB)/libqoskit.so
$(LIB)/bindings.h: examples/bindings/constants.sh $(HEADERS)
	@mkdir -p $(@D) && examples/bindings/constants.sh >$@.$$$$ && mv $@.$$$$ $@
lib: $(LIB)/libqoskit.a $(LIB)/libqoskit.so.$(VERSION) $(LIB)/bindings.h ## builds a static and a shared library in build/lib/
	@echo "$(LIB)/libqoskit.a, $(LIB)/libqoskit.so.$(VERSION), $(LIB)/bindings.h"

# Headers and library alone.
install-dev: lib
	@install -d '$(include_dir)' '$(pc_dir)' '$(cmake_dir)'
	@install -m 644 $(HEADERS) $(LIB)/bindings.h '$(include_dir)/'
	@install -m 644 $(LIB)/libqoskit.a '$(lib_dir)/' && install -m 755 $(LIB)/libqoskit.so.$(VERSION) '$(lib_dir)/'
	@cp -P $(LIB)/libqoskit.so.$(SO_VERSION) $(LIB)/libqoskit.so '$(lib_dir)/'
	@printf '%s\n' "$$pc_file" >'$(pc_dir)/qoskit.pc'
	@printf '%s\n' "$$lib_pc_file" >'$(pc_dir)/libqoskit.pc'
	@printf '%s\n' "$$cmake_file" >'$(cmake_dir)/qoskitConfig.cmake'
	@printf '%s\n' "$$cmake_version_file" >'$(cmake_dir)/qoskitConfigVersion.cmake'
	@echo "installed $(HEADERS), libqoskit, qoskit.pc, libqoskit.pc and qoskitConfig.cmake below $(DESTDIR)$(PREFIX)"

install: install-dev ## installs headers, library, servers, manuals, .pc, CMake: PREFIX=/usr/local
	@if tests/packages.sh --quiet filter; then \
	    $(MAKE) --no-print-directory -s $(filter) && install -d '$(filter_dir)' '$(man_dir)' && \
	    install -m 755 $(filter) '$(filter_dir)/' && install -m 644 $(filter_man) '$(man_dir)/' && \
	    echo "installed $(notdir $(filter) $(filter_man))"; \
	else echo "not installed: $(notdir $(filter)), which needs nbdkit's header nbdkit-filter.h"; fi
	@MAKE='$(MAKE)' examples/operators/install.sh install '$(DESTDIR)' '$(PREFIX)'

uninstall: ## removes what make install installed: PREFIX=/usr/local
	@rm -f $(HEADERS:%='$(include_dir)/%') '$(include_dir)/bindings.h' $(lib_so:%='$(lib_dir)/%') '$(lib_dir)/libqoskit.a' \
	    '$(pc_dir)/qoskit.pc' '$(pc_dir)/libqoskit.pc' '$(cmake_dir)/qoskitConfig.cmake' \
	    '$(cmake_dir)/qoskitConfigVersion.cmake' '$(filter_dir)/$(notdir $(filter))' '$(man_dir)/$(notdir $(filter_man))'
	@examples/operators/install.sh uninstall '$(DESTDIR)' '$(PREFIX)'
	@rmdir '$(include_dir)' '$(cmake_dir)' '$(filter_dir)' 2>/dev/null || true
	@echo "removed qoskit below $(DESTDIR)$(PREFIX)"

clean: ## removes build/
	@rm -rf $(B)

FORMATTED = $(shell git ls-files '*.c' '*.h' '*.cc')
format: ## formats every source by clang-format
	@clang-format -i $(FORMATTED)

# An nbdkit filter is a shared object that nbdkit loads.
$(filter): $(wildcard examples/nbdkit/*.[ch]) htb.h qos.h Makefile
	@mkdir -p $(@D) && rm -f $@
	@gcc -std=gnu11 $${OPTIMIZE:--O2 -g} $(C_WARNINGS) -fPIC -shared -fvisibility=hidden -pthread -I. -o $@ $(filter %.c,$^)

# A module that nginx loads.
nginx_module := $(B)/examples/ngx_http_qos_module.so
$(nginx_module): $(wildcard examples/nginx/*) examples/cluster_agent/tokens.h htb.h qos.h Makefile
	@mkdir -p $(@D)
	@C_WARNINGS='$(C_WARNINGS)' examples/nginx/build.sh $@

# The next part reads every source's first lines; these targets do without it.
ifneq ($(filter-out help lib install install-dev uninstall clean format $(LIB)/% $(filter) $(nginx_module),$(or $(MAKECMDGOALS),help)),)

# ---- the first lines of the sources -----------------------------------------------------------------------------------

# In the order in which they begin: the long ones first.
KINDS := adversary world interleave paper property fuzz unit
C_TESTS := $(filter-out tests/fuzz/driver.c,$(wildcard $(KINDS:%=tests/%/*.c)))
CC_TESTS := $(wildcard $(KINDS:%=tests/%/*.cc)) # C++ oracles: native only
BENCH_SOURCES := $(wildcard bench/*.c bench/*.cc)
TOOLS := $(patsubst examples/%/main.c,%,$(wildcard examples/*/main.c))
QUICKSTARTS := $(wildcard examples/quickstart/*.c)
REAL := $(wildcard tests/real/*.sh tests/vm/*.sh)
SCRIPTS := $(wildcard tests/build/*.sh)
SAYING := $(C_TESTS) $(CC_TESTS) $(BENCH_SOURCES) $(TOOLS:%=examples/%/main.c) $(QUICKSTARTS) $(REAL) $(SCRIPTS)
# The module first: nginx's configure runs one command after the other.
EXAMPLES := $(if $(wildcard $(or $(NGINX_SOURCE),/usr/share/nginx/src)/configure),$(nginx_module)) \
    $(TOOLS:%=$(B)/examples/%) $(QUICKSTARTS:examples/quickstart/%.c=$(B)/examples/quickstart_%) $(filter)

# A line for each: says.links.tests/unit/x.c := -lfoo; says.uses.tests/real/x.sh += examples/uring_files
$(B)/says.mk: $(SAYING) $(wildcard tests/*/ bench/ examples/ examples/*/) Makefile
	@mkdir -p $(B) 2>/dev/null && [ -w $(B) ] || { echo "$(CURDIR)/$(B)/ cannot be written: copy the tree to where you may write" >&2; exit 1; }
	@awk 'FNR <= 8 && match($$0, /^(\/\/|#) (links|flags|variants|scale|whole|compiler|shares|alone): */) { \
	    key = substr($$0, 1, RLENGTH); sub(/^(\/\/|#) /, "", key); sub(/:.*/, "", key); \
	    print "says." key "." FILENAME " := " substr($$0, RLENGTH + 1)} \
	    FNR <= 8 && /^\#define (QOS|HTB|TAGS|PSHIFT|TOKENPOOL|TWOCHOICE)_/ {print "says.bodies." FILENAME " := own"} \
    /^\#include "[a-z]*\.h"/ {gsub(/^[^"]*"|\.h".*/, ""); print "says.includes." FILENAME " += " $$0; next} \
    FILENAME ~ /\.sh$$/ {line = $$0; while (match(line, /examples\/[a-z_0-9.-]+/)) { \
	    print "says.uses." FILENAME " += " substr(line, RSTART, RLENGTH); line = substr(line, RSTART + RLENGTH)}}' $(SAYING) >$@
include $(B)/says.mk
says = $(says.$(2).$(1))

# ---- tests: a program for every source and variant -------------------------------------------------------------------
#
# The bodies of each header are compiled once for a variant (QOS_API empty), optimised as below. A test sees the
# prototypes alone (QOS_DECLARE_ONLY), so compiling it is cheap, and is linked with them. tests/build/ uses the objects of
# the native tests again, for planted bugs, mutants and coverage, and examines the bodies' objects (stack.sh,
# freestanding.sh). A test that shrinks a limit (`// flags: -DX=4`,
# or a #define at its top) has the bodies in it, like a user's program; so have the examples, the benchmarks and
# tests/build/flags.sh.

# compiler for C; flags of bodies; of tests; of tests that have the bodies in them; linker; how the program is run. Line numbers
# (-g1) are all that a failure shows. Compiling the sanitizers' checks costs more than running them, unless a test is long.
native := gcc -std=gnu11 -g1 $(C_WARNINGS)
native_FLAGS := -O2
native_TEST := -O1
native_unit_TEST := -O0
native_WHOLE := -O1
native_unit_WHOLE := -O0
native_LD := gcc
scale = $(call says,$(t:native/%=tests/%.c),scale)
native_RUN = $(addprefix QOS_TEST_SCALE=,$(scale))
# A false assertion divides by zero, which the sanitizer finds: a condition would count as a branch that is not reached.
san := clang -std=gnu11 -g1 $(C_WARNINGS) -fno-omit-frame-pointer -fsanitize=address,undefined,integer -fno-sanitize-recover=all \
    '-DQOS_ASSERT(x)=((void)(1/(int)!!(x)))'
# The bodies count what is run, for tests/build/coverage.sh; $t is the test.
san_FLAGS := -O1 -fprofile-instr-generate -fcoverage-mapping
san_TEST := -O0
san_WHOLE := -O0
san_LD := clang -fsanitize=address,undefined,integer -fprofile-instr-generate -fuse-ld=lld
san_RUN = LLVM_PROFILE_FILE=$(B)/$t.profraw QOS_TEST_SCALE=20
tsan := clang -std=gnu11 -g1 $(C_WARNINGS) -fsanitize=thread
tsan_FLAGS := -O0
tsan_TEST := -O0
tsan_WHOLE := -O0
tsan_LD := clang -fsanitize=thread
# A case of one thread has no race.
tsan_RUN := QOS_TEST_SCALE=8 QOS_TEST_THREADS=1
cxx := g++ -x c++ -std=c++17 $(WARNINGS)
cxx_FLAGS := -O0
cxx_TEST := -O0
cxx_WHOLE := -O0
cxx_LD := g++
cxx_RUN := QOS_TEST_SCALE=20

CROSS := aarch64 armhf i386 s390x riscv64
CROSS_TUPLE := aarch64-linux-gnu arm-linux-gnueabihf i686-linux-gnu s390x-linux-gnu riscv64-linux-gnu
CROSS_QEMU := aarch64 arm i386 s390x riscv64
define cross_variant
$(2) := $(word $(1),$(CROSS_TUPLE))-gcc -std=gnu11 $(C_WARNINGS)
$(2)_FLAGS := -O1
$(2)_TEST := -O1
$(2)_unit_TEST := -O0
$(2)_WHOLE := -O0
$(2)_LD := $(word $(1),$(CROSS_TUPLE))-gcc -static
$(2)_RUN := QOS_TEST_SCALE=60 qemu-$(word $(1),$(CROSS_QEMU))
endef
$(foreach i,1 2 3 4 5,$(eval $(call cross_variant,$(i),$(word $(i),$(CROSS)))))
# Most x86-64 kernels run i386 programs themselves, ten times as fast.
i386_RUN := QOS_TEST_SCALE=60 $$$$($(B)/runs_i386 || echo qemu-i386)
$(B)/runs_i386:
	@mkdir -p $(@D) && echo 'int main(void) {return 0;}' | i686-linux-gnu-gcc -static -x c -o $@ -
# freestanding.sh looks at the bodies' objects: atomics must not be calls of libgcc, and floating point must show. Where few
# tests run, optimising costs more than it saves.
aarch64 += -mno-outline-atomics
aarch64_FLAGS := -O0 -mgeneral-regs-only
armhf_FLAGS := -O0 -mgeneral-regs-only
s390x_FLAGS += -msoft-float
VARIANTS := native san tsan cxx $(CROSS)

# One target represents two if no test can see a difference: i386 and armhf are both 32-bit and little-endian, and i386, which
# most machines run themselves, also aligns 64-bit words to 4 in structs; aarch64 and riscv64 are 64-bit and little-endian
# like the native one; s390x is the only big-endian one, and its plain char is unsigned, as armhf's is. So unit and
# property tests run on i386 and s390x; but those of htb and tags, which write no bytes, on i386 alone. aarch64, armhf and
# riscv64 have what names them. All headers are compiled for all of them (tests/build/headers.sh,
# freestanding.sh).
unit_VARIANTS := native san cxx i386 s390x
property_VARIANTS := native san i386 s390x
paper_VARIANTS := native san
adversary_VARIANTS := native
fuzz_VARIANTS := native san
interleave_VARIANTS := native
world_VARIANTS := native
# The world's numbers are the same on every machine: no fused products, no longer registers.
$(foreach v,$(VARIANTS),$(eval $v_world_TEST := $($v_TEST) -ffp-contract=off $(if $(filter i386,$v),-msse2 -mfpmath=sse)))

variants = $(or $(call says,$(1),variants),$(if $(filter tests/unit/htb_% tests/unit/tags_% tests/property/htb_% tests/property/tags_%,$(1)),$(filter-out s390x,$($(call kind,$(1))_VARIANTS)),$($(call kind,$(1))_VARIANTS)))

name = $(basename $(1:tests/%=%))
kind = $(word 2,$(subst /, ,$(1)))

# For tests/build/stack.sh; clang, which some systems call gcc, has no such thing.
callgraph := $(shell gcc -fcallgraph-info=su -E -x c /dev/null >/dev/null 2>&1 && echo -fcallgraph-info=su)
define bodies_object
$(B)/bodies/$(1)_%.o: $(B)/bodies/%.c Makefile
	@rm -f $$@
	@$($(1)) -I. $($(1)_FLAGS) $(if $(filter native,$(1)),$(callgraph)) -MMD -MP -MF $$@.d -MT $$@ -c -o $$@ $$<
endef
# The worlds run with assertions: a false one traps. To optimise them more costs seven times what it saves.
ASSERTING := '-DQOS_ASSERT(x)=((x) ? (void)0 : __builtin_trap())'
asserting := $(native) $(ASSERTING)
asserting_FLAGS := -O1
$(foreach v,$(VARIANTS) asserting,$(eval $(call bodies_object,$v)))
-include $(wildcard $(B)/bodies/*.d)
.SECONDARY:
# The headers that a test is about: the one in its name and those that it includes itself.
about = $(sort qos $(filter $(firstword $(subst _, ,$(basename $(notdir $(1))))) $(call says,$(1),includes),$(HEADERS:.h=)))
bodies = $(foreach h,$(call about,$(1)),$(B)/bodies/$(if $(filter native-world,$(2)-$(call kind,$(1))),asserting,$(2))_$h.o)
has_own = $(or $(filter -D%,$(call says,$(1),flags)),$(filter own,$(call says,$(1),bodies)),$(filter interleave,$(call kind,$(1))))

# The parts of the world are linked with the tests of tests/world/, and with those that name some of them (links).
WORLD := $(wildcard examples/world/*.c)
world_parts = $(patsubst %.c,$(B)/$(2)/%.o,$(if $(filter world,$(call kind,$(1))),$(WORLD),$(filter examples/world/%,$(call says,$(1),links))))
define world_object
$(B)/$(1)/examples/world/%.o: examples/world/%.c Makefile
	@mkdir -p $$(@D) && rm -f $$@
	@$($(1)) $($(1)_world_TEST) -MMD -MP -MF $$@.d -MT $$@ -c -o $$@ $$<
endef
$(foreach v,$(VARIANTS),$(eval $(call world_object,$v)))
-include $(wildcard $(B)/*/examples/world/*.d)

# The old program is removed first: one that no longer compiles must not be run. -MF: of several sources the last one's
# headers count, so the test comes after the driver.
TESTS :=
TEST_OBJECTS :=
# $(1) source, $(2) variant, $(3) links, $(4) flags, $(5) the driver of a fuzz target and the name that it gives it
define test_linked
TESTS += $(2)/$(call name,$(1))
$(if $(filter native,$(2)),TEST_OBJECTS += $(B)/native/$(call name,$(1)).o)
$(B)/$(2)/$(call name,$(1)).o: $(1) Makefile $(firstword $(5))
	@mkdir -p $$(@D) && rm -f $$@
	@$($(2)) -I. -Itests -DQOS_DECLARE_ONLY $(or $($(2)_$(call kind,$(1))_TEST),$($(2)_TEST)) $(4) -MMD -MP -MF $$@.d -MT $$@ -c -o $$@ $(1)
	$(if $(5),@$($(2)) -I. -Itests -DQOS_DECLARE_ONLY $($(2)_TEST) -c -o $$@.driver $(5) && mv $$@ $$@.test && ld -r -o $$@ $$@.driver $$@.test)
$(B)/$(2)/$(call name,$(1)): $(B)/$(2)/$(call name,$(1)).o $(call bodies,$(1),$(2)) $(call world_parts,$(1),$(2))
	@rm -f $$@
	@$($(2)_LD) -I. $(4) -o $$@ $$^ $(filter-out examples/world/%,$(3)) $(if $(filter world,$(call kind,$(1))),-lm)
endef
define test_whole
TESTS += $(2)/$(call name,$(1))
$(B)/$(2)/$(call name,$(1)): $(1) Makefile $(firstword $(5)) $(call world_parts,$(1),$(2))
	@mkdir -p $$(@D) && rm -f $$@
	@$($(2)) $(filter -static,$($(2)_LD)) -I. -Itests $(or $($(2)_$(call kind,$(1))_WHOLE),$($(2)_WHOLE)) $(if $(filter world,$(call kind,$(1))),$($(2)_world_TEST) $(if $(filter native,$(2)),$(ASSERTING))) $(4) -MMD -MP -MF $$@.d -MT $$@ -o $$@ $(5) $(1) $(call world_parts,$(1),$(2)) $(filter-out examples/world/%,$(3)) $(if $(filter world,$(call kind,$(1))),-lm)
endef
define test_program_cc
TESTS += native/$(call name,$(1))
$(B)/native/$(call name,$(1)): $(1) Makefile $(call objects_of,$(2))
	@mkdir -p $$(@D) && rm -f $$@
	@g++ -std=c++17 -g1 -O1 $(WARNINGS) -I. -Itests $(3) -MMD -MP -MF $$@.d -MT $$@ -o $$@ $(1) $(patsubst tests/%.cc,$(B)/%.o,$(2))
endef
# A source that a test links (`// links: tests/lemon_flow.cc`) is compiled once.
objects_of = $(patsubst tests/%.cc,$(B)/%.o,$(filter tests/%.cc,$(1)))
$(B)/lemon_flow.o: tests/lemon_flow.cc Makefile
	@mkdir -p $(@D) && rm -f $@
	@g++ -std=gnu++17 -g1 -O1 $(WARNINGS) -Itests -MMD -MP -MF $@.d -c -o $@ $<
TEST_OBJECTS += $(B)/lemon_flow.o
driver = $(if $(filter fuzz,$(call kind,$(1))),tests/fuzz/driver.c -DFUZZ_NAME='"$(notdir $(call name,$(1)))"')
$(foreach t,$(C_TESTS),$(foreach v,$(call variants,$t),\
    $(eval $(call $(if $(call has_own,$t),test_whole,test_linked),$t,$v,$(call says,$t,links),$(call says,$t,flags),$(call driver,$t)))))
$(foreach t,$(CC_TESTS),$(eval $(call test_program_cc,$t,$(call says,$t,links),$(call says,$t,flags))))
-include $(wildcard $(TESTS:%=$(B)/%.d) $(TESTS:%=$(B)/%.o.d))

programs: $(TESTS:%=$(B)/%)

# ---- make test: one graph; every test leaves a verdict ---------------------------------------------------------------

verdict = $(B)/verdict/$(subst /,_,$(1))
# With -n nothing runs. A script is handed the jobserver (+), so that all jobs together are $(JOBS).
dry := $(findstring n,$(filter-out --%,$(firstword -$(MAKEFLAGS))))
# $(1) name, $(2) command, $(3) what it needs
define test_run
$(call verdict,$(1)): $(3)
	+@$(if $(dry),echo,tests/run) one '$(1)' '$(2)'
endef
$(foreach t,$(TESTS),$(eval $(call test_run,$t,$($(firstword $(subst /, ,$t))_RUN) $(B)/$t,$(B)/$t)))
# As in make test, but at full length: the native runs that are shortened, and what a test says.
WHOLE := $(foreach t,$(C_TESTS),$(addprefix whole_,$(addsuffix /$(call name,$t),$(if $(call says,$t,scale),native) $(call says,$t,whole))))
$(foreach t,$(WHOLE),$(eval $(call test_run,$t,$(filter-out QOS_TEST_SCALE=%,$($(patsubst whole_%,%,$(firstword $(subst /, ,$t)))_RUN)) $(t:whole_%=$(B)/%),$(t:whole_%=$(B)/%))))
$(foreach t,$(filter i386/% whole_i386/%,$(TESTS) $(WHOLE)),$(eval $(call verdict,$t): $(B)/runs_i386))
# A script waits for the tools that it names; those of all tools for all.
uses = $(if $(filter %/help.sh,$(1)),$(EXAMPLES),$(filter $(EXAMPLES),$(addprefix $(B)/,$(sort $(call says,$(1),uses)))))
$(foreach s,$(SCRIPTS) $(REAL),$(eval $(call test_run,$(s:tests/%.sh=%),$s,$(call uses,$s))))
# A tool that compiles counts as a test, too.
define example_verdict
$(call verdict,$(1)): $(B)/$(1)
	@printf '%s\n' 'p 0 0' '$(1)' >$$@
endef
$(foreach e,$(EXAMPLES:$(B)/%=%),$(eval $(call example_verdict,$e)))
# Four lanes. Tests on real I/O run one after the other; so do, beside them, those that need less than a sixth of a processor.
# All other tests get the remaining processor time, by the scheduling policy `behind`, two more at a time than there are cores;
# so no core idles while a test waits for a disk or a clock. A browser waits most of its time: it has a lane of its own, behind.
# First the long ones and what coverage.sh and plants.sh wait for: make starts what has to wait last. Then these two, whose last
# bugs run alone for a while, before all others. A real test that is still inconclusive runs once more at the end, alone.
behind := $(shell chrt -i 0 true 2>/dev/null && echo chrt -i 0) nice -n 19
# The objects that these scripts use, too; coverage.sh counts what the sanitized tests have run.
SANITIZED := $(foreach t,$(filter san/%,$(TESTS)),$(call verdict,$t))
PLANTED := $(TEST_OBJECTS) $(WORLD:%.c=$(B)/native/%.o)
.PHONY: sanitized planted
sanitized: $(SANITIZED)
planted: $(PLANTED)
$(call verdict,build/coverage): $(SANITIZED)
$(call verdict,build/plants): $(PLANTED)
OBJECTS_stack := $(HEADERS:%.h=$(B)/bodies/native_%.o)
OBJECTS_checks := $(OBJECTS_stack)
OBJECTS_fuzzers := $(HEADERS:%.h=$(B)/bodies/san_%.o)
OBJECTS_link := $(HEADERS:%.h=$(B)/bodies/cxx_%.o)
OBJECTS_freestanding := $(foreach v,native $(CROSS),$(HEADERS:%.h=$(B)/bodies/$v_%.o))
$(foreach s,stack checks fuzzers link freestanding,$(eval $(call verdict,build/$s): $(OBJECTS_$s)))
.PHONY: objects-stack objects-freestanding
objects-stack: $(OBJECTS_stack)
objects-freestanding: $(OBJECTS_freestanding)
LONG := $(foreach s,proofs lint freestanding fuzzers flags headers,$(filter tests/build/$s.sh,$(SCRIPTS)))
BROWSER := $(filter tests/build/playground.sh,$(SCRIPTS))
NEXT := $(foreach s,plants coverage,$(filter tests/build/$s.sh,$(SCRIPTS)))
SIDE := $(LONG) $(NEXT) $(filter-out $(LONG) $(NEXT) $(BROWSER),$(SCRIPTS))
test-side: $(foreach t,$(SIDE:tests/%.sh=%) $(TESTS),$(call verdict,$t))
BESIDE := $(foreach s,$(REAL),$(if $(filter no,$(call says,$s,alone)),$s))
test-real: $(foreach t,$(filter-out $(BESIDE),$(REAL)),$(call verdict,$(t:tests/%.sh=%)))
test-beside: $(foreach t,$(BESIDE),$(call verdict,$(t:tests/%.sh=%)))
test-examples: $(foreach t,$(EXAMPLES:$(B)/%=%),$(call verdict,$t))
side-lane:
	@for goals in 'sanitized $(foreach s,$(LONG:tests/%.sh=%),$(call verdict,$s)) planted' test-side; do \
	    $(behind) $(MAKE) --no-print-directory -k -j$$(($(JOBS) + 2)) $$goals; done
real-lane:
	@$(MAKE) --no-print-directory -k -j1 test-real
beside-lane:
	@$(MAKE) --no-print-directory -k -j1 test-beside
browser-lane:
	@$(behind) $(MAKE) --no-print-directory -k -j1 $(foreach t,$(BROWSER:tests/%.sh=%),$(call verdict,$t))
.PHONY: $(B)/tests.list
$(B)/tests.list:
	@mkdir -p $(B)
	@printf '%s\n' $(TESTS) $(EXAMPLES:$(B)/%=%) $(SCRIPTS:tests/%.sh=%) $(REAL:tests/%.sh=%) >$@

test: ## runs all tests; ends with N passed, N failed, N skipped
	@tests/packages.sh test
	@rm -rf $(B)/verdict && mkdir -p $(B)/verdict
	@$(MAKE) --no-print-directory $(B)/tests.list
	@$(MAKE) --no-print-directory -k -j$(JOBS) test-examples 2>$(B)/compile.log || true
	@$(MAKE) --no-print-directory -k -j4 real-lane beside-lane browser-lane side-lane 3>&1 2>>$(B)/compile.log >&3 || true
	@tests/run again
	@tests/run sum $(B)/tests.list

.PHONY: checks
checks: ## counts the checks of each test into tests/checks.txt
	@tests/packages.sh test
	@$(MAKE) --no-print-directory $(B)/tests.list
	@rm -rf $(B)/verdict && mkdir -p $(B)/verdict
	@printf '%s\n' $(WHOLE) >>$(B)/tests.list
	@QOS_CHECKS=1 $(MAKE) --no-print-directory -k -j$(JOBS) $(foreach t,$(TESTS) $(WHOLE),$(call verdict,$t))
	@tests/run checks $(B)/tests.list

.PHONY: whole
whole: ## runs the tests that make test shortens, whole
	@rm -f $(foreach t,$(WHOLE),$(call verdict,$t))
	@$(MAKE) --no-print-directory -k -j$(JOBS) $(foreach t,$(WHOLE),$(call verdict,$t))
	@! for v in $(foreach t,$(WHOLE),$(call verdict,$t)); do grep -qs '^p' $$v || echo "$$v: not passed"; done | grep .

OF_HEADER = $(foreach t,$(filter native/%,$(TESTS)),$(if $(filter $(HEADER) $(HEADER)_%,$(notdir $t)),$t))
check: ## runs the native tests of one header: make check HEADER=htb
	@$(MAKE) -s --no-print-directory -j$(JOBS) $(OF_HEADER:%=$(B)/%)
	@for t in $(OF_HEADER); do $(B)/$$t || { echo "FAIL  $$t"; exit 1; }; done; echo "$(words $(OF_HEADER)) passed, 0 failed"

# The native tests in C that need no library, shortened; of the worlds one for each header.
QUICK = $(foreach t,$(HEADERS:%.h=tests/world/%.c) $(filter-out tests/world/% tests/adversary/% tests/fuzz/%,$(C_TESTS)),$(if $(call says,$t,links)$(filter-out native%,$(firstword $(call variants,$t))),,native/$(call name,$t)))
.PHONY: test-quick
test-quick: ## runs what needs a compiler only, in two minutes: N passed, N failed
	@mkdir -p $(B)/quick
	@$(MAKE) -s --no-print-directory -k -j$(JOBS) $(QUICK:%=$(B)/%) || true
	@printf '%s\n' $(QUICK) | xargs -P $(JOBS) -I {} bash -c 'log=$(B)/quick/$$(basename {}).log; if QOS_TEST_SCALE=60 $(B)/{} >$$log 2>&1; \
	    then echo "ok    {}"; else echo "FAIL  {}: $$log"; fi' | tee $(B)/quick/verdicts | grep -v '^ok' || true
	@awk '/^ok/ {ok++} !/^ok/ {bad++} END {printf "%d passed, %d failed\n", ok, bad; exit bad > 0 || ok == 0}' $(B)/quick/verdicts

.PHONY: world
world: ## runs a simulated world: HEADER=htb SEED=7; TRACE=1 shows and draws it
	@$(MAKE) -s --no-print-directory $(B)/native/world/$(HEADER)
	@$(B)/native/world/$(HEADER) --seed $(SEED)

CELLS ?= *
.PHONY: cells
cells: ## draws the grid of world/htb_cells, ten minutes, names the worst: CELLS='64*'
	@tests/packages.sh cells
	@$(MAKE) -s --no-print-directory $(B)/native/world/htb_cells
	@$(B)/native/world/htb_cells '$(CELLS)' >$(B)/htb_cells.txt || true
	@tests/cells.sh $(B)/htb_cells.txt $(B)/htb_cells.svg && echo $(B)/htb_cells.svg

plant: ## plants every bug of tests/plants/; a test must catch each (make test: 40)
	@tests/packages.sh plant
	@BASELINE=1 tests/build/plants.sh

fuzz: ## fuzzes one header: make fuzz HEADER=htb SECONDS=60
	@tests/packages.sh fuzz
	@HEADER=$(HEADER) SECONDS_EACH=$(SECONDS) tests/fuzz/run.sh

.PHONY: prove mutate
prove: ## runs all proofs by Frama-C (the short ones are part of make test)
	@tests/packages.sh prove
	@tests/build/proofs.sh all
	@tests/build/narrow.sh all
	@tests/build/commits_model.sh all
	@tests/build/owner_model.sh all
	@tests/build/epochs_model.sh all

N ?= 100
SEED ?= 1
mutate: ## changes one header at random; its tests must find it: HEADER=htb N=100 SEED=1
	@tests/packages.sh mutate
	@nice tests/mutate/mutate.py run $(HEADER) $(N) $(SEED)

# STEPS: those of tests/trust.sh; CASES: those of tests/under_load.sh, and -- with tests
.PHONY: trust test-under-load
trust: ## the long forms of the tests, in hours; goes on where it stopped: STEPS="fuzz"
	@tests/packages.sh test && tests/packages.sh trust
	@tests/trust.sh $(STEPS)
test-under-load: ## the real tests on busy cores and slow, stalling, fast disks: CASES="busy"
	@tests/packages.sh test
	@$(MAKE) --no-print-directory -j$(JOBS) examples
	@tests/under_load.sh $(CASES)

coverage: ## shows lines and branches of every header that no test reaches
	@tests/packages.sh coverage
	@tests/build/coverage.sh report

lint: ## runs clang-tidy and cppcheck and checks the formatting
	@tests/packages.sh lint
	@tests/build/lint.sh all

# ---- examples and benchmarks -----------------------------------------------------------------------------------------

COMMON_SOURCES := $(wildcard examples/common/*.c)
COMMON_OBJECTS := $(COMMON_SOURCES:examples/%.c=$(B)/examples/objects/%.o)
# $(1) objects, $(2) compiler, $(3) flags
define example_objects
$(1): $(B)/examples/objects/%.o: examples/%.c Makefile
	@mkdir -p $$(@D) && rm -f $$@
	@$(2) -std=gnu11 -O2 -g1 $(C_WARNINGS) -I. -Iexamples/common $(3) -MMD -MP -MF $$@.d -MT $$@ -c -o $$@ $$<
endef
# A tool of several sources is linked with one copy of the bodies, as docs/embedding.md describes; one of a single source has
# them inline.
several = $(word 2,$(wildcard examples/$(1)/*.c))
objects = $(patsubst examples/%.c,$(B)/examples/objects/%.o,$(wildcard examples/$(1)/*.c))
# $(1) tool, $(2) compiler, $(3) links, $(4) flags
define example_tool
$(call example_objects,$(filter-out $(SHARED_OBJECTS),$(call objects,$(1))),$(2),$(4) $(if $(several),-DQOS_DECLARE_ONLY))
$(B)/examples/$(1): $(sort $(call objects,$(1)) $(if $(call says,examples/$(1)/main.c,shares),$(SHARED_OBJECTS))) $(COMMON_OBJECTS) $(filter %.c,$(3)) $(if $(several),$(HEADERS:%.h=$(B)/bodies/native_%.o))
	@rm -f $$@
	@$(2) $(4) -O2 -o $$@ $$(filter %.o,$$^) $(3) -lm
endef
$(eval $(call example_objects,$(COMMON_OBJECTS),gcc))
# What the tools of a cluster share.
SHARED_OBJECTS := $(filter-out %/main.o,$(call objects,cluster_agent))
$(eval $(call example_objects,$(SHARED_OBJECTS),gcc,-D_GNU_SOURCE -DQOS_DECLARE_ONLY))
$(foreach t,$(TOOLS),$(eval $(call example_tool,$t,$(or $(call says,examples/$t/main.c,compiler),gcc),$(call says,examples/$t/main.c,links),$(call says,examples/$t/main.c,flags))))

# A quickstart is one file to copy: it uses nothing of examples/common.
# $(1) source, $(2) compiler, $(3) links, $(4) flags
define quickstart_program
$(B)/examples/quickstart_$(basename $(notdir $(1))): $(1) Makefile
	@mkdir -p $$(@D) && rm -f $$@
	@$(2) -std=gnu11 -O2 -g1 $(C_WARNINGS) -I. $(4) -MMD -MP -MF $$@.d -o $$@ $(1) $(3)
endef
$(foreach q,$(QUICKSTARTS),$(eval $(call quickstart_program,$q,$(or $(call says,$q,compiler),gcc),$(call says,$q,links),$(call says,$q,flags))))

-include $(wildcard $(B)/examples/quickstart_*.d $(B)/examples/objects/*/*.d)
# A renamed source is still in the old dependency file: this rule lets make rebuild its program.
examples/%.c: ;
examples: $(EXAMPLES) ## builds the tools of examples/ into build/examples/

BENCHES := $(basename $(notdir $(BENCH_SOURCES)))
BENCH_FLAGS := -O3
define bench_program
$(B)/bench/$(basename $(notdir $(1))): $(1) Makefile
	@mkdir -p $$(@D) && rm -f $$@
	@$(if $(filter %.cc,$(1)),g++ -std=c++17 $(WARNINGS),gcc -std=gnu11 $(C_WARNINGS)) $(BENCH_FLAGS) -DBENCH_FLAGS='"$(BENCH_FLAGS)"' -I. -Ibench $(3) -MMD -MP -MF $$@.d -o $$@ $(1) $(2) -lm
endef
$(foreach b,$(BENCH_SOURCES),$(eval $(call bench_program,$b,$(call says,$b,links),$(call says,$b,flags))))
-include $(wildcard $(BENCHES:%=$(B)/bench/%.d))

bench-programs: $(BENCHES:%=$(B)/bench/%) examples

bench: ## measures everything, each beside its peer, into build/bench/
	@tests/packages.sh bench
	@$(MAKE) --no-print-directory -j$(JOBS) bench-programs
	@set -e; for b in $(BENCHES); do $(B)/bench/$$b --json $(B)/bench/$$b.jsonl; done
	@set -e; for s in $(filter-out bench/report.sh,$(wildcard bench/*.sh bench/kernel/*.sh)); do $$s; done

bench-quick: ## measures the headers, each beside its peer, in three minutes
	@tests/packages.sh bench
	@$(MAKE) --no-print-directory -j$(JOBS) $(BENCHES:%=$(B)/bench/%)
	@set -e; for b in $(BENCHES); do $(B)/bench/$$b --quick --json $(B)/bench/$$b.jsonl; done

.PHONY: report
report: bench-quick ## measures the headers and writes docs/measurements.md
	@bench/report.sh docs/measurements.md

# bench/figures/X.sh draws what build/bench/X measures or simulate X and examples/X run.
FIGURES := $(filter-out %/index.sh %/check.sh,$(sort $(wildcard bench/figures/*.sh)))
figures: ## draws the papers' figures from our runs: build/figures/index.html
	@tests/packages.sh bench
	@$(MAKE) --no-print-directory -j$(JOBS) bench-programs
	@mkdir -p $(B)/figures
	@set -e; for s in $(FIGURES); do $$s $(B)/figures; done
	@bench/figures/index.sh $(B)/figures
	@if tests/packages.sh figures; then bench/figures/check.sh $(B)/figures; \
	else echo "$(B)/figures/index.html was not checked in a browser"; fi

.PHONY: playground
playground: ## builds one HTML page: the headers in the browser: build/playground.html
	@tests/packages.sh playground
	@examples/playground/build.sh $(B)/playground.html

demo: ## runs four tenants on this disk, without and with a scheduler, in a minute
	@tests/packages.sh demo
	@$(MAKE) --no-print-directory $(B)/examples/uring_files
	@mkdir -p $(B)/demo
	@examples/uring_files/demo.sh $(B)/demo

endif
