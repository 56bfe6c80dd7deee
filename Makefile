# `make help` lists the targets. Variables that change them:
#   PKGS        packages to race, fuzz and bench           (./...)
#   PARTS       parts of test-all to run, by name          (all)
#   WITHOUT     a part of test-all to leave out                (none)
#   TESTFLAGS   further flags of go test in test, test-all and race
#   FUZZTIME    how long each fuzz target runs             (60s)
#   BENCH       which benchmarks run, a regular expression (.)
#   KEEP        1 leaves the cluster of run going for kubectl, until ^C
#   BENCHFLAGS  further flags of go test in bench; -count 10 has benchstat print how far the runs differ
#   BENCHFLAGS  flags of bench-cluster, bench-devices, bench-live (its part on kube-apiserver) and bench-reaction, such as -nodes=5000 and -runs=20
#   CONFORMANCEFLAGS  flags of conformance, such as -suites=devices, -by=evictd-apiserver, -cases=- and -rounds=3
#   raceless    packages that race leaves out, a regular expression (those that link k8s.io/kubernetes)
#   EVICTD_ROUNDS  how often bench-kubelet, bench-vm and bench-notices measure (3)
#   EVICTD_SMALLEST  1 has benchmarks and campaigns do as little as shows that they work; their figures say nothing then
#   ARCHS       architectures of the images                (amd64 arm64)
#   PROGRAMS    what build builds                          (all)
#   BIN         where build leaves the programs            (bin)
#   IMAGES      where image leaves their OCI layouts       (bin/image)
#   PACKAGES    where deb, rpm, sysext and chart leave theirs (bin)
#   RELEASE     where release leaves everything        (bin/release)
#   REGISTRY    registry and path that push pushes to, such as ghcr.io/evictd
#   STRIPPED    where stage and image leave the programs that they pack, by architecture (bin/stripped)
#   DESTDIR, PREFIX  where install puts the programs       (/usr/local)

