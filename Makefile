# atlasc: one Makefile, wildcard sources, every output under $(BUILD).
#   make          the two commands and the library      make demo    from checkpoint to text
#   make test     everything that needs no GPU          make help    the other targets
VERSION := 0.1.0
DATE := 2026-11-28
MAKEFLAGS += -r $(if $(filter 0,$(MAKELEVEL)),-j$(shell nproc))
$(if $(word 2,$(CURDIR)),$(error make takes words apart at spaces: move the tree out of "$(CURDIR)"))
.DELETE_ON_ERROR:
.SECONDEXPANSION:

BUILD ?= build
VENV ?= build/venv
PREFIX ?= /usr/local

# CUDA: a toolkit that has NVRTC 13, else (or with CUDA_HOME=none) the wheels that `make deps` unpacks.
WHEELS := build/deps/cuda
CUDA_HOME ?= /usr/local/cuda $(wildcard /usr/local/cuda-13*) \
	$(patsubst %/bin/nvcc,%,$(realpath $(shell command -v nvcc)))
CUDA_ROOT := $(firstword $(foreach d,$(CUDA_HOME),$(if $(and $(wildcard $(d)/include/nvrtc.h),\
	$(wildcard $(d)/include/cuda.h),$(wildcard $(d)/lib*/libnvrtc.so.13)),$(d))) $(WHEELS)/nvidia/cu13)
NVRTC := $(firstword $(wildcard $(CUDA_ROOT)/lib*/libnvrtc.so.13) $(CUDA_ROOT)/lib/libnvrtc.so.13)
# Where a program that is put into the folder of $@ finds NVRTC; wheels relative to it, so that the tree can be moved.
NVRTC_RPATH = $(if $(filter build/%,$(NVRTC)),$$ORIGIN/$(shell realpath -m \
	--relative-to=$(if $(filter flags,$@),$(BUILD),$(@D)) $(dir $(NVRTC))),$(patsubst %/,%,$(dir $(NVRTC))))
LLVM := $(patsubst %/include/clang-c,%,$(firstword $(wildcard $(addsuffix /include/clang-c,\
	/usr/lib/llvm-19 /usr/lib/llvm-14))))
DEPS = CC="$(CC)" CUDA_ROOT="$(CUDA_ROOT)" WHEELS="$(WHEELS)" VENV="$(VENV)" scripts/deps.sh

WARN := -Wall -Wextra -Werror -Wshadow -Wmissing-prototypes -Wvla
CFLAGS := -std=c11 -D_GNU_SOURCE -O2 -g -ffunction-sections -fdata-sections $(WARN) -fPIC -ffp-contract=off -fstack-protector-strong \
	-ffile-prefix-map=$(CURDIR)=. $(addprefix -fsanitize=,$(SANITIZE)) \
	$(if $(SANITIZE),-DARENA_MALLOC -fno-omit-frame-pointer -fno-sanitize-recover=all,-D_FORTIFY_SOURCE=2)
CPPFLAGS := -I. -isystem $(CUDA_ROOT)/include -DATLAS_VERSION='"$(VERSION)"' -DATLAS_DATE='"$(DATE)"'
LDFLAGS := -Wl,--as-needed -Wl,-z,relro,-z,now $(addprefix -fsanitize=,$(SANITIZE))
RUNTIME_LIBS := -l:libcrypto.a -l:libsodium.a -lm -ldl -lpthread
# Line editing of atlas chat: libedit (BSD) and what it needs.
EDIT_LIBS := -l:libedit.a -l:libtinfo.a -l:libbsd.a -l:libmd.a
SERVE_LIBS := -l:libevent_core.a -l:libjansson.a
COMPILER_LIBS = -l:libevent_core.a -l:libjansson.a -l:libmsgpackc.a $(EDIT_LIBS) $(RUNTIME_LIBS) $(NVRTC) \
	-Wl,-rpath,'$$ORIGIN/../lib/atlasc:$(NVRTC_RPATH)'

