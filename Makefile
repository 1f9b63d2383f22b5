# baltoro. `make help` lists the targets. GNU Make, gcc or clang, Debian's libraries (tools/install_deps.sh).

CC       ?= cc
BUILD    ?= build
PREFIX   ?= /usr/local
DESTDIR  ?=
WERROR   ?=
V        ?=

PKGS     := libpcre2-8 libutf8proc jansson
COMMON   := -std=c11 -D_GNU_SOURCE -O2 -g -fno-common -fvisibility=hidden -ffp-contract=off -fPIC -pthread -MMD -MP
WARNINGS := -Wall -Wextra -Wshadow -Wconversion -Wsign-conversion -Wvla -Wstrict-prototypes -Wmissing-prototypes \
            -Wundef -Wpointer-arith -Wcast-qual -Wwrite-strings -Wdouble-promotion -Wformat=2
CPPFLAGS += -Iinclude -Isrc $(shell pkg-config --cflags $(PKGS) 2>/dev/null)
LDLIBS   += $(shell pkg-config --libs $(PKGS) 2>/dev/null) -lm -pthread

SAN      ?=
ALL_CFLAGS = $(COMMON) $(WARNINGS) $(WERROR) $(SAN) $(CFLAGS)

# One object per source; only files named x86_* get instruction sets beyond the baseline.
SOURCES  := $(wildcard src/*/*.c src/*/*/*.c)
LIB_SRC  := $(filter-out src/app/%,$(SOURCES))
APP_SRC  := $(filter src/app/%,$(SOURCES))
LIB_OBJ  := $(LIB_SRC:src/%.c=$(BUILD)/obj/%.o)
APP_OBJ  := $(APP_SRC:src/%.c=$(BUILD)/obj/%.o)
UNIT_SRC := $(wildcard tests/unit/test_*.c)
UNIT_BIN := $(UNIT_SRC:tests/unit/%.c=$(BUILD)/unit/%)

$(BUILD)/obj/kernel/scalar%.o:     ISA := -O3
$(BUILD)/obj/kernel/x86_avx2%.o:   ISA := -O3 -mavx2 -mfma -mf16c
$(BUILD)/obj/kernel/x86_avx512%.o: ISA := -O3 -mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx2 -mfma -mf16c

.PHONY: all
all: $(BUILD)/baltoro $(BUILD)/libbaltoro.a $(BUILD)/libbaltoro.so

$(BUILD)/obj/%.o: src/%.c
	@mkdir -p $(@D)
	$(CC) $(CPPFLAGS) $(ALL_CFLAGS) $(ISA) -c $< -o $@

$(BUILD)/libbaltoro.a: $(LIB_OBJ)
	rm -f $@ && ar rcs $@ $^

$(BUILD)/libbaltoro.so: $(LIB_OBJ)
	$(CC) $(ALL_CFLAGS) -shared -Wl,-soname,libbaltoro.so.0 -o $@ $^ $(LDLIBS)

$(BUILD)/baltoro: $(APP_OBJ) $(BUILD)/libbaltoro.a
	$(CC) $(ALL_CFLAGS) -o $@ $^ $(LDLIBS)

$(BUILD)/unit/%: tests/unit/%.c $(BUILD)/libbaltoro.a
	@mkdir -p $(@D)
	$(CC) $(CPPFLAGS) -Itests/unit $(ALL_CFLAGS) -o $@ $< $(BUILD)/libbaltoro.a -lcmocka $(LDLIBS)

-include $(shell find $(BUILD) -name '*.d' 2>/dev/null)
