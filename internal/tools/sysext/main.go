// Command sysext makes an image for systemd-sysext(8) of a directory: an EROFS file system in
// which everything belongs to root. It is the same, byte for byte, whenever it is made of the
// same files.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"time"

	"github.com/erofs/go-erofs"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "sysext:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	flags := flag.NewFlagSet("sysext", flag.ContinueOnError)
	epoch := flags.Int64("epoch", 0, "time of every file and of the image, in `SECONDS` since 1970")
	out := flags.String("out", "", "`FILE` that gets the image")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() != 1 || *out == "" {
		return errors.New("expected -out FILE DIRECTORY")
	}
	file, err := os.Create(*out)
	if err != nil {
		return err
	}
	err = errors.Join(write(file, os.DirFS(flags.Arg(0)), time.Unix(*epoch, 0)), file.Close())
	if err != nil {
		return fmt.Errorf("make image %s of %s: %w", *out, flags.Arg(0), err)
	}
	return nil
}

// write makes an image of a directory, in the order of the names. Only the name, the content,
// and whether the owner may execute it count of a file.
func write(to io.WriteSeeker, from fs.FS, modified time.Time) error {
	image := erofs.Create(to, erofs.WithBuildTime(uint64(modified.Unix()), 0))
	err := fs.WalkDir(from, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		at := path.Join("/", name)
		switch {
		case info.IsDir():
			err = image.Mkdir(at, 0o755)
		case info.Mode().IsRegular():
			err = add(image, at, from, name, info.Mode())
		default:
			err = fmt.Errorf("%s: %s; expected a regular file", name, info.Mode())
		}
		return errors.Join(err, image.Chown(at, 0, 0), image.Chtimes(at, modified, modified))
	})
	return errors.Join(err, image.Close())
}

// add adds a file to an image.
func add(image *erofs.Writer, at string, from fs.FS, name string, mode fs.FileMode) error {
	content, err := from.Open(name)
	if err != nil {
		return err
	}
	defer content.Close()
	file, err := image.Create(at)
	if err != nil {
		return err
	}
	_, err = io.Copy(file, content)
	perm := fs.FileMode(0o644)
	if mode&0o100 != 0 {
		perm = 0o755
	}
	return errors.Join(err, file.Chmod(perm), file.Close())
}
