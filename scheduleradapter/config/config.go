// Package config turns a KubeSchedulerConfiguration, or a legacy Policy, into the
// profiles, extenders and settings that the scheduler runs with: defaults filled in, plugin sets
// expanded, arguments read. It finds all faults of a file at once, each with its
// field path. It makes no plugin and reads no file.
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

// Config is a configuration that needs no further reading.
type Config struct {
	// Profiles has at least one; their names differ.
	Profiles []Profile
	// Extenders stand in the order in which they are called: those that may
	// fail come last.
	Extenders []Extender
	// Parallelism is how many nodes a foreign plugin may be asked about at once.
	Parallelism int
	// PodInitialBackoff doubles with every failed attempt up to PodMaxBackoff.
	PodInitialBackoff, PodMaxBackoff time.Duration
	LeaderElection                   LeaderElection
	ClientConnection                 ClientConnection
	// Profiling serves pprof; ContentionProfiling adds its block profile.
	Profiling, ContentionProfiling bool
	// DelayCacheUntilActive leaves the cluster unread until this process leads.
	DelayCacheUntilActive bool
	// Warnings tell of settings that are valid and probably not meant.
	Warnings []string
}

// Profile is how pods of one spec.schedulerName are scheduled.
type Profile struct {
	// Name is matched with spec.schedulerName.
	Name string
	// PercentageOfNodesToScore is 1 to 100, or 0 for the adaptive share; see
	// NumFeasibleNodesToFind.
	PercentageOfNodesToScore int32
	// EveryReason tells of a node all filters that reject it, not only the first.
	EveryReason bool
	// Plugins has each plugin that runs anywhere once, in the order in which the
	// points first name them.
	Plugins []Instance
	// Points holds what runs at each extension point, in order.
	Points [framework.Points][]Enabled
}

// Instance is a plugin to be made for a profile.
type Instance struct {
	Name string
	// Args is one of the v1 argument types, complete and valid, for a built-in
	// plugin that has one; else what the file says as *runtime.Unknown in JSON,
	// or nil where it says nothing.
	Args runtime.Object
}

// Enabled is a plugin at an extension point.
type Enabled struct {
	Name string
	// Weight multiplies the plugin's scores; zero at every point but Score.
	Weight int64
	path   *field.Path // where it is enabled at this point; nil where multiPoint does
}

// Misplaced is the fault of a plugin that turns out not to implement the point it
// is enabled at; nil where it is not enabled there by name.
func (e Enabled) Misplaced(point framework.Point) error {
	if e.path == nil {
		return nil
	}
	return doesNotExtend(e.path, e.Name, point)
}

func doesNotExtend(path *field.Path, name string, point framework.Point) *field.Error {
	return field.Invalid(path, name, "the plugin does not extend "+point.String())
}

// LeaderElection says how one of several schedulers is chosen to act, by a Lease.
type LeaderElection struct {
	Enabled bool
	// LeaseDuration > RenewDeadline > 1.2 RetryPeriod.
	LeaseDuration, RenewDeadline, RetryPeriod time.Duration
	// Namespace and Name are the Lease's.
	Namespace, Name string
}

// ClientConnection says how to speak to the API server.
type ClientConnection struct {
	// Kubeconfig is a path; empty means in-cluster.
	Kubeconfig                      string
	AcceptContentTypes, ContentType string
	// QPS and Burst bound requests a second; a negative QPS means no bound.
	QPS   float32
	Burst int
}

// File is a configuration that was read and is to be compiled.
type File struct {
	configv1.KubeSchedulerConfiguration
	warnings []string
	// everyReason is Profile.EveryReason of all profiles.
	everyReason bool
}

// Load reads a file strictly: a KubeSchedulerConfiguration, or a Policy as
// kube-scheduler took it up to 1.22, of which it makes one. MaxVolumes is the
// value of MaxVolumesVariable. The error joins every fault; what is not at fault
// has been read all the same, so that Compile can find what else is wrong.
func Load(data []byte, maxVolumes string, plugins []Plugin) (File, error) {
	var file File
	documents := manifest.Split(data)
	if len(documents) != 1 {
		return file, fmt.Errorf("expected one document of kind %s, found %d", configuration.Kind, len(documents))
	}
	about, err := manifest.TypeOf(documents[0])
	if err != nil {
		return file, err
	}
	switch about {
	case configuration:
		err = manifest.Decode(documents[0], &file.KubeSchedulerConfiguration)
		return file, err
	case legacy:
		var p policy
		err = manifest.Decode(documents[0], &p)
		file, faults := translate(&p, maxVolumes, plugins)
		return file, errors.Join(append([]error{err}, faults...)...)
	}
	return file, fmt.Errorf("apiVersion %q, kind %q: expected %s %s or %s %s",
		about.APIVersion, about.Kind, configuration.APIVersion, configuration.Kind, legacy.APIVersion, legacy.Kind)
}

// What a file may be.
var (
	configuration = metav1.TypeMeta{APIVersion: configv1.SchemeGroupVersion.String(), Kind: "KubeSchedulerConfiguration"}
	legacy        = metav1.TypeMeta{APIVersion: "v1", Kind: "Policy"}
)
