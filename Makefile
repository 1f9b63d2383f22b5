# baltoro's build. Wants GNU Make 4, gcc or clang, and what tools/install_deps.sh installs; `make help` lists the targets.
#
# One run of make builds one variant: BUILD names its folder, and DEFS, SAN, CFLAGS, WERROR its flags. Targets that need
# another variant (test, asan, tsan, fuzz, check) call make again with another BUILD:
#
#   build/        what people run: program, static and shared library
#   build/test/   the same with BT_TEST_BUILD: faults can be planted there (--ablate, failing allocations)
#   build/asan/  build/ubsan/  build/tsan/  build/fuzz/   the test build under a sanitizer
#
# Nothing here asks a compiler or pkg-config before tools/install_deps.sh has run: both are asked inside recipes, so the
# first make on a bare machine works. A changed flag or a removed source rebuilds what it touches (see "stamps").

BUILD   ?= build
PREFIX  ?= /usr/local
DESTDIR ?=
CFLAGS  ?=
LDFLAGS ?=
WERROR  ?=
DEFS    ?=
SAN     ?=
V       ?=
ARGS    ?=
T       ?=
SECONDS ?= 60
ENGINE  ?=

# As many jobs as there are cores, unless -j says otherwise.
ifeq ($(MAKELEVEL),0)
MAKEFLAGS += -j$(shell nproc) --no-print-directory
endif
MAKEFLAGS += --no-builtin-rules
.DELETE_ON_ERROR:
.DEFAULT_GOAL := all
SHELL := /bin/sh
Q     := $(if $(V),,@)
comma := ,

VERSION := $(shell sed -n 's/^\#define BT_VERSION "\(.*\)"/\1/p' include/baltoro.h)
SO_NAME := libbaltoro.so.$(firstword $(subst ., ,$(VERSION)))
SO_FILE := libbaltoro.so.$(VERSION)
MACHINE := $(shell uname -m)

# ---- flags ---------------------------------------------------------------------------------------------------------

STANDARD := -std=c11 -D_GNU_SOURCE -O2 -g -fno-common -fvisibility=hidden -ffp-contract=off -fPIC -pthread
WARNINGS := -Wall -Wextra -Wshadow -Wconversion -Wsign-conversion -Wvla -Wstrict-prototypes -Wmissing-prototypes \
            -Wundef -Wpointer-arith -Wcast-qual -Wwrite-strings -Wdouble-promotion -Wformat=2

# pkg-config is asked once, at the first use. The library itself links only what it needs: none of the program's packages.
PKGS     := libpcre2-8 libutf8proc jansson
APP_PKGS := libedit
once       = $(eval $(1) := $$(shell $(2)))$($(1))
PKG_CFLAGS = $(call once,PKG_CFLAGS,pkg-config --cflags $(PKGS) $(APP_PKGS))
PKG_LIBS   = $(call once,PKG_LIBS,pkg-config --libs $(PKGS) $(APP_PKGS))
LIBS       = $(PKG_LIBS) -lm -pthread
UNIT_LIBS  = $(call once,UNIT_LIBS,pkg-config --libs cmocka)

ALL_CPPFLAGS = -Iinclude -Isrc $(DEFS) $(OWN_DEFS) $(PKG_CFLAGS) $(CPPFLAGS)
ALL_CFLAGS   = $(STANDARD) $(WARNINGS) $(PEDANTIC) $(WERROR) $(SAN) $(CFLAGS)
COMPILE      = $(CC) $(ALL_CPPFLAGS) $(ALL_CFLAGS) $(ISA) -MMD -MP
LINK         = $(CC) $(ALL_CFLAGS) $(LDFLAGS) -Wl,--as-needed

