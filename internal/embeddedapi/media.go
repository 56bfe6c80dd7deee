package embeddedapi

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"reflect"
	"slices"
	"strings"

	"github.com/munnerz/goautoneg"
	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"sigs.k8s.io/yaml"

	"github.com/evictd/evictd/internal/embeddedapi/bound"
	"github.com/evictd/evictd/internal/embeddedapi/store"
)

// maxBody is how large a request may be, in bytes, as kube-apiserver's. Requests of more than smallBody bytes have largeBodies
// bytes together at any time: a program that decodes them takes about 20 bytes for each.
const (
	maxBody     = 3 << 20
	smallBody   = 64 << 10
	largeBodies = 8 * maxBody
)

// accepted is the encoding that a client accepts.
type accepted struct {
	runtime.SerializerInfo
	table      bool
	aggregated bool // discovery of all groups at once
}

// negotiate finds the first served encoding of an Accept header. A review is not served as a table.
func (a *API) negotiate(header, path string) (accepted, error) {
	if header == "" {
		return accepted{SerializerInfo: a.media[0]}, nil
	}
	isReview := slices.ContainsFunc(a.reviews, func(k *kind) bool { return strings.HasSuffix(path, "/"+k.resource) })
	for _, clause := range goautoneg.ParseAccept(header) {
		as := clause.Params["as"]
		table := as == "Table" && !isReview && clause.Params["g"] == metav1.GroupName && clause.Params["v"] == "v1"
		all := (path == "/api" || path == "/apis") && as == aggregated.Kind && clause.Params["g"] == aggregated.Group && clause.Params["v"] == aggregated.Version
		if as != "" && !table && !all {
			continue
		}
		for _, info := range a.media {
			if matches(clause.Type, info.MediaTypeType) && matches(clause.SubType, info.MediaTypeSubType) {
				return accepted{info, table, all}, nil
			}
		}
	}
	return accepted{SerializerInfo: a.media[0]}, failure(http.StatusNotAcceptable, metav1.StatusReasonNotAcceptable,
		"only the following media types are accepted: "+a.mediaTypes())
}

func matches(asked, served string) bool { return asked == served || asked == "*" }

func (a *API) mediaTypes() string {
	var names []string
	for _, info := range a.media {
		names = append(names, info.MediaType)
	}
	return strings.Join(names, ", ")
}

func failure(code int, reason metav1.StatusReason, message string) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: int32(code), Reason: reason, Message: message}}
}

// reserve takes the room of a large body until the request ends.
func (r *request) reserve() error {
	size := r.ContentLength
	if size < 0 || size > maxBody {
		size = maxBody // or refused
	}
	if size <= smallBody || r.reserved > 0 {
		return nil
	}
	if r.api.large.Add(size) > largeBodies {
		r.api.large.Add(-size)
		return apierrors.NewTooManyRequests("too many large requests at a time", 1)
	}
	r.reserved = size
	return nil
}

// body reads a request's body, which may be empty.
func (r *request) body() ([]byte, error) {
	if err := r.reserve(); err != nil {
		return nil, err
	}
	data, err := io.ReadAll(http.MaxBytesReader(r.w, r.Body, maxBody))
	if tooLarge, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return nil, apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("limit is %d", tooLarge.Limit))
	}
	if err != nil {
		return nil, apierrors.NewBadRequest("read the body: " + err.Error())
	}
	return data, nil
}

// decode decodes a body of the given content type. Unknown and duplicate fields are an
// error, a warning or ignored, by fieldValidation.
func (r *request) decode(data []byte, contentType string, into runtime.Object, gvk schema.GroupVersionKind) error {
	info, err := r.api.reader(contentType)
	if err != nil {
		return err
	}
	if err := affordable(data, info.MediaType, into); err != nil {
		return err
	}
	decoded, _, err := info.StrictSerializer.Decode(data, &gvk, into)
	if runtime.IsStrictDecodingError(err) {
		err = r.strict(err)
	}
	if err != nil {
		return apierrors.NewBadRequest(fmt.Sprintf("%s in version %q cannot be handled as a %s: %v", gvk.Kind, gvk.GroupVersion(), gvk.Kind, err))
	}
	if found := decoded.GetObjectKind().GroupVersionKind(); decoded != into && found != gvk {
		return apierrors.NewBadRequest(fmt.Sprintf("the API version in the data (%s, Kind=%s) does not match the expected one (%s, Kind=%s)",
			found.GroupVersion(), found.Kind, gvk.GroupVersion(), gvk.Kind))
	}
	into.GetObjectKind().SetGroupVersionKind(gvk)
	return nil
}

