package main

import (
	"cmp"
	"debug/buildinfo"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// repository has the sources.
const repository = "https://github.com/evictd/evictd"

const inToto = types.MediaType("application/vnd.in-toto+json")

// Types of predicates of in-toto statements.
const (
	spdxType       = "https://spdx.dev/Document"
	provenanceType = "https://slsa.dev/provenance/v1"
)

// statement is an in-toto statement as it is stored.
type statement struct {
	predicateType string
	text          []byte
}

type object = map[string]any

// statements are the list of software and the provenance of an image.
func (s source) statements(stage stageOf, of v1.Hash) ([]statement, error) {
	infos, err := stage.programs()
	if err != nil {
		return nil, err
	}
	about := subject{purl: "pkg:oci/" + s.name + "@" + of.String() + "?arch=" + stage.arch, namespace: s.name + "-" + of.Hex}
	var all []statement
	for _, p := range []struct {
		kind      string
		predicate object
	}{{spdxType, s.spdx(stage, about, infos)}, {provenanceType, s.provenance(stage, infos)}} {
		text, err := json.Marshal(object{
			"_type":         "https://in-toto.io/Statement/v1",
			"subject":       []object{{"name": s.name, "digest": object{of.Algorithm: of.Hex}}},
			"predicateType": p.kind, "predicate": p.predicate,
		})
		if err != nil {
			return nil, err
		}
		all = append(all, statement{p.kind, text})
	}
	return all, nil
}

// programs are those of a stage, by name, as the linker describes them.
func (stage stageOf) programs() (map[string]*debug.BuildInfo, error) {
	programs, err := filepath.Glob(filepath.Join(stage.dir, "usr/bin/*"))
	if err != nil || len(programs) == 0 {
		return nil, fmt.Errorf("%s has no program in usr/bin: %w", stage.dir, err)
	}
	infos := map[string]*debug.BuildInfo{}
	for _, program := range programs {
		info, err := buildinfo.ReadFile(program)
		if err != nil {
			return nil, fmt.Errorf("read build information of %s: %w", program, err)
		}
		infos[filepath.Base(program)] = info
	}
	return infos, nil
}

// software writes the list of the software in the only stage to a file, for packages.
func (s source) software(file string) error {
	if len(s.stages) != 1 {
		return fmt.Errorf("%d directories; expected one, as a package has one architecture", len(s.stages))
	}
	stage := s.stages[0]
	infos, err := stage.programs()
	if err != nil {
		return err
	}
	about := subject{purl: "pkg:generic/" + s.name + "@" + s.version + "?arch=" + stage.arch, namespace: s.name + "-" + s.version + "-" + stage.arch}
	text, err := json.Marshal(s.spdx(stage, about, infos))
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(text, '\n'), 0o644)
}

// subject is what a list of software is about.
type subject struct{ purl, namespace string }

// spdx is a document of SPDX 2.3: the subject contains each program, and a program depends on
// the modules that are linked into it and on the standard library.
func (s source) spdx(stage stageOf, about subject, infos map[string]*debug.BuildInfo) object {
	const root = "SPDXRef-subject"
	relation := func(a, kind, b string) object {
		return object{"spdxElementId": a, "relationshipType": kind, "relatedSpdxElement": b}
	}
	packages := []object{software(root, s.name, s.version, about.purl)}
	relations := []object{relation("SPDXRef-DOCUMENT", "DESCRIBES", root)}
	modules := map[string]debug.Module{}
	for _, program := range slices.Sorted(maps.Keys(infos)) {
		info, id := infos[program], "SPDXRef-program-"+program
		packages = append(packages, software(id, program, s.version, "pkg:golang/"+info.Path+"@"+s.version))
		relations = append(relations, relation(root, "CONTAINS", id))
		for _, m := range append(linked(info), debug.Module{Path: "stdlib", Version: strings.TrimPrefix(info.GoVersion, "go")}) {
			modules[idOf(m)] = m
			relations = append(relations, relation(id, "DEPENDS_ON", idOf(m)))
		}
	}
	for _, id := range slices.Sorted(maps.Keys(modules)) {
		m := modules[id]
		packages = append(packages, software(id, m.Path, m.Version, "pkg:golang/"+m.Path+"@"+m.Version))
	}
	return object{
		"spdxVersion": "SPDX-2.3", "dataLicense": "CC0-1.0", "SPDXID": "SPDXRef-DOCUMENT",
		"name": s.name + "-" + s.version + "-" + stage.arch, "documentNamespace": repository + "/spdx/" + about.namespace,
		"creationInfo": object{"created": s.epoch.Format(time.RFC3339), "creators": []string{"Organization: The evictd authors", "Tool: internal/tools/image"}},
		"packages":     packages, "relationships": relations,
	}
}

// linked are the modules in a program beside its own, as they are replaced.
func linked(info *debug.BuildInfo) []debug.Module {
	var all []debug.Module
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		all = append(all, *m)
	}
	slices.SortFunc(all, func(a, b debug.Module) int { return cmp.Compare(a.Path, b.Path) })
	return all
}

// idOf has only the letters that SPDX allows.
func idOf(m debug.Module) string {
	return "SPDXRef-module-" + strings.Map(func(r rune) rune {
		if strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-", r) {
			return r
		}
		return '-'
	}, m.Path+"-"+m.Version)
}

func software(id, name, version, url string) object {
	return object{
		"SPDXID": id, "name": name, "versionInfo": version, "downloadLocation": "NOASSERTION", "filesAnalyzed": false,
		"externalRefs": []object{{"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl", "referenceLocator": url}},
	}
}

// provenance says of which sources the image was built, by which compiler and settings.
func (s source) provenance(stage stageOf, infos map[string]*debug.BuildInfo) object {
	settings := object{}
	compiler := ""
	for _, program := range slices.Sorted(maps.Keys(infos)) {
		info := infos[program]
		compiler = info.GoVersion
		for _, set := range info.Settings {
			settings[set.Key] = set.Value
		}
	}
	return object{
		"buildDefinition": object{
			"buildType":          repository + "/blob/main/Makefile",
			"externalParameters": object{"target": "image", "version": s.version, "architecture": stage.arch},
			"internalParameters": object{"go": compiler, "settings": settings},
			"resolvedDependencies": []object{
				{"uri": "git+" + repository, "digest": object{"gitCommit": s.revision}},
			},
		},
		"runDetails": object{"builder": object{"id": repository + "/blob/main/Makefile"}},
	}
}
