package embeddedapi

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"

	"github.com/evictd/evictd/internal/embeddedapi/apply"
	"github.com/evictd/evictd/internal/embeddedapi/openapi"
	"github.com/evictd/evictd/internal/embeddedapi/quota"
	"github.com/evictd/evictd/internal/embeddedapi/store"
	"github.com/evictd/evictd/internal/embeddedapi/strategy"
	"github.com/evictd/evictd/internal/manifest"
	"github.com/evictd/evictd/internal/podspec"
)

// Config says where the objects live.
type Config struct {
	Data   string // directory; made where it does not exist
	Tokens Tokens // of clients behind TLS without a certificate
	Sync   bool   // changes are on the disk before they are acknowledged; else with the kernel
	Log    *slog.Logger
}

// API serves the objects of one directory. It is an http.Handler.
type API struct {
	scheme     *runtime.Scheme
	media      []runtime.SerializerInfo
	compact    runtime.Serializer // of the journal
	kinds      []*kind
	reviews    []*kind
	tokens     Tokens
	evaluators *quota.Evaluators
	store      *store.Store
	follower   *store.Follower
	log        *slog.Logger
	models     *openapi.Models
	managers   *apply.Managers
	stopping   chan struct{} // closed when Run ends: watches end

	classes   classes
	snapshots snapshots
	budgets   sync.Mutex   // held while budgets are computed and spent
	large     atomic.Int64 // bytes of large requests that are being answered
	using     sync.Mutex   // held while quotas are compared and used
}

// New loads the directory, reads manifests written by other processes and creates the
// objects that every cluster has. Serve it only while Run runs.
func New(cfg Config) (*API, error) {
	scheme := newScheme()
	a := &API{scheme: scheme, media: newMedia(scheme), compact: protobuf.NewSerializer(scheme, scheme), reviews: newReviews(), tokens: cfg.Tokens, log: cfg.Log, stopping: make(chan struct{})}
	boundCopies()
	a.kinds = newKinds(strategy.New(a.namespace))
	a.managers = apply.New(scheme, strategy.Setter{}, unsetAdmitted)
	var err error
	if a.evaluators, err = quota.New(a.counted(), a.objectsOf); err != nil {
		return nil, err
	}
	a.store, err = store.Open(store.Config{Data: cfg.Data, Sync: cfg.Sync, Decode: a.decodeManifest, Encode: a.encode, Restore: a.restore, Volatile: a.isVolatile, Log: cfg.Log},
		a.resources(true), a.resources(false))
	if err != nil {
		return nil, err
	}
	for _, k := range a.kinds {
		k.table = a.store.Table(k.resource)
	}
	a.models = openapi.New(a.schemas())
	a.follower, err = a.store.Follow(a.takeManifest)
	if err == nil {
		err = a.makeSystem()
	}
	if err == nil {
		err = a.follower.Read()
	}
	if err == nil {
		err = a.resume()
	}
	if err != nil {
		return nil, errors.Join(err, a.store.Close())
	}
	return a, nil
}

// resources are the tables on disk, or those in memory.
func (a *API) resources(onDisk bool) (names []string) {
	for _, k := range a.kinds {
		if (k.ttl == 0 || k.memory != "") == onDisk && !k.isView() {
			names = append(names, k.resource)
		}
	}
	return names
}

// isVolatile says that an object is in memory, and others of its kind are on disk.
func (a *API) isVolatile(resource string, key store.Key) bool {
	k := a.kindOf(resource)
	return k.memory != "" && k.memory == key.Namespace
}

// makeSystem creates the namespaces and priority classes that every cluster has.
func (a *API) makeSystem() error {
	objects := []store.Object{
		&schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: podspec.SystemClusterCritical}, Value: podspec.SystemCriticalPriority},
		&schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: podspec.SystemNodeCritical}, Value: podspec.SystemNodeCriticalPriority},
	}
	for _, name := range systemNamespaces {
		objects = append(objects, &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	for _, o := range objects {
		gvks, _, err := a.scheme.ObjectKinds(o)
		if err != nil {
			return err
		}
		o.GetObjectKind().SetGroupVersionKind(gvks[0])
		if _, err := a.create(context.Background(), a.kindOf(gvks[0].Kind), o, false); err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("make %s %s: %w", gvks[0].Kind, o.GetName(), err)
		}
	}
	return nil
}

// kindOf finds a kind whose objects are stored as they are, by its name or resource.
func (a *API) kindOf(name string) *kind {
	for _, k := range a.kinds {
		if (k.Kind == name || k.resource == name) && !k.isView() {
			return k
		}
	}
	return nil
}

