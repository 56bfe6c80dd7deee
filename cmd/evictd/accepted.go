package main

import (
	"bytes"
	"cmp"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/evictd/evictd/eviction/config"
	"github.com/evictd/evictd/eviction/daemon"
	"github.com/evictd/evictd/internal/cli"
	"github.com/evictd/evictd/internal/osprocess"
)

// acceptedFile, in the state directory, is a copy of the configuration file that evictd last accepted, behind a line with
// the path of that file.
const acceptedFile = "configuration.accepted"

// configFile is the configuration file of a run.
type configFile struct {
	path  string // empty without one
	flags *overrides
	c     *cobra.Command
	text  []byte // as it was last read
}

// load reads the file again.
func (f *configFile) load() (file config.EvictdConfiguration, err error) {
	f.text = nil
	if f.path != "" {
		if f.text, err = cli.ReadInput(f.c, f.path); err != nil {
			f.flags.apply(&file)
			return file, err
		}
	}
	file, _, err = f.flags.parse(f.path, f.text)
	return file, err
}

// start is the configuration to start with: the file, or where that is refused on this host, the copy of what evictd last
// accepted in its place; refused has the faults then. An eviction manager that does not start protects nothing.
func (f *configFile) start(force bool) (file config.EvictdConfiguration, refused, err error) {
	file, err = f.load()
	kept, had := f.accepted(file.StateDir)
	if err == nil && had && !bytes.Equal(kept, f.text) { // what has changed may be refused
		err = f.flags.name(f.path, daemon.CheckHost(daemon.Config{File: file, Force: force, Version: version}))
	}
	if err == nil || !had {
		return file, nil, err
	}
	before, _, fault := f.flags.parse(f.path, kept)
	if fault != nil {
		return file, nil, err
	}
	return before, err, nil
}

// accepted reads the copy, if it is of this file.
func (f *configFile) accepted(stateDir string) (text []byte, is bool) {
	all, err := os.ReadFile(copyIn(stateDir))
	head, text, _ := bytes.Cut(all, []byte("\n"))
	return text, err == nil && f.path != "" && string(head) == f.head()
}

// accept keeps a copy of the file as it was last read.
func (f *configFile) accept(stateDir string, log *slog.Logger) {
	if f.path == "" || f.path == "-" {
		return
	}
	name := copyIn(stateDir)
	if kept, is := f.accepted(stateDir); is && bytes.Equal(kept, f.text) {
		return
	}
	err := osprocess.ReplaceFile(name, append([]byte(f.head()+"\n"), f.text...), 0o600)
	if err == nil {
		err = osprocess.SyncFilesystem(filepath.Dir(name))
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) { // a host without a state directory keeps nothing
		log.Warn("no copy of the configuration is kept for a start after a faulty change", "error", err)
	}
}

func (f *configFile) head() string { return "# " + strings.ReplaceAll(f.path, "\n", " ") }

func copyIn(stateDir string) string {
	return filepath.Join(cmp.Or(stateDir, daemon.DefaultStateDir), acceptedFile)
}
