package scheduleradapter

import (
	"testing"

	"github.com/evictd/evictd/internal/golden"
	"github.com/evictd/evictd/internal/reference"
)

func TestTheReferenceHasEveryFlag(t *testing.T) {
	golden.Section(t, "../docs/configuration.md", "evictd-scheduler flags", reference.Flags(NewCommand("v1")))
}
