package node

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os/exec"
	"path/filepath"
	goruntime "runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	oci "github.com/opencontainers/image-spec/specs-go/v1"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/evictd/evictd/internal/require"
)

// Workload is the image that a pod runs unless it names another.
const Workload = "localhost/workload:1"

// pause is the image of sandboxes: a workload without orders.
var pause = Image{Name: "localhost/pause:1"}

// Image is an image that is built and imported on the spot. All of them run the
// same program from a layer that they share, see cmd/workload; the rest is a
// layer of the image's own.
type Image struct {
	// Name is a full reference, such as localhost/big:1. Content follows from it.
	Name string
	// Bytes and Files are how many more the image has than Workload. On disk the
	// bytes are there twice: as the layer's blob and unpacked.
	Bytes int64
	Files int
	// StopSignal is sent to a container instead of SIGTERM, unless "".
	StopSignal string
	// Pinned asks containerd never to remove the image. 1.6 does not know that.
	Pinned bool
}

// labelPinned is what CRI's pinned follows from in containerd.
const labelPinned = "io.cri-containerd.pinned=pinned"

// Import builds images and hands them to containerd, and returns once its CRI
// shows them.
func (n *Node) Import(images ...Image) {
	n.t.Helper()
	for _, image := range images {
		layout := image.layout(n.t)
		n.ctr(layout, "images", "import", "--snapshotter", n.Snapshotter, "-")
		if image.Pinned {
			n.ctr(nil, "images", "label", image.Name, labelPinned)
		}
		Await(n.t, "image "+image.Name+" to be listed", func() bool { return n.HasImage(image.Name) })
	}
}

// ImportLayout hands containerd the image of an OCI layout in a directory, and returns once its CRI
// shows it.
func (n *Node) ImportLayout(dir, name string) {
	n.t.Helper()
	var files []file
	require.NoError(n.t, filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		relative, err := filepath.Rel(dir, path)
		files = append(files, file{relative, require.ReadFile(n.t, path)})
		return err
	}))
	n.ctr(archive(files...), "images", "import", "--snapshotter", n.Snapshotter, "-")
	Await(n.t, "image "+name+" to be listed", func() bool { return n.HasImage(name) })
}

// HasImage says whether containerd has an image.
func (n *Node) HasImage(name string) bool {
	n.t.Helper()
	return Call(n, n.Images.ImageStatus, &runtime.ImageStatusRequest{Image: &runtime.ImageSpec{Image: name}}).Image != nil
}

// ctr runs containerd's own client.
func (n *Node) ctr(stdin []byte, args ...string) {
	n.t.Helper()
	ctr := exec.CommandContext(n.t.Context(), n.daemon.programs.ctr, append([]string{"-a", n.socket(), "-n", "k8s.io"}, args...)...)
	ctr.Stdin = bytes.NewReader(stdin)
	if out, err := ctr.CombinedOutput(); err != nil {
		n.t.Fatalf("%s: %v\n%s", strings.Join(ctr.Args, " "), err, out)
	}
}

// layout is the image as a tar of an OCI image layout.
func (i Image) layout(t testing.TB) []byte {
	t.Helper()
	program := require.ReadFile(t, workloadProgram(t))
	var l layout
	layers := []oci.Descriptor{
		l.blob(oci.MediaTypeImageLayer, archive(file{"workload", program})),
		l.blob(oci.MediaTypeImageLayer, archive(i.content()...)),
	}
	config := oci.Image{Platform: oci.Platform{Architecture: goruntime.GOARCH, OS: "linux"}, Config: oci.ImageConfig{Entrypoint: []string{"/workload"}, StopSignal: i.StopSignal}}
	config.RootFS.Type = "layers"
	for _, layer := range layers {
		config.RootFS.DiffIDs = append(config.RootFS.DiffIDs, layer.Digest)
	}
	manifest := l.blob(oci.MediaTypeImageManifest, text(oci.Manifest{
		Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: oci.MediaTypeImageManifest,
		Config: l.blob(oci.MediaTypeImageConfig, text(config)), Layers: layers,
	}))
	manifest.Annotations = map[string]string{
		"io.containerd.image.name": i.Name,
		oci.AnnotationRefName:      i.Name[strings.LastIndexByte(i.Name, ':')+1:],
	}
	l = append(l,
		file{oci.ImageIndexFile, text(oci.Index{Versioned: specs.Versioned{SchemaVersion: 2}, Manifests: []oci.Descriptor{manifest}})},
		file{oci.ImageLayoutFile, text(oci.ImageLayout{Version: oci.ImageLayoutVersion})})
	return archive(l...)
}

// content is what the image has beside the program: bytes that no other image
// has, and empty files.
func (i Image) content() []file {
	bytes := make([]byte, i.Bytes)
	rand.NewChaCha8(sha256.Sum256([]byte(i.Name))).Read(bytes)
	files := []file{{"name", []byte(i.Name)}, {"content", bytes}}
	for f := range i.Files {
		files = append(files, file{"files/" + strconv.Itoa(f), nil})
	}
	return files
}

// file is a regular file of a tar.
type file struct {
	name    string
	content []byte
}

// layout is the files of an OCI image layout.
type layout []file

// blob adds content under its digest.
func (l *layout) blob(kind string, content []byte) oci.Descriptor {
	sum := digest.FromBytes(content)
	*l = append(*l, file{filepath.Join(oci.ImageBlobsDir, sum.Algorithm().String(), sum.Encoded()), content})
	return oci.Descriptor{MediaType: kind, Digest: sum, Size: int64(len(content))}
}

// archive is a tar of the files.
func archive(files ...file) []byte {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, f := range files {
		must(w.WriteHeader(&tar.Header{Name: f.name, Mode: 0o755, Size: int64(len(f.content)), Typeflag: tar.TypeReg}))
		_, err := w.Write(f.content)
		must(err)
	}
	must(w.Close())
	return out.Bytes()
}

func text(value any) []byte {
	text, err := json.Marshal(value)
	must(err)
	return text
}

// must panics on what cannot fail: writing to memory.
func must(err error) {
	if err != nil {
		panic(fmt.Sprintf("write an image: %v", err))
	}
}
