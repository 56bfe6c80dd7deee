package main

import (
	"testing"

	"github.com/evictd/evictd/internal/doctable"
	"github.com/evictd/evictd/internal/golden"
)

func TestTheReferenceHasEveryFlag(t *testing.T) {
	golden.Section(t, "../../docs/configuration.md", "evictd-agent flags", doctable.Flags(newCommand()))
}
