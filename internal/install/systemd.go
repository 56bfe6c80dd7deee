package install

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"github.com/coreos/go-systemd/v22/dbus"
	godbus "github.com/godbus/dbus/v5"
)

// hasSystemd says whether systemd is the service manager of a host, by sd_booted(3).
func hasSystemd(root string) bool {
	info, err := os.Lstat(filepath.Join(root, "run/systemd/system"))
	return err == nil && info.IsDir()
}

// systemd is that of a host, over its own socket.
type systemd struct{ conn *dbus.Conn }

// connect connects to the systemd of the host.
func connect(root string) (*systemd, error) {
	socket := filepath.Join(root, "run/systemd/private")
	conn, err := dbus.NewConnection(func() (*godbus.Conn, error) {
		c, err := godbus.Dial("unix:path=" + socket)
		if err != nil {
			return nil, err
		}
		if err := c.Auth([]godbus.Auth{godbus.AuthExternal(strconv.Itoa(os.Getuid()))}); err != nil {
			return nil, errors.Join(err, c.Close())
		}
		return c, nil
	})
	if err != nil {
		return nil, fmt.Errorf("connect to systemd at %s: %w", socket, err)
	}
	return &systemd{conn}, nil
}

func (s *systemd) close() { s.conn.Close() }

// started is true: systemd restarts evictd by itself.
func (s *systemd) started() bool { return true }

// take has systemd read the units that were written, and start or restart them.
func (s *systemd) take(ctx context.Context) error {
	if err := s.conn.ReloadContext(ctx); err != nil {
		return fmt.Errorf("have systemd read its units: %w", err)
	}
	if _, _, err := s.conn.EnableUnitFilesContext(ctx, units, false, true); err != nil {
		return fmt.Errorf("enable the units: %w", err)
	}
	for _, unit := range units {
		start := s.conn.StartUnitContext
		if unit == service {
			start = s.conn.RestartUnitContext
		}
		if err := job(ctx, start, unit); err != nil {
			return err
		}
	}
	return nil
}

// job waits for the end of a job of systemd.
func job(ctx context.Context, begin func(context.Context, string, string, chan<- string) (int, error), unit string) error {
	ended := make(chan string, 1)
	if _, err := begin(ctx, unit, "replace", ended); err != nil {
		return fmt.Errorf("job for %s: %w", unit, err)
	}
	select {
	case result := <-ended:
		if result != "done" {
			return fmt.Errorf("job for %s: %s", unit, result)
		}
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// state is active, or names the state of evictd.service, such as failed.
func (s *systemd) state(ctx context.Context) (string, error) {
	state, err := s.unitState(ctx, service)
	if err == nil && state != active {
		state = service + " is " + state
	}
	return state, err
}

// unitState is the active state of a unit.
func (s *systemd) unitState(ctx context.Context, unit string) (string, error) {
	p, err := s.conn.GetUnitPropertyContext(ctx, unit, "ActiveState")
	if err != nil {
		return "", fmt.Errorf("read the state of %s: %w", unit, err)
	}
	state, _ := p.Value.Value().(string)
	return state, nil
}

// stop stops and disables all units, those that were not started too.
func (s *systemd) stop(ctx context.Context) error {
	agents, err := s.conn.ListUnitsByPatternsContext(ctx, nil, []string{"evictd-agent@*.service"})
	if err != nil {
		return fmt.Errorf("list the agents: %w", err)
	}
	all := []string{service, "evictd.socket", "evictd-agent.socket"}
	for _, agent := range agents {
		all = append(all, agent.Name)
	}
	all = append(all, "evictd.slice")
	for _, unit := range all {
		state, err := s.unitState(ctx, unit)
		if err != nil {
			return err
		}
		if state == "inactive" || state == "" {
			continue
		}
		if err := job(ctx, s.conn.StopUnitContext, unit); err != nil {
			if state, _ := s.unitState(ctx, unit); state != "inactive" && state != "failed" {
				return err
			}
		}
	}
	if _, err := s.conn.DisableUnitFilesContext(ctx, units, false); err != nil {
		return fmt.Errorf("disable the units: %w", err)
	}
	return nil
}

// forget has systemd drop units whose files are gone, and that they have failed.
func (s *systemd) forget(ctx context.Context) error {
	_ = s.conn.ResetFailedUnitContext(ctx, service) // it is not loaded if it has not failed
	return s.conn.ReloadContext(ctx)
}
