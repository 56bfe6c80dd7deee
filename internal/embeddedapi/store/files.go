package store

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/evictd/evictd/internal/osprocess"
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

// replace writes a file atomically, and brings it to the disk.
func replace(data, name string, text []byte) error {
	whole := filepath.Join(data, scratch, name)
	_, err := fill(whole, text, true)
	if err == nil {
		err = os.Rename(whole, filepath.Join(data, name))
	}
	if err != nil {
		return errors.Join(err, ignoreGone(os.Remove(whole)))
	}
	return syncDir(data)
}

// exchange puts a file in the place of a manifest, of which there is none where old is zero. One that has been
// edited since it was old stays: the error is errEdited.
func exchange(whole, path string, old, next identity) error {
	if old == (identity{}) {
		err := osprocess.RenameNew(whole, path)
		if errors.Is(err, fs.ErrNotExist) {
			if err = os.MkdirAll(filepath.Dir(path), 0o750); err == nil {
				err = osprocess.RenameNew(whole, path)
			}
		}
		if errors.Is(err, fs.ErrExist) {
			return errEdited
		}
		return err
	}
	err := osprocess.Exchange(whole, path)
	if errors.Is(err, fs.ErrNotExist) {
		return errEdited
	}
	if err != nil {
		return err
	}
	if found := lstat(whole); found == old || found == (identity{}) { // none where the filesystem cannot exchange files
		return ignoreGone(os.Remove(whole))
	}
	if err := osprocess.Exchange(whole, path); err != nil {
		return err
	}
	if lstat(whole) != next { // edited again meanwhile
		return errors.Join(errEdited, os.Rename(whole, path))
	}
	return errEdited
}

// removeUnedited removes a manifest by way of a second path. One that has been edited since it was old stays: the error
// is errEdited.
func removeUnedited(path, whole string, old identity) error {
	if err := os.Rename(path, whole); err != nil {
		return ignoreGone(err)
	}
	if lstat(whole) == old {
		return os.Remove(whole)
	}
	err := osprocess.RenameNew(whole, path)
	if errors.Is(err, fs.ErrExist) { // edited again meanwhile
		err = nil
	}
	return errors.Join(errEdited, err)
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
		found := lstat(path)
		text, err := read(path)
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
		t.objects[key], t.files[key] = object, left{found, revision}
	}
	return highest, nil
}

// maxManifest is how large a manifest may be, in bytes.
const maxManifest = 3 << 20

func read(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() || info.Size() > maxManifest {
		return nil, errors.New("expected a regular file of at most 3 MiB")
	}
	text := make([]byte, info.Size())
	n, err := f.ReadAt(text, 0)
	if n < len(text) {
		return nil, err
	}
	return text, nil
}
