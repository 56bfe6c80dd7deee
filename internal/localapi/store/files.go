package store

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

const (
	scratch      = ".tmp"      // where files are before they are whole
	lockFile     = ".lock"     // held by the process that serves the directory
	revisionFile = ".revision" // how far revisions may go
	extension    = ".yaml"
)

func (t *Table) dir(namespace string) string {
	return filepath.Join(t.store.cfg.Data, t.name, namespace)
}

func (t *Table) path(key Key) string {
	return filepath.Join(t.dir(key.Namespace), key.Name+extension)
}

// write puts the manifest in its place and returns what it is known by there.
func (t *Table) write(key Key, object Object) (os.FileInfo, error) {
	document, err := json.Marshal(object)
	if err != nil {
		return nil, err
	}
	text, err := ToYAML(document)
	if err != nil {
		return nil, err
	}
	return replace(t.store.cfg.Data, t.path(key), text, t.store.cfg.Sync)
}

// replace writes a file at once or not at all. Where sync is set it is on the
// disk when replace returns; else it is with the kernel, and outlives the process.
func replace(data, path string, text []byte, sync bool) (os.FileInfo, error) {
	f, err := os.CreateTemp(filepath.Join(data, scratch), "*")
	if err != nil {
		return nil, err
	}
	info, err := fill(f, text, sync)
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if errors.Is(err, fs.ErrNotExist) {
		if err = os.MkdirAll(filepath.Dir(path), 0o750); err == nil {
			err = os.Rename(f.Name(), path)
		}
	}
	if err == nil && sync {
		err = syncDir(filepath.Dir(path))
	}
	if err != nil {
		return nil, errors.Join(err, ignoreGone(os.Remove(f.Name())))
	}
	return info, nil
}

func fill(f *os.File, text []byte, sync bool) (os.FileInfo, error) {
	_, err := f.Write(text)
	if err == nil && sync {
		err = f.Sync()
	}
	if err == nil {
		err = f.Chmod(0o640)
	}
	info, statErr := f.Stat()
	return info, errors.Join(err, statErr, f.Close())
}

func (t *Table) unlink(key Key) error {
	path := t.path(key)
	err := ignoreGone(os.Remove(path))
	if err == nil && t.store.cfg.Sync {
		err = ignoreGone(syncDir(filepath.Dir(path)))
	}
	return err
}

func syncDir(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

func ignoreGone(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// place is where a path below the data directory belongs; nil where no manifest
// of a table has such a path.
func (s *Store) place(path string) (*Table, Key) {
	relative, err := filepath.Rel(s.cfg.Data, path)
	if err != nil {
		return nil, Key{}
	}
	parts := strings.Split(relative, string(filepath.Separator))
	t := s.tables[parts[0]]
	name, isManifest := strings.CutSuffix(parts[len(parts)-1], extension)
	if t == nil || !t.onDisk || !isManifest || strings.HasPrefix(name, ".") {
		return nil, Key{}
	}
	switch len(parts) {
	case 2:
		return t, Key{Name: name}
	case 3:
		return t, Key{parts[1], name}
	}
	return nil, Key{}
}

// manifests are the paths of all manifests of a table.
func (t *Table) manifests() (paths []string, err error) {
	err = filepath.WalkDir(t.dir(""), func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return ignoreGone(err)
		}
		if at, _ := t.store.place(path); at == t && !d.IsDir() {
			paths = append(paths, path)
		}
		return nil
	})
	return paths, err
}

// load takes the manifests that a store has written, which bear a uid and a
// resource version, and returns the highest.
func (t *Table) load() (highest uint64, err error) {
	paths, err := t.manifests()
	if err != nil {
		return 0, err
	}
	for _, path := range paths {
		_, key := t.store.place(path)
		text, info, err := read(path)
		if err != nil {
			return 0, err
		}
		object, err := t.store.cfg.Decode(t.name, key, text)
		if err != nil || object.GetUID() == "" {
			continue // told of, or admitted, by Follow
		}
		revision, err := strconv.ParseUint(object.GetResourceVersion(), 10, 64)
		if err != nil || KeyOf(object) != key {
			continue
		}
		highest = max(highest, revision)
		t.objects[key] = entry{object, info}
	}
	return highest, nil
}

// maxManifest is how large a manifest may be, in bytes.
const maxManifest = 3 << 20

func read(path string) ([]byte, os.FileInfo, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, nil, err
	}
	if !info.Mode().IsRegular() || info.Size() > maxManifest {
		return nil, info, errors.New("expected a regular file of at most 3 MiB")
	}
	text := make([]byte, info.Size())
	n, err := f.ReadAt(text, 0)
	if n < len(text) {
		return nil, info, err
	}
	return text, info, nil
}
