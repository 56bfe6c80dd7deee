package install

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"syscall"
)

// manifestPath is where the host's files are recorded, on the host.
const manifestPath = "/etc/evictd/installed.json"

// File is a file of the host.
type File struct {
	Path    string // on the host
	Mode    fs.FileMode
	Content []byte
	Source  string // file that has the content, where Content is nil
}

// manifest records what was written to the host.
type manifest struct {
	Version string `json:"version"`
	// Complete is false from before the first write until the units run what was written.
	Complete bool `json:"complete"`
	// Files are all that may be there, by path, with the digest of their content.
	Files map[string]string `json:"files"`
	// Directories were made for them, each after its parent.
	Directories []string `json:"directories"`
}

// Files are those of the host whose root is mounted at a directory.
type Files struct {
	Root    string
	digests map[string]measured // by path here
}

// NewFiles are the files below a directory.
func NewFiles(root string) *Files { return &Files{Root: root, digests: map[string]measured{}} }

// measured is the digest of a file that has not changed since.
type measured struct {
	info   fs.FileInfo
	digest string
}

func (h *Files) at(path string) string { return filepath.Join(h.Root, path) }

// Change is what Write has done.
type Change struct {
	Changed []string // paths that have new content, or none, sorted
	// Unfinished is true if an earlier change did not come to its end: what was changed then
	// is in use or not.
	Unfinished bool
}

// Write makes the files those of the host, in place of the files of an earlier Write, and
// changes only what differs. It refuses, and changes nothing, if a file is there that no Write has
// made. Of a first Write that fails nothing is left. Finish ends the change.
func (h *Files) Write(version string, files []File) (Change, error) {
	old, err := h.manifest()
	if err != nil {
		return Change{}, err
	}
	wanted := manifest{Version: version, Files: map[string]string{}}
	var faults []error
	for _, f := range files {
		digest, err := h.digest(f)
		if err != nil {
			return Change{}, err
		}
		wanted.Files[f.Path] = digest
		if _, err := os.Lstat(h.at(f.Path)); err == nil && old.Files[f.Path] == "" {
			faults = append(faults, fmt.Errorf("%s is on the host already, and was not installed from this image: remove it first", f.Path))
		}
	}
	if err := errors.Join(faults...); err != nil {
		return Change{}, err
	}
	change := Change{Unfinished: !old.Complete && len(old.Files) > 0}
	wanted.Directories = old.Directories
	for _, f := range append(slices.Clone(files), File{Path: manifestPath}) {
		wanted.Directories = h.missing(filepath.Dir(f.Path), wanted.Directories)
	}
	var differing []File
	for _, f := range files {
		if !h.same(f, wanted.Files[f.Path]) {
			differing = append(differing, f)
			change.Changed = append(change.Changed, f.Path)
		}
	}
	for path := range old.Files {
		if wanted.Files[path] == "" {
			change.Changed = append(change.Changed, path)
		}
	}
	slices.Sort(change.Changed)
	if len(change.Changed) == 0 && !change.Unfinished && old.Complete && old.Version == version {
		return change, nil
	}
	err = h.replace(old, wanted, differing)
	if err != nil && len(old.Files) == 0 {
		err = errors.Join(err, h.Remove())
	}
	return change, err
}

// replace writes the differing files of what is wanted and removes what was there before and is
// not wanted. At any time the manifest covers what is there.
func (h *Files) replace(old, wanted manifest, differing []File) error {
	both := wanted
	both.Files = maps.Clone(wanted.Files)
	for path, digest := range old.Files {
		both.Files[path] = cmp.Or(both.Files[path], digest)
	}
	if err := h.record(both); err != nil {
		return err
	}
	for _, f := range differing {
		if err := h.write(f); err != nil {
			return err
		}
	}
	for path := range old.Files {
		if wanted.Files[path] == "" {
			if err := h.remove(path); err != nil {
				return err
			}
		}
	}
	return h.record(wanted)
}

// Finish records that the host uses what Write has written.
func (h *Files) Finish() error {
	m, err := h.manifest()
	if err != nil || m.Complete {
		return err
	}
	m.Complete = true
	return h.record(m)
}

// Installed says whether the host has files of a Write.
func (h *Files) Installed() (bool, error) {
	m, err := h.manifest()
	return len(m.Files) > 0, err
}

