package scheduleradapter

import (
	"testing"

	"github.com/evictd/evictd/internal/doctable"
	"github.com/evictd/evictd/internal/golden"
)

func TestTheReferenceHasEveryFlag(t *testing.T) {
	golden.Section(t, "../docs/configuration.md", "evictd-scheduler flags", doctable.Flags(NewCommand("v1")))
}
