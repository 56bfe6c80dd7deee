package main

import (
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/evictd/evictd/eviction/config"
	"github.com/evictd/evictd/eviction/daemon"
	"github.com/evictd/evictd/internal/require"
)

// fieldNames are the fields of the configuration file, by their names there.
func fieldNames(of reflect.Type) []string {
	var names []string
	for f := range of.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Anonymous && f.Name == "TypeMeta", !f.IsExported():
		case f.Anonymous:
			names = append(names, fieldNames(f.Type)...)
		default:
			names = append(names, name)
		}
	}
	return names
}

func TestTheManualHasEveryFieldAndMarksThoseThatAReloadApplies(t *testing.T) {
	page := require.ReadFile(t, "../../docs/man/evictd.yaml.5")
	_, described, _ := strings.Cut(string(page), "\n.SH EVICTION")
	marked := map[string]bool{}
	for _, heading := range regexp.MustCompile(`(?m)^\.TP\n\.BR? (.*)$`).FindAllStringSubmatch(described, -1) {
		for _, name := range regexp.MustCompile(`[A-Za-z]+`).FindAllString(heading[1], -1) {
			marked[name] = strings.HasSuffix(heading[1], "*")
		}
	}
	known := fieldNames(reflect.TypeFor[config.EvictdConfiguration]())
	for _, name := range known {
		reloads, there := marked[name]
		if !there {
			t.Errorf("%s is not in the manual", name)
		}
		if reloads != slices.Contains(daemon.Reloadable(), name) {
			t.Errorf("%s: the manual says that a reload takes it up: %t", name, reloads)
		}
	}
	for name := range marked {
		if !slices.Contains(known, name) {
			t.Errorf("the manual has %s, which is no field", name)
		}
	}
	for _, name := range daemon.Reloadable() {
		if !slices.Contains(known, name) {
			t.Errorf("%s is reloadable and no field", name)
		}
	}
}

// The configuration that is installed is safe beside a kubelet.
func TestTheInstalledConfigurationTouchesNothingYet(t *testing.T) {
	text := require.ReadFile(t, "../../systemd/evictd.yaml")
	file, err := config.Load(text)
	require.NoError(t, err)
	compiled, err := daemon.Check(&file)
	if err != nil || len(compiled.Warnings) > 0 {
		t.Error(err, compiled.Warnings)
	}
	if !file.DryRun || file.Mode != "backstop" {
		t.Errorf("dryRun %t, mode %s", file.DryRun, file.Mode)
	}
}