# A short line per output; V=1 shows the commands.
q = $(if $(V),,@printf '  %-9s %s\n' $(1) $@;)
obj = $(patsubst %.c,$(BUILD)/obj/%.o,$(1))
GEN := $(addprefix $(BUILD)/gen/,kernel_table.o family_toml.o tuning_toml.o)
ARTIFACTS := $(call obj,$(wildcard artifacts/*.c))
COMPILER := $(call obj,$(filter-out compiler/kernelgen/%,$(wildcard compiler/*.c compiler/*/*.c models/*/*.c))) $(GEN)
RUNTIME := $(call obj,$(wildcard runtime/*.c runtime/cpu/*.c runtime/ranks/*.c runtime/text/*.c)) \
	$(filter-out %/plan_write.o %/new_file.o %/manual.o,$(ARTIFACTS))
CLI := $(BUILD)/gen/page_text.o $(call obj,$(wildcard runtime/cli/*.c runtime/cli/*/*.c runtime/meet/*.c runtime/serve/*.c \
	runtime/grammar/*.c artifacts/manual.c artifacts/new_file.c))
KERNELGEN := $(call obj,$(wildcard compiler/kernelgen/*.c compiler/base.c $(addprefix artifacts/,expr.c hash.c tables.c)))
TEST_C := $(filter-out tests/gpu/% tests/mutation/without.c,$(wildcard tests/*/*.c))
TEST_SRC := $(if $(TEST_C),$(shell grep -l '^int main\>' $(TEST_C)))
TESTS := $(addprefix $(BUILD)/tests/,$(basename $(notdir $(TEST_SRC))))
GPU_TEST := $(if $(wildcard tests/gpu/*.c),$(BUILD)/tests-gpu/kernel_test)
API_TEST := $(patsubst tests/%.c,$(BUILD)/tests/%,$(wildcard tests/api_example.c))
HAS_MAIN := $(call obj,$(shell grep -l '^int main\>' compiler/*.c runtime/cli/*.c 2>/dev/null))
MAP := $(firstword $(wildcard runtime/atlas.map) $(BUILD)/gen/atlas.map)
PRODUCTS := $(addprefix $(BUILD)/,atlasc atlas libatlas.a libatlas.so share)

.PHONY: all deps ready tests test test-long test-quick test-fresh check demo format hooks rekey retune-needed golden fuzz \
	compile_commands.json asan test-asan mutate published gpu-report lines install deb flags clean help
all: $(PRODUCTS) ## the two commands and the library

ready:
	@$(DEPS) check build

$(BUILD)/obj/%.o: %.c Makefile | ready
	@mkdir -p $(@D)
	$(call q,cc)$(CC) $(CPPFLAGS) $(CFLAGS) -MMD -MP -c -o $@ $<
$(BUILD)/obj/compiler/kernelgen/%.o: CPPFLAGS += -isystem $(LLVM)/include
# libatlas.so shall be small; only what computes is built for speed. Debuggers unwind by .debug_frame, which -g leaves.
SMALL := -fno-asynchronous-unwind-tables -fno-move-loop-invariants -fno-ipa-sra -fno-ipa-cp -fipa-pta
$(BUILD)/obj/artifacts/%.o $(BUILD)/obj/runtime/%.o: CFLAGS += $(if $(SANITIZE),,-Oz $(SMALL))
$(addprefix $(BUILD)/obj/,artifacts/random_weights.o artifacts/numbers.o runtime/cpu/%.o runtime/grammar/%.o): CFLAGS += -O2 $(if $(SANITIZE),,-fmove-loop-invariants -fipa-sra -fipa-cp -fno-ipa-pta)
$(addprefix $(BUILD)/obj/runtime/cpu/,device_cpu.o ref_delta.o ref_experts.o ref_fused.o ref_draft.o ref_slots.o): CFLAGS += -Oz
$(BUILD)/obj/tests/%.o: CFLAGS += -Wno-missing-prototypes
$(BUILD)/obj/tests/api_example.o: CPPFLAGS += -Iruntime

$(BUILD)/kernelgen: $(KERNELGEN)
	$(call q,link)$(CC) $(LDFLAGS) -o $@ $^ $(firstword $(wildcard $(LLVM)/lib/libclang.so*)) $(RUNTIME_LIBS)
$(BUILD)/gen/kernel_table.c: $(BUILD)/kernelgen $(wildcard kernels/templates/*/*.cu*)
	@mkdir -p $(@D)
	$(call q,kernelgen)$(BUILD)/kernelgen -o $@ $(sort $(wildcard kernels/templates/*/*.cu))
$(BUILD)/gen/%_toml.c: scripts/embed_text.sh $(wildcard models/*.toml kernels/tuning/*.toml)
	@mkdir -p $(@D)
	$(call q,embed)scripts/embed_text.sh $*_toml $(sort $(filter $(if $(filter family,$*),models,kernels)/%,$^)) >$@
$(BUILD)/gen/page_text.c: scripts/embed_text.sh $(wildcard $(addprefix runtime/cli/page/page.,css js) runtime/serve/page/*)
	@mkdir -p $(@D)
	$(call q,embed)scripts/embed_text.sh page_text $(filter-out %.sh,$^) >$@
# The kernel table of templates as they were (scripts/rekey.sh), and the compiler that has it.
$(BUILD)/was/kernel_table.c: $(BUILD)/kernelgen $(wildcard $(BUILD)/was/templates/*.cu* $(BUILD)/was/templates/*/*.cu*)
	$(call q,kernelgen)$(BUILD)/kernelgen -o $@ -I $(@D)/templates $(sort $(wildcard $(@D)/templates/*.cu $(@D)/templates/*/*.cu))
$(BUILD)/was/atlasc: $(filter-out %/kernel_table.o,$(COMPILER)) $(BUILD)/was/kernel_table.o $(ARTIFACTS)
	$(call q,link)$(CC) $(LDFLAGS) -o $@ $^ $(COMPILER_LIBS)
$(GEN) $(BUILD)/gen/page_text.o $(BUILD)/was/kernel_table.o: %.o: %.c Makefile
	$(call q,cc)$(CC) $(CPPFLAGS) $(CFLAGS) -MMD -MP -c -o $@ $<

$(BUILD)/atlasc: $(COMPILER) $(ARTIFACTS)
	$(call q,link)$(CC) $(LDFLAGS) -o $@ $^ $(COMPILER_LIBS)
$(BUILD)/atlas: $(CLI) $(RUNTIME)
	$(call q,link)$(CC) $(LDFLAGS) -o $@ $^ $(SERVE_LIBS) $(EDIT_LIBS) $(RUNTIME_LIBS)

# libatlas carries its third-party code and shows atlas_* only, in both forms, so that no name of ours
# can meet a name of the program it is linked into.
$(BUILD)/obj/libatlas.o: $(RUNTIME)
	$(call q,link)$(CC) -r -nostdlib -Wl,-d -o $@ $^ $(filter -l:%,$(RUNTIME_LIBS))
	@objcopy -w --keep-global-symbol='atlas_*' $@
$(BUILD)/libatlas.a: $(BUILD)/obj/libatlas.o
	$(call q,ar)rm -f $@ && $(AR) rcsD $@ $<
$(BUILD)/gen/atlas.map: Makefile
	@mkdir -p $(@D)
	@echo 'ATLAS_0.1 { global: atlas_*; local: *; };' >$@
$(BUILD)/libatlas.so: $(RUNTIME) $(MAP)
	$(call q,link)$(CC) $(LDFLAGS) -shared -Wl,-soname,libatlas.so.0 -Wl,--version-script=$(MAP) -Wl,-Bsymbolic \
		-Wl,--gc-sections $(if $(SANITIZE),,-Wl,-z,defs) -o $@ $(RUNTIME) $(RUNTIME_LIBS)
	@ln -sf libatlas.so $@.0

# Manual pages and completion, by the commands themselves.
$(BUILD)/share: scripts/manual.sh $(BUILD)/atlasc $(BUILD)/atlas
	$(call q,manual)$< $(BUILD)

# A test file with a main is a program that sees all but the product's mains; the API example sees libatlas alone.
tests: all $(TESTS) $(API_TEST) $(GPU_TEST) $(addprefix $(BUILD)/tests-gpu/fake/lib,cuda.so.1 nccl.so.2)
$(BUILD)/obj/tests.a: $(filter-out $(HAS_MAIN),$(COMPILER) $(ARTIFACTS) $(RUNTIME) $(CLI)) \
		$(call obj,$(filter-out $(TEST_SRC),$(TEST_C)))
	$(call q,ar)rm -f $@ && $(AR) qcsDTP $@ $(sort $^)
$(TESTS): $$(call obj,$$(filter %/$$(@F).c,$(TEST_SRC))) $(BUILD)/obj/tests.a | $(BUILD)/tests
	$(call q,link)$(CC) $(LDFLAGS) -o $@ $^ $(COMPILER_LIBS) -lcmocka
$(GPU_TEST): $(call obj,$(wildcard tests/gpu/*.c)) $(BUILD)/obj/tests.a | $(BUILD)/tests-gpu
	$(call q,link)$(CC) $(LDFLAGS) -o $@ $^ $(COMPILER_LIBS)
$(BUILD)/tests-gpu/fake/lib%: $$(call obj,tests/unit/fake_lib$$(firstword $$(subst ., ,$$*)).c) $(BUILD)/obj/tests.a | $$(@D)
	$(call q,link)$(CC) $(LDFLAGS) -shared -Wl,-Bsymbolic,--gc-sections,--exclude-libs,ALL -o $@ $^ $(COMPILER_LIBS)
$(API_TEST): $(BUILD)/obj/tests/api_example.o $(BUILD)/libatlas.a | $(BUILD)/tests
	$(call q,link)$(CC) $(LDFLAGS) -o $@ $^ -lm -ldl -lpthread
gpu-report: all $(GPU_TEST) ## tests a card that nobody here has, and writes a report
	@scripts/gpu_report.py --build-dir $(BUILD)
# scripts/fuzz.sh: one reader of foreign bytes under libFuzzer, built by clang.
$(BUILD)/fuzz/%: tests/fuzz/targets.c $(BUILD)/obj/tests.a
	@mkdir -p $(@D)
	$(call q,fuzz)$(CC) $(CPPFLAGS) $(CFLAGS) $(LDFLAGS) -fsanitize=fuzzer -DFUZZ='"$*"' -o $@ $^ $(COMPILER_LIBS)
$(BUILD)/tests $(BUILD)/tests-gpu $(BUILD)/tests-gpu/fake:
	@mkdir -p $@

deps: ## installs what build and tests need
	@$(DEPS) install build test
test: deps ## every test that needs no GPU
	+@$(MAKE) --no-print-directory tests
	@tests/run --build-dir $(BUILD) --venv $(VENV)
test-long: deps ## also the tests that take minutes
	+@$(MAKE) --no-print-directory tests
	@tests/run --build-dir $(BUILD) --venv $(VENV) --long
test-quick: deps ## unit programs, goldens and checks
	+@$(MAKE) --no-print-directory tests
	@tests/run --build-dir $(BUILD) --venv $(VENV) --only checks,golden,unit --quick
test-fresh: ## the first commands of README.md in a bare Debian 12; as root
	@scripts/test_fresh.sh $(BUILD)
check: deps ## rules of the source tree
	+@$(MAKE) --no-print-directory all
	@tests/run --build-dir $(BUILD) --venv $(VENV) --only checks
format: deps ## mends the layout of C and Python files
	@python3 scripts/format_c.py
	@$(VENV)/bin/python -m ruff format --quiet .
golden: all ## rewrites the goldens; review the diff like code
	@tests/golden/run --build-dir $(BUILD) --update
fuzz: SECONDS = 60
fuzz: ## libFuzzer on the readers of untrusted bytes, SECONDS=60 each
	@$(DEPS) install build fuzz
	@scripts/fuzz.sh $(SECONDS)
asan: ## builds the tests with sanitizers in build-asan
	+@$(MAKE) --no-print-directory BUILD=build-asan SANITIZE=address,undefined tests
test-asan: deps asan ## the tests with sanitizers
	@tests/run --build-dir build-asan --venv $(VENV) --only unit,pytest,golden
demo: ## from checkpoint to text
	@$(DEPS) install build
	+@$(MAKE) --no-print-directory all
	@scripts/demo.sh $(BUILD)
mutate: deps ## injects bugs and names the check that stops each
	+@$(MAKE) --no-print-directory tests
	@$(VENV)/bin/python tests/mutation/run --build-dir $(BUILD)
published: deps ## which published configs are accepted
	+@$(MAKE) --no-print-directory all
	@$(VENV)/bin/python tests/published/run --build-dir $(BUILD)
hooks: ## git runs make check before each commit
	@scripts/hooks.sh
rekey: all ## keeps times of kernels whose machine code is that of commit FROM
	+@scripts/rekey.sh $(BUILD) $(FROM)
retune-needed: $(BUILD)/atlasc ## templates that lack times as they are, per card
	@$(BUILD)/atlasc times
compile_commands.json: ## for clangd and clang-tidy
	@$(MAKE) -s --no-print-directory flags | python3 scripts/compile_commands.py >$@
lines: ## sizes of rooms, files and functions
	@scripts/check_lines.sh --report

install: all ## commands, library, header and manual to PREFIX
	install -d $(addprefix $(DESTDIR)$(PREFIX)/,bin lib/atlasc lib/pkgconfig lib/systemd/system include share/atlas)
	install $(BUILD)/atlasc $(BUILD)/atlas $(DESTDIR)$(PREFIX)/bin
	install -m 644 $(BUILD)/libatlas.a $(DESTDIR)$(PREFIX)/lib
	install $(BUILD)/libatlas.so $(DESTDIR)$(PREFIX)/lib/libatlas.so.0
	ln -sf libatlas.so.0 $(DESTDIR)$(PREFIX)/lib/libatlas.so
	$(if $(filter build/%,$(NVRTC)),install -m 644 $(NVRTC) $(dir $(NVRTC))libnvrtc-builtins.so.* \
		$(DESTDIR)$(PREFIX)/lib/atlasc)
	install -m 644 runtime/atlas.h $(DESTDIR)$(PREFIX)/include
	install -m 644 $(filter-out %.service,$(wildcard runtime/serve/install/*)) $(DESTDIR)$(PREFIX)/share/atlas
	sed 's|@PREFIX@|$(PREFIX)|' runtime/serve/install/atlas-serve@.service \
		>$(DESTDIR)$(PREFIX)/lib/systemd/system/atlas-serve@.service
	cd $(BUILD)/share && find . -type f -exec install -m 644 -D {} $(abspath $(DESTDIR)$(PREFIX))/share/{} \;
	printf 'Name: atlas\nDescription: runtime of compiled language models\nVersion: %s\n%s\n%s\n' \
		'$(VERSION)' 'Cflags: -I$(PREFIX)/include' 'Libs: -L$(PREFIX)/lib -latlas -lm -ldl -lpthread' \
		>$(DESTDIR)$(PREFIX)/lib/pkgconfig/atlas.pc
deb: all ## a Debian package of what install installs
	@VERSION=$(VERSION) DATE=$(DATE) MAKE="$(MAKE)" scripts/deb.sh $(BUILD)
flags: ; @echo $(if $(LINK),$(LDFLAGS) LIBS $(COMPILER_LIBS) -lcmocka,$(CPPFLAGS) -isystem $(LLVM)/include $(CFLAGS))
clean: ## removes what was built
	rm -rf $(BUILD)/obj $(BUILD)/gen $(BUILD)/tests* $(BUILD)/demo $(BUILD)/kernel-cache $(PRODUCTS) $(BUILD)/kernelgen \
		$(BUILD)/fresh.*
help: ## this list
	@sed -n 's/^\([a-z_.-]*\):[^=]* ## \(.*\)/  make \1\t\2/p' Makefile | expand -t 32
	@echo 'variables: BUILD=dir CUDA_HOME=dir|none CC=compiler PREFIX=dir DESTDIR=dir SANITIZE=list V=1'

-include $(shell find $(BUILD)/obj $(BUILD)/gen -name '*.d' 2>/dev/null)
