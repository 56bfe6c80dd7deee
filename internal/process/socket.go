package process

import (
	"net"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
)

// ListenAs listens on a unix socket as a user, which the kernel names to clients
// (SO_PEERCRED). It makes the socket's directory, which becomes the user's. It takes root.
func ListenAs(path string, user int) (listener *net.UnixListener, err error) {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	if err := os.Chown(dir, user, -1); err != nil {
		return nil, err
	}
	listens := make(chan struct{})
	go func() {
		defer close(listens)
		runtime.LockOSThread() // the thread ends with its user
		const same = ^uintptr(0)
		if _, _, errno := syscall.RawSyscall(syscall.SYS_SETRESUID, same, uintptr(user), same); errno != 0 {
			err = errno
			return
		}
		listener, err = net.ListenUnix("unix", &net.UnixAddr{Name: path})
	}()
	<-listens
	return listener, err
}
