package simulate_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/evictd/evictd/eviction/simulate"
	"github.com/evictd/evictd/internal/manifest"
)

// TestScenarios plays every scenario of testdata and holds what it prints
// against the file beside it; EVICTD_REWRITE=1 writes those files anew.
func TestScenarios(t *testing.T) {
	files, err := filepath.Glob("testdata/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scenarios in testdata: %v", err)
	}
	for _, name := range files {
		t.Run(strings.TrimSuffix(filepath.Base(name), ".yaml"), func(t *testing.T) {
			data, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			golden(t, strings.TrimSuffix(name, ".yaml")+".jsonl", play(t, data))
		})
	}
}

// TestText holds what people read against the files of testdata/text, each
// named after its scenario.
func TestText(t *testing.T) {
	files, err := filepath.Glob("testdata/text/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("nothing in testdata/text: %v", err)
	}
	for _, name := range files {
		scenario := strings.TrimSuffix(filepath.Base(name), ".txt")
		t.Run(scenario, func(t *testing.T) {
			data, err := os.ReadFile(filepath.Join("testdata", scenario+".yaml"))
			if err != nil {
				t.Fatal(err)
			}
			s, err := simulate.Parse(data)
			if err != nil {
				t.Fatal(err)
			}
			var out bytes.Buffer
			for _, step := range s.Run() {
				out.WriteString(step.Text())
			}
			golden(t, name, out.Bytes())
		})
	}
}

// play is the scenario's output, or its faults.
func play(t *testing.T, data []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	s, err := simulate.Parse(data)
	for _, fault := range manifest.Faults(err) {
		out.WriteString("invalid: " + fault.Error() + "\n")
	}
	if err != nil {
		return out.Bytes()
	}
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	for _, step := range s.Run() {
		if err := encoder.Encode(step); err != nil {
			t.Fatal(err)
		}
	}
	return out.Bytes()
}

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	if os.Getenv("EVICTD_REWRITE") == "1" {
		if err := os.WriteFile(name, got, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s differs; make rewrite and review the diff\ngot:\n%s\nwant:\n%s", name, got, want)
	}
}
