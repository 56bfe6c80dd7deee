package uml

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// orders are what init runs.
type orders struct {
	Args    []string
	Dir     string
	Env     []string
	Systemd bool
	Init    string // the program that calls Main
	Modules string // directory of the kernel's modules
}

// dirVariable names the directory of the machine to init, and to the service that runs the command.
// The kernel passes what it does not know of its command line to init's environment.
const dirVariable = "evictd_uml"

// Main becomes the init process of a user-mode kernel if this process is one, or the service that
// runs the command where systemd is init. It then does not return: the power of the machine goes
// as the command ends, and what was not synchronized is lost.
func Main() {
	dir := os.Getenv(dirVariable)
	if dir == "" {
		return
	}
	status, err := runOrders(dir, os.Getpid() == 1)
	if err == nil {
		err = os.WriteFile("/dev/ttyS1", fmt.Appendf(nil, "exit %d\n", status), 0)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "init:", err) // to the console
	}
	_ = unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF)
	select {}
}

func runOrders(dir string, init bool) (status int, err error) {
	text, err := os.ReadFile(filepath.Join(dir, "orders"))
	if err != nil {
		return 0, err
	}
	var o orders
	if err := json.Unmarshal(text, &o); err != nil {
		return 0, err
	}
	if !init {
		return run(o)
	}
	if o.Modules != "" {
		if err := loadModule(filepath.Join(o.Modules, "kernel/fs/overlayfs/overlay.ko")); err != nil {
			return 0, err
		}
	}
	if err := enterRoot(); err != nil {
		return 0, err
	}
	if o.Systemd {
		return 0, becomeSystemd(dir, o.Init)
	}
	if err := errors.Join(mountKernelFiles(), bringUpLoopback()); err != nil {
		return 0, err
	}
	return run(o)
}

// unit is the service that runs the command under systemd.
const unit = `[Unit]
After=basic.target
Requires=basic.target
Wants=dbus.socket
[Service]
Environment=%s=%s
ExecStart=%s
StandardError=journal+console
OOMPolicy=continue
OOMScoreAdjust=-900
`

// becomeSystemd replaces this process by systemd, which starts nothing that the host has enabled
// but what its own basic.target takes.
func becomeSystemd(dir, init string) error {
	const units = "/etc/systemd/system"
	if err := errors.Join(os.RemoveAll(units), os.RemoveAll("/.dockerenv")); err != nil {
		return err
	}
	for file, text := range map[string]string{
		units + "/command.service": fmt.Sprintf(unit, dirVariable, dir, init),
		"/etc/fstab":               "",
		"/etc/tmpfiles.d/tmp.conf": "", // which has /tmp emptied at the boot
		"/etc/machine-id":          "",
		"/etc/hostname":            hostname + "\n",
		"/etc/hosts":               "127.0.0.1 localhost " + hostname + "\n",
	} {
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(text), 0o644)); err != nil {
			return err
		}
	}
	const systemd = "/lib/systemd/systemd"
	return fmt.Errorf("start %s (Debian's package systemd has it): %w", systemd,
		unix.Exec(systemd, []string{systemd, "--unit=command.service", "--show-status=no"}, []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"}))
}

func loadModule(file string) error {
	module, err := os.Open(file)
	if err != nil {
		return err
	}
	defer module.Close()
	if err := unix.FinitModule(int(module.Fd()), "", 0); err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("load %s: %w", file, err)
	}
	return nil
}

// mount is an argument list of mount(2).
type mount struct {
	source, target, kind string
	flags                uintptr
	options              string
}

func (m mount) do() error {
	if err := unix.Mount(m.source, m.target, m.kind, m.flags, m.options); err != nil {
		return fmt.Errorf("mount %s at %s: %w", m.kind, m.target, err)
	}
	return nil
}

