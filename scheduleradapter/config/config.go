// Package config compiles a KubeSchedulerConfiguration or a legacy Policy: it sets
// defaults, expands plugin sets, reads arguments and reports all faults with their
// field paths. It makes no plugin and reads no file.
package config

import (
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	configv1 "k8s.io/kube-scheduler/config/v1"

	"github.com/evictd/evictd/internal/manifest"
	"github.com/evictd/evictd/scheduleradapter/framework"
)

// Config is a complete and valid configuration.
type Config struct {
	// File is the name of the file; empty: there is none.
	File string
	// Profiles has at least one; their names are distinct.
	Profiles []Profile
	// Extenders are in the order of their calls; ignorable ones are last.
	Extenders []Extender
	// Parallelism is the number of concurrent calls of an out-of-tree plugin.
	Parallelism int
	// PodInitialBackoff doubles with each failed attempt, up to PodMaxBackoff.
	PodInitialBackoff, PodMaxBackoff time.Duration
	LeaderElection                   LeaderElection
	ClientConnection                 ClientConnection
	// Profiling serves pprof at the status address, if the file asks for it.
	Profiling bool
	// Warnings describe valid settings that have no effect.
	Warnings []string
}

// Profile schedules the pods of one spec.schedulerName.
type Profile struct {
	Name string
	// PercentageOfNodesToScore is 1 to 100; 0: adaptive, see NumFeasibleNodesToFind.
	PercentageOfNodesToScore int32
	// EveryReason reports all filters that reject a node, not only the first.
	EveryReason bool
	// Plugins has each enabled plugin once, in the order of Points.
	Plugins []Instance
	// Points has the plugins of each extension point in order.
	Points [framework.Points][]Enabled
}

// Instance is a plugin with its arguments.
type Instance struct {
	Name string
	// Args is a complete and valid v1 argument type for a built-in plugin with
	// arguments; otherwise the pluginConfig as *runtime.Unknown in JSON; nil: there
	// is none.
	Args runtime.Object
}

// Enabled is a plugin at an extension point.
type Enabled struct {
	Name string
	// Weight of the scores; zero at other points than Score.
	Weight int64
	path   *field.Path // path at this point; nil: enabled by multiPoint
}

// Misplaced is the fault of a plugin that does not implement the point; nil if
// multiPoint enables it.
func (e Enabled) Misplaced(point framework.Point) error {
	if e.path == nil {
		return nil
	}
	return doesNotExtend(e.path, e.Name, point)
}

func doesNotExtend(path *field.Path, name string, point framework.Point) *field.Error {
	return field.Invalid(path, name, "the plugin does not extend "+point.String())
}

// LeaderElection configures the Lease.
type LeaderElection struct {
	Enabled bool
	// LeaseDuration > RenewDeadline > 1.2 RetryPeriod.
	LeaseDuration, RenewDeadline, RetryPeriod time.Duration
	// Namespace and Name of the Lease.
	Namespace, Name string
}

// ClientConnection configures the client of the API server.
type ClientConnection struct {
	// Kubeconfig is a path; empty: in-cluster.
	Kubeconfig                      string
	AcceptContentTypes, ContentType string
	// QPS and Burst bound requests per second; a negative QPS: no bound.
	QPS   float32
	Burst int
}

// File is a configuration before Compile.
type File struct {
	configv1.KubeSchedulerConfiguration
	warnings []string
	// everyReason is Profile.EveryReason of all profiles.
	everyReason bool
}

// Load reads a KubeSchedulerConfiguration strictly, or translates a Policy of
// kube-scheduler up to 1.22. maxVolumes is the value of MaxVolumesVariable. The
// error joins all faults; the valid rest is returned for Compile.
func Load(data []byte, maxVolumes string, plugins []Plugin) (File, error) {
	var file File
	document, err := manifest.One(data, configuration.Kind)
	if err != nil {
		return file, err
	}
	about, err := document.Type()
	if err != nil {
		return file, err
	}
	switch about {
	case configuration:
		err = document.Decode(&file.KubeSchedulerConfiguration)
		return file, err
	case legacy:
		var p policy
		err = document.Decode(&p)
		file, faults := translate(&p, maxVolumes, plugins)
		return file, errors.Join(append([]error{err}, faults...)...)
	}
	return file, fmt.Errorf("apiVersion %q, kind %q: expected %s %s or %s %s",
		about.APIVersion, about.Kind, configuration.APIVersion, configuration.Kind, legacy.APIVersion, legacy.Kind)
}

// Kinds of files.
var (
	configuration = metav1.TypeMeta{APIVersion: configv1.SchemeGroupVersion.String(), Kind: "KubeSchedulerConfiguration"}
	legacy        = metav1.TypeMeta{APIVersion: "v1", Kind: "Policy"}
)
