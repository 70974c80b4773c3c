MODULE   := github.com/plimsoll-dev/plimsoll
VERSION   = $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
GO_BUILD  = CGO_ENABLED=0 go build -buildvcs=false -ldflags '-s -w -X $(MODULE)/daemon/process.version=$(VERSION)'
GOLANGCI  = GOGC=off GOMEMLIMIT=3GiB go tool -modfile=e2e/tools/lint/go.mod golangci-lint
FUZZTIME ?= 30s
DURATION ?= 2h
MINUTES  ?= 15

# Of the image: its name, its architectures, where it is written, and the time of
# the commit.
IMAGE   ?= ghcr.io/plimsoll-dev/plimsoll
ARCHES  ?= amd64 arm64
OUT     ?= bin
CREATED  = $(shell git log -1 --format=%ct 2>/dev/null || echo 0)

# Where a release is written.
RELEASE ?= bin/release

# The Debian packages that tests use, beside Go, make and git: a C compiler for
# the race detector, network namespaces, a peer, load, a browser for the status
# page, what makes a system for namespaces. make e2e needs more: emulated machines,
# another processor.
DEPS     := gcc libc6-dev iproute2 prometheus stress-ng chromium rpm mmdebstrap e2fsprogs cpio busybox-static kmod openssh-client python3-grpcio tmux
DEPS_E2E := qemu-system-x86 qemu-user

# How all of it is compiled: without the paths of a checkout, so that what one clone
# has compiled serves the next; without a debugger's symbols, which no program of ours
# keeps; and the compiler, which is soon gone, collects no garbage below 2 GiB.
# e2e/cluster/programs.go does the same.
export GOFLAGS := $(strip $(GOFLAGS) -trimpath -gcflags=all=-dwarf=false '-toolexec=env GOGC=off GOMEMLIMIT=2GiB')

.DEFAULT_GOAL := help
.PHONY: run demo check test build package image push release lint fmt generate fuzz soak bench gobench e2e matrix recordings labelled deps deps-e2e help clean

# Where bin/ cannot be written the program goes into the user's cache. On a
# terminal the agent gets a process group of its own (set -m), so that Ctrl-C
# reaches it alone and make ends with the agent's status instead of dying itself;
# setpriv ends the agent when somebody ends make.
run: ## build and watch this host: no cluster, no configuration, nothing evicted
	@out=bin; mkdir -p bin 2>/dev/null; \
	[ -w bin ] || out="$${XDG_CACHE_HOME:-$$HOME/.cache}/plimsoll"; \
	$(GO_BUILD) -o "$$out/plimsoll" . || exit 1; \
	set -- "$$out/plimsoll" agent --standalone; \
	case "$$(ps -o stat= -p $$$$ 2>/dev/null)" in *+*) ;; *) exec "$$@" ;; esac; \
	setpriv --pdeathsig TERM true 2>/dev/null || exec "$$@"; \
	trap '' TSTP; set -m; setpriv --pdeathsig TERM "$$@"; exit $$?

# As root, for the pods' cgroups. The first time Kubernetes and etcd are built,
# for some minutes.
demo: build ## a control plane, a Velero, a pod that presses, its eviction, what waits and why; cleaned up
	@CGO_ENABLED=0 go build -buildvcs=false -o bin/hog ./e2e/vm/hog
	@go build -buildvcs=false -o bin/demo ./e2e/demo
	@exec bin/demo bin/plimsoll bin/hog

check: lint ## linters, and tests that start no other process, of what changed: up to five minutes
	@e2e/run.sh check

test: $(if $(filter true,$(CI)),deps) lint ## linters, and every test that this machine can run without emulation
	@e2e/run.sh test

e2e: $(if $(filter true,$(CI)),deps-e2e) ## emulated machines and the long forms; goes on where a run was cut off
	@e2e/run.sh e2e

build: ## bin/plimsoll, static and stripped
	$(GO_BUILD) -o bin/plimsoll .

