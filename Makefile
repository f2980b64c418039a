# Every variable can be set on the command line: make vm KERNEL=6.6 RUN=hardlink

GO       ?= go
KERNEL   ?= 6.12
KERNELS  ?= 6.1,6.12
ARMKERNELS ?= arm64:6.12
RUN      ?=
VMFLAGS  ?=
ATTACK   ?=
FSTIMEOUT ?= 60m
TESTFLAGS ?= -count=1
GUESTFLAGS ?= -test.skip ^Test(Fault|AsMany|Killed|TwoUsers|ManyProcesses)
MUTATE   ?=
# Of git what the cases need that run it, with a shell for its hooks.
GIT      ?= git:usr/bin/git,git:usr/lib/git-core/git,dash:bin
# What `make compare` attacks in the guest, and as whom and beside which of ours here.
COMPARED ?= bubblewrap,firejail,login:etc/login.defs,util-linux:usr/bin/unshare,$\
	coreutils:usr/bin/env,coreutils:usr/bin/chmod,$(GIT)
COMPAREFLAGS ?= $(if $(SUDO_USER),--user '$(SUDO_USER)') --layers landlock,seccomp
PREFIX   ?= /usr/local
OUT      ?= out
VERSION  ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
# Without what only a debugger reads: guests hold it in memory, and attacks copy it. Without
# huge pages for its heap: the kernel would clear 2 MB for a start of milliseconds.
# The entry is in cmd/agent-lock/entry_amd64.s.
LDFLAGS  ?= -s -w -X main.version=$(VERSION) -X runtime.godebugDefault=disablethp=1 -E agentlock_entry
CLANG        ?= clang-19
LLVM_STRIP   ?= llvm-strip-19
CLANG_FORMAT ?= clang-format-19
BPF_SOURCES  ?= $(wildcard bpf/*.bpf.c bpf/*.bpf.h)

# What `make generate` writes; `make generated` compares it with what is committed.
GENERATED ?= '*_bpfel.go' '*_bpfel.o' docs/hooks.md

# Pairs of a command, or a file, and the Debian or Ubuntu package that brings it.
VM_TOOLS  ?= qemu-system-x86_64:qemu-system-x86
ARM_TOOLS ?= qemu-system-aarch64:qemu-system-arm
DEV_TOOLS ?= $(CLANG):clang-19 $(LLVM_STRIP):llvm-19 $(CLANG_FORMAT):clang-format-19 \
	/usr/include/bpf/bpf_helpers.h:libbpf-dev

export CGO_ENABLED ?= 0
export BPF2GO_CC ?= $(CLANG)
export BPF2GO_STRIP ?= $(LLVM_STRIP)

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help run test setup setup-vm setup-dev build install generate fmt check lint cross \
	unit race generated vm matrix arm64 guest filesystems bench compare mutation faults release clean

##@ Start here

run: build setup-vm ## boot KERNEL, show a jailed command in it, then attack the jail
	./agent-lock vmtest --kernels '$(KERNEL)' --demo $(VMFLAGS)

test: unit matrix guest ## unit tests; on KERNELS every program, every attack, the jail's own tests

##@ Build

setup: setup-vm setup-dev ## install what is missing: QEMU, clang, clang-format

setup-vm:
	@$(call install_missing,$(VM_TOOLS))

setup-dev:
	@$(call install_missing,$(DEV_TOOLS))

build: ## build ./agent-lock, a static binary
	$(GO) build -trimpath -buildvcs=false -ldflags '$(LDFLAGS)' -o agent-lock ./cmd/agent-lock

install: build ## copy ./agent-lock to PREFIX/bin
	install -D -m 0755 agent-lock '$(DESTDIR)$(PREFIX)/bin/agent-lock'

generate: setup-dev ## compile the BPF programs and write what is derived from them
	$(GO) generate ./...

fmt: setup-dev ## format Go and BPF C
	gofmt -w .
	$(if $(BPF_SOURCES),$(CLANG_FORMAT) -i $(BPF_SOURCES))

##@ Test

check: build lint cross unit generated ## all that CI does without a virtual machine

lint: setup-dev ## gofmt, vet, staticcheck, clang-format
	@bad=$$(gofmt -l .); \
	if [ -n "$$bad" ]; then echo "not formatted; run make fmt:" $$bad >&2; exit 1; fi
	$(GO) vet ./...
	$(GO) vet -tags 'guest vm mutation' ./...
	$(GO) tool staticcheck ./...
	$(if $(BPF_SOURCES),$(CLANG_FORMAT) --dry-run -Werror $(BPF_SOURCES))

cross: ## build ./agent-lock-arm64, which guests of arm64 run
	GOARCH=arm64 $(GO) build -trimpath -buildvcs=false -ldflags '$(LDFLAGS)' \
		-o agent-lock-arm64 ./cmd/agent-lock

unit: ## unit tests and the rules of the repository (structure tests)
	$(GO) test $(TESTFLAGS) ./...

race: ## unit tests under the race detector; needs a C compiler
	CGO_ENABLED=1 $(GO) test -race $(TESTFLAGS) ./...

generated: generate ## regenerate and compare with what is committed
	@git diff --exit-code --stat -- $(GENERATED) || { \
		echo "generated files differ from the index; run make generate and add them" \
			"(they are made with clang 19.1.7, here is $$($(CLANG) --version | head -n 1))" >&2; \
		exit 1; }
	@new=$$(git ls-files --others --exclude-standard -- $(GENERATED)); \
	if [ -n "$$new" ]; then echo "generated files are not in git:" $$new >&2; exit 1; fi

vm: build setup-vm ## one cell: KERNEL, and of the cases those that match RUN
	./agent-lock vmtest --kernels '$(KERNEL)' $(if $(RUN),--run '$(RUN)') $(VMFLAGS)

matrix: build setup-vm ## load every program and attack the jail on KERNELS
	./agent-lock vmtest --kernels '$(KERNELS)' --package '$(GIT)' $(if $(RUN),--run '$(RUN)') \
		$(VMFLAGS)

arm64: build cross ## load every program and attack the jail on ARMKERNELS, emulated
	@$(call install_missing,$(ARM_TOOLS))
	./agent-lock vmtest --kernels '$(ARMKERNELS)' $(if $(RUN),--run '$(RUN)') $(VMFLAGS)

guest: build setup-vm ## the jail's own tests (start, rights, ends) in a guest of each of KERNELS
	$(GO) test -c -trimpath -tags guest -o '$(OUT)/jail.test' ./jail
	./agent-lock vmtest --kernels '$(KERNELS)' --timeout 20m \
		--file '$(OUT)/jail.test:/bin/jail.test' --step 'jail.test $(GUESTFLAGS)' $(VMFLAGS)

filesystems: build setup-vm ## use files in the jail on file systems of every kind; ATTACK=.: attack it there
	$(GO) build -trimpath -o '$(OUT)/passthrough' ./filesystems/passthrough
	./agent-lock vmtest --kernels '$(KERNELS)' --timeout '$(FSTIMEOUT)' --filesystems \
		--file '$(OUT)/passthrough:/bin/passthrough' \
		$(if $(ATTACK),--attack '$(ATTACK)') $(if $(RUN),--run '$(RUN)') $(VMFLAGS)

bench: build setup-vm ## measure in guest instructions, write docs/benchmarks.md
	mkdir -p '$(OUT)'
	./agent-lock vmtest --kernels '$(KERNELS)' --bench --timeout 60m --json '$(OUT)/bench.json' $(VMFLAGS)
	./agent-lock bench-doc '$(OUT)/bench.json' > '$(OUT)/benchmarks.md'
	cp '$(OUT)/benchmarks.md' docs/benchmarks.md

compare: build setup-vm ## attack the jails of others, here and in a guest, write docs/comparison.md
	mkdir -p '$(OUT)'
	./agent-lock vmtest --kernels '$(KERNEL)' --timeout 60m --memory 2048 \
		--package '$(COMPARED)' $(VMFLAGS) --step 'chmod u+s /usr/bin/firejail' \
		--step 'agent-lock adversary --user dev --compare --json -' \
		| grep '^{' > '$(OUT)/compare-guest.json'
	./agent-lock adversary $(COMPAREFLAGS) --compare --json '$(OUT)/compare.json' || [ $$? -le 100 ]
	./agent-lock compare-doc 'In a guest, Linux $(KERNEL)=$(OUT)/compare-guest.json' \
		"On Linux $$(uname -r), $$(. /etc/os-release; echo $$PRETTY_NAME)=$(OUT)/compare.json" \
		> '$(OUT)/comparison.md'
	cp '$(OUT)/comparison.md' docs/comparison.md

mutation: setup-vm ## leave out each hook in turn; some case must then leak
	mkdir -p '$(OUT)'
	$(GO) build -trimpath -buildvcs=false -tags mutation -o '$(OUT)/mutation/agent-lock' \
		./cmd/agent-lock
	$(GO) test -c -trimpath -tags guest -o '$(OUT)/jail.test' ./jail
	'$(OUT)/mutation/agent-lock' vmtest --kernels '$(KERNELS)' --timeout 100m \
		--file '$(OUT)/jail.test:/bin/jail.test' --step 'agent-lock guest-mutate $(MUTATE)' $(VMFLAGS)

faults: setup-vm setup-dev ## guests that panic, hang, run out of memory or lie: never a pass
	$(GO) test -tags vm -count=1 -timeout 30m ./vmtest
	$(GO) test -tags vm -count=1 -timeout 30m -run Guest ./cmd/agent-lock

##@ Release

release: ## static binaries for amd64 and arm64 with their checksums, in OUT
	mkdir -p '$(OUT)'
	for arch in amd64 arm64; do \
		GOARCH=$$arch $(GO) build -trimpath -buildvcs=false -ldflags '$(LDFLAGS)' \
			-o '$(OUT)/agent-lock-$(VERSION)-linux-'$$arch ./cmd/agent-lock; \
	done
	cd '$(OUT)' && sha256sum agent-lock-'$(VERSION)'-linux-* > SHA256SUMS && cat SHA256SUMS

clean: ## remove what make built; the cache of kernels stays
	rm -rf agent-lock agent-lock-arm64 '$(OUT)'

help: ## this list
	@awk 'BEGIN { FS = ":.*## " } \
		/^##@ / { printf "\n%s\n", substr($$0, 5) } \
		/^[a-z0-9-]+:.*## / { printf "  %-10s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))
	@echo; echo 'KERNEL=$(KERNEL) KERNELS=$(KERNELS) RUN=$(RUN) VMFLAGS=$(VMFLAGS) PREFIX=$(PREFIX) OUT=$(OUT)'

# install_missing installs the packages whose command is not found. It also
# fetches the package lists when there are none: kernels are found through them.
define install_missing
missing=; \
for tool in $(1); do \
	[ -e "$${tool%%:*}" ] || command -v "$${tool%%:*}" >/dev/null || \
		missing="$$missing $${tool#*:}"; \
done; \
if ! command -v apt-get >/dev/null; then \
	[ -z "$$missing" ] || { echo "install these with your package manager:$$missing" >&2; exit 1; }; \
	exit 0; \
fi; \
root=; [ "$$(id -u)" = 0 ] || root=sudo; \
if [ -n "$$missing" ] || ! compgen -G '/var/lib/apt/lists/*_Packages*' >/dev/null; then \
	$$root apt-get update; \
fi; \
[ -z "$$missing" ] || $$root env DEBIAN_FRONTEND=noninteractive \
	apt-get install -y --no-install-recommends $$missing
endef
