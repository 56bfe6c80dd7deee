package daemon

import (
	"errors"
	"io/fs"
	"log/slog"
	"maps"
	"path"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evictd/evictd/cgroup"
	"github.com/evictd/evictd/eviction"
	"github.com/evictd/evictd/eviction/undo"
	"github.com/evictd/evictd/internal/wire"
	"github.com/evictd/evictd/oom"
)

// annotations carries out what pods ask for by evictd's annotations, and reports those without
// effect, each once. A nil annotations does nothing. Owned by syncPods.
type annotations struct {
	cgroups  *cgroup.System // nil on a virtual node
	dir      string         // of the undo log
	log      *slog.Logger
	reports  interface{ AnnotationIgnored(wire.PodName, string) }
	reported map[types.UID]map[string]bool // those that the pod still has
	// share bounds the reports of each namespace: a tenant may change its annotations as often as it likes.
	share map[string]*rate.Limiter
	// changes is opened for the first change: a log of its own leaves the slots of the other one
	// to kills.
	changes *undo.Log
	groups  map[string]*undo.Change // memory.oom.group by path; nil where it could not be set
}

func (d *Daemon) newAnnotations() *annotations {
	if d.dryRun {
		return nil
	}
	return &annotations{
		cgroups: d.node.cgroups, dir: d.runtimeDir, log: d.log, reports: d.publisher,
		reported: map[types.UID]map[string]bool{}, share: map[string]*rate.Limiter{}, groups: map[string]*undo.Change{},
	}
}

// follow sets memory.oom.group of containers as they appear, and puts it back where a pod no longer
// asks for it.
func (a *annotations) follow(pods []*trackedPod) {
	if a == nil {
		return
	}
	reported, wanted := map[types.UID]map[string]bool{}, map[string]string{}
	for _, p := range pods {
		why := func(err error) {
			if err == nil || !a.reported[p.UID][err.Error()] && !a.report(p, err.Error()) {
				return
			}
			if reported[p.UID] == nil {
				reported[p.UID] = map[string]bool{}
			}
			reported[p.UID][err.Error()] = true
		}
		if text, asks := p.manifest.Annotations[eviction.PreferenceAnnotation]; asks {
			_, err := eviction.ParsePreference(text)
			why(err)
		}
		var containers []string
		for i := range p.Containers {
			containers = append(containers, p.Containers[i].Name)
		}
		_, err := eviction.ParseNotify(p.manifest.Annotations, containers)
		why(err)
		_, err = eviction.ParseResize(p.manifest.Annotations[eviction.ResizeAnnotation])
		why(err)
		why(a.want(p, wanted))
	}
	a.reported = reported
	maps.DeleteFunc(a.share, func(_ string, l *rate.Limiter) bool { return l.Tokens() >= reportBurst })
	for file, c := range a.groups {
		if wanted[file] != "" {
			continue
		}
		delete(a.groups, file)
		if c == nil {
			continue
		}
		if err := c.Undo(); err != nil {
			a.log.Warn("memory.oom.group could not be restored", "file", file, "error", err)
		}
	}
	for file, value := range wanted {
		if c, tried := a.groups[file]; !tried || c != nil && c.Set != value {
			a.set(file, value)
		}
	}
}

// The reports of a namespace: so many at once, and then one each interval. One that has to wait is made once it may, if the pod has
// the annotation then.
const (
	reportBurst    = 20
	reportInterval = 30 * time.Second
)

// report reports that an annotation has no effect, unless the namespace has used up its share, and says whether it did.
func (a *annotations) report(p *trackedPod, why string) bool {
	l := a.share[p.Namespace]
	if l == nil {
		l = rate.NewLimiter(rate.Every(reportInterval), reportBurst)
		a.share[p.Namespace] = l
	}
	if !l.Allow() {
		return false
	}
	a.reports.AnnotationIgnored(wire.PodName{UID: p.UID, Namespace: p.Namespace, Name: p.Name}, why)
	return true
}

var errOOMGroup = errors.New("annotation " + oom.GroupAnnotation + ": the kernel has memory.oom.group on cgroup v2 only")

// want adds the files of a pod's containers and the value that the pod asks for.
func (a *annotations) want(p *trackedPod, wanted map[string]string) error {
	value, err := oom.Group(p.manifest)
	if err != nil || value == "" {
		return err
	}
	if p.group == nil {
		return errOOMGroup
	}
	for i := range p.Containers {
		child := p.child(p.Containers[i].Name)
		file, ok := a.cgroups.OOMGroupFile(path.Join(p.group.path, child))
		if !ok {
			return errOOMGroup
		}
		if child != "" {
			wanted[file] = value
		}
	}
	return nil
}

// set writes a value. A container that does not exist yet has it set when it does.
func (a *annotations) set(file, value string) {
	var err error
	if a.changes == nil {
		a.changes, err = undo.Open(a.dir)
	}
	if err == nil {
		var c *undo.Change
		if c, err = a.changes.Set(file, value); err == nil {
			if before := a.groups[file]; before != nil {
				err = before.Undo() // one holder of the change is left
			}
			a.groups[file] = c
		}
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		a.groups[file] = nil
		a.log.Warn("memory.oom.group could not be set", "file", file, "value", value, "error", err)
	}
}

// close restores all settings.
func (a *annotations) close() {
	if a == nil || a.changes == nil {
		return
	}
	if err := a.changes.Close(); err != nil {
		a.log.Warn("memory.oom.group could not be restored; evictd undo tries again", "error", err)
	}
}
