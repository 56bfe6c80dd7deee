package bound_test

import (
	"encoding/json"
	"reflect"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/evictd/evictd/internal/embeddedapi/bound"
)

var pod = reflect.TypeFor[*v1.Pod]()

// FuzzASmallObjectIsNeverTooCostly holds that a text which a decoder takes, and whose value is encoded to no more than a few KiB, is
// refused for a quantity alone.
func FuzzASmallObjectIsNeverTooCostly(f *testing.F) {
	for _, text := range []string{`{"spec":{"containers":[{"name":"c","resources":{"limits":{"cpu":"1","memory":1e3}}}]}}`, `{"metadata":{"labels":{"a":"b"}},"spec":{"overhead":{"cpu":1}}}`, `[}`, `{"a":[{]}`, `{"\u0061":"\"`, `{"spec`, `[,]`, `{"spec":null}`} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		err := bound.JSON(text, pod)
		_ = bound.YAML(text, len(text))
		if len(text) > 4<<10 || !json.Valid(text) || err == nil {
			return
		}
		if err == bound.ErrTooLarge || err == bound.ErrTooMany {
			t.Errorf("%s: %v", text, err)
		}
	})
}

func FuzzProtobufIsRead(f *testing.F) {
	object, err := (&v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{Name: "c"}}}}).Marshal()
	if err != nil {
		f.Fatal(err)
	}
	text, err := (&runtime.Unknown{Raw: object}).Marshal()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(append([]byte("k8s\x00"), text...))
	f.Add([]byte("k8s\x00\x12\xff\xff\xff\xff\x0f"))
	f.Fuzz(func(t *testing.T, body []byte) {
		if err := bound.Protobuf(body, pod); err != nil && len(body) < 1<<10 && err == bound.ErrTooMany {
			t.Errorf("%x: %v", body, err)
		}
	})
}
