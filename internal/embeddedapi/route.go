package embeddedapi

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/evictd/evictd/internal/embeddedapi/store"
)

// requestTimeout is how long a request other than a watch may take.
const requestTimeout = time.Minute

// request is one request, and the resource of its path.
type request struct {
	*http.Request
	w        http.ResponseWriter
	api      *API
	query    url.Values
	accepted accepted

	reserved int64 // bytes of a large body

	kind                 *kind // nil where the path is no resource's
	namespace, name, sub string
}

// handler answers a request. If it returns neither object nor error it has written the
// answer.
type handler func(*request) (code int, object runtime.Object, err error)

// handlers are by method, and by the kind of path: all objects, one object, or a
// subresource.
var handlers = map[string]handler{
	"GET resources":    (*request).list,
	"POST resources":   (*request).post,
	"DELETE resources": (*request).deleteAll,
	"GET resource":     (*request).get,
	"PUT resource":     (*request).put,
	"PATCH resource":   (*request).patch,
	"DELETE resource":  (*request).delete,
	"GET status":       (*request).get,
	"PUT status":       (*request).put,
	"PATCH status":     (*request).patch,
	"POST binding":     (*request).bind,
	"POST eviction":    (*request).evict,
	"GET scale":        (*request).getScale,
	"PUT scale":        (*request).putScale,
	"PATCH scale":      (*request).patchScale,
	"PUT finalize":     (*request).put,

	"GET " + ephemeral:   (*request).get,
	"PUT " + ephemeral:   (*request).put,
	"PATCH " + ephemeral: (*request).patch,
	"GET " + resize:      (*request).get,
	"PUT " + resize:      (*request).put,
	"PATCH " + resize:    (*request).patch,
}

// ephemeral is the subresource by which kubectl debug adds a container to a running pod.
const ephemeral = "ephemeralcontainers"

// ServeHTTP answers one request.
func (a *API) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	r := &request{Request: req, w: w, api: a, query: req.URL.Query(), accepted: accepted{SerializerInfo: a.media[0]}}
	defer func() { a.large.Add(-r.reserved) }()
	err := r.limit(time.Now().Add(requestTimeout))
	if err == nil {
		r.accepted, err = a.negotiate(req.Header.Get("Accept"), strings.TrimRight(req.URL.Path, "/"))
	}
	if err == nil || isPlain(req.URL.Path) {
		err = r.serve()
	}
	if err != nil {
		r.fail(err)
	}
}

// limit bounds how long the client may take to send and to receive.
func (r *request) limit(deadline time.Time) error {
	control := http.NewResponseController(r.w)
	err := errors.Join(control.SetReadDeadline(deadline), control.SetWriteDeadline(deadline))
	if errors.Is(err, http.ErrNotSupported) {
		return nil // not over a network
	}
	return err
}

func (r *request) serve() error {
	if err := r.allow(); err != nil {
		return err
	}
	if served, err := r.meta(); served || err != nil {
		return err
	}
	if err := r.parse(); err != nil {
		return err
	}
	handle := handlers[r.Method+" "+r.shape()]
	if r.kind.review != nil {
		handle = nil
		if r.Method == http.MethodPost && r.name == "" {
			handle = (*request).review
		}
	}
	if handle == nil {
		return apierrors.NewMethodNotSupported(r.kind.groupResource(), strings.ToLower(r.Method))
	}
	if err := r.checkOptions(); err != nil {
		return err
	}
	code, object, err := handle(r)
	if err == nil && object != nil {
		r.answer(code, object)
	}
	return err
}

func (r *request) shape() string {
	switch {
	case r.name == "":
		return "resources"
	case r.sub == "":
		return "resource"
	}
	return r.sub
}