// affordable refuses a body that costs too much to be decoded.
func affordable(data []byte, mediaType string, into any) error {
	var err error
	switch of := reflect.TypeOf(into); {
	case mediaType == runtime.ContentTypeProtobuf:
		err = bound.Protobuf(data, of)
	case mediaType == runtime.ContentTypeYAML && !json.Valid(data):
		if err = bound.YAML(data, maxBody); err != nil {
			break
		}
		if data, err = yaml.YAMLToJSON(data); err != nil {
			return nil // the decoder says what is wrong
		}
		fallthrough
	default:
		err = bound.JSON(data, of)
	}
	switch {
	case err == nil:
		return nil
	case errors.Is(err, bound.ErrTooLarge), errors.Is(err, bound.ErrTooMany), errors.Is(err, bound.ErrAliases):
		return apierrors.NewRequestEntityTooLargeError(err.Error())
	}
	return apierrors.NewBadRequest(err.Error())
}

func (a *API) reader(contentType string) (runtime.SerializerInfo, error) {
	if contentType == "" {
		return a.media[0], nil
	}
	if name, _, err := mime.ParseMediaType(contentType); err == nil {
		if info, ok := runtime.SerializerInfoForMediaType(a.media, name); ok {
			return info, nil
		}
	}
	return runtime.SerializerInfo{}, failure(http.StatusUnsupportedMediaType, metav1.StatusReasonUnsupportedMediaType,
		"the body of the request was in an unknown format - accepted media types include: "+a.mediaTypes())
}

// strict handles unknown and duplicate fields.
func (r *request) strict(err error) error {
	switch r.query.Get("fieldValidation") {
	case metav1.FieldValidationStrict:
		return err
	case metav1.FieldValidationIgnore:
		return nil
	}
	faults, ok := runtime.AsStrictDecodingError(err)
	if !ok {
		r.warn(err.Error())
		return nil
	}
	for _, fault := range faults.Errors() {
		r.warn(fault.Error())
	}
	return nil
}

// warn adds a warning to the answer, once.
func (r *request) warn(text string) {
	header, err := utilnet.NewWarningHeader(299, "-", text)
	if err == nil && !slices.Contains(r.w.Header().Values("Warning"), header) {
		r.w.Header().Add("Warning", header)
	}
}

// AddWarning is warn, for Kubernetes' strategies.
func (r *request) AddWarning(_, text string) { r.warn(text) }

func (r *request) answer(code int, object runtime.Object) {
	if o, ok := object.(store.Object); ok && r.kind != nil {
		object = r.kind.served(o)
	}
	if _, isScale := object.(*autoscalingv1.Scale); r.accepted.table && !isScale {
		table, err := r.inTable(object)
		if err != nil {
			r.fail(err)
			return
		}
		object = table
	}
	contentType := r.accepted.MediaType
	if _, isAggregated := object.(*apidiscoveryv2.APIGroupDiscoveryList); isAggregated {
		contentType += fmt.Sprintf(";g=%s;v=%s;as=%s", aggregated.Group, aggregated.Version, aggregated.Kind)
	}
	r.w.Header().Set("Content-Type", contentType)
	r.w.Header().Set("Cache-Control", "no-cache, private")
	r.w.WriteHeader(code)
	if err := r.accepted.Serializer.Encode(object, r.w); err != nil {
		r.api.log.Debug("answer not delivered", "path", r.URL.Path, "error", err)
	}
}
