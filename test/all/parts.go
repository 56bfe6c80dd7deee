package main

// small is the part that `make test` runs.
const small = "small"

// part is a part of the tests that one kind of requirement separates from the others.
type part struct {
	name  string
	tests string // what the part tests, in a few words
	// module is the directory of the Go module; empty for the main module.
	module string
	// packages are patterns of go test. The part small runs every package of the main
	// module that no other part names.
	packages []string
	again    []string // packages of the part small, some of whose tests need what this part has
	flags    []string // of go test
	run      string   // -run of go test; empty for all tests
	env      []string // more variables
	builds   []string // make targets that are made first
	foreign  []string // make targets of foreign programs, which are made beside the tests of the parts before
	targets  []target // are made after the tests
	takes    string   // what the builds take the first time; empty for little
	needs    []need   // beside Go, git and make
}

// target is a benchmark or a campaign of the Makefile. It is made at its smallest, so that it works when it is needed.
type target struct {
	name    string
	foreign string // directory of test/ with the foreign programs that it takes; empty for none
}

// need is a program that tests of a part run, and the Debian package that has it.
// Tests that need a missing program are skipped.
type need struct{ program, debian string }

// What several parts need.
var (
	userMode   = need{"linux.uml", "user-mode-linux"}
	ext4       = need{"mkfs.ext4", "e2fsprogs"}
	xfs        = need{"mkfs.xfs", "xfsprogs"}
	loopMounts = need{"mount", "mount"}
)

// parts are all tests in the order in which `make test-all` runs them.
var parts = []part{
	{
		name: small, tests: "the programs and their packages, real cgroups and processes; readers of cgroups on v2 as well, in a user-mode kernel",
		flags: []string{"-short"},
		needs: []need{{"mkfs.btrfs", "btrfs-progs"}, userMode, ext4},
	},
	{
		name: "v2", tests: "packages that read and stop cgroups, on cgroup v2 in a user-mode kernel",
		again: []string{"./test/v2"},
		needs: []need{userMode, ext4},
	},
	{
		name: "playground", tests: "make run and its variants, black-box",
		packages: []string{"./cmd/evictd-playground"},
		builds:   []string{"build"},
	},
	{
		name: "docs", tests: "every command that the documentation shows",
		packages: []string{"./test/docs"},
		needs:    []need{{"tmux", "tmux"}, {"curl", "curl"}},
	},
	{
		name: "plugins", tests: "a scheduler with plugins that are compiled in",
		module: "test/outoftreeplugin", packages: []string{"./..."},
	},
	{
		name: "monitoring", tests: "alerts and dashboards in Prometheus' rule engine",
		module: "test/monitoring", packages: []string{"./..."},
		takes: "2 minutes",
	},
	{
		name: "packages", tests: "the container images and what make release leaves, for both architectures, reproducible, with what they say of themselves",
		module: "internal/tools", packages: []string{"./image", "./packages"},
		foreign: []string{"helm-if-possible"}, takes: "5 minutes to compile for the other architecture",
		needs: []need{{"dpkg-deb", "dpkg"}},
	},
	{
		name: "controlplane", tests: "both programs on a real kube-apiserver, beside kube-scheduler",
		packages: []string{"./test/controlplane/suite"},
		foreign:  []string{"controlplane-if-possible"}, takes: "6 minutes, 6 GiB of disk",
	},
	{
		name: "deploy", tests: "the Helm chart and the kustomize bases, on a real kube-apiserver",
		packages: []string{"./test/deploy"},
		foreign:  []string{"helm-if-possible", "controlplane-if-possible"}, takes: "2 minutes after controlplane, 2 GiB of disk",
	},
	{
		name: "kubelet", tests: "decisions on random nodes, beside those of the kubelet's eviction manager; random configurations, as the kubelet loads them",
		packages: []string{"./test/kubelet"}, again: []string{"./cmd/evictd"},
		foreign: []string{"kubelet-config-if-possible", "kubelet-eviction-if-possible"}, takes: "4 minutes, 3 GiB of disk",
	},
	{
		name: "scheduler", tests: "attempts in random clusters, beside those of kube-scheduler",
		packages: []string{"./test/scheduler"},
		foreign:  []string{"scheduling-attempts-if-possible"}, takes: "2 minutes after controlplane, 3 GiB of disk",
	},
	{
		name: "containerd", tests: "evictd on real containers, by Debian's containerd and by a current one",
		module: "test/containerd", packages: []string{"./suite", "./node"},
		foreign: []string{"containerd-if-possible"}, takes: "5 minutes, 3 GiB of disk",
		needs: []need{{"gcc", "gcc"}, {"containerd", "containerd"}, {"runc", "runc"}, ext4, xfs, loopMounts},
	},
	{
		name: "cluster", tests: "evictd beside a real kubelet, in a cluster of a kube-apiserver, its controllers and two nodes; the embedded API with real kubelets",
		module: "test/containerd", packages: []string{"./cluster"},
		foreign: []string{"cluster-if-possible", "helm-if-possible"}, takes: "5 minutes after controlplane and containerd, 1 GiB of disk",
		needs: []need{{"gcc", "gcc"}, {"runc", "runc"}, {"unshare", "util-linux"}, loopMounts},
	},
	{
		name: "systemd", tests: "the Debian package and the image of systemd-sysext under systemd in namespaces",
		packages: []string{"./test/systemd"},
		builds:   []string{"deb", "sysext"},
		needs:    []need{{"systemd-analyze", "systemd"}, {"dpkg-deb", "dpkg"}, {"deb-systemd-helper", "init-system-helpers"}, {"pgrep", "procps"}},
	},
	{
		name: "browser", tests: "the status pages in Chromium",
		module: "test/browser", packages: []string{"./..."},
		needs: []need{{"chromium", "chromium"}},
	},
	{
		name: "benchmarks", tests: "benchmarks of this host, at their smallest",
		targets: []target{
			{"bench-million", ""}, {"bench-reaction", ""}, {"bench-deployment", ""},
			{"bench-cluster", "controlplane"}, {"bench-devices", "controlplane"}, {"bench-live", "controlplane"}, {"bench-containers", "containerd"},
		},
		foreign: []string{"controlplane-if-possible", "containerd-if-possible"},
	},
	{
		name: "vm", tests: "the Debian package in a virtual machine, cgroup v2 and v1, and beside a kubelet there",
		packages: []string{"./test/vm"}, run: "^TestVirtualMachine", env: []string{"EVICTD_VM=1"},
		builds: []string{"deb"}, foreign: []string{"cluster-if-possible"}, takes: "5 minutes for the machine's disk, and what cluster takes",
		needs: []need{{"qemu-system-x86_64", "qemu-system-x86"}, {"debootstrap", "debootstrap"}},
	},
}
