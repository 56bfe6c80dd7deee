package osprocess

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/evictd/evictd/internal/require"
)

func TestFilesAreExchangedAndNotReplaced(t *testing.T) {
	dir := t.TempDir()
	a, b, c := filepath.Join(dir, "a"), filepath.Join(dir, "b"), filepath.Join(dir, "c")
	require.NoError(t, errors.Join(os.WriteFile(a, []byte("a"), 0o600), os.WriteFile(b, []byte("b"), 0o600)))
	require.NoError(t, Exchange(a, b))
	if got := string(require.ReadFile(t, a)) + string(require.ReadFile(t, b)); got != "ba" {
		t.Errorf("the files have %q", got)
	}
	if err := RenameNew(a, b); !errors.Is(err, fs.ErrExist) {
		t.Errorf("renamed to one that is there: %v", err)
	}
	require.NoError(t, RenameNew(a, c))
	if err := Exchange(a, b); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("exchanged one that is not there: %v", err)
	}
}