# PACKAGE_VERSION is that of the tag, else one that grows with the commits. What
# runs here while the packages are made is built for this machine.
package: export PACKAGES ?= bin/packages
package: export PACKAGE_ARCH := $(or $(GOARCH),$(shell go env GOARCH))
package: export SOURCE_DATE_EPOCH ?= $(shell git log -1 --format=%ct 2>/dev/null || echo 0)
package: export PACKAGE_VERSION ?= $(shell echo '$(VERSION)' | sed -E 's/^v//; t tag; s/-/./g; s/^/0.0.0+$(SOURCE_DATE_EPOCH)./; b; :tag; s/-(alpha|beta|rc)/~\1/; s/-/+/; s/-/./g')
package: ## bin/packages: a .deb and an .rpm for GOARCH, the same bytes from the same commit
	@mkdir -p '$(PACKAGES)'
	GOARCH=$(PACKAGE_ARCH) $(GO_BUILD) -o '$(PACKAGES)/plimsoll-$(PACKAGE_ARCH)' .
	GOARCH= go run ./daemon/gen '$(PACKAGES)/shown'
	for format in deb rpm; do \
		GOARCH= go tool -modfile=e2e/tools/nfpm/go.mod nfpm package -f package/nfpm.yaml -p $$format -t '$(PACKAGES)' || exit 1; \
	done

# Without a daemon: bin/image and bin/image.tar are an OCI layout of ARCHES, beside
# them an SBOM of each. Of one commit they are the same bytes wherever it is built.
image: ## a container image for amd64 and arm64, as an OCI layout, with SBOMs
	@for arch in $(ARCHES); do GOOS=linux GOARCH=$$arch $(GO_BUILD) -o $(OUT)/linux-$$arch/plimsoll . || exit 1; done
	@go -C e2e/tools/image run . -ref $(IMAGE):$(VERSION) -created "$(CREATED)" $(abspath $(OUT)) \
		$(ARCHES:%=$(abspath $(OUT))/linux-%/plimsoll)

# With the logins of docker or podman. The last line is the image by its digest.
push: ## make image, and push it to a registry of yours: IMAGE=REGISTRY/plimsoll
	@[ '$(origin IMAGE)' != file ] || { echo 'push: to which registry? make push IMAGE=REGISTRY/plimsoll' >&2; exit 1; }
	@$(MAKE) --no-print-directory image
	@go tool -modfile=e2e/tools/image/go.mod crane push $(OUT)/image $(IMAGE):$(VERSION)

# docs/releasing.md.
release: ## bin/release: all that is published of the version that HEAD is tagged as
	@GOWORK=off go run ./package/release '$(RELEASE)'

# What is generated bears the usual line, or stands in docs.
lint: ## golangci-lint, which vets too, actionlint, tidy modules, generated files up to date
	$(GOLANGCI) run ./...
	go tool -modfile=e2e/tools/actionlint/go.mod actionlint
	go mod tidy -diff
	@files() { { find docs -type f; grep -rlIE --exclude-dir=.git --exclude-dir=bin '^(//|#|<!--) Code generated .* DO NOT EDIT\.' .; } | sort | xargs sha256sum; }; \
	before=$$(files); $(MAKE) --no-print-directory generate || exit 1; after=$$(files); \
	[ "$$before" = "$$after" ] || { echo 'lint: make generate changed files: commit them with what they are made from' >&2; exit 1; }

fmt: ## lay out the Go files as gofumpt and goimports do
	$(GOLANGCI) fmt ./...

generate: ## make the generated files anew
	go generate ./...

# As root, for the pods' cgroups. The first time Kubernetes and etcd are built, for
# some minutes. Two minutes of it are in make e2e.
soak: ## agent and controller for DURATION (2h): does what they hold grow; bin/soak.txt, bin/soak.tsv
	@go run ./e2e/programs kube-apiserver
	@PLIMSOLL_SOAK=$(DURATION) go test -count=1 -timeout=0 -v -run '^TestSoak$$' ./e2e