// Remove removes what every Write has made, and the further trees. A directory that has other
// files stays.
func (h *Files) Remove(trees ...string) error {
	m, err := h.manifest()
	if err != nil {
		return err
	}
	for path := range m.Files {
		err = errors.Join(err, h.remove(path))
	}
	for _, tree := range trees {
		err = errors.Join(err, os.RemoveAll(h.at(tree)))
	}
	if err != nil {
		return err // with the manifest there, it can be tried again
	}
	if err := h.remove(manifestPath); err != nil {
		return err
	}
	for _, dir := range slices.Backward(m.Directories) {
		if err := h.remove(dir); err != nil && !errors.Is(err, syscall.ENOTEMPTY) {
			return err
		}
	}
	return nil
}

// remove removes a file or an empty directory that is there.
func (h *Files) remove(path string) error {
	_, err := os.Lstat(h.at(path))
	if err == nil {
		err = os.Remove(h.at(path))
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTDIR) {
		return err
	}
	return nil
}

func (h *Files) manifest() (m manifest, err error) {
	text, err := os.ReadFile(h.at(manifestPath))
	if errors.Is(err, fs.ErrNotExist) {
		return m, nil
	}
	if err == nil {
		err = json.Unmarshal(text, &m)
	}
	if err != nil {
		return m, fmt.Errorf("read what is installed: %w", err)
	}
	return m, nil
}

func (h *Files) record(m manifest) error {
	text, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return err
	}
	return h.write(File{Path: manifestPath, Mode: 0o644, Content: append(text, '\n')})
}

// missing appends the directories that the host lacks, up to dir.
func (h *Files) missing(dir string, found []string) []string {
	if _, err := os.Stat(h.at(dir)); err == nil || slices.Contains(found, dir) {
		return found
	}
	return append(h.missing(filepath.Dir(dir), found), dir)
}

// write replaces a file as a whole: a reader sees the old content or the new.
func (h *Files) write(f File) (err error) {
	at := h.at(f.Path)
	if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
		return h.refused(f.Path, err)
	}
	source, err := f.open()
	if err != nil {
		return err
	}
	defer source.Close()
	next, err := os.OpenFile(at+".new", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return h.refused(f.Path, err)
	}
	_, err = io.Copy(next, source)
	err = errors.Join(err, next.Chmod(f.Mode), next.Sync(), next.Close())
	if err == nil {
		err = os.Rename(at+".new", at)
	}
	if err != nil {
		return h.refused(f.Path, errors.Join(err, os.Remove(at+".new")))
	}
	return nil
}

// refused explains why a host does not take a file.
func (h *Files) refused(path string, err error) error {
	if errors.Is(err, syscall.EROFS) {
		return fmt.Errorf("%s cannot be written, because the host's filesystem there is read-only: expected a --prefix that is writable, and a writable /etc: %w", path, err)
	}
	return fmt.Errorf("write %s: %w", path, err)
}

// same says whether the host has the file as it should be.
func (h *Files) same(f File, digest string) bool {
	info, err := os.Lstat(h.at(f.Path))
	if err != nil || info.Mode() != f.Mode {
		return false
	}
	got, err := h.digest(File{Source: h.at(f.Path)})
	return err == nil && got == digest
}

func (f File) open() (io.ReadCloser, error) {
	if f.Content != nil {
		return io.NopCloser(bytes.NewReader(f.Content)), nil
	}
	return os.Open(f.Source)
}

// digest reads a file only if it has changed since the last time.
func (h *Files) digest(f File) (string, error) {
	source, err := f.open()
	if err != nil {
		return "", err
	}
	defer source.Close()
	var info fs.FileInfo
	if file, is := source.(*os.File); is {
		if info, err = file.Stat(); err != nil {
			return "", err
		}
		if last, ok := h.digests[f.Source]; ok && os.SameFile(last.info, info) && last.info.Size() == info.Size() && last.info.ModTime().Equal(info.ModTime()) {
			return last.digest, nil
		}
	}
	sum := sha256.New()
	if _, err := io.Copy(sum, source); err != nil {
		return "", fmt.Errorf("read %s: %w", f.Source, err)
	}
	digest := hex.EncodeToString(sum.Sum(nil))
	if info != nil {
		h.digests[f.Source] = measured{info, digest}
	}
	return digest, nil
}
