package main

import (
	"testing"

	"github.com/evictd/evictd/internal/golden"
	"github.com/evictd/evictd/internal/reference"
)

func TestTheReferenceHasEveryFlag(t *testing.T) {
	golden.Section(t, "../../docs/configuration.md", "evictd-install flags", reference.Flags(newCommand()))
}
