package main

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	emptyimage "github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// source is what an image is made of.
type source struct {
	name, entrypoint, user string
	version, revision      string
	epoch                  time.Time
	stages                 []stageOf
}

// stageOf has the files of one architecture.
type stageOf struct{ arch, dir string }

func empty() v1.ImageIndex {
	return mutate.IndexMediaType(emptyimage.Index, types.OCIImageIndex)
}

// index has an image for each architecture, followed by what is attested of each, in the
// form that BuildKit gives it.
func (s source) index() (v1.ImageIndex, error) {
	var images, attestations []mutate.IndexAddendum
	for _, stage := range s.stages {
		img, err := s.image(stage)
		if err != nil {
			return nil, err
		}
		digest, err := img.Digest()
		if err != nil {
			return nil, err
		}
		about, err := s.attestation(stage, digest)
		if err != nil {
			return nil, err
		}
		images = append(images, mutate.IndexAddendum{Add: img, Descriptor: v1.Descriptor{
			MediaType: types.OCIManifestSchema1, Platform: &v1.Platform{OS: "linux", Architecture: stage.arch},
		}})
		attestations = append(attestations, mutate.IndexAddendum{Add: about, Descriptor: v1.Descriptor{
			MediaType: types.OCIManifestSchema1, Platform: &v1.Platform{OS: "unknown", Architecture: "unknown"},
			Annotations: map[string]string{
				"vnd.docker.reference.type": "attestation-manifest", "vnd.docker.reference.digest": digest.String(),
			},
		}})
	}
	return mutate.AppendManifests(empty(), append(images, attestations...)...), nil
}

// image is the one of one architecture: a layer with the files.
func (s source) image(stage stageOf) (v1.Image, error) {
	files, err := archive(stage.dir, s.epoch)
	if err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(files)), nil
	}, tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return nil, err
	}
	made := v1.Time{Time: s.epoch}
	img, err := mutate.ConfigFile(base(), &v1.ConfigFile{
		OS: "linux", Architecture: stage.arch, Created: made,
		Config: v1.Config{
			Entrypoint: []string{"/usr/bin/" + s.entrypoint}, User: s.user,
			Labels: map[string]string{
				"org.opencontainers.image.title":    s.name,
				"org.opencontainers.image.version":  s.version,
				"org.opencontainers.image.revision": s.revision,
				"org.opencontainers.image.source":   repository,
				"org.opencontainers.image.licenses": "Apache-2.0",
			},
		},
	})
	if err != nil {
		return nil, err
	}
	return mutate.Append(img, mutate.Addendum{Layer: layer, History: v1.History{Created: made, CreatedBy: "make image"}})
}

func base() v1.Image {
	return mutate.ConfigMediaType(mutate.MediaType(emptyimage.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
}

// attestation is an image whose layers are statements about the image with a digest.
func (s source) attestation(stage stageOf, of v1.Hash) (v1.Image, error) {
	about, err := s.statements(stage, of)
	if err != nil {
		return nil, err
	}
	img, err := mutate.ConfigFile(base(), &v1.ConfigFile{OS: "unknown", Architecture: "unknown"})
	if err != nil {
		return nil, err
	}
	for _, a := range about {
		img, err = mutate.Append(img, mutate.Addendum{
			Layer:       static.NewLayer(a.text, inToto),
			Annotations: map[string]string{"in-toto.io/predicate-type": a.predicateType},
		})
		if err != nil {
			return nil, err
		}
	}
	return img, nil
}

// archive is a tar of a directory in the order of the names, owned by root. Only the name,
// the content, and whether the owner may execute it count of a file.
func archive(dir string, modified time.Time) ([]byte, error) {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		if d.IsDir() {
			return w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: name + "/", Mode: 0o755, ModTime: modified, Format: tar.FormatPAX})
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		if !info.Mode().IsRegular() {
			return fmt.Errorf("%s: %s; expected a regular file", path, info.Mode())
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		mode := int64(0o644)
		if info.Mode()&0o100 != 0 {
			mode = 0o755
		}
		h := &tar.Header{Typeflag: tar.TypeReg, Name: name, Size: int64(len(content)), Mode: mode, ModTime: modified, Format: tar.FormatPAX}
		if err := w.WriteHeader(h); err != nil {
			return err
		}
		_, err = w.Write(content)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("archive %s: %w", dir, err)
	}
	return out.Bytes(), w.Close()
}