// Run writes manifests, follows the directory, computes budgets and quotas, and deletes old events until ctx ends,
// which ends all watches.
func (a *API) Run(ctx context.Context) error {
	var running sync.WaitGroup
	running.Go(func() { a.store.Run(ctx) })
	running.Go(func() { a.keepBudgets(ctx) })
	running.Go(func() { a.keepQuotas(ctx) })
	running.Go(func() { a.expire(ctx) })
	err := a.follower.Run(ctx)
	close(a.stopping)
	running.Wait()
	return err
}

// Close writes what Run has not, and unlocks the directory, after Run and the server have ended.
func (a *API) Close() error { return a.store.Close() }

// expire deletes expired objects of tables in memory.
func (a *API) expire(ctx context.Context) {
	tick := time.NewTicker(time.Minute)
	defer tick.Stop()
	written := map[*kind]map[string]time.Time{} // by resource version
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			for _, k := range a.kinds {
				if k.ttl > 0 && !k.isView() {
					written[k] = k.expire(written[k], now)
				}
			}
		}
	}
}

// expire deletes the objects that have not changed for the kind's lifetime, and returns
// since when the others have not changed.
func (k *kind) expire(seen map[string]time.Time, now time.Time) map[string]time.Time {
	left := map[string]time.Time{}
	objects, _ := k.table.List(k.memory)
	for _, o := range objects {
		since, known := seen[o.GetResourceVersion()]
		if !known {
			since = now
		}
		if now.Sub(since) < k.ttl {
			left[o.GetResourceVersion()] = since
			continue
		}
		if _, err := k.table.Remove(o); err != nil {
			left[o.GetResourceVersion()] = now // changed meanwhile
		}
	}
	return left
}

// decodeManifest reads one object of a resource strictly.
func (a *API) decodeManifest(resource string, key store.Key, document []byte) (store.Object, error) {
	k := a.kindOf(resource)
	parsed, err := manifest.One(document, k.Kind)
	if err != nil {
		return nil, err
	}
	about, err := parsed.Type()
	if err != nil {
		return nil, err
	}
	if about.GroupVersionKind() != k.GroupVersionKind {
		return nil, fmt.Errorf("expected apiVersion %s and kind %s, found %q and %q", k.GroupVersion(), k.Kind, about.APIVersion, about.Kind)
	}
	object := a.blank(k.GroupVersionKind)
	if err := parsed.Decode(object); err != nil {
		return nil, err
	}
	strategy.SetDefaults(object)
	if object.GetName() == "" {
		object.SetName(key.Name)
	}
	if object.GetNamespace() == "" && k.namespaced {
		object.SetNamespace(key.Namespace)
	}
	if found := store.KeyOf(object); found != key || k.namespaced != (key.Namespace != "") {
		return nil, fmt.Errorf("it names %s; expected the file %s", found, k.place())
	}
	return object, nil
}

// encode encodes an object for the journal.
func (a *API) encode(o store.Object) ([]byte, error) { return runtime.Encode(a.compact, o) }

// restore decodes an object of the journal, which may be that of a version that set fewer defaults.
func (a *API) restore(resource string, encoded []byte) (store.Object, error) {
	gvk := a.kindOf(resource).GroupVersionKind
	object := a.blank(gvk)
	if _, _, err := a.compact.Decode(encoded, &gvk, object); err != nil {
		return nil, err
	}
	object.GetObjectKind().SetGroupVersionKind(gvk)
	strategy.SetDefaults(object)
	return object, nil
}

func (k *kind) place() string {
	if k.namespaced {
		return k.resource + "/NAMESPACE/NAME.yaml"
	}
	return k.resource + "/NAME.yaml"
}

// manifestManager manages the fields that an edit of a manifest changes.
const manifestManager = "manifest"

// takeManifest creates or updates the object of a manifest written by another process,
// or deletes the object of a removed manifest, as a request would.
func (a *API) takeManifest(m store.Manifest) error {
	taken := *a.kindOf(m.Resource)
	taken.table = taken.table.Taking()
	k := &taken
	if m.Object == nil {
		_, _, err := a.remove(k, m.Key, &metav1.DeleteOptions{}, false)
		if apierrors.IsNotFound(err) {
			err = nil
		}
		return err
	}
	m.Object.SetResourceVersion("")
	m.Object.SetUID("")
	if k.table.Get(m.Key) == nil {
		_, err := a.create(context.Background(), k, m.Object, false)
		return err
	}
	_, err := a.update(context.Background(), change{kind: k, key: m.Key, manager: manifestManager, next: replaceBy(m.Object)})
	if err == nil && k.status {
		_, err = a.update(context.Background(), change{kind: k, key: m.Key, manager: manifestManager, sub: "status", next: replaceBy(m.Object)})
	}
	return err
}
