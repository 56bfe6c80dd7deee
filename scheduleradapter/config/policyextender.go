package config

import (
	"bytes"
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	configv1 "k8s.io/kube-scheduler/config/v1"
	kjson "sigs.k8s.io/json"
)

// policyExtender is an extender of a Policy. Its keys are case-insensitive, as in
// kube-scheduler.
type policyExtender struct {
	APIVersion       string                             `json:"apiVersion"` // until 1.2
	URLPrefix        string                             `json:"urlPrefix"`
	FilterVerb       string                             `json:"filterVerb"`
	PreemptVerb      string                             `json:"preemptVerb"`
	PrioritizeVerb   string                             `json:"prioritizeVerb"`
	Weight           int64                              `json:"weight"`
	BindVerb         string                             `json:"bindVerb"`
	EnableHTTPS      bool                               `json:"enableHttps"`
	TLSConfig        *configv1.ExtenderTLSConfig        `json:"tlsConfig"`
	HTTPTimeout      int64                              `json:"httpTimeout"` // nanoseconds
	NodeCacheCapable bool                               `json:"nodeCacheCapable"`
	ManagedResources []configv1.ExtenderManagedResource `json:"managedResources"`
	Ignorable        bool                               `json:"ignorable"`
}

// UnmarshalJSON is strict except for the case of keys.
func (e *policyExtender) UnmarshalJSON(data []byte) error {
	var object any
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber()
	if err := decoder.Decode(&object); err != nil {
		return err
	}
	type plain policyExtender
	spelt, err := json.Marshal(renameKeys(object, reflect.TypeFor[plain]()))
	if err != nil {
		return err
	}
	strict, err := kjson.UnmarshalStrict(spelt, (*plain)(e))
	if err == nil && len(strict) > 0 {
		return strict[0] // manifest.Decode reports the others
	}
	return err
}

// renameKeys renames the keys of an object, recursively, to those of a type. A key that
// would be duplicated is kept.
func renameKeys(value any, t reflect.Type) any {
	switch value := value.(type) {
	case []any:
		if t.Kind() == reflect.Slice {
			for i := range value {
				value[i] = renameKeys(value[i], t.Elem())
			}
		}
	case map[string]any:
		if t.Kind() == reflect.Pointer {
			t = t.Elem()
		}
		if t.Kind() != reflect.Struct {
			break
		}
		for _, key := range slices.Sorted(maps.Keys(value)) {
			for _, f := range reflect.VisibleFields(t) {
				name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
				if _, taken := value[name]; !strings.EqualFold(key, name) || taken && key != name {
					continue
				}
				inner := value[key]
				delete(value, key)
				value[name] = renameKeys(inner, f.Type)
			}
		}
	}
	return value
}

func (e *policyExtender) extender() configv1.Extender {
	return configv1.Extender{
		URLPrefix: e.URLPrefix, FilterVerb: e.FilterVerb, PreemptVerb: e.PreemptVerb, PrioritizeVerb: e.PrioritizeVerb, BindVerb: e.BindVerb,
		Weight: e.Weight, EnableHTTPS: e.EnableHTTPS, TLSConfig: e.TLSConfig, HTTPTimeout: metav1.Duration{Duration: time.Duration(e.HTTPTimeout)},
		NodeCacheCapable: e.NodeCacheCapable, ManagedResources: e.ManagedResources, Ignorable: e.Ignorable,
	}
}
