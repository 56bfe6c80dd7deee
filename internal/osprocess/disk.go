package osprocess

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// SyncFilesystem brings all that was written to the filesystem of a directory to its disk
// (syncfs(2)). Before Linux 5.8 it does not report a write that failed.
func SyncFilesystem(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	if err := unix.Syncfs(int(d.Fd())); err != nil {
		return fmt.Errorf("sync the filesystem of %s: %w", dir, err)
	}
	return nil
}
