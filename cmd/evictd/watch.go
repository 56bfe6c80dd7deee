package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	"github.com/evictd/evictd/internal/serve"
)

// viewName is the program that shows the live view.
const viewName = "evictd-top"

// becomeView replaces this process by the live view, which lies beside its file or
// in PATH. It returns only where that fails.
func becomeView(client *serve.Client) error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find %s: %w", viewName, err)
	}
	path := filepath.Join(filepath.Dir(self), viewName)
	if _, err := os.Stat(path); err != nil {
		if path, err = exec.LookPath(viewName); err != nil {
			return fmt.Errorf("find the live view: %w", err)
		}
	}
	if err := syscall.Exec(path, append([]string{viewName}, client.Arguments()...), os.Environ()); err != nil {
		return fmt.Errorf("start %s: %w", path, err)
	}
	return nil
}
