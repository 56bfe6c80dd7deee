package main

import (
	"testing"

	"github.com/evictd/evictd/internal/golden"
	"github.com/evictd/evictd/internal/reference"
)

func TestTheReferenceHasEveryFlag(t *testing.T) {
	golden.Section(t, "../../docs/configuration.md", "kubectl-evictd flags", reference.Flags(newCommand()))
}
