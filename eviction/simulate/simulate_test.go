package simulate_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/evictd/evictd/eviction/simulate"
	"github.com/evictd/evictd/internal/golden"
	"github.com/evictd/evictd/internal/manifest"
)

// TestScenarios plays every scenario of testdata and holds what it prints
// against the file beside it.
func TestScenarios(t *testing.T) {
	golden.Each(t, "testdata/*.yaml", func(t *testing.T, file string) {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		golden.Check(t, golden.Beside(file, ".jsonl"), play(t, data))
	})
}

// TestText holds what people read against the files of testdata/text, each
// named after its scenario.
func TestText(t *testing.T) {
	golden.Each(t, "testdata/text/*.txt", func(t *testing.T, file string) {
		data, err := os.ReadFile(filepath.Join("testdata", golden.Beside(filepath.Base(file), ".yaml")))
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
		golden.Check(t, file, out.Bytes())
	})
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
