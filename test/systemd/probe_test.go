package systemd_test

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// probeArgument makes the test binary a program that tries system calls under a
// service's sandbox.
const probeArgument = "evictd-probe"

// probe tries what a kill needs, which must reach the kernel, and what evictd has
// no use for, which must not.
func probe() int {
	const none = ^uintptr(0)
	call := func(number uintptr, args ...uintptr) error {
		var a [3]uintptr
		copy(a[:], args)
		_, _, errno := syscall.Syscall(number, a[0], a[1], a[2])
		if errno == 0 {
			return nil
		}
		return errno
	}
	list := func(dir string) error { _, err := os.ReadDir(dir); return err }
	failed := 0
	for _, c := range []struct {
		name string
		got  error
		want error
	}{
		{"pidfd_open", call(unix.SYS_PIDFD_OPEN, none), syscall.EINVAL},
		{"pidfd_send_signal", call(unix.SYS_PIDFD_SEND_SIGNAL, none), syscall.EBADF},
		{"process_mrelease", call(unix.SYS_PROCESS_MRELEASE, none), syscall.EBADF},
		{"setpriority", syscall.Setpriority(syscall.PRIO_PROCESS, 0, -15), nil},
		{"sched_setattr", call(unix.SYS_SCHED_SETATTR, none), syscall.EINVAL},
		{"mlockall", syscall.Mlockall(0), syscall.EINVAL},
		{"setuid", syscall.Setuid(1), syscall.EPERM},
		{"ptrace", call(syscall.SYS_PTRACE, 16, 1), syscall.EPERM},
		{"process_vm_readv", call(unix.SYS_PROCESS_VM_READV, 1), syscall.EPERM},
		{"pidfd_getfd", call(unix.SYS_PIDFD_GETFD, none), syscall.EPERM},
		{"list the open files of a process with all capabilities", list("/proc/1/fd"), nil},
		{"see its root", list("/proc/1/root"), nil},
		{"mount", syscall.Mount("none", "/mnt", "tmpfs", 0, ""), syscall.EPERM},
		{"internet socket", call(syscall.SYS_SOCKET, syscall.AF_INET, syscall.SOCK_STREAM), syscall.EAFNOSUPPORT},
		{"write to /usr", os.WriteFile("/usr/evictd-probe", nil, 0o600), syscall.EROFS},
		{"write to /etc", os.WriteFile("/etc/evictd/probe", nil, 0o600), syscall.EROFS},
		{"write to other logs", os.WriteFile("/var/log/evictd-probe", nil, 0o600), syscall.EROFS},
		{"write to its state", os.WriteFile("/var/lib/evictd/probe", nil, 0o600), nil},
		{"write to what is to be undone", os.WriteFile("/run/evictd/probe", nil, 0o600), nil},
		{"write to the logs of pods", os.WriteFile("/var/log/pods/probe", nil, 0o600), nil},
		{"write to links to them", os.WriteFile("/var/log/containers/probe", nil, 0o600), nil},
	} {
		if !errors.Is(c.got, c.want) {
			fmt.Printf("%s: %v, want %v\n", c.name, c.got, c.want)
			failed = 1
		}
	}
	fmt.Println("probed")
	return failed
}
