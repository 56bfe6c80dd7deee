package main

import (
	"archive/tar"
	"debug/elf"
	"encoding/json"
	"errors"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// version is what the images of the tests are stamped with.
const version = "v1.2.3-test"

// architectures are those of the images.
var architectures = map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}

// made are the images of `make image`.
func made(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	c := exec.CommandContext(t.Context(), "make", "--no-print-directory", "image", "IMAGES="+dir, "VERSION="+version, "STRIPPED="+t.TempDir())
	c.Dir = "../../.."
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("make image: %v\n%s", err, out)
	}
	return dir
}

// rule: S9.1
func TestAnImageHasItsProgramsOfEveryArchitecture(t *testing.T) {
	dir := made(t)
	t.Run("content", func(t *testing.T) { content(t, dir) })
	t.Run("push", func(t *testing.T) { pushed(t, filepath.Join(dir, "evictd-scheduler")) })
}

func digest(t *testing.T, layout string) v1.Hash {
	t.Helper()
	d, err := must(t)(read(layout)).Digest()
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func must(t *testing.T) func(v1.ImageIndex, error) v1.ImageIndex {
	return func(index v1.ImageIndex, err error) v1.ImageIndex {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return index
	}
}

// content holds each image to its programs, and what is attested of it to what it has.
func content(t *testing.T, dir string) {
	for name, programs := range map[string][]string{
		"evictd":           {"evictd", "evictd-agent", "evictd-install", "kubectl-evictd"},
		"evictd-scheduler": {"evictd-scheduler"},
	} {
		index := must(t)(read(filepath.Join(dir, name)))
		manifest, err := index.IndexManifest()
		if err != nil {
			t.Fatal(err)
		}
		if n := len(architectures); len(manifest.Manifests) != 2*n {
			t.Fatalf("%s has %d manifests; expected %d images and what is attested of each", name, len(manifest.Manifests), n)
		}
		found := map[string]bool{}
		for i, image := range manifest.Manifests[:len(architectures)] {
			arch, about := image.Platform.Architecture, manifest.Manifests[len(architectures)+i]
			if about.Annotations["vnd.docker.reference.digest"] != image.Digest.String() {
				t.Errorf("%s: image %s, statements about %v", name, image.Digest, about.Annotations)
			}
			found[arch] = true
			root := t.TempDir()
			unpack(t, index, image.Digest, root)
			for _, program := range programs {
				runsOn(t, filepath.Join(root, "usr/bin", program), arch)
			}
			statements(t, index, about.Digest, image.Digest, programs)
		}
		for arch := range architectures {
			if !found[arch] {
				t.Errorf("%s has no image for %s", name, arch)
			}
		}
	}
}

// runsOn fails if a program is not a static one of an architecture, or on this one not of the
// version.
func runsOn(t *testing.T, program, arch string) {
	t.Helper()
	file, err := elf.Open(program)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	libraries, err := file.ImportedLibraries()
	if file.Machine != architectures[arch] || err != nil || len(libraries) > 0 || file.Section(".interp") != nil {
		t.Errorf("%s is for %v with libraries %v, %v; expected a static program for %s", program, file.Machine, libraries, err, arch)
	}
	if arch != runtime.GOARCH {
		return
	}
	out, err := exec.Command(program, "version").Output()
	if got := strings.TrimSpace(string(out)); err != nil || got != version {
		t.Errorf("%s version: %q, %v; expected %s", program, got, err, version)
	}
}

// unpack writes the files of an image, which are static programs and units, and have no shell.
func unpack(t *testing.T, index v1.ImageIndex, of v1.Hash, dir string) {
	t.Helper()
	img, err := index.Image(of)
	if err != nil {
		t.Fatal(err)
	}
	config, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	if got := config.Config.Labels["org.opencontainers.image.version"]; got != version {
		t.Errorf("the image's version is %q", got)
	}
	layers, err := img.Layers()
	if err != nil {
		t.Fatal(err)
	}
	for _, layer := range layers {
		content, err := layer.Uncompressed()
		if err != nil {
			t.Fatal(err)
		}
		files := tar.NewReader(content)
		for {
			h, err := files.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			if h.Uid != 0 || !h.ModTime.Equal(config.Created.Time) || strings.HasSuffix(h.Name, "/sh") {
				t.Errorf("the image has %s of user %d, modified at %v", h.Name, h.Uid, h.ModTime)
			}
			at := filepath.Join(dir, h.Name)
			if h.Typeflag == tar.TypeDir {
				err = os.MkdirAll(at, 0o755)
			} else {
				var text []byte
				if text, err = io.ReadAll(files); err == nil {
					err = os.WriteFile(at, text, h.FileInfo().Mode())
				}
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
}

// statements holds what is attested to the image that it is about.
func statements(t *testing.T, index v1.ImageIndex, at, of v1.Hash, programs []string) {
	t.Helper()
	img, err := index.Image(at)
	if err != nil {
		t.Fatal(err)
	}
	layers, err := img.Layers()
	if err != nil || len(layers) != 2 {
		t.Fatalf("%d statements, %v; expected the list of software and the provenance", len(layers), err)
	}
	var all strings.Builder
	for _, layer := range layers {
		content, err := layer.Uncompressed()
		if err != nil {
			t.Fatal(err)
		}
		var s struct {
			Subject       []struct{ Digest map[string]string }
			PredicateType string
			Predicate     json.RawMessage
		}
		if err := json.NewDecoder(content).Decode(&s); err != nil {
			t.Fatal(err)
		}
		if len(s.Subject) != 1 || s.Subject[0].Digest[of.Algorithm] != of.Hex {
			t.Errorf("a statement of %s is about %v; expected %s", s.PredicateType, s.Subject, of)
		}
		all.WriteString(s.PredicateType + string(s.Predicate))
	}
	for _, want := range append([]string{spdxType, provenanceType, "pkg:golang/stdlib@", "pkg:golang/github.com/spf13/cobra@", "gitCommit"}, programs...) {
		if !strings.Contains(all.String(), want) {
			t.Errorf("the statements have no %q", want)
		}
	}
}

// pushed pushes a layout to a registry, which then has the index with its digest.
func pushed(t *testing.T, layout string) {
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	defer server.Close()
	host := strings.TrimPrefix(server.URL, "http://")
	if err := run([]string{"-layout", layout, "-push", host + "/evictd/evictd-scheduler:1.2.3"}); err != nil {
		t.Fatal(err)
	}
	answer, err := server.Client().Head(server.URL + "/v2/evictd/evictd-scheduler/manifests/1.2.3")
	if err != nil {
		t.Fatal(err)
	}
	answer.Body.Close()
	if got, want := answer.Header.Get("Docker-Content-Digest"), digest(t, layout).String(); got != want {
		t.Errorf("the registry has %q; expected %s", got, want)
	}
}