# Plain C11, but in src/kernel. There, only files named x86_* get instruction sets beyond the baseline, each its own. Of
# several names that fit, the longest wins.
AVX2       := -mavx2 -mfma -mf16c
AVX512     := $(AVX2) -mavx512f -mavx512bw -mavx512dq -mavx512vl
AVX512VNNI := $(AVX512) -mavx512vnni -mavx512bf16
AMX        := $(AVX512VNNI) -mamx-tile -mamx-bf16 -mamx-int8
KERNELS    := $(BUILD)/obj/kernel
$(BUILD)/obj/%.o:             PEDANTIC := -Wpedantic
$(KERNELS)/%.o:               PEDANTIC :=
$(KERNELS)/scalar%:           ISA := -O3
$(KERNELS)/x86_avx2%:         ISA := -O3 $(AVX2)
$(KERNELS)/x86_avx512%:       ISA := -O3 $(AVX512)
$(KERNELS)/x86_avx512vnni%:   ISA := -O3 $(AVX512VNNI)
$(KERNELS)/x86_amx%:          ISA := -O3 $(AMX)

# ---- sources -------------------------------------------------------------------------------------------------------

# libbaltoro is what baltoro.h promises; tool/ and app/ belong to the program. Everything but main.c is in internal.a,
# which unit tests link, so that they can reach any function that has a header.
SOURCES  := $(sort $(wildcard src/*/*.c src/*/*/*.c))
ifneq ($(MACHINE),x86_64)
SOURCES  := $(filter-out src/kernel/x86_%,$(SOURCES))
endif
ifneq ($(MACHINE),aarch64)
SOURCES  := $(filter-out src/kernel/neon%,$(SOURCES))
endif
objects   = $(patsubst src/%.c,$(BUILD)/obj/%.o,$(1))
LIB_OBJ  := $(call objects,$(filter-out src/app/% src/tool/%,$(SOURCES)))
APP_OBJ  := $(call objects,$(filter src/app/% src/tool/%,$(SOURCES)))
MAIN_OBJ := $(BUILD)/obj/app/main.o

# tests/unit/test_X.c, tests/fuzz/fuzz_X.c: one program each; other .c files beside them are shared by all.
tests     = $(patsubst tests/%.c,$(BUILD)/tests/%.o,$(wildcard $(1)))
UNIT_OBJ := $(call tests,tests/unit/test_*.c)
UNIT_AID := $(filter-out $(UNIT_OBJ),$(call tests,tests/unit/*.c))
UNIT_BIN := $(UNIT_OBJ:$(BUILD)/tests/unit/%.o=$(BUILD)/unit/%)
FUZZ_OBJ := $(call tests,tests/fuzz/fuzz_*.c)
FUZZ_AID := $(filter-out $(FUZZ_OBJ),$(call tests,tests/fuzz/*.c))
FUZZ_BIN := $(FUZZ_OBJ:$(BUILD)/tests/fuzz/fuzz_%.o=$(BUILD)/replay/%)
KERN_OBJ := $(call tests,tests/kernels/*.c)
KERN_BIN := $(if $(KERN_OBJ),$(BUILD)/check-kernels)
OBJECTS  := $(LIB_OBJ) $(APP_OBJ) $(UNIT_OBJ) $(UNIT_AID) $(FUZZ_OBJ) $(FUZZ_AID) $(KERN_OBJ)

# What bench reports as the source's state; asked only where that file is compiled.
$(BUILD)/obj/tool/bench_report.o: private OWN_DEFS := -DBT_COMMIT='"$(shell git rev-parse --short HEAD 2>/dev/null || echo unknown)"'
$(BUILD)/obj/tool/bench_report.o: $(wildcard .git/logs/HEAD)

# ---- building ------------------------------------------------------------------------------------------------------

## all: program and libraries in build/ (the default)
.PHONY: all
all: $(BUILD)/baltoro $(BUILD)/libbaltoro.a $(BUILD)/libbaltoro.so

## programs: the program, and every test program
.PHONY: programs
programs: $(BUILD)/baltoro $(UNIT_BIN) $(FUZZ_BIN) $(KERN_BIN)

$(BUILD)/obj/%.o: src/%.c $(BUILD)/flags
	@mkdir -p $(@D)
	$(if $(V),,@echo '  CC    $@')
	$(Q)$(COMPILE) -c $< -o $@

$(BUILD)/tests/%.o: tests/%.c $(BUILD)/flags
	@mkdir -p $(@D)
	$(if $(V),,@echo '  CC    $@')
	$(Q)$(COMPILE) -Itests/unit -c $< -o $@

$(BUILD)/libbaltoro.a: $(LIB_OBJ) $(BUILD)/sources
$(BUILD)/internal.a:   $(filter-out $(MAIN_OBJ),$(APP_OBJ)) $(BUILD)/sources
$(BUILD)/libbaltoro.a $(BUILD)/internal.a:
	$(if $(V),,@echo '  AR    $@')
	$(Q)rm -f $@ && ar rcs $@ $(filter %.o,$^)

define link
	@mkdir -p $(@D)
	$(if $(V),,@echo '  LINK  $@')
	$(Q)$(LINK) -o $@ $(filter %.o %.a,$^) $(1) $(LIBS)
endef

PARTS := $(BUILD)/internal.a $(BUILD)/libbaltoro.a
$(BUILD)/baltoro: $(MAIN_OBJ) $(PARTS)
	$(call link)

$(BUILD)/$(SO_FILE): $(LIB_OBJ) $(BUILD)/sources
	$(if $(V),,@echo '  LINK  $@')
	$(Q)$(LINK) -shared -Wl,-soname,$(SO_NAME) $(if $(SAN),,-Wl,--no-undefined) -o $@ $(LIB_OBJ) $(LIBS)

$(BUILD)/libbaltoro.so: $(BUILD)/$(SO_FILE)
	$(Q)ln -sf $(SO_FILE) $(BUILD)/$(SO_NAME) && ln -sf $(SO_NAME) $@

$(UNIT_BIN): $(BUILD)/unit/%: $(BUILD)/tests/unit/%.o $(UNIT_AID) $(PARTS)
	$(call link,$(UNIT_LIBS))

$(FUZZ_BIN): $(BUILD)/replay/%: $(BUILD)/tests/fuzz/fuzz_%.o $(FUZZ_AID) $(PARTS)
	$(call link)

$(BUILD)/check-kernels: $(KERN_OBJ) $(PARTS)
	$(call link)

# Stamps: files whose time changes when their content does. Objects depend on the flags, archives on the list of sources,
# flags on the dependencies, which are looked at again when the script that installs them changes. The program alone needs
# fewer of them than the tests do.
.PHONY: FORCE
FORCE:
define stamp
	@mkdir -p $(@D)
	@printf '%s\n' '$(1)' | cmp -s - $@ || printf '%s\n' '$(1)' >$@
endef

FOR_USERS := all demo install uninstall clean help
DEPS      := build/dependencies-$(if $(filter-out $(FOR_USERS),$(MAKECMDGOALS)),test,build)
build/dependencies-%: tools/install_deps.sh
	$(Q)tools/install_deps.sh $*
	@mkdir -p $(@D) && touch $@

$(BUILD)/flags: FORCE | $(DEPS)
	$(call stamp,$(COMPILE) $(AMX) $(LDFLAGS))

$(BUILD)/sources: FORCE
	$(call stamp,$(SOURCES))

-include $(wildcard $(OBJECTS:.o=.d))

# ---- running -------------------------------------------------------------------------------------------------------

REAL   := build/real/smollm2-135m-instruct
PROMPT ?= Once upon a time, in a village by the sea, there lived

## demo: shows the small models of this repository completing, thinking, writing JSON and calling a tool
.PHONY: demo
demo: all
	@tools/demo/show.sh $(BUILD)/baltoro

## real: fetches a real model (93 MB), lays it out as a Hugging Face folder in build/real/, and lets it write
.PHONY: real
real: all $(REAL)/config.json
	$(BUILD)/baltoro run $(REAL) -p '$(PROMPT)' -n 64 --temperature 0

$(REAL)/config.json: tools/real.sh tools/gguf_to_hf.py | $(DEPS)
	tools/real.sh build && touch $@

# ---- testing -------------------------------------------------------------------------------------------------------

TEST_DEFS := -DBT_TEST_BUILD=1
variant    = $(MAKE) BUILD=$(1) DEFS=$(TEST_DEFS) SAN='$(2)' programs

## test: every test but the sanitizers'; T=name picks those whose name holds it
.PHONY: test
test: all
	+@$(call variant,$(BUILD)/test,$(SAN))
	@BALTORO=$(BUILD)/baltoro BALTORO_TEST=$(BUILD)/test/baltoro tools/run_tests.sh $(BUILD)/test '$(T)'

## asan: the tests under AddressSanitizer and UndefinedBehaviorSanitizer
## ubsan: the tests under UndefinedBehaviorSanitizer alone
## tsan: the tests of threaded code under ThreadSanitizer
.PHONY: asan ubsan tsan
asan:  SAN := -fsanitize=address,undefined -fno-sanitize-recover=all
ubsan: SAN := -fsanitize=undefined,float-cast-overflow -fno-sanitize-recover=all
tsan:  SAN := -fsanitize=thread
asan ubsan tsan:
	+@$(call variant,$(BUILD)/$@,$(SAN))
	@BALTORO=$(BUILD)/$@/baltoro BALTORO_TEST=$(BUILD)/$@/baltoro SANITIZER=$@ tools/run_tests.sh $(BUILD)/$@ '$(T)'

## check-kernels: every kernel at every CPU level against scalar, with benchmark; ARGS= goes to the program
.PHONY: check-kernels
check-kernels: $(BUILD)/check-kernels
	$(BUILD)/check-kernels $(ARGS)

## check: include law, style, symbols, headers, format, static analysis, and -Werror builds with gcc and clang
.PHONY: check
check: all
	@tools/check_all.sh $(BUILD)

## fuzz: libFuzzer (clang), or with ENGINE=afl AFL++, on every reader of outside bytes; T=name picks one, SECONDS=each
# Both call LLVMFuzzerTestOneInput; AFL++'s driver does so in one process, as libFuzzer does.
.PHONY: fuzz
fuzz:
	@tools/install_deps.sh clang
	+@$(MAKE) CC=$(if $(filter afl,$(ENGINE)),afl-clang-fast,clang) BUILD=$(BUILD)/fuzz$(ENGINE:%=-%) DEFS=$(TEST_DEFS) \
	    FUZZ_AID= LDFLAGS=-fsanitize=fuzzer fuzz-programs \
	    SAN='-fsanitize=address,undefined$(if $(ENGINE),,$(comma)fuzzer-no-link) -fno-sanitize-recover=all'
	@tools/run_fuzz.sh $(BUILD)/fuzz$(ENGINE:%=-%)/replay $(SECONDS) $(T)

.PHONY: fuzz-programs
fuzz-programs: $(FUZZ_BIN)

## fuzz-replay: runs the stored corpus through the same readers, without a fuzzing engine
.PHONY: fuzz-replay
fuzz-replay:
	+@$(call variant,$(BUILD)/test,)
	@SUITES=fuzz tools/run_tests.sh $(BUILD)/test '$(T)'

## acceptance: the owners' acceptance program and fixtures, where ../shared is there
.PHONY: acceptance
acceptance: all
	@tools/run_acceptance.sh $(BUILD)/baltoro

# ---- installing ----------------------------------------------------------------------------------------------------

LIBDIR ?= $(PREFIX)/lib
SHARE  ?= $(PREFIX)/share
DEMO   := $(wildcard models/demo-*/*.*)

# What stands where: $(call FILES,put) installs it, $(call FILES,drop) removes it. Paths may hold spaces, so this is no list
# of words.
put  = install -D -m $(1) $(2) $(call quoted,$(DESTDIR)$(3))
drop = rm -f $(call quoted,$(DESTDIR)$(3))
quoted = '$(subst ','\'',$(1))'
define FILES
	$(call $(1),755,$(BUILD)/baltoro,$(PREFIX)/bin/baltoro)
	$(call $(1),644,include/baltoro.h,$(PREFIX)/include/baltoro.h)
	$(call $(1),644,$(BUILD)/libbaltoro.a,$(LIBDIR)/libbaltoro.a)
	$(call $(1),755,$(BUILD)/$(SO_FILE),$(LIBDIR)/$(SO_FILE))
	$(call $(1),644,$(BUILD)/share/baltoro.pc,$(LIBDIR)/pkgconfig/baltoro.pc)
	$(call $(1),644,$(BUILD)/share/baltoro.1,$(SHARE)/man/man1/baltoro.1)
	$(call $(1),644,$(BUILD)/share/baltoro.bash,$(SHARE)/bash-completion/completions/baltoro)
	$(call $(1),644,$(BUILD)/share/_baltoro,$(SHARE)/zsh/site-functions/_baltoro)
	$(call $(1),644,$(BUILD)/share/baltoro.fish,$(SHARE)/fish/vendor_completions.d/baltoro.fish)
	$(foreach f,$(DEMO),$(call $(1),644,$(f),$(SHARE)/baltoro/$(f:models/%=%)) && )true
