package osprocess

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

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

// ReplaceFile writes a temporary file and renames it, so that readers see the old file or the new one.
func ReplaceFile(name string, data []byte, mode os.FileMode) error {
	f, err := os.CreateTemp(filepath.Dir(name), "."+filepath.Base(name)+".*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.Write(data)
	if err := errors.Join(err, f.Chmod(mode), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), name)
}

// Exchange has two files change places at once (renameat2(2)), so that from and what to was are both there after it.
// Where the filesystem cannot do that, from takes the place of to. The kernel has begun to write from before: after a
// power failure the place has one of the two, as ext4 and btrfs ensure for rename(2).
func Exchange(from, to string) error {
	f, err := os.OpenFile(from, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_ = unix.SyncFileRange(int(f.Fd()), 0, 0, unix.SYNC_FILE_RANGE_WRITE) // some filesystems have none
	if err := f.Close(); err != nil {
		return err
	}
	return rename(from, to, unix.RENAME_EXCHANGE)
}

// RenameNew renames a file to a path at which there is none, else the error is fs.ErrExist. Where the filesystem cannot
// do that at once, it takes the place of what is there.
func RenameNew(from, to string) error { return rename(from, to, unix.RENAME_NOREPLACE) }

func rename(from, to string, flags uint) error {
	err := unix.Renameat2(unix.AT_FDCWD, from, unix.AT_FDCWD, to, flags)
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) {
		return os.Rename(from, to)
	}
	return err
}
