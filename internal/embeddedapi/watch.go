package embeddedapi

import (
	"errors"
	"io"
	"net/http"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation/field"
	apiwatch "k8s.io/apimachinery/pkg/watch"

	"github.com/evictd/evictd/internal/embeddedapi/store"
)

const (
	longestWatch   = time.Hour        // where the client says nothing
	bookmarkPeriod = 30 * time.Second // how old a client's resource version may become
	watcherStall   = 30 * time.Second // a watcher that takes nothing for so long is ended
)

// stream is one running watch.
type stream struct {
	request   *request
	filter    *filter
	cursor    *store.Cursor
	bookmarks bool
	marked    uint64 // revision that the client knows of
	control   *http.ResponseController
	frames    io.Writer
}

// watch streams changes. It returns an error only before it has begun to answer.
func (r *request) watch() error {
	info := r.accepted.StreamSerializer
	if info == nil {
		return failure(http.StatusNotAcceptable, metav1.StatusReasonNotAcceptable, "this media type cannot be streamed")
	}
	filter, err := newFilter(r, r.query)
	if err != nil {
		return err
	}
	asked, err := r.revision()
	if err != nil {
		return err
	}
	s := &stream{request: r, filter: filter, bookmarks: r.query.Get("allowWatchBookmarks") == "true", control: http.NewResponseController(r.w)}
	s.frames = info.Framer.NewFrameWriter(r.w)
	// After a read deadline net/http closes the connection, with all its later
	// requests.
	if err := s.control.SetReadDeadline(time.Time{}); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	initial, given := r.query.Get("sendInitialEvents"), r.query.Has("sendInitialEvents")
	if given && r.query.Get("resourceVersionMatch") != string(metav1.ResourceVersionMatchNotOlderThan) {
		return apierrors.NewInvalid(metav1.SchemeGroupVersion.WithKind("ListOptions").GroupKind(), "", utilvalidation.ErrorList{
			utilvalidation.Forbidden(utilvalidation.NewPath("resourceVersionMatch"), "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan")})
	}
	r.w.Header().Set("Content-Type", r.accepted.MediaType+";stream=watch")
	r.w.Header().Set("Cache-Control", "no-cache, private")
	switch {
	case initial == "true":
		err = s.begin(s.bookmarks)
	case given || asked > 0:
		if asked == 0 {
			asked = r.kind.table.Revision()
		}
		s.marked = asked
		s.cursor, err = r.kind.table.Since(asked, filter.interest())
	default:
		err = s.begin(false)
	}
	if s.cursor != nil {
		defer s.cursor.Close()
	}
	if err == nil {
		err = s.run()
	}
	if errors.Is(err, store.ErrExpired) {
		err = s.send(apiwatch.Error, expired())
	}
	if err != nil {
		r.api.log.Debug("watch ended", "path", r.URL.Path, "error", err)
	}
	return nil
}

func expired() *metav1.Status {
	status := apierrors.NewResourceExpired("too old resource version").Status()
	status.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
	return &status
}

// begin sends the present objects, and where requested a bookmark after them.
func (s *stream) begin(mark bool) error {
	objects, cursor, revision := s.request.kind.table.From(s.request.namespace, s.filter.interest())
	s.cursor = cursor
	for _, o := range objects {
		if !s.filter.matches(o) {
			continue
		}
		if err := s.send(apiwatch.Added, s.request.kind.served(o)); err != nil {
			return err
		}
	}
	if mark {
		return s.sendBookmark(revision, map[string]string{metav1.InitialEventsAnnotationKey: "true"})
	}
	return nil
}

// sendBookmark sends a bookmark with the revision up to which all changes were sent.
func (s *stream) sendBookmark(revision uint64, annotations map[string]string) error {
	object := s.request.api.blank(s.request.kind.GroupVersionKind)
	object.SetResourceVersion(strconv.FormatUint(revision, 10))
	object.SetAnnotations(annotations)
	s.marked = revision
	return s.send(apiwatch.Bookmark, object)
}

// run sends changes until the client disconnects, its timeout passes or the server
// stops.
func (s *stream) run() error {
	over := time.NewTimer(s.timeout())
	defer over.Stop()
	tick := time.NewTicker(bookmarkPeriod)
	defer tick.Stop()
	for {
		changes, revision, err := s.cursor.Next()
		if err != nil {
			return err
		}
		for _, change := range changes {
			if err := s.sendChange(change); err != nil {
				return err
			}
		}
		if err := s.control.Flush(); err != nil {
			return err
		}
		select {
		case <-s.cursor.More():
		case <-tick.C:
			if s.bookmarks && revision > s.marked {
				if err := s.sendBookmark(revision, nil); err != nil {
					return err
				}
			}
		case <-over.C:
			return nil
		case <-s.request.Context().Done():
			return nil
		case <-s.request.api.stopping:
			return nil
		}
	}
}

func (s *stream) timeout() time.Duration {
	seconds, err := strconv.Atoi(s.request.query.Get("timeoutSeconds"))
	if err != nil || seconds <= 0 {
		return longestWatch
	}
	return time.Duration(seconds) * time.Second
}

// sendChange sends a change after the filter: an object that no longer matches is deleted for
// this client.
func (s *stream) sendChange(c *store.Change) error {
	before := s.filter.matches(c.Old)
	after := c.Type != apiwatch.Deleted && s.filter.matches(c.New)
	what := apiwatch.Modified
	switch {
	case !before && !after:
		return nil
	case !before:
		what = apiwatch.Added
	case !after:
		what = apiwatch.Deleted
	}
	k, as := s.request.kind, s.request.accepted
	event := func(stored []byte) ([]byte, error) {
		if stored != nil && as.MediaType == runtime.ContentTypeProtobuf && !k.isView() && what != apiwatch.Deleted {
			return s.event(what, stored)
		}
		object := c.New
		if what == apiwatch.Deleted && c.Type != apiwatch.Deleted {
			object = c.Old.DeepCopyObject().(store.Object)
			object.SetResourceVersion(c.New.GetResourceVersion())
		}
		return s.encode(what, k.served(object))
	}
	if as.table {
		return s.write(event(nil))
	}
	return s.write(c.Encoded(form{k, as.MediaType, what}, event))
}

// form is what the events of a change have in common that are the same for several watches.
type form struct {
	kind      *kind
	mediaType string
	what      apiwatch.EventType
}

func (s *stream) send(what apiwatch.EventType, object runtime.Object) error {
	return s.write(s.encode(what, object))
}

func (s *stream) write(event []byte, err error) error {
	if err != nil {
		return err
	}
	if err := s.control.SetWriteDeadline(time.Now().Add(watcherStall)); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	_, err = s.frames.Write(event)
	return err
}

func (s *stream) encode(what apiwatch.EventType, object runtime.Object) ([]byte, error) {
	if s.request.accepted.table && what != apiwatch.Error {
		table, err := s.request.inTable(object)
		if err != nil {
			return nil, err
		}
		object = table
	}
	raw, err := runtime.Encode(s.request.accepted.Serializer, object)
	if err != nil {
		return nil, err
	}
	return s.event(what, raw)
}

// event is an event of an encoded object.
func (s *stream) event(what apiwatch.EventType, raw []byte) ([]byte, error) {
	return runtime.Encode(s.request.accepted.StreamSerializer.Serializer, &metav1.WatchEvent{Type: string(what), Object: runtime.RawExtension{Raw: raw}})
}
