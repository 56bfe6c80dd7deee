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
	revisionFile = ".revision" // the last reserved revision
	extension    = ".yaml"
	longest      = 250 // bytes of a name that has the extension: NAME_MAX is 255, names have up to 253
)

func (t *Table) dir(namespace string) string {
	return filepath.Join(t.store.cfg.Data, t.name, namespace)
}

func (t *Table) path(key Key) string {
	if len(key.Name) > longest {
		return filepath.Join(t.dir(key.Namespace), key.Name)
	}
	return filepath.Join(t.dir(key.Namespace), key.Name+extension)
}

// write writes the manifest and returns its file identity.
func (t *Table) write(key Key, object Object) (os.FileInfo, error) {
	document, err := json.Marshal(object)
	if err != nil {
		return nil, err
	}
	return replace(t.store.cfg.Data, t.name, t.path(key), toYAML(document), t.store.cfg.Sync)
}

// replace writes a file atomically. With sync it is on the disk when replace returns;
// else it is in the page cache and survives the process. Writes of one name in scratch
// are serialized by the caller.
func replace(data, name, path string, text []byte, sync bool) (os.FileInfo, error) {
	whole := filepath.Join(data, scratch, name)
	info, err := fill(whole, text, sync)
	if err != nil {
		return nil, errors.Join(err, ignoreGone(os.Remove(whole))) // what is left of it would fill the disk
	}
	err = os.Rename(whole, path)
	if errors.Is(err, fs.ErrNotExist) {
		if err = os.MkdirAll(filepath.Dir(path), 0o750); err == nil {
			err = os.Rename(whole, path)
		}
	}
	if err == nil && sync {
		err = syncDir(filepath.Dir(path))
	}
	return info, err
}

func fill(path string, text []byte, sync bool) (info os.FileInfo, err error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o640)
	if err != nil {
		return nil, err
	}
	_, err = f.Write(text)
	if err == nil && sync {
		err = f.Sync()
	}
	if err == nil {
		info, err = f.Stat()
	}
	return info, errors.Join(err, f.Close())
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

// place is the table and key of a path below the data directory; nil where it is no
// manifest of a table.
func (s *Store) place(path string) (*Table, Key) {
	relative, err := filepath.Rel(s.cfg.Data, path)
	if err != nil {
		return nil, Key{}
	}
	parts := strings.Split(relative, string(filepath.Separator))
	t := s.tables[parts[0]]
	name, isManifest := strings.CutSuffix(parts[len(parts)-1], extension)
	isManifest = isManifest || len(name) > longest
	if t == nil || !t.onDisk || !isManifest || strings.HasPrefix(name, ".") {
		return nil, Key{}
	}
	key := Key{Name: name}
	if len(parts) == 3 {
		key.Namespace = parts[1]
	}
	if len(parts) < 2 || len(parts) > 3 || !t.isFile(key) {
		return nil, Key{}
	}
	return t, key
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

// load reads the manifests that a store has written, which have a uid and a resource
// version, and returns the highest version.
func (t *Table) load() (highest uint64, err error) {
	paths, err := t.manifests()
	if err != nil {
		return 0, err
	}
	for _, path := range paths {
		_, key := t.store.place(path)
		text, info, err := read(path)
		if err != nil {
			continue // left to Follow, as the next ones
		}
		object, err := t.store.cfg.Decode(t.name, key, text)
		if err != nil || object.GetUID() == "" {
			continue
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
