package virtual

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/evictd/evictd/cmd/evictd-playground/stage"
	"github.com/evictd/evictd/nodestatus"
)

// transition is how long the condition outlives its cause.
const transition = 5 * time.Second

// memoryAvailable is the signal that the story is about.
const memoryAvailable = "memory.available"

// daemon is an evictd of the playground's own, and what it reads and writes, in
// one directory.
type daemon struct {
	*stage.Service
	dir    string
	page   string // address of the status page
	client *http.Client
}

func (d *daemon) manifests() string { return filepath.Join(d.dir, "pods") }
func (d *daemon) nodeFile() string  { return filepath.Join(d.dir, "node.yaml") }
func (d *daemon) socket() string    { return filepath.Join(d.dir, "status.sock") }

// newDaemon makes the directory, and says what pods there are.
func newDaemon(pods []*pod) (*daemon, error) {
	dir, err := os.MkdirTemp("", "evictd-playground-")
	if err != nil {
		return nil, err
	}
	d := &daemon{dir: dir}
	d.client = stage.Client(d.socket())
	page, err := stage.Addresses(1)
	if err != nil {
		return d, err
	}
	d.page = page[0]
	if err := os.Mkdir(d.manifests(), 0o755); err != nil {
		return d, err
	}
	for _, p := range pods {
		text, err := yaml.Marshal(p.manifest())
		if err == nil {
			err = os.WriteFile(filepath.Join(d.manifests(), p.name+".yaml"), text, 0o644)
		}
		if err != nil {
			return d, err
		}
	}
	return d, nil
}

// start starts evictd and waits until it ranks that many pods. It returns the
// order of their eviction.
func (d *daemon) start(ctx context.Context, launcher *stage.Launcher, program string, pods int) (order []nodestatus.Ranked, err error) {
	// A kubelet of this host minds another node: hence force.
	d.Service, err = launcher.Serve(ctx, d.dir, "evictd", program, "run", "--node-memory", strconv.Itoa(nodeMemory),
		"--mode", "native", "--force", "--node-name", "playground",
		"--pod-manifests", d.manifests(), "--node-status-file", d.nodeFile(), "--status-address", "unix:"+d.socket()+","+d.page,
		"--state-dir", d.dir, "--cri-endpoint", "none", "--housekeeping-interval", "1s",
		"--eviction-hard", memoryAvailable+"<"+stage.Size(threshold), "--eviction-pressure-transition-period", transition.String())
	if err != nil {
		return nil, err
	}
	err = d.Await(ctx, "ranking of all pods", func() bool {
		status, err := d.status(ctx)
		if err == nil {
			order = status.Ranking[memoryAvailable]
		}
		return len(order) == pods
	})
	return order, err
}

// status asks for /v1/status.
func (d *daemon) status(ctx context.Context) (*nodestatus.Status, error) {
	var s nodestatus.Status
	return &s, stage.Get(ctx, d.client, "/v1/status", &s)
}
