// Package install installs evictd on the host of a pod, whose root filesystem is mounted in
// the pod: it writes programs and units, has the host's systemd run them, keeps the token and
// the configuration of the host equal to those of the pod, and removes everything again.
//
// A pod lives in the cgroup of the pods, with which it shares the memory that evictd guards.
// So evictd itself never runs there: on a host without systemd it is a process of the pod in a
// cgroup beside that of the pods.
package install

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/evictd/evictd/internal/cli"
	"github.com/evictd/evictd/internal/process"
)

// Config of an Installer.
type Config struct {
	Root      string // where the host's root is mounted
	Prefix    string // where the host gets the programs, in a directory bin
	Version   string
	StateFile string        // where Run leaves for Ready what it sees; empty for nowhere
	Interval  time.Duration // how often the pod's files are compared with the host's
	InPod     bool          // run evictd in this pod where the host has no systemd
	Image     Image
}

// Installer keeps a host as its image wants it.
type Installer struct {
	cfg     Config
	log     *slog.Logger
	files   *Files
	state   string // of evictd, as it was logged last
	checked string // the configuration that evictd has accepted last
	inPod   *inPod // nil until it is needed
}

// manager runs evictd on the host.
type manager interface {
	// take starts evictd, or restarts it, with the files that are there.
	take(context.Context) error
	// started says whether evictd needs no take while no file changes.
	started() bool
	// state is active, or what is wrong with evictd.
	state(context.Context) (string, error)
	// stop ends evictd, if it runs.
	stop(context.Context) error
	// forget removes what take has made, after stop and the end of the files.
	forget(context.Context) error
	close()
}

// active is the state of an evictd that is ready.
const active = "active"

// manager is that of the host.
func (i *Installer) manager() (manager, error) {
	if hasSystemd(i.cfg.Root) {
		return connect(i.cfg.Root)
	}
	if i.inPod == nil {
		command := append([]string{program(i.cfg.Prefix, "evictd"), "run", "--config", configPath}, i.cfg.Image.arguments()...)
		var err error
		if i.inPod, err = newInPod(i.cfg.Root, command, os.Stderr, i.log); err != nil {
			return nil, err
		}
	}
	return i.inPod, nil
}

// New is an installer that has done nothing yet.
func New(cfg Config, log *slog.Logger) *Installer {
	return &Installer{cfg: cfg, log: log, files: NewFiles(cfg.Root)}
}

// jobTimeout is for one change of the host, including a stop and a start of evictd.
const jobTimeout = 2 * time.Minute

// Run installs, and then follows the pod's files and the state of evictd until ctx ends, after
// which a host with systemd keeps everything. An error says why this host gets no evictd.
func (i *Installer) Run(ctx context.Context) error {
	if i.cfg.StateFile != "" {
		_ = os.Remove(i.cfg.StateFile) // of the container before
	}
	if err := i.foreign(); err != nil {
		return err
	}
	if !hasSystemd(i.cfg.Root) {
		if !i.cfg.InPod {
			return errors.New("the host has no systemd: expected --in-pod (node.inPod of the chart), with which evictd runs in this pod, or a DaemonSet without this node")
		}
		i.log.Warn("the host has no systemd: evictd runs in this pod, ends with it, and has no watchdog and no sandbox")
	}
	if i.legacy() {
		i.log.Warn("the host has cgroup v1: evictd has fewer means there; evictd doctor lists what is lost")
	}
	err := i.follow(ctx)
	if i.inPod != nil {
		err = errors.Join(err, i.inPod.stop(context.Background()), i.inPod.forget(context.Background()))
	}
	if _, is := errors.AsType[*refusedError](err); is {
		err = cli.BadInput(err)
	}
	return err
}

// step makes the host equal to the pod's files once.
func (i *Installer) step(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, jobTimeout)
	defer cancel()
	change, err := i.update()
	if err != nil {
		return err
	}
	m, err := i.manager()
	if err != nil {
		return err
	}
	defer m.close()
	return errors.Join(i.apply(ctx, m, change), i.observe(ctx, m))
}

// apply has the host run what was written. A new token needs nothing: the agent reads the file.
func (i *Installer) apply(ctx context.Context, m manager, change Change) error {
	restart := change.Unfinished || !m.started() || slices.ContainsFunc(change.Changed, func(path string) bool { return path != tokenPath })
	if restart {
		i.log.Info("evictd is started with new files", "version", i.cfg.Version, "files", len(change.Changed))
		if err := m.take(ctx); err != nil {
			return err
		}
	}
	return i.files.Finish()
}

