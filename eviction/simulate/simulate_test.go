package simulate_test

import (
	"bytes"
	"encoding/json"
	"path/filepath"
	"testing"

	"github.com/evictd/evictd/eviction/simulate"
	"github.com/evictd/evictd/internal/golden"
	"github.com/evictd/evictd/internal/manifest"
	"github.com/evictd/evictd/internal/require"
)

// TestScenarios runs every scenario of testdata and compares its output, as
// facts, with the file of the same name.
func TestScenarios(t *testing.T) {
	golden.Each(t, "testdata/*.yaml", func(t *testing.T, file string) {
		golden.Facts(t, golden.Beside(file, ".golden"), output(t, read(t, file)))
	})
}

// TestJSON compares every byte of JSON with the files of testdata/json, each named
// after its scenario. They pin the fields and their order.
func TestJSON(t *testing.T) {
	golden.Each(t, "testdata/json/*.jsonl", func(t *testing.T, file string) {
		golden.Check(t, file, output(t, scenarioOf(t, file)))
	})
}

// TestText compares the text output with the files of testdata/text, each named
// after its scenario.
func TestText(t *testing.T) {
	golden.Each(t, "testdata/text/*.txt", func(t *testing.T, file string) {
		s, err := simulate.Parse(scenarioOf(t, file))
		require.NoError(t, err)
		var out bytes.Buffer
		for _, step := range s.Run() {
			out.WriteString(step.Text())
		}
		golden.Check(t, file, out.Bytes())
	})
}

func scenarioOf(t *testing.T, file string) []byte {
	t.Helper()
	return read(t, filepath.Join("testdata", golden.Beside(filepath.Base(file), ".yaml")))
}

func read(t *testing.T, file string) []byte {
	t.Helper()
	data := require.ReadFile(t, file)
	return data
}

// output is the scenario's output as JSON, or its faults, each after a "#".
func output(t *testing.T, data []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	s, err := simulate.Parse(data)
	for _, fault := range manifest.Faults(err) {
		out.WriteString("# invalid: " + fault.Error() + "\n")
	}
	if err != nil {
		return out.Bytes()
	}
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	for _, step := range s.Run() {
		require.NoError(t, encoder.Encode(step))
	}
	return out.Bytes()
}
