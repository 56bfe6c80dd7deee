package main

import (
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evictd/evictd/eviction/config"
	"github.com/evictd/evictd/eviction/daemon"
	"github.com/evictd/evictd/internal/osprocess"
	"github.com/evictd/evictd/internal/serve"
)

// runFlags adds the flags of `evictd run`; see contract of the same names.
func runFlags(flags *pflag.FlagSet) *overrides {
	o := kubeletFlags(flags)
	type file = config.EvictdConfiguration
	o.text("mode", "native|takeover|backstop|observe: names of conditions and taints, and whether it acts (default backstop with an API server, native standalone and with the embedded API)", func(c *file) *string { return &c.Mode })
	o.truth("dry-run", "decide and report, touch nothing", func(c *file) *bool { return &c.DryRun })
	o.text("node-name", "the Node it speaks for (default the host name)", func(c *file) *string { return &c.NodeName })
	o.text("cgroup-root", "the cgroup taken as the node (default the root of the hierarchy)", func(c *file) *string { return &c.CgroupRoot })
	o.text("pods-cgroup", "where pods live below the root, several separated by commas (default kubepods or kubepods.slice)", func(c *file) *string { return &c.PodsCgroup })
	o.text("pod-manifests", "directory of v1.Pod manifests of this node", func(c *file) *string { return &c.PodManifests })
	o.text("kubeconfig", "kubeconfig of the API server (default none: standalone)", func(c *file) *string { return &c.Kubeconfig })
	o.text("server", "URL of the API server, or unix:PATH of the embedded one", func(c *file) *string { return &c.Server })
	o.text("cri-endpoint", "container runtime: unix:PATH, or none (default found among the usual sockets)", func(c *file) *string { return &c.CRIEndpoint })
	o.text("runc-state", "directories in which runc keeps its containers, patterns separated by commas, or none (default the usual ones, if an agent runs for anything else)", func(c *file) *string { return &c.RuncState })
	o.text("nodefs", "path on the node's filesystem (default /var/lib/kubelet or /)", func(c *file) *string { return &c.NodeFs })
	root := flags.String("root-dir", "", "the kubelet's root directory: nodefs, if that is not given")
	o.set["root-dir"] = func(c *file) {
		if !flags.Changed("nodefs") {
			c.NodeFs = *root
		}
	}
	o.text("imagefs", "path on the images' filesystem (default that of nodefs)", func(c *file) *string { return &c.ImageFs })
	o.text("containerfs", "path on the writable layers' filesystem (default that of imagefs)", func(c *file) *string { return &c.ContainerFs })
	o.text("node-status-file", "file for the Node manifest with conditions and taints, replaced on change", func(c *file) *string { return &c.NodeStatusFile })
	o.text("status-address", "unix:PATH, IP:PORT, several separated by commas, or none (default "+daemon.DefaultStatusAddress+")", func(c *file) *string { return &c.StatusAddress })
	o.text(serve.CertFlag, serve.CertUsage, func(c *file) *string { return &c.StatusTLSCertFile })
	o.text(serve.KeyFlag, serve.KeyUsage, func(c *file) *string { return &c.StatusTLSPrivateKeyFile })
	o.text(serve.ClientCAFlag, serve.ClientCAUsage, func(c *file) *string { return &c.StatusClientCAFile })
	o.text("state-dir", "directory for what survives a restart (default "+daemon.DefaultStateDir+")", func(c *file) *string { return &c.StateDir })
	o.text("agent-address", "unix:PATH where the service manager starts evictd-agent (default none: evictd starts it)", func(c *file) *string { return &c.AgentAddress })
	o.text("runtime-dir", "directory, on a tmpfs, for what must be undone or reported if evictd is killed (default "+daemon.DefaultRuntimeDir+")", func(c *file) *string { return &c.RuntimeDir })
	o.text("soft-eviction", "api|request|direct: whether soft victims are evicted by the Eviction API, which respects disruption budgets, by an EvictionRequest, which is withdrawn when the pressure ends, or at once (default direct in native mode, api in others)", func(c *file) *string { return &c.SoftEviction })
	o.duration("soft-eviction-deadline", "how long the Eviction API, or an EvictionRequest, may hold a soft victim back (default 30s)", func(c *file) *metav1.Duration { return &c.SoftEvictionDeadline })
	o.text("node-memory", "take the node for a virtual one of this much memory, used by the pods' processes alone", func(c *file) *string { return &c.NodeMemory })
	notified := flags.Bool("kernel-memcg-notification", true, "have the kernel notify of memory: at a threshold of cgroup v1, or by memory.high of the pods' cgroup of v2, halfway to a threshold; evictd polls either way")
	o.set["kernel-memcg-notification"] = func(c *file) { c.KernelMemcgNotification = notified }
	o.truth("memory-high-tripwire", "on cgroup v2, have the kernel slow down pods just before a hard threshold of memory is crossed, 2s at most", func(c *file) *bool { return &c.MemoryHighTripwire })
	scored := flags.Bool("oom-score-adj", false, "set the oom_score_adj of containers' processes as the kubelet does (default true in native mode, false in others)")
	o.set["oom-score-adj"] = func(c *file) { c.OOMScoreAdj = scored }
	o.duration("housekeeping-interval", "the regular pass (default 10s)", func(c *file) *metav1.Duration { return &c.HousekeepingInterval })
	grace := flags.Duration("hard-eviction-grace-period", daemon.LongestHardGrace, "from SIGTERM to SIGKILL of hard victims, 0s to 1s")
	o.set["hard-eviction-grace-period"] = func(c *file) { c.HardEvictionGracePeriod = &metav1.Duration{Duration: *grace} }
	return o
}

func runCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "run",
		Short: "Protect this node",
		Args:  cobra.NoArgs,
	}
	path := c.Flags().String("config", "", "EvictdConfiguration or KubeletConfiguration (default the kubelet's thresholds)")
	force := c.Flags().Bool("force", false, "run in native mode although a kubelet runs here")
	flags := runFlags(c.Flags())
	c.RunE = func(c *cobra.Command, _ []string) error {
		osprocess.LimitHeap(50)
		hup := make(chan os.Signal, 1)
		signal.Notify(hup, syscall.SIGHUP)
		defer signal.Stop(hup)
		from := &configFile{path: *path, flags: flags, c: c}
		file, refused, err := from.start(*force)
		if err != nil {
			return err
		}
		writer := daemon.NewLogWriter(c.ErrOrStderr())
		defer writer.Close()
		log := slog.New(slog.NewTextHandler(writer, nil))
		d, err := daemon.New(daemon.Config{
			File: file, Refused: refused, Load: from.load, Reload: hup, Force: *force, Version: version,
			Accepted: func(file config.EvictdConfiguration) { from.accept(file.StateDir, log) },
		}, log)
		if err != nil {
			return flags.name(*path, err)
		}
		return d.Run(c.Context())
	}
	return c
}
