// Command image makes OCI images of directories and pushes them, and lists the software in packages. An image is for all
// architectures, has a list of its software and its provenance beside it, and is the
// same, byte for byte, whenever it is made of the same files.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	flags := flag.NewFlagSet("image", flag.ContinueOnError)
	var s source
	flags.StringVar(&s.name, "name", "", "`NAME` of the image and of its program in /usr/bin, if -entrypoint names no other")
	flags.StringVar(&s.entrypoint, "entrypoint", "", "program in /usr/bin that a container runs")
	flags.StringVar(&s.user, "user", "", "user and group of its process, as numbers")
	flags.StringVar(&s.version, "version", "unknown", "version of the programs")
	flags.StringVar(&s.revision, "revision", "unknown", "commit of the sources")
	epoch := flags.Int64("epoch", 0, "time of every file and of the image, in `SECONDS` since 1970")
	out := flags.String("layout", "", "`DIRECTORY` of the OCI layout: written, or read for -push")
	list := flags.String("software", "", "`FILE` that gets the list of the software in the directory, in place of an image")
	push := flags.String("push", "", "`REFERENCE` in a registry that the layout is pushed to")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *push != "" {
		return publish(*out, *push)
	}
	s.epoch = time.Unix(*epoch, 0).UTC()
	if s.entrypoint == "" {
		s.entrypoint = s.name
	}
	for _, stage := range flags.Args() {
		arch, dir, ok := strings.Cut(stage, "=")
		if !ok {
			return fmt.Errorf("%q: expected ARCHITECTURE=DIRECTORY", stage)
		}
		s.stages = append(s.stages, stageOf{arch, dir})
	}
	if *list != "" {
		return s.software(*list)
	}
	index, err := s.index()
	if err != nil {
		return fmt.Errorf("make image %s: %w", s.name, err)
	}
	return write(*out, index, s.name, s.version)
}

// published is that of the images where nothing says otherwise, as in the chart: a node without
// a registry has the image by that name when it has imported the layout.
const published = "ghcr.io/evictd/"

// write makes an OCI layout with an index in place of what the directory has.
func write(dir string, index v1.ImageIndex, title, version string) error {
	if err := errors.Join(os.RemoveAll(dir), os.MkdirAll(filepath.Dir(dir), 0o755)); err != nil {
		return err
	}
	path, err := layout.Write(dir, empty())
	if err != nil {
		return fmt.Errorf("write layout %s: %w", dir, err)
	}
	if err := path.AppendIndex(index, layout.WithAnnotations(map[string]string{
		"org.opencontainers.image.ref.name": version, "io.containerd.image.name": published + title + ":" + version,
	})); err != nil {
		return fmt.Errorf("write layout %s: %w", dir, err)
	}
	digest, err := index.Digest()
	if err == nil {
		fmt.Printf("%s  %s\n", digest, dir)
	}
	return err
}

// publish pushes the index of an OCI layout.
func publish(dir, reference string) error {
	ref, err := name.ParseReference(reference, name.StrictValidation)
	if err != nil {
		return err
	}
	index, err := read(dir)
	if err != nil {
		return err
	}
	if err := remote.WriteIndex(ref, index, remote.WithAuthFromKeychain(authn.DefaultKeychain)); err != nil {
		return fmt.Errorf("push %s: %w", reference, err)
	}
	digest, err := index.Digest()
	if err == nil {
		fmt.Printf("%s@%s\n", ref.Context(), digest)
	}
	return err
}

// read is the index of an OCI layout that write has made.
func read(dir string) (v1.ImageIndex, error) {
	root, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		return nil, fmt.Errorf("read layout %s: %w", dir, err)
	}
	manifest, err := root.IndexManifest()
	if err != nil {
		return nil, fmt.Errorf("read layout %s: %w", dir, err)
	}
	if len(manifest.Manifests) != 1 {
		return nil, fmt.Errorf("read layout %s: %d images; expected 1", dir, len(manifest.Manifests))
	}
	return root.ImageIndex(manifest.Manifests[0].Digest)
}