PKGS      ?= ./...
FUZZTIME  ?= 60s
BENCH     ?= .
PREFIX    ?= /usr/local
ARCHS     ?= amd64 arm64
IMAGES    ?= bin/image
BIN       ?= bin
PROGRAMS  ?= $(notdir $(wildcard cmd/*))
PACKAGES  ?= bin
RELEASE   ?= bin/release
STRIPPED  ?= bin/stripped
VERSION   ?= $(shell git describe --always --dirty 2>/dev/null || echo unknown)

SHELL       := bash
.SHELLFLAGS := -euo pipefail -c
.ONESHELL:
.DEFAULT_GOAL := build

# The playground is run from the source tree, evictd-install in a container, and kubectl-evictd where
# kubectl is; they are not for installing on a node.
installed := $(filter-out evictd-playground evictd-install kubectl-evictd,$(notdir $(wildcard cmd/*)))

# Programs and tests are built alike, so that the build cache serves both.
export CGO_ENABLED ?= 0
export GOFLAGS     ?= -trimpath

# Lines "package name" of the tests whose name begins with $(1), in $(PKGS). No package is compiled for that.
testfiles = {{range .TestGoFiles}}{{$$.ImportPath}} {{$$.Dir}}/{{.}}{{"\n"}}{{end}}{{range .XTestGoFiles}}{{$$.ImportPath}} {{$$.Dir}}/{{.}}{{"\n"}}{{end}}
list = go list -f '$(testfiles)' $(PKGS) | awk '{while ((getline line <$$2) > 0) if (match(line, /^func $(1)[A-Za-z0-9_]*\(/)) print $$1, substr(line, 6, RLENGTH - 6); close($$2)}'

# Modules of their own below test/, for check.
nested := browser outoftreeplugin monitoring

# The files named $(1), those of nested modules too, each ended by a zero byte.
files = find . -name '.?*' -prune -o -name '$(1)' -print0

.PHONY: build
build: ## build every program into bin/, static, with the version in it
	@umask 022 # evictd starts its agent as another user
	go build -buildvcs=false -ldflags '$(LDFLAGS) -X main.version=$(VERSION)' -o $(BIN)/ $(PROGRAMS:%=./cmd/%)

.PHONY: run
run: build ## watch a small cluster on this host: a leak, an eviction, everything that follows
	@bin/evictd-playground $(if $(KEEP),--keep)

.PHONY: storm
storm: build ## count in that cluster the evicted pods that are scheduled on a node again that is short of memory, without NodePressure and with it
	@bin/evictd-playground --storm

.PHONY: test
test: ## run all tests that need only Go and a Linux kernel, as root or not
	@go run ./test/all small -- $(TESTFLAGS)

.PHONY: test-all
test-all: ## the same and the tests of every real part: says first what it builds and what is missing here
	@go run ./test/all -without=$(WITHOUT) $(PARTS) -- $(TESTFLAGS)

.PHONY: test-cluster
test-cluster: ## run evictd beside a real kubelet, in a cluster of a kube-apiserver, its controllers and two nodes
	@go run ./test/all cluster -- $(TESTFLAGS)

# What a source or a test of a package has if two goroutines can reach its variables. A package without it
# is instrumented where a test of another package runs it.
concurrent = ^[[:space:]]+go (func|[a-z])|\.Go\(|"sync(/atomic)?"|client-go/(informers|tools/cache)"|"net/http"|synctest

# Packages that link k8s.io/kubernetes, which takes six minutes to compile with the race detector: make race raceless=none
raceless := /internal/embeddedapi |/internal/embeddedapi/strategy |/internal/embeddedapi/quota |/cmd/evictd-apiserver

.PHONY: race
race: export CGO_ENABLED = 1
race: ## the tests of packages that start goroutines or share memory with some, under the race detector (needs a C compiler), without tests of whole nodes
	@programs=$$(mktemp -d)
	trap 'rm -r "$$programs"' EXIT
	CGO_ENABLED=0 go build -buildvcs=false -ldflags='-s -w' -o "$$programs"/ ./cmd/...
	packages=$$(go list -f '{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}} {{.Dir}}{{end}}' $(PKGS) | { grep -v -e /test/ -e /cmd/evictd-playground -e /internal/deps -E -e '$(raceless)' || true; } |
		while read -r package dir; do if grep -qE '$(concurrent)' "$$dir"/*.go; then echo "$$package"; fi; done)
	EVICTD_PROGRAMS=$$programs go test -race -vet=off -ldflags=-w -count=1 $(TESTFLAGS) $${packages:?no package starts a goroutine}

.PHONY: check
check: ## format, vet, staticcheck, go fix, go.mod, behaviour table; changes nothing
	@unformatted=$$($(call files,*.go) | xargs -0 -r gofmt -l)
	if [ -n "$$unformatted" ]; then printf 'not gofmt-ed:\n%s\n' "$$unformatted"; exit 1; fi
	go vet ./...
	go -C internal/tools vet ./...
	go tool -modfile=internal/tools/go.mod staticcheck ./...
	go fix -diff ./...
	go mod tidy -diff
	for module in internal/tools test/controlplane/parts test/containerd/parts test/deploy/parts; do go -C $$module mod tidy -diff; done
	for module in $(nested) containerd; do
		go -C test/$$module mod tidy -diff
		go -C test/$$module vet ./...
		go -C test/$$module fix -diff ./...
	done
	quiet() { out=$$("$$@" 2>&1) || { printf '%s\n' "$$out"; exit 1; }; }
	quiet go test -count=1 -run '^TestBehaviourTable' ./eviction/simulate
	quiet go test -count=1 ./internal/deps

# Tests with golden files use internal/golden, which rewrites them where EVICTD_REWRITE=1.
.PHONY: rewrite
rewrite: ## regenerate golden files and docs/behaviour.md; review the diff
	@packages=$$($(call files,*_test.go) | xargs -0 -r grep -l '/internal/golden"' | xargs -r -n 1 dirname | sort -u)
	out=$$(EVICTD_REWRITE=1 go test -count=1 $$packages 2>&1) || { printf '%s\n' "$$out"; exit 1; }

# Go before 1.27 may fail when FUZZTIME is over with nothing found, and then says
# so in one line (golang/go#75804).
.PHONY: fuzz
fuzz: ## run every fuzz target for FUZZTIME, a line each
	@failed=0
	targets=$$($(call list,Fuzz))
	while read -r package target; do
		if out=$$(go test -vet=off -ldflags=-w -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 20x "$$package" 2>&1) ||
			{ tail -n 5 <<<"$$out" | grep -qx '    context deadline exceeded' && ! grep -qi 'failing input' <<<"$$out"; }; then
			printf 'ok    %-40s %s\n' "$$target" "$$(sed -n 's/^fuzz: elapsed: //p' <<<"$$out" | tail -n 1)"
		else
			printf 'FAIL  %-40s %s\n%s\n' "$$target" "$$package" "$$out"
			failed=1
		fi
	done <<<"$${targets:?there is no fuzz target}"
	exit $$failed

# size is $(1), or $(2) if EVICTD_SMALLEST is set.
comma := ,
size   = $(if $(EVICTD_SMALLEST),$(2),$(1))

# measuring runs tests or benchmarks that measure, built as those of test/all. figures are the lines that they print.
measuring := test -vet=off -ldflags=-w -count=1
figures   := grep -e '^|' -e '---' -e FAIL -e _test.go -e skipped

# machine prints what a benchmark runs on.
define machine
printf 'cpu:    %s\n' "$$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1)"
printf 'cores:  %s\n' "$$(nproc)"
printf 'memory: %s\n' "$$(sed -n 's/^MemTotal: *//p' /proc/meminfo)"
printf 'kernel: %s\n' "$$(uname -r)"
printf 'go:     %s\n' "$$(go version)"
printf 'load:   %s\n' "$$(cut -d ' ' -f 1-3 /proc/loadavg)"
endef

.PHONY: bench
bench: ## run the benchmarks: the machine, the results as they come, then tables of benchstat
	@$(machine)
	packages=$$($(call list,Benchmark) | cut -d ' ' -f 1 | sort -u)
	go $(measuring) -run '^$$' -bench '$(BENCH)' -benchmem $(call size,,-benchtime 1x) $(BENCHFLAGS) $${packages:?there is no benchmark} |
		tee /dev/stderr | go tool -modfile=internal/tools/go.mod benchstat -

.PHONY: bench-million
bench-million: ## pods on 1,000,000 nodes in one process, compared with attempts that evaluate all nodes; EVICTD_NODES=, EVICTD_CHECKS=
	@$(machine)
	EVICTD_MILLION=1 go $(measuring) -run '^$$' -bench Million -benchtime 1x -timeout 60m ./scheduleradapter/profile

.PHONY: bench-reaction
bench-reaction: build ## how soon a node that fills up is relieved, beside earlyoom and a ten-second poller; memory taken back
	@go run ./test/bench $(call size,,-runs=2 -others=1 -rates=1 -load=0) $(BENCHFLAGS)
	go $(measuring) -run '^$$' -bench 'Starved|Deadline' -benchtime $(call size,20x,1x) ./eviction/kill

.PHONY: bench-containers
bench-containers: containerd ## what evictd and a containerd use with 500 containers, beside crictl stats; takes ten minutes
	EVICTD_CAMPAIGN=1 go -C test/containerd $(measuring) -timeout 20m -v -run '^TestCampaignCost' ./suite

.PHONY: bench-kubelet
bench-kubelet: cluster ## how soon a node is relieved by evictd beside a real kubelet, and by the kubelet alone; EVICTD_ROUNDS=3
	@EVICTD_CAMPAIGN=1 go -C test/containerd $(measuring) -timeout 90m -v -run '^TestCampaignReactionBesideAKubelet$$' ./cluster | $(figures)

.PHONY: bench-cluster
bench-cluster: controlplane ## pods bound a second on a real kube-apiserver, beside kube-scheduler
	@go run -ldflags=-w ./test/controlplane/bench $(call size,,-kinds=anti -nodes=60 -pods=50) $(BENCHFLAGS)

.PHONY: bench-devices
bench-devices: controlplane ## pods with claims for devices bound a second on a real kube-apiserver, beside a program that only makes the same writes
	@go run -ldflags=-w ./test/controlplane/bench -kinds=claims -nodes=500 -pods=2500 \
		-by=binder,evictd-scheduler,binder,evictd-scheduler,binder,evictd-scheduler,kube-scheduler \
		$(call size,,-nodes=10 -pods=50 -by=binder$(comma)evictd-scheduler) $(BENCHFLAGS)

# Both rates of a run are of servers started on copies of the same objects.
.PHONY: bench-live
bench-live: controlplane ## 100,000 pods on 100,000 nodes through a real kube-apiserver, and 10,000 nodes through evictd-apiserver, beside a binder that evaluates nothing
	@go run -ldflags=-w ./test/controlplane/bench -kinds=plain -nodes=100000 -pods=100000 -patience=30m -by=binder,evictd-scheduler $(call size,,-nodes=10 -pods=50) $(BENCHFLAGS)
	go run -ldflags=-w ./test/controlplane/bench -on=evictd-apiserver -kinds=plain -nodes=10000 -pods=50000 -by=binder,evictd-scheduler,binder,evictd-scheduler $(call size,,-nodes=10 -pods=50)

# What takes long or kills much: tests named TestCampaign..., which skip
# themselves unless EVICTD_CAMPAIGN=1.
.PHONY: campaign
campaign: kubelet-eviction-if-possible scheduling-attempts-if-possible ## memory bombs by the hundred and other long tests
	@packages=$$($(call list,TestCampaign) | cut -d ' ' -f 1 | sort -u)
	EVICTD_CAMPAIGN=1 go $(measuring) -timeout 0 -v -run '^TestCampaign' $${packages:?there is no campaign}

# Kubernetes itself, of which test/controlplane/parts/go.mod says the version. The
# module is not vetted: that would analyse all of Kubernetes first.
kubernetes := $(shell sed -n 's|^.k8s.io/kubernetes v||p' test/controlplane/parts/go.mod)
stamp      := -X k8s.io/component-base/version.gitVersion=v$(kubernetes) \
	-X k8s.io/component-base/version.gitMajor=$(word 1,$(subst ., ,$(kubernetes))) \
	-X k8s.io/component-base/version.gitMinor=$(word 2,$(subst ., ,$(kubernetes)))
foreign    := $(addprefix test/controlplane/bin/,controlplane kube-scheduler kubectl kubelet-config kubelet-eviction scheduling-attempts)

.PHONY: controlplane
controlplane: $(foreign) ## build the kube-apiserver, kube-scheduler, kubectl, eviction manager and scheduling attempts of tests; the first time takes minutes

$(addprefix test/controlplane/bin/,controlplane kubelet-eviction kubelet-config scheduling-attempts e2e hollow-node etcd): $(wildcard test/controlplane/parts/cmd/*/*.go)
test/controlplane/bin/%: test/controlplane/parts/go.mod test/controlplane/parts/go.sum
	@printf 'building %s of Kubernetes %s\n' '$*' '$(kubernetes)'
	package=k8s.io/kubernetes/cmd/$*
	[ ! -d test/controlplane/parts/cmd/$* ] || package=./cmd/$*
	nice go -C $(<D) build -ldflags '-s -w $(stamp)' -o ../bin/ $$package
	touch $@

# What a node of a cluster and its controllers are beside that.
clustered := $(addprefix test/controlplane/bin/,kubelet kube-controller-manager)

.PHONY: cluster
cluster: controlplane containerd $(clustered) ## build what a whole cluster of tests is made of; the first time takes minutes

# What upstream's own tests of scheduling take beside that.
upstream := $(addprefix test/controlplane/bin/,kube-controller-manager e2e hollow-node etcd scheduler_perf)

test/controlplane/bin/scheduler_perf: $(wildcard test/controlplane/parts/perf/*.go) test/controlplane/parts/go.mod test/controlplane/parts/go.sum
	@echo 'building scheduler_perf of Kubernetes $(kubernetes)'
	nice go -C test/controlplane/parts test -vet=off -c -ldflags '-s -w $(stamp)' -o ../bin/scheduler_perf ./perf
	touch $@

.PHONY: conformance
conformance: conformance-if-possible ## upstream's own specs of scheduling and of the API and cases of scheduler_perf, by Kubernetes, evictd-scheduler and evictd-apiserver; takes two hours
	@go run ./test/controlplane/conformance $(CONFORMANCEFLAGS)

# The kernel that test/uml/run runs commands in, in the user's cache.
kernel := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/evictd-uml

.PHONY: uml
uml: $(kernel)/linux ## build a user-mode kernel with cgroup v2, for test/uml; takes minutes, and 4 GB of disk meanwhile

$(kernel)/linux: test/uml/kernel.sh
	@echo 'building a user-mode kernel'
	sh $< '$(@D)'

# A containerd and what belongs to it, the tools of test/containerd/parts. Part of
# runc is in C. A kubelet asks for a runc with seccomp, for which libseccomp's headers must
# be there when it is built; a cluster runs Debian's runc otherwise.
runtime := $(addprefix test/containerd/bin/,containerd containerd-shim-runc-v2 ctr runc crictl)

.PHONY: containerd
containerd: $(runtime) ## build the containerd, runc and crictl of tests; the first time takes minutes

# Without C, containerd shares its packages in the build cache; it lacks the snapshotter of btrfs then.
test/containerd/bin/runc: export CGO_ENABLED = 1
test/containerd/bin/%: test/containerd/parts/go.mod test/containerd/parts/go.sum
	@package=$$(sed -n 's|^\t\([^ ]*/$*\)$$|\1|p' $<)
	printf 'building %s %s\n' '$*' "$$(go -C $(<D) list -f '{{.Module.Version}}' "$$package")"
	tags=
	if [ '$*' = runc ]; then
		if pkg-config --exists libseccomp 2>/dev/null; then tags=seccomp; else echo 'without seccomp: apt-get install libseccomp-dev pkg-config'; fi
	fi
	nice go -C $(<D) build -tags "$$tags" -ldflags '-s -w' -o ../bin/ "$$package"
	touch $@

# Makes $(1) of the packages $(3) of the module test/$(2), which takes $(4) GiB.
# Where the disk is too small for that or the sources cannot be had, the tests that
# need it skip, and say what is written here.
define if_possible
unavailable=test/$(firstword $(subst /, ,$(2)))/bin/unavailable
mkdir -p $${unavailable%/*}
if $(MAKE) --no-print-directory -q $(1); then rm -f $$unavailable; exit; fi
free=$$(df --output=avail -B 1G "$$(go env GOCACHE)/.." | tail -n 1)
if [ "$$free" -lt $(4) ]; then
	echo "building it takes $(4) GiB of the disk, $$free are free" >$$unavailable
elif ! go -C test/$(2) list -deps $(3) >/dev/null 2>$$unavailable.log; then
	tail -n 1 $$unavailable.log >$$unavailable
else
	$(MAKE) --no-print-directory $(1)
	rm -f $$unavailable
fi
rm -f $$unavailable.log
endef

.PHONY: controlplane-if-possible
controlplane-if-possible:
	@$(call if_possible,controlplane,controlplane/parts,./... tool,6)

.PHONY: conformance-if-possible
conformance-if-possible:
	@echo 'needs Go, 4 GiB of memory and, the first time, 10 GiB of disk and half an hour to build kube-apiserver, kube-scheduler, kube-controller-manager, kubectl, etcd, hollow nodes, e2e and scheduler_perf of Kubernetes $(kubernetes)'
	$(call if_possible,controlplane $(upstream),controlplane/parts,./... tool,8)

.PHONY: kubelet-config-if-possible kubelet-eviction-if-possible scheduling-attempts-if-possible
kubelet-config-if-possible kubelet-eviction-if-possible scheduling-attempts-if-possible: %-if-possible:
	@$(call if_possible,test/controlplane/bin/$*,controlplane/parts,./cmd/$*,3)

.PHONY: containerd-if-possible
containerd-if-possible:
	@if ! command -v "$$(go env CC)" >/dev/null; then
		mkdir -p test/containerd/bin
		echo "part of runc is in C, and there is no compiler for it: apt-get install gcc libc6-dev" >test/containerd/bin/unavailable
		exit
	fi
	$(call if_possible,containerd,containerd/parts,tool,3)

.PHONY: cluster-if-possible
cluster-if-possible: controlplane-if-possible containerd-if-possible
	@[ -e test/controlplane/bin/unavailable ] || $(call if_possible,$(clustered),controlplane/parts,tool,7)

# What packs the chart, and what tests of deploy/ run beside a kube-apiserver.
deployers := $(addprefix test/deploy/bin/,helm kustomize)

.PHONY: helm
helm: $(deployers) ## build the helm and kustomize of tests; the first time takes two minutes

$(deployers) &: test/deploy/parts/go.mod test/deploy/parts/go.sum
	@echo 'building helm and kustomize'
	nice go -C test/deploy/parts build -ldflags '-s -w' -o ../bin/ tool
	touch $(deployers)

.PHONY: helm-if-possible
helm-if-possible:
	@$(call if_possible,helm,deploy/parts,tool,2)

# Where things go below $(DESTDIR). What the operator may have changed stays.
share   := $(DESTDIR)$(PREFIX)/share
lib     := $(DESTDIR)$(PREFIX)/lib
sysconf := $(DESTDIR)/etc

.PHONY: install
install: build ## install programs, units, manual, completions, configuration: DESTDIR, PREFIX
	@install -d '$(DESTDIR)$(PREFIX)/bin' $(lib)/{systemd/system/evictd.service.d,sysusers.d,tmpfiles.d} $(share)/man/man5 $(sysconf)/{default,evictd/pods}
	install -m 0755 $(installed:%=$(BIN)/%) '$(DESTDIR)$(PREFIX)/bin'
	for unit in systemd/*.{service,socket,slice}; do
		sed 's|/usr/bin/|$(PREFIX)/bin/|' "$$unit" | install -m 0644 /dev/stdin "$(lib)/systemd/system/$${unit##*/}"
	done
	install -m 0644 systemd/evictd.service.d/*.conf '$(lib)/systemd/system/evictd.service.d'
	install -m 0644 systemd/evictd.sysusers '$(lib)/sysusers.d/evictd.conf'
	install -m 0644 systemd/evictd.tmpfiles '$(lib)/tmpfiles.d/evictd.conf'
	for program in $(installed); do GOARCH= go run -tags docs ./cmd/$$program generate '$(share)'; done
	install -m 0644 docs/man/evictd.yaml.5 '$(share)/man/man5'
	[ -e $(sysconf)/evictd/evictd.yaml ] || install -m 0644 systemd/evictd.yaml '$(sysconf)/evictd'
	[ -e $(sysconf)/default/evictd-scheduler ] || install -m 0644 systemd/evictd-scheduler.default '$(sysconf)/default/evictd-scheduler'

# Of what has no tag the later one is the greater.
COMMITTED  := $(shell git log -1 --format=%ct 2>/dev/null || date +%s)
debversion := $(subst -,+,$(if $(findstring .,$(VERSION)),$(VERSION:v%=%),0~git$(COMMITTED).$(VERSION)))

# GNU Make before 4.4 does not pass a variable of its command line to $(shell).
arch    := $(or $(GOARCH),$(shell go env GOARCH))
rpmarch := $(patsubst arm64,aarch64,$(patsubst amd64,x86_64,$(arch)))

# What a package has. Its programs are built beside those of build, which are of this machine, and stay: go links those again that have changed.
.PHONY: stage
stage:
	@rm -rf bin/stage
	$(MAKE) --no-print-directory install DESTDIR=bin/stage PREFIX=/usr LDFLAGS='-s -w' BIN='$(STRIPPED)/$(arch)'
	doc=bin/stage/usr/share/doc/evictd
	install -d $$doc
	install -m 0644 systemd/deb/copyright $$doc
	printf 'evictd (%s) stable; urgency=medium\n\n  * See the log of the sources.\n\n -- The evictd authors <maintainers@evictd.io>  %s\n' \
		'$(debversion)' "$$(date -Rd @$(COMMITTED))" | gzip -9n >$$doc/changelog.gz
	echo "evictd: statically-linked-binary [usr/bin/*]" | install -D -m 0644 /dev/stdin bin/stage/usr/share/lintian/overrides/evictd
	find bin/stage/usr/share/man -type f -exec gzip -9n {} +

.PHONY: deb
deb: ## build bin/evictd_VERSION_ARCH.deb, for GOARCH
.PHONY: rpm
rpm: ## build bin/evictd-VERSION-1.ARCH.rpm, for GOARCH
deb rpm: stage
	@rm -f '$(PACKAGES)'/*$(if $(filter deb,$@),_$(arch).deb,.$(rpmarch).rpm)
	ARCH=$(arch) VERSION='$(debversion)' SOURCE_DATE_EPOCH=$(COMMITTED) \
		GOARCH= go tool -modfile=internal/tools/go.mod nfpm package --config systemd/nfpm.yaml --packager $@ --target '$(PACKAGES)/' | tail -n 1

# What systemd calls the architecture.
sysextarch := $(patsubst amd64,x86-64,$(arch))

# Of the package what a node runs. The name in the image is that of the file on the node, evictd.raw.
.PHONY: sysext
sysext: stage ## build bin/evictd_VERSION_ARCH.raw, for GOARCH, an image of systemd-sysext
	@rm -rf '$(PACKAGES)'/evictd_*_$(arch).raw bin/sysext
	usr=bin/sysext/usr
	install -D -t $$usr/bin bin/stage/usr/bin/{evictd,evictd-agent,evictd-top}
	install -D -m 0644 -t $$usr/lib/sysusers.d bin/stage/usr/lib/sysusers.d/evictd.conf
	install -D -m 0644 -t $$usr/lib/tmpfiles.d bin/stage/usr/lib/tmpfiles.d/evictd.conf
	install -D -m 0644 -t $$usr/share/evictd bin/stage/etc/evictd/evictd.yaml
	install -d $$usr/lib/systemd/system $$usr/lib/extension-release.d
	cp -r $(addprefix bin/stage/usr/lib/systemd/system/,$(filter %.service %.socket %.slice %.d,$(node_units))) $$usr/lib/systemd/system
	cp -r systemd/sysext/lib $$usr
	printf 'ID=_any\nARCHITECTURE=%s\nEXTENSION_RELOAD_MANAGER=1\n' $(sysextarch) >$$usr/lib/extension-release.d/extension-release.evictd
	GOARCH= go -C internal/tools run ./sysext -epoch $(COMMITTED) -out '$(abspath $(PACKAGES))/evictd_$(debversion)_$(arch).raw' '$(CURDIR)/bin/sysext'
	rm -rf bin/sysext
	echo 'created image: $(PACKAGES)/evictd_$(debversion)_$(arch).raw'

.PHONY: software
software: stage ## write the list of the software in the packages, evictd_VERSION_ARCH.spdx.json, for GOARCH
	@GOARCH= go -C internal/tools run ./image -name evictd -version '$(VERSION)' -epoch $(COMMITTED) \
		-software '$(abspath $(PACKAGES))/evictd_$(debversion)_$(arch).spdx.json' $(arch)='$(CURDIR)/bin/stage'

# Programs of the image evictd, and the units that they run as on a node.
node_programs := evictd evictd-agent evictd-install kubectl-evictd
node_units    := evictd.service evictd.service.d evictd.socket evictd.slice evictd-agent.socket evictd-agent@.service evictd.tmpfiles
stamped       := -version '$(VERSION)' -revision "$$(git rev-parse HEAD 2>/dev/null || echo unknown)" -epoch $(COMMITTED)

# The same sources and VERSION give the same digests.
.PHONY: image
image: ## write OCI layouts of the images evictd and evictd-scheduler, with a list of their software and their provenance: IMAGES, ARCHS
	@umask 022
	rm -rf '$(IMAGES)'
	node='$(IMAGES)/stage/evictd' scheduler='$(IMAGES)/stage/evictd-scheduler'
	for arch in $(ARCHS); do
		GOARCH=$$arch $(MAKE) --no-print-directory build LDFLAGS='-s -w' BIN="$(STRIPPED)/$$arch" PROGRAMS='$(node_programs) evictd-scheduler'
		install -D -t "$$node/$$arch/usr/bin" $(node_programs:%="$(STRIPPED)/$$arch/%")
		install -D -t "$$scheduler/$$arch/usr/bin" "$(STRIPPED)/$$arch/evictd-scheduler"
		install -d "$$node/$$arch/usr/share/evictd"
		cp -r $(node_units:%=systemd/%) "$$node/$$arch/usr/share/evictd"
	done
	go -C internal/tools build -o '$(abspath $(IMAGES))/stage/image' ./image
	'$(IMAGES)/stage/image' -name evictd -entrypoint evictd-install $(stamped) -layout '$(IMAGES)/evictd' $(foreach a,$(ARCHS),"$(a)=$$node/$(a)")
	'$(IMAGES)/stage/image' -name evictd-scheduler $(stamped) -user 65532:65532 -layout '$(IMAGES)/evictd-scheduler' $(foreach a,$(ARCHS),"$(a)=$$scheduler/$(a)")
	rm -rf '$(IMAGES)/stage'

# A version without a dot is no semantic one.
chartversion := $(if $(findstring .,$(VERSION)),$(VERSION:v%=%),0.0.0-g$(VERSION))

.PHONY: chart
chart: helm ## pack the Helm chart into PACKAGES
	@rm -rf '$(PACKAGES)'/evictd-*.tgz bin/chart
	test/deploy/bin/helm package deploy/chart/evictd --version '$(chartversion)' --app-version '$(VERSION:v%=%)' --destination bin/chart >/dev/null
	# helm stamps the time into it.
	tar -x -z -C bin/chart -f bin/chart/evictd-*.tgz
	tar -c -C bin/chart --sort=name --mtime=@$(COMMITTED) --owner=0 --group=0 --numeric-owner --mode=go=rX,u+rw evictd | gzip -9n >'$(PACKAGES)/evictd-$(chartversion).tgz'
	rm -rf bin/chart
	echo 'created chart: $(PACKAGES)/evictd-$(chartversion).tgz'

.PHONY: push
push: image ## push both images to REGISTRY, tagged with the version
	@for name in evictd evictd-scheduler; do
		go -C internal/tools run ./image -layout '$(abspath $(IMAGES))'/$$name -push '$(or $(REGISTRY),$(error REGISTRY is not set: it is the registry and path to push to))'/$$name:'$(VERSION:v%=%)'
	done

# The tag before, if there is one.
since := $(shell git describe --tags --abbrev=0 HEAD^ 2>/dev/null)

.PHONY: release
release: ## leave in RELEASE, for ARCHS: packages, images, lists of their software, the chart, the changes since the last tag, checksums
	@rm -rf '$(RELEASE)'
	mkdir -p '$(RELEASE)'
	for arch in $(ARCHS); do
		$(MAKE) --no-print-directory deb rpm sysext software PACKAGES='$(RELEASE)' GOARCH=$$arch
	done
	$(MAKE) --no-print-directory chart PACKAGES='$(RELEASE)'
	$(MAKE) --no-print-directory image IMAGES='$(RELEASE)/image'
	git log --no-merges --format='- %s' $(if $(since),$(since)..)HEAD >'$(RELEASE)/CHANGES'
	cd '$(RELEASE)'
	find . -type f ! -name SHA256SUMS -printf '%P\0' | sort -z | xargs -0 sha256sum >SHA256SUMS

.PHONY: vm-campaign
vm-campaign: deb ## campaigns in a virtual machine, cgroup v2 with either cgroup driver; EVICTD_BOMBS, EVICTD_RUNS, EVICTD_ROUNDS
	@EVICTD_VM=1 EVICTD_CAMPAIGN=1 go test -v -count=1 -timeout 0 -run '^TestCampaign' ./test/vm

.PHONY: vm-cluster
vm-cluster: deb cluster ## evictd beside real kubelets with the cgroup driver systemd, a whole cluster in that machine
	@EVICTD_VM=1 go test -v -count=1 -timeout 90m -run '^TestCluster$$' ./test/vm

.PHONY: bench-deployment
bench-deployment: ## how soon evictd sends the first signal as a unit and as a process of a pod, in one run; EVICTD_ROUNDS=4
	@EVICTD_CAMPAIGN=1 go $(measuring) -timeout 30m -v -run '^TestCampaignReactionOfADeployment$$' ./test/systemd | $(figures)

.PHONY: vm-chart
vm-chart: deb cluster helm ## the Helm chart beside real kubelets, which installs the unit of that machine, an upgrade during an eviction, an uninstallation
	@$(MAKE) --no-print-directory image IMAGES=bin/image ARCHS=amd64 VERSION=test
	EVICTD_VM=1 go test -v -count=1 -timeout 90m -run '^TestChart$$' ./test/vm

.PHONY: bench-vm
bench-vm: deb ## memory bombs in that machine with evictd, earlyoom, systemd-oomd, the kernel alone; EVICTD_ROUNDS=3
	@EVICTD_VM=1 go test -v -count=1 -timeout 90m -run '^TestComparison$$' ./test/vm | grep -e '^|' -e FAIL

.PHONY: bench-notices
bench-notices: deb ## in that machine: what marks of memory.high cost a reader and an allocator, and passes a minute; EVICTD_ROUNDS=3
	@EVICTD_VM=1 go test -v -count=1 -timeout 90m -run '^TestNotices$$' ./test/vm | grep -e '^|' -e FAIL

.PHONY: bench-ladder
bench-ladder: deb ## in that machine: five shortages of memory with and without a step before an eviction; EVICTD_ROUNDS=1
	@EVICTD_VM=1 go test -v -count=1 -timeout 90m -run '^TestLadder$$' ./test/vm | grep -e '^|' -e FAIL

.PHONY: bench-stall
bench-stall: deb ## in that machine: what pods read back, and how long tasks wait for memory, as more of a file has no room
	@EVICTD_VM=1 go test -v -count=1 -timeout 90m -run '^TestStallFigures$$' ./test/vm | grep -e '^|' -e FAIL

.PHONY: cluster-campaign
cluster-campaign: cluster ## evictions while the API server is away for 5, 30 and 150 s, and while the kubelet collects images; takes twenty minutes
	@EVICTD_CAMPAIGN=1 go -C test/containerd $(measuring) -timeout 60m -v $(TESTFLAGS) -run '^TestCampaign(Eviction|Disk)' ./cluster

.PHONY: clean
clean: ## remove what build made
	@rm -rf bin

.PHONY: help
help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 16
