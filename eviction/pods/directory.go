package pods

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	v1 "k8s.io/api/core/v1"
)

// maxManifestBytes bounds what one file may cost: 1 MiB of YAML can take 185 MiB to
// read, and evictd's unit lets it have 256. The kubelet reads 10 MiB of a static pod's.
const maxManifestBytes = 1 << 20

// readPatience bounds the reading of one file.
const readPatience = time.Second

// directory is what the files of one directory held when last read.
type directory struct {
	path     string
	files    map[string]manifestFile
	reported map[reported]bool
}

// manifestFile is one file.
type manifestFile struct {
	stamp  fs.FileInfo // when it was read; nil where it could not be, so that it is tried again
	pods   []parsed
	faults []fault
}

// fault says why a document of a manifest file, or a whole file, is left out.
type fault struct {
	file     string // base name
	document int    // counted from 1 without empty ones; 0 where it is the file
	err      error
}

// reported identifies a fault in one content of a file.
type reported struct {
	file     string
	document int
	text     string
	size     int64
	modified time.Time
}

// scan reads the files that changed since the last scan, and says whether any
// did. On an error, a *DirError, what was known stays.
func (d *directory) scan() (changed bool, err error) {
	entries, err := os.ReadDir(d.path)
	if err != nil {
		if e, ok := errors.AsType[*fs.PathError](err); ok {
			err = e.Err
		}
		return false, &DirError{Dir: d.path, Err: err}
	}
	files := make(map[string]manifestFile, len(entries))
	for _, entry := range entries {
		last, known := d.files[entry.Name()]
		m, ok := d.load(entry, last)
		if !ok {
			continue
		}
		files[entry.Name()] = m
		changed = changed || !known || m.stamp != last.stamp
	}
	changed = changed || len(files) != len(d.files)
	d.files = files
	return changed, nil
}

// load reads the file where it differs from last, and says whether the entry
// is one to read at all.
func (d *directory) load(entry fs.DirEntry, last manifestFile) (m manifestFile, ok bool) {
	name := entry.Name()
	if strings.HasPrefix(name, ".") {
		return manifestFile{}, false
	}
	stamp, err := os.Stat(filepath.Join(d.path, name))
	if err == nil && stamp.IsDir() {
		return manifestFile{}, false
	}
	if err == nil && last.stamp != nil && unchanged(last.stamp, stamp) {
		return last, true
	}
	var data []byte
	if err == nil {
		data, stamp, err = contents(filepath.Join(d.path, name), stamp)
	}
	switch {
	case errors.Is(err, fs.ErrNotExist) && entry.Type()&fs.ModeSymlink == 0:
		return manifestFile{}, false // gone since the directory was read
	case errors.Is(err, errNotManifest):
		return manifestFile{stamp: stamp, faults: []fault{{file: name, err: err}}}, true
	case err != nil:
		return manifestFile{faults: []fault{{file: name, err: err}}}, true
	}
	m.stamp = stamp
	m.pods, m.faults = decode(name, data)
	return m, true
}

func unchanged(last, now fs.FileInfo) bool {
	return os.SameFile(last, now) && last.ModTime().Equal(now.ModTime()) && last.Size() == now.Size()
}

var errNotManifest = errors.New("not a pod manifest")

// contents reads a file that was as stamp says, and returns what it is now.
func contents(path string, stamp fs.FileInfo) ([]byte, fs.FileInfo, error) {
	if !slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(path)) {
		return nil, stamp, fmt.Errorf("%w: the name ends neither in .yaml, .yml nor .json", errNotManifest)
	}
	if err := regular(stamp); err != nil { // opening a device may do something
		return nil, stamp, err
	}
	// A pipe that has taken its place would wait for its writer.
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, stamp, err
	}
	defer file.Close()
	if stamp, err = file.Stat(); err == nil {
		err = regular(stamp)
	}
	if err != nil {
		return nil, stamp, err
	}
	// Some files of /proc wait for what there is to read, and may be linked to.
	_ = file.SetReadDeadline(time.Now().Add(readPatience)) // others have none
	data, err := io.ReadAll(io.LimitReader(file, maxManifestBytes+1))
	if len(data) > maxManifestBytes {
		return nil, stamp, fmt.Errorf("%w: larger than %d bytes", errNotManifest, maxManifestBytes)
	}
	return data, stamp, err
}

func regular(stamp fs.FileInfo) error {
	if !stamp.Mode().IsRegular() {
		return fmt.Errorf("%w: not a regular file", errNotManifest)
	}
	return nil
}

// merge makes one set of all files' pods, in the order of namespace and name:
// of pods with the same namespace and name, or the same uid, the first by file
// name stays. The faults are those that the merge before did not return.
func (d *directory) merge() (set []*v1.Pod, faults []fault) {
	taken := map[string]parsed{}
	for _, name := range slices.Sorted(maps.Keys(d.files)) {
		file := d.files[name]
		faults = append(faults, file.faults...)
		for _, p := range file.pods {
			if err := identify(taken, p); err != nil {
				faults = append(faults, fault{name, p.document, err})
				continue
			}
			set = append(set, p.pod)
		}
	}
	slices.SortFunc(set, compareNames)
	return set, d.unreported(faults)
}

// identify takes the pod's name and uid, or says where they are taken.
func identify(taken map[string]parsed, p parsed) error {
	name, uid := "pod "+fullName(p.pod), "uid "+string(p.pod.UID)
	for _, identity := range []string{name, uid} {
		if first, ok := taken[identity]; ok {
			return fmt.Errorf("%s is already defined in %s, document %d", identity, first.file, first.document)
		}
	}
	taken[name], taken[uid] = p, p
	return nil
}

func (d *directory) unreported(faults []fault) []fault {
	before := d.reported
	d.reported = make(map[reported]bool, len(faults))
	return slices.DeleteFunc(faults, func(f fault) bool {
		r := reported{file: f.file, document: f.document, text: f.err.Error()}
		// What is no manifest by its name is none whatever is written to it.
		if stamp := d.files[f.file].stamp; stamp != nil && !errors.Is(f.err, errNotManifest) {
			r.size, r.modified = stamp.Size(), stamp.ModTime()
		}
		d.reported[r] = true
		return before[r]
	})
}

func compareNames(a, b *v1.Pod) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}

func fullName(pod *v1.Pod) string { return pod.Namespace + "/" + pod.Name }
