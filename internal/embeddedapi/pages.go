package embeddedapi

import (
	"strconv"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilrand "k8s.io/apimachinery/pkg/util/rand"

	"github.com/evictd/evictd/internal/embeddedapi/store"
)

// maxSnapshots is how many lists are kept for their next page. The oldest is forgotten, and
// its continue token has then expired.
const maxSnapshots = 64

// snapshot is what is left of a list of which a client has received the first pages: objects are
// immutable, so that all pages are of one revision.
type snapshot struct {
	token    string
	resource string
	objects  []store.Object
	revision uint64
}

// snapshots are the lists that clients may continue, oldest first.
type snapshots struct {
	mu   sync.Mutex
	kept []snapshot
}

func (s *snapshots) keep(of snapshot) (token string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.kept) == maxSnapshots {
		s.kept = append(s.kept[:0], s.kept[1:]...)
	}
	of.token = utilrand.String(20)
	s.kept = append(s.kept, of)
	return of.token
}

// find returns a snapshot; a page may be asked for again.
func (s *snapshots) find(token, resource string) (snapshot, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, of := range s.kept {
		if of.token == token && of.resource == resource {
			return of, nil
		}
	}
	return snapshot{}, apierrors.NewResourceExpired("The provided continue parameter is too old to display a consistent list result. You can start a new list without the continue parameter.")
}

// page is the part of a list that a client asked for, and the fields by which it asks for
// the next one. Only objects that the filter matches count.
func (r *request) page(filter *filter) (objects []store.Object, about metav1.ListMeta, err error) {
	limit, err := strconv.ParseInt(r.query.Get("limit"), 10, 64)
	if r.query.Has("limit") && (err != nil || limit < 0) {
		return nil, about, apierrors.NewBadRequest("limit: expected a number of at least 0, found " + strconv.Quote(r.query.Get("limit")))
	}
	from := snapshot{resource: r.URL.Path}
	if token := r.query.Get("continue"); token != "" {
		from, err = r.api.snapshots.find(token, r.URL.Path)
	} else {
		from.objects, from.revision, err = r.matching(filter)
	}
	if err != nil {
		return nil, about, err
	}
	about.ResourceVersion = strconv.FormatUint(from.revision, 10)
	objects = from.objects
	if limit > 0 && int64(len(objects)) > limit {
		from.objects = objects[limit:]
		objects = objects[:limit]
		about.Continue = r.api.snapshots.keep(from)
		if filter.labels.Empty() && filter.fields.Empty() {
			about.RemainingItemCount = new(int64(len(from.objects)))
		}
	}
	return objects, about, nil
}
