package embeddedapi

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilrand "k8s.io/apimachinery/pkg/util/rand"

	"github.com/evictd/evictd/internal/embeddedapi/store"
)

// maxSnapshots is how many lists are kept for their next page, and snapshotAge for how long, as long
// as kube-apiserver keeps a revision. A continue token of a list that is no longer kept has
// expired.
const (
	maxSnapshots = 64
	snapshotAge  = 5 * time.Minute
)

// snapshot is a list of which a client has received the first pages: objects are immutable, so
// that all pages are of one revision.
type snapshot struct {
	id       string
	at       time.Time
	resource string
	objects  []store.Object
	last     store.Key // of all objects, those included that the client's selectors exclude
	revision uint64
}

// snapshots are the lists that clients may continue, oldest first.
type snapshots struct {
	mu   sync.Mutex
	kept []snapshot
}

func (s *snapshots) keep(of *snapshot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.kept) == maxSnapshots {
		s.kept = slices.Delete(s.kept, 0, 1)
	}
	of.id, of.at = utilrand.String(20), time.Now()
	s.kept = append(s.kept, *of)
}

// find returns a list that is kept; a page may be asked for again.
func (s *snapshots) find(id, resource string) (snapshot, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kept = slices.DeleteFunc(s.kept, func(of snapshot) bool { return time.Since(of.at) > snapshotAge })
	i := slices.IndexFunc(s.kept, func(of snapshot) bool { return of.id == id && of.resource == resource })
	if i < 0 {
		return snapshot{}, false
	}
	return s.kept[i], true
}

// continuation is what a continue token says. Without a list, a client continues with the
// present objects.
type continuation struct {
	Version string    `json:"v"`
	List    string    `json:"list,omitempty"`
	After   store.Key `json:"after"`
}

const continuationVersion = "meta.k8s.io/v1"

func (c continuation) token() string {
	c.Version = continuationVersion
	text, _ := json.Marshal(c)
	return base64.RawURLEncoding.EncodeToString(text)
}

func continuationOf(token string) (c continuation, err error) {
	text, err := base64.RawURLEncoding.DecodeString(token)
	if err == nil {
		err = json.Unmarshal(text, &c)
	}
	switch {
	case err != nil:
		err = apierrors.NewBadRequest("invalid continue token: continue key is not valid: " + err.Error())
	case c.Version != continuationVersion:
		err = apierrors.NewBadRequest(fmt.Sprintf("invalid continue token: continue key is not valid: server does not recognize this encoded version %s", c.Version))
	}
	return c, err
}

// expiredContinue is the error for a list that is no longer kept. Its token continues with the
// present objects.
func expiredContinue(after store.Key) error {
	err := apierrors.NewResourceExpired("The provided continue parameter is too old to display a consistent list result. You can start a new list without " +
		"the continue parameter, or use the continue token in this response to retrieve the remainder of the results. Continuing with the provided " +
		"token results in an inconsistent list - objects that were created, modified, or deleted between the time the first chunk was returned " +
		"and now may show up in the list.")
	err.ErrStatus.ListMeta.Continue = continuation{After: after}.token()
	return err
}

// page is the part of a list that a client asked for, and the fields by which it asks for
// the next one. Only objects that the filter matches count.
func (r *request) page(filter *filter) (objects []store.Object, about metav1.ListMeta, err error) {
	limit, err := strconv.ParseInt(r.query.Get("limit"), 10, 64)
	if r.query.Has("limit") && (err != nil || limit < 0) {
		return nil, about, apierrors.NewBadRequest("limit: expected a number of at least 0, found " + strconv.Quote(r.query.Get("limit")))
	}
	from, err := r.listed(filter)
	if err != nil {
		return nil, about, err
	}
	about.ResourceVersion = strconv.FormatUint(from.revision, 10)
	objects = from.objects
	// As that of kube-apiserver, a page that is full has another one after it where any object
	// follows, also if the selectors exclude all of those.
	if n := int64(len(objects)); limit > 0 && (n > limit || n == limit && store.KeyOf(objects[n-1]) != from.last) {
		if from.id == "" {
			r.api.snapshots.keep(&from)
		}
		objects = objects[:limit]
		about.Continue = continuation{List: from.id, After: store.KeyOf(objects[limit-1])}.token()
		if filter.labels.Empty() && filter.fields.Empty() {
			about.RemainingItemCount = new(int64(len(from.objects)) - limit)
		}
	}
	return objects, about, nil
}

// listed are the objects that a client asks for, from where it continues on.
func (r *request) listed(filter *filter) (from snapshot, err error) {
	from.resource = r.URL.Path
	token := r.query.Get("continue")
	if token == "" {
		err = r.matching(filter, &from)
		return from, err
	}
	c, err := continuationOf(token)
	if err != nil {
		return from, err
	}
	if c.List == "" {
		latest := r.kind.table.Latest()
		err = r.matching(filter, &from)
		from.revision = max(from.revision, latest)
	} else if kept, ok := r.api.snapshots.find(c.List, r.URL.Path); ok {
		from = kept
	} else {
		err = expiredContinue(c.After)
	}
	i, found := slices.BinarySearchFunc(from.objects, c.After, func(o store.Object, after store.Key) int { return store.KeyOf(o).Compare(after) })
	if found {
		i++
	}
	from.objects = from.objects[i:]
	return from, err
}
