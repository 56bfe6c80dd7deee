package gc

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/evictd/evictd/stats"
)

// minLogAge is the minimum age of a removed log directory: it is created before the
// pod's sandbox.
const minLogAge = time.Minute

// logs is the directory of the pods' logs, as a root that no symbolic link leads out
// of. A directory that does not exist is empty.
type logs struct {
	root *os.Root // nil where there is none
	dir  string
}

func (c *Collector) openLogs() *logs {
	if c.cfg.LogDir == "" {
		return &logs{}
	}
	root, err := os.OpenRoot(c.cfg.LogDir)
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			c.log.Warn("cannot read the directory of pod logs", "directory", c.cfg.LogDir, "error", err)
		}
		return &logs{}
	}
	return &logs{root, filepath.Clean(c.cfg.LogDir)}
}

func (l *logs) close() {
	if l.root != nil {
		_ = l.root.Close() // it was only read
	}
}

// inside converts a path below the directory into one relative to it.
func (l *logs) inside(file string) (string, bool) {
	below, found := strings.CutPrefix(filepath.Clean(file), l.dir+"/")
	return below, found && l.root != nil
}

// files are a container's log and its rotated logs.
func (l *logs) files(file string) []string {
	below, found := l.inside(file)
	if !found || !l.plain(path.Dir(below)) {
		return nil
	}
	entries, err := fs.ReadDir(l.root.FS(), path.Dir(below))
	if err != nil {
		return nil
	}
	var files []string
	for _, e := range entries {
		name, rotated := strings.CutPrefix(e.Name(), path.Base(below))
		if rotated && (name == "" || name[0] == '.') && e.Type().IsRegular() {
			files = append(files, path.Join(path.Dir(below), e.Name()))
		}
	}
	return files
}

// plain says whether a path below the directory has only directories, no symbolic link.
func (l *logs) plain(dir string) bool {
	for at := dir; at != "."; at = path.Dir(at) {
		if info, err := l.root.Lstat(at); err != nil || !info.IsDir() {
			return false
		}
	}
	return true
}

// size is the size of a container's logs.
func (l *logs) size(file string) (bytes, inodes stats.Amount) {
	for _, name := range l.files(file) {
		if info, err := l.root.Lstat(name); err == nil {
			bytes, inodes = stats.Sum(bytes, stats.Known(info.Size())), stats.Sum(inodes, stats.Known(1))
		}
	}
	return bytes, inodes
}

// remove removes a container's logs.
func (l *logs) remove(file string) {
	for _, name := range l.files(file) {
		_ = l.root.Remove(name) // removeLogs removes the directory of a deleted pod
	}
}

// removeLogs removes the directories of deleted pods and the links that are then
// dangling, and returns how many. A deleted pod is known neither to the node nor to the
// runtime.
func (w *collection) removeLogs() (removed int) {
	logs := w.openLogs()
	defer logs.close()
	if logs.root == nil {
		return 0
	}
	known, complete := w.knownPods()
	entries, err := fs.ReadDir(logs.root.FS(), ".")
	if err != nil {
		w.log.Warn("cannot read the directory of pod logs", "directory", logs.dir, "error", err)
		return 0
	}
	for _, e := range entries {
		// namespace_name_uid; names hold no underscore.
		parts := strings.Split(e.Name(), "_")
		info, err := logs.root.Lstat(e.Name())
		if !complete || err != nil || !info.IsDir() || len(parts) != 3 || known[types.UID(parts[2])] || w.Begun.Sub(info.ModTime()) < minLogAge {
			continue
		}
		if !w.DryRun {
			if err := logs.root.RemoveAll(e.Name()); err != nil {
				w.log.Warn("cannot remove the logs of a deleted pod", "directory", e.Name(), "error", err)
				continue
			}
		}
		removed++
	}
	if w.DryRun {
		return removed
	}
	return removed + w.removeLinks(logs)
}

// knownPods are the pods of the node and of the runtime.
func (w *collection) knownPods() (known map[types.UID]bool, complete bool) {
	known = map[types.UID]bool{}
	pods, complete := w.ports.Pods()
	for uid := range pods {
		known[uid] = true
	}
	inv, err := w.inventory()
	if err != nil {
		return nil, false
	}
	for _, s := range inv.Sandboxes {
		known[s.Pod] = true
	}
	return known, complete
}

// removeLinks removes the links to removed logs; links to other directories are kept.
func (w *collection) removeLinks(logs *logs) (removed int) {
	if w.cfg.LinkDir == "" {
		return 0
	}
	root, err := os.OpenRoot(w.cfg.LinkDir)
	if err != nil {
		return 0
	}
	defer root.Close()
	entries, err := fs.ReadDir(root.FS(), ".")
	if err != nil {
		return 0
	}
	for _, e := range entries {
		if e.Type() != fs.ModeSymlink {
			continue
		}
		target, err := root.Readlink(e.Name())
		if err != nil {
			continue
		}
		below, ours := logs.inside(target)
		if !ours {
			continue
		}
		if _, err := logs.root.Lstat(below); errors.Is(err, fs.ErrNotExist) && root.Remove(e.Name()) == nil {
			removed++
		}
	}
	return removed
}