// parse finds the resource of /api/v1/... or /apis/GROUP/VERSION/...
func (r *request) parse() error {
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	unknown := failure(http.StatusNotFound, metav1.StatusReasonNotFound, "the server could not find the requested resource")
	var group, version string
	switch {
	case len(parts) > 2 && parts[0] == "api":
		version, parts = parts[1], parts[2:]
	case len(parts) > 3 && parts[0] == "apis":
		group, version, parts = parts[1], parts[2], parts[3:]
	default:
		return unknown
	}
	if parts[0] == "namespaces" && len(parts) > 2 && parts[2] != "status" && parts[2] != "finalize" {
		r.namespace, parts = parts[1], parts[2:]
	}
	for _, k := range slices.Concat(r.api.kinds, r.api.reviews) {
		if k.Group == group && k.Version == version && k.resource == parts[0] {
			r.kind = k
		}
	}
	if r.kind == nil || len(parts) > 3 {
		return unknown
	}
	parts = append(parts, "", "")
	r.name, r.sub = parts[1], parts[2]
	if r.namespace != "" && !r.kind.namespaced || r.namespace == "" && r.kind.namespaced && r.name != "" {
		return unknown
	}
	if !r.kind.hasSub(r.sub) {
		return failure(http.StatusNotFound, metav1.StatusReasonNotFound,
			fmt.Sprintf("the embedded API does not serve %s/%s: it runs no containers and issues no tokens", r.kind.resource, r.sub))
	}
	return nil
}

func (k *kind) hasSub(name string) bool {
	switch name {
	case "":
		return true
	case "status":
		return k.status
	case "binding", "eviction", ephemeral, resize:
		return k.Kind == "Pod"
	case "scale":
		return scales[k.Kind] != nil
	case "finalize":
		return k.Kind == "Namespace"
	}
	return false
}

func (r *request) key() store.Key { return store.Key{Namespace: r.namespace, Name: r.name} }

// optionsOf are the kinds of the options in the query of a write.
var optionsOf = map[string]string{http.MethodPost: "CreateOptions", http.MethodPut: "UpdateOptions", http.MethodPatch: "PatchOptions"}

// checkOptions refuses values of the query that a write does not understand.
func (r *request) checkOptions() error {
	kind := optionsOf[r.Method]
	if kind == "" {
		return nil
	}
	options := &metav1.PatchOptions{} // has the fields of the others
	if err := metav1.Convert_url_Values_To_v1_PatchOptions(&r.query, options, nil); err != nil {
		return apierrors.NewBadRequest(err.Error())
	}
	if r.Method != http.MethodPatch {
		options.Force = nil
		return wrongOptions(kind, metav1validation.ValidatePatchOptions(options, ""))
	}
	patch, err := r.patchType()
	if err != nil {
		return err
	}
	return wrongOptions(kind, metav1validation.ValidatePatchOptions(options, patch))
}

func (r *request) dryRun() bool { return r.query.Get("dryRun") == metav1.DryRunAll }

func (r *request) fail(err error) {
	var known apierrors.APIStatus
	if !errors.As(err, &known) {
		r.api.log.Error("request failed", "method", r.Method, "path", r.URL.Path, "error", err)
		known = apierrors.NewInternalError(err)
	}
	status := known.Status()
	if status.Details != nil && status.Details.RetryAfterSeconds > 0 {
		r.w.Header().Set("Retry-After", strconv.Itoa(int(status.Details.RetryAfterSeconds)))
	}
	status.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
	r.accepted.table = false
	r.answer(int(status.Code), &status)
}

// local refuses requests that a web page could send through a browser on this host: TCP
// on loopback has no other access control.
func local(r *http.Request) error {
	if at, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr); ok && at.Network() == "unix" {
		return nil
	}
	host := r.Host
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	address, err := netip.ParseAddr(strings.Trim(host, "[]"))
	if host != "localhost" && (err != nil || !address.IsLoopback()) || r.Header.Get("Origin") != "" {
		return failure(http.StatusForbidden, metav1.StatusReasonForbidden, "the embedded API is for programs on this host")
	}
	return nil
}