# As root, for the pods' cgroups. Each version is built when it runs for the first
# time: Kubernetes for some minutes. In make e2e all of them run.
matrix: ## each function on versions K8S="1.34 1.36" and VELERO=1.16, without them on all; writes docs/compatibility.md
	@PLIMSOLL_LONG=1 PLIMSOLL_K8S='$(K8S)' PLIMSOLL_VELERO='$(VELERO)' \
		go test -count=1 -timeout=0 -v -run '^TestMatrix$$' ./e2e/matrix

fuzz: ## fuzz each fuzz test for FUZZTIME (30s)
	@go test -list '^Fuzz' ./... | awk '/^Fuzz/ { names[++n] = $$1 } /^ok/ { for (i = 1; i <= n; i++) print $$2, names[i]; n = 0 }' | \
	while read -r pkg name; do \
		echo "$$pkg $$name"; \
		go test -run '^$$' -fuzz "^$$name\$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 10x "$$pkg" </dev/null || exit 1; \
	done

# Root for pods in real cgroups; without it the rest is measured. The first time
# the peers, Kubernetes and etcd are built, for some minutes.
bench: build ## our sampling beside its peers, as one table; writes docs/benchmarks.md
	@CGO_ENABLED=0 go build -buildvcs=false -o bin/bench-load ./e2e/bench/load
	@go build -buildvcs=false -o bin/bench ./e2e/bench
	@exec bin/bench -o docs/benchmarks.md

gobench: ## the Go benchmarks of every package
	go test -run '^$$' -bench . -benchmem ./...

# A minute of each of five machines, one of them this host: on an idle one, which
# the archives' samples show by being a second apart.
recordings: ## as root: record anew the machines that tests play, for some ten minutes
	PLIMSOLL_RECORDINGS=$(CURDIR)/probes/testdata/machines go test -count=1 -timeout=1h -v \
		-parallel 1 -run '^(TestHostRecordingCgroupV1|TestKernelWithoutPSI|TestManyDisks|TestNUMA|TestRealKubelet)$$/^recorded$$' \
		./e2e/vm

# Seven machines and this host are done to what their labels say, one load after the
# other: on an idle host, since an emulated machine that is starved misses its ticks.
labelled: ## as root: record what the labelled set lacks, and judge it; run it again until nothing is left
	PLIMSOLL_LABELLED=$(CURDIR)/e2e/labelled/testdata PLIMSOLL_LABELLED_MINUTES=$(MINUTES) go test -count=1 -timeout=2h -v \
		-run '^TestMakeLabelledRecordings$$' ./e2e/vm
	go test -count=1 -run '^TestLabelled' ./daemon/judge -update

# A package that brings a service must not start it: policy-rc.d says so to
# Debian while the packages are installed.
deps: ## install the Debian packages that make test uses (as root)
	@missing=; for p in $(DEPS); do \
		[ "$$(dpkg-query -W -f='$${db:Status-Status}' $$p 2>/dev/null)" = installed ] || missing="$$missing $$p"; \
	done; \
	[ -n "$$missing" ] || exit 0; \
	command -v apt-get >/dev/null || { echo "deps: no apt-get here: install by hand what your system calls:$$missing" >&2; exit 1; }; \
	[ "$$(id -u)" = 0 ] || { echo "deps: needs root: sudo make deps, or: sudo apt-get install --no-install-recommends$$missing" >&2; exit 1; }; \
	policy=/usr/sbin/policy-rc.d; \
	if [ ! -e $$policy ]; then \
		trap 'rm -f /usr/sbin/policy-rc.d' EXIT; trap 'exit 1' HUP INT TERM; \
		printf '#!/bin/sh\nexit 101\n' >$$policy && chmod 755 $$policy || exit 1; \
	fi; \
	export DEBIAN_FRONTEND=noninteractive; \
	apt-get update -qq && apt-get install -y -qq --no-install-recommends $$missing </dev/null

deps-e2e: ## those, and what make e2e uses
	@$(MAKE) --no-print-directory deps DEPS='$(DEPS) $(DEPS_E2E)'

help: ## this list
	@awk -F ':.*## ' '/^[a-z0-9]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' Makefile

clean: ## remove what make built
	rm -rf bin