// follow keeps the host up to date until ctx ends. An error of the first time is final, and an evictd in
// the pod that refuses to run.
func (i *Installer) follow(ctx context.Context) error {
	tick := time.NewTicker(i.cfg.Interval)
	defer tick.Stop()
	for first := true; ; first = false {
		err := i.step(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if _, is := errors.AsType[*refusedError](err); is || first && err != nil {
			return err
		}
		if err != nil {
			i.report(err.Error())
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// update writes what differs to the host. A configuration that evictd refuses changes nothing.
func (i *Installer) update() (Change, error) {
	files, err := i.cfg.Image.files(i.cfg.Prefix)
	if err == nil && hasSystemd(i.cfg.Root) {
		var units []File
		units, err = i.cfg.Image.units(i.cfg.Prefix)
		files = append(files, units...)
	}
	if err != nil {
		return Change{}, err
	}
	if err := i.check(files); err != nil {
		return Change{}, err
	}
	return i.files.Write(i.cfg.Version, files)
}

// check has evictd read a configuration that it has not accepted before; only on the host can evictd say what the host lacks.
func (i *Installer) check(files []File) error {
	at := slices.IndexFunc(files, func(f File) bool { return f.Path == configPath })
	config := files[at].Content
	if string(config) == i.checked {
		return nil
	}
	c := exec.Command(filepath.Join(i.cfg.Image.Programs, "evictd"), "check-config", "--offline", "-")
	c.Stdin = bytes.NewReader(config)
	if out, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("the configuration is refused, and the host keeps the one it has: %w: %s", err, strings.TrimSpace(string(out)))
	}
	i.checked = string(config)
	return nil
}

// observe reports the state of evictd.
func (i *Installer) observe(ctx context.Context, m manager) error {
	state, err := m.state(ctx)
	if err != nil {
		return err
	}
	if state == active {
		state = cmp.Or(i.notReady(ctx), state)
	}
	i.report(state)
	return nil
}

// ready is where evictd says whether it is ready, with the configuration that the installer has given it.
const ready = "/readyz?include=configuration"

// notReady says why evictd is not ready; "" if it is, or does not answer at its default address.
func (i *Installer) notReady(ctx context.Context) string {
	ctx, cancel := context.WithTimeout(ctx, stopTimeout)
	defer cancel()
	why, err := process.Get(ctx, statusClient(i.cfg.Root), ready)
	if err == nil || len(why) == 0 {
		return ""
	}
	return "evictd is not ready: " + strings.TrimSpace(string(why))
}

// report logs a state that is new and leaves it for Ready.
func (i *Installer) report(state string) {
	if state != i.state {
		i.log.Info("state of evictd", "state", state)
	}
	i.state = state
	if i.cfg.StateFile != "" {
		if err := os.WriteFile(i.cfg.StateFile, []byte(state), 0o644); err != nil {
			i.log.Error("the state of evictd cannot be written", "error", err)
		}
	}
}

// Ready is nil if Run has last seen evictd active, or Uninstall has ended.
func Ready(stateFile string) error {
	text, err := os.ReadFile(stateFile)
	if errors.Is(err, fs.ErrNotExist) {
		return errors.New("nothing is installed yet")
	}
	if err != nil {
		return err
	}
	if state := string(text); state != active && state != removed {
		return errors.New(state)
	}
	return nil
}

// foreign is an error if the host has an evictd from elsewhere.
func (i *Installer) foreign() error {
	for _, dir := range []string{"usr/lib/systemd/system", "lib/systemd/system", "usr/local/lib/systemd/system"} {
		if _, err := os.Stat(filepath.Join(i.cfg.Root, dir, service)); err == nil {
			return fmt.Errorf("the host has an evictd that a package has installed (/%s/%s): remove the package, or keep this node out of the DaemonSet", dir, service)
		}
	}
	return nil
}

// legacy says whether the host's memory controller is that of cgroup v1.
func (i *Installer) legacy() bool {
	_, err := os.Stat(filepath.Join(i.cfg.Root, "sys/fs/cgroup/memory/cgroup.procs"))
	return err == nil
}

// UninstallVariable has evictd-install uninstall, where it is "true" in the environment: a DaemonSet's
// pods are changed by one variable.
const UninstallVariable = "EVICTD_UNINSTALL"

// removed is the state after Uninstall.
const removed = "uninstalled"

// Uninstall stops evictd and removes what was written to the host, the state of evictd
// included. A host where nothing is installed stays as it is.
func (i *Installer) Uninstall(ctx context.Context) error {
	installed, err := i.files.Installed()
	if err != nil {
		return err
	}
	if !installed {
		i.report(removed)
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, jobTimeout)
	defer cancel()
	m, err := i.manager()
	if err != nil {
		return err
	}
	defer m.close()
	if err := m.stop(ctx); err != nil {
		return err
	}
	if err := errors.Join(i.files.Remove(stateDir, runtimeDir), m.forget(ctx)); err != nil {
		return err
	}
	i.report(removed)
	return nil
}