endef

# As pkg-config reads a path.
empty    :=
hash     := \#
escaped   = $(subst $(empty) ,\ ,$(subst ',\',$(subst ",\",$(subst $(hash),\$(hash),$(subst \,\\,$(1))))))
define PC
prefix=$(call escaped,$(PREFIX))
libdir=$(call escaped,$(LIBDIR))
includedir=$(call escaped,$(PREFIX))/include

Name: baltoro
Description: Runs K2-Horizon, Kimi and Llama checkpoints on the CPU
Version: $(VERSION)
Cflags: -I$${includedir}
Libs: -L$${libdir} -lbaltoro
Libs.private: -lm -pthread
Requires.private: $(PKGS)
endef

# Man page and completions are written by the program, from the table that also drives its options.
PAGES := baltoro.1 baltoro.bash _baltoro baltoro.fish
$(PAGES:%=$(BUILD)/share/%): $(BUILD)/baltoro
	@mkdir -p $(@D)
	$(if $(V),,@echo '  HELP  $@')
	$(Q)$(BUILD)/baltoro help $(HELP) >$@
$(BUILD)/share/baltoro.1:    HELP := --man
$(BUILD)/share/baltoro.bash: HELP := --completion bash
$(BUILD)/share/_baltoro:     HELP := --completion zsh
$(BUILD)/share/baltoro.fish: HELP := --completion fish

## install: program, libraries, header, pkg-config file, demo models, man page, completions below DESTDIR and PREFIX
.PHONY: install
install: all $(PAGES:%=$(BUILD)/share/%)
	$(file >$(BUILD)/share/baltoro.pc,$(PC))
	$(call FILES,put)
	ln -sf $(SO_FILE) $(call quoted,$(DESTDIR)$(LIBDIR)/$(SO_NAME))
	ln -sf $(SO_NAME) $(call quoted,$(DESTDIR)$(LIBDIR)/libbaltoro.so)

## uninstall: removes what install put there
.PHONY: uninstall
uninstall:
	$(call FILES,drop)
	rm -f $(call quoted,$(DESTDIR)$(LIBDIR)/$(SO_NAME)) $(call quoted,$(DESTDIR)$(LIBDIR)/libbaltoro.so)
	rmdir $(foreach d,$(sort $(dir $(DEMO))),$(call quoted,$(DESTDIR)$(SHARE)/baltoro/$(d:models/%/=%))) \
	    $(call quoted,$(DESTDIR)$(SHARE)/baltoro) 2>/dev/null || true

## clean: removes build/
.PHONY: clean
clean:
	rm -rf build

## help: this list
.PHONY: help
help:
	@sed -n 's/^## \([a-z-]*\): \(.*\)/\1\t\2/p' Makefile | expand -t 16
