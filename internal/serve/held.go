package serve

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"

	"github.com/coreos/go-systemd/v22/activation"
)

// HeldSockets are the sockets that the service manager listens on for this process
// (sd_listen_fds(3)), by their address: unix:PATH or IP:PORT. Listen removes those that
// it uses.
type HeldSockets map[string]net.Listener

// TakeHeld takes over the sockets that the environment speaks of: LISTEN_FDS and
// LISTEN_PID. Files that were opened for this process are by their names
// (LISTEN_FDNAMES). It is called once, and no child inherits them.
func TakeHeld() (held HeldSockets, files map[string]*os.File, err error) {
	held, files = HeldSockets{}, map[string]*os.File{}
	var faults []error
	for _, f := range activation.Files(true) {
		if info, err := f.Stat(); err == nil && info.Mode().Type() != os.ModeSocket {
			files[f.Name()] = f
			continue
		}
		l, err := net.FileListener(f) // a duplicate
		f.Close()
		if err != nil {
			faults = append(faults, fmt.Errorf("take over socket %s of the service manager: %w", f.Name(), err))
			continue
		}
		held[addressOf(l)] = l
	}
	return held, files, errors.Join(faults...)
}

func addressOf(l net.Listener) string {
	if l.Addr().Network() == "unix" {
		return "unix:" + l.Addr().String()
	}
	return l.Addr().String()
}

// take removes the socket of an address, nil if it is not held.
func (h HeldSockets) take(address string) net.Listener {
	l := h[address]
	delete(h, address)
	return l
}

// Release closes and logs the unused sockets, where connections would never be
// accepted.
func (h HeldSockets) Release(log *slog.Logger) {
	for address, l := range h {
		log.Warn("the service manager holds a socket that is not used here", "address", address)
		l.Close()
	}
	clear(h)
}
