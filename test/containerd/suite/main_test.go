// Package suite_test runs pods on real containerds, of two versions, and holds
// both to what evictd relies on.
package suite_test

import (
	"os"
	"testing"

	"github.com/evictd/evictd/test/containerd/node"
)

func TestMain(m *testing.M) { os.Exit(node.Main(m)) }