// enterRoot makes the disk and the host's files one root file system: what is changed goes to the
// disk. /var/tmp, the directory of temporary files, is on the disk itself.
func enterRoot() error {
	const disk, root = "/mnt", "/mnt/root"
	err := mount{source: "devtmpfs", target: "/dev", kind: "devtmpfs"}.do()
	if err != nil && !errors.Is(err, unix.EBUSY) {
		return err
	}
	if err := (mount{source: "/dev/ubda", target: disk, kind: "ext4"}).do(); err != nil {
		return err
	}
	for _, name := range []string{"upper", "work", "root", "tmp"} {
		if err := os.Mkdir(filepath.Join(disk, name), 0o755); err != nil {
			return err
		}
	}
	if err := os.Chmod(disk+"/tmp", 0o777|os.ModeSticky); err != nil {
		return err
	}
	for _, m := range []mount{
		{source: "overlay", target: root, kind: "overlay", options: "lowerdir=/,upperdir=" + disk + "/upper,workdir=" + disk + "/work"},
		{source: disk + "/tmp", target: root + "/var/tmp", flags: unix.MS_BIND},
		{source: root, target: "/", flags: unix.MS_MOVE},
	} {
		if m.flags == unix.MS_MOVE {
			if err := os.Chdir(root); err != nil {
				return err
			}
		}
		if err := m.do(); err != nil {
			return err
		}
	}
	return errors.Join(unix.Chroot("."), os.Chdir("/"))
}

// mountKernelFiles mounts what the kernel serves, and enables every controller of cgroup v2 at the top.
func mountKernelFiles() error {
	for _, m := range []mount{
		{source: "proc", target: "/proc", kind: "proc"},
		{source: "sysfs", target: "/sys", kind: "sysfs"},
		{source: "devtmpfs", target: "/dev", kind: "devtmpfs"},
		{source: "tmpfs", target: "/run", kind: "tmpfs", options: "mode=755"},
		{source: "cgroup2", target: "/sys/fs/cgroup", kind: "cgroup2"},
	} {
		if err := m.do(); err != nil {
			return err
		}
	}
	for target, m := range map[string]mount{
		"/dev/shm": {source: "tmpfs", kind: "tmpfs", options: "mode=1777"},
		"/dev/pts": {source: "devpts", kind: "devpts", options: "ptmxmode=0666"},
	} {
		m.target = target
		if err := errors.Join(os.MkdirAll(target, 0o755), m.do()); err != nil {
			return err
		}
	}
	const top = "/sys/fs/cgroup/"
	controllers, err := os.ReadFile(top + "cgroup.controllers")
	for name := range strings.FieldsSeq(string(controllers)) {
		err = errors.Join(err, os.WriteFile(top+"cgroup.subtree_control", []byte("+"+name), 0))
	}
	return err
}

func bringUpLoopback() error {
	socket, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(socket)
	loopback, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	loopback.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	return unix.IoctlIfreq(socket, unix.SIOCSIFFLAGS, loopback)
}

// run runs the command, and reaps every process that ends meanwhile.
func run(o orders) (status int, err error) {
	output, err := os.OpenFile("/dev/ttyS0", os.O_WRONLY|syscall.O_NOCTTY, 0)
	if err != nil {
		return 0, err
	}
	settings, err := unix.IoctlGetTermios(int(output.Fd()), unix.TCGETS)
	if err != nil {
		return 0, err
	}
	settings.Oflag &^= unix.OPOST // a line ends with a line feed alone
	if err := unix.IoctlSetTermios(int(output.Fd()), unix.TCSETS, settings); err != nil {
		return 0, err
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		return 0, err
	}
	started, err := syscall.ForkExec(o.Args[0], o.Args, &syscall.ProcAttr{
		Dir: o.Dir, Env: append(o.Env, "TMPDIR=/var/tmp"),
		Files: []uintptr{null.Fd(), output.Fd(), output.Fd()}, Sys: &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		return 0, fmt.Errorf("start %s: %w", o.Args[0], err)
	}
	for {
		var ended syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &ended, 0, nil)
		if err != nil && !errors.Is(err, syscall.EINTR) {
			return 0, fmt.Errorf("wait for %s: %w", o.Args[0], err)
		}
		if err == nil && pid == started {
			return ended.ExitStatus(), nil
		}
	}
}
