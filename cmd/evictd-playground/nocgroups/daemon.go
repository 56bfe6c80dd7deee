package nocgroups

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/evictd/evictd/cmd/evictd-playground/console"
	"github.com/evictd/evictd/cmd/evictd-playground/daemon"
	"github.com/evictd/evictd/internal/process"
	"github.com/evictd/evictd/nodestatus"
)

// transition is how long the condition outlives its cause once it has been seen.
const transition = 5 * time.Second

// memoryAvailable is the signal of the script.
const memoryAvailable = "memory.available"

// protector is the script's evictd, and what it reads and writes, in one directory.
type protector struct {
	*daemon.Daemon
	dir string
}

func (p *protector) manifests() string { return filepath.Join(p.dir, "pods") }
func (p *protector) nodeFile() string  { return filepath.Join(p.dir, "node.yaml") }

// newProtector makes the directory, and says what pods there are.
func newProtector(pods []*pod) (*protector, error) {
	dir, err := os.MkdirTemp("", "evictd-playground-")
	if err != nil {
		return nil, err
	}
	p := &protector{daemon.New(dir, "virtual"), dir}
	page, err := process.Addresses(1)
	if err != nil {
		return p, err
	}
	p.Page = page[0]
	if err := os.Mkdir(p.manifests(), 0o755); err != nil {
		return p, err
	}
	for _, pod := range pods {
		text, err := yaml.Marshal(pod.manifest())
		if err == nil {
			err = os.WriteFile(filepath.Join(p.manifests(), pod.name+".yaml"), text, 0o644)
		}
		if err != nil {
			return p, err
		}
	}
	return p, nil
}

// start starts evictd and waits until it ranks that many pods. It returns the
// order of their eviction.
func (p *protector) start(ctx context.Context, program string, pods int) (order []nodestatus.Ranked, err error) {
	err = p.Start(program, "--node-memory", strconv.Itoa(nodeMemory), "--pod-manifests", p.manifests(),
		"--node-status-file", p.nodeFile(), "--eviction-hard", memoryAvailable+"<"+console.Size(threshold))
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, console.Patience)
	defer cancel()
	err = p.Await(ctx, "ranking of all pods", func() bool {
		status, err := p.Status(ctx)
		if err == nil {
			order = status.Ranking[memoryAvailable]
		}
		return len(order) == pods
	})
	return order, err
}
