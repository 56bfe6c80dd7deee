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

// policyExtender is an extender as a Policy describes it. Its keys may be written
// in upper or lower case, as kube-scheduler read them.
type policyExtender struct {
	APIVersion       string                             `json:"apiVersion"` // up to 1.2
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

// UnmarshalJSON reads an extender strictly but for upper and lower case.
func (e *policyExtender) UnmarshalJSON(data []byte) error {
	var object any
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber()
	if err := decoder.Decode(&object); err != nil {
		return err
	}
	type plain policyExtender
	spelt, err := json.Marshal(spell(object, reflect.TypeFor[plain]()))
	if err != nil {
		return err
	}
	strict, err := kjson.UnmarshalStrict(spelt, (*plain)(e))
	if err == nil && len(strict) > 0 {
		return strict[0] // the others are found when the object is taken apart
	}
	return err
}

// spell writes the keys of an object, and of those in it, as the fields of a type
// are called. A key that would then be there twice stays as it is.
func spell(value any, t reflect.Type) any {
	switch value := value.(type) {
	case []any:
		if t.Kind() == reflect.Slice {
			for i := range value {
				value[i] = spell(value[i], t.Elem())
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
				value[name] = spell(inner, f.Type)
			}
		}
	}
	return value
}

// extender is the same in a KubeSchedulerConfiguration.
func (e *policyExtender) extender() configv1.Extender {
	return configv1.Extender{
		URLPrefix: e.URLPrefix, FilterVerb: e.FilterVerb, PreemptVerb: e.PreemptVerb, PrioritizeVerb: e.PrioritizeVerb, BindVerb: e.BindVerb,
		Weight: e.Weight, EnableHTTPS: e.EnableHTTPS, TLSConfig: e.TLSConfig, HTTPTimeout: metav1.Duration{Duration: time.Duration(e.HTTPTimeout)},
		NodeCacheCapable: e.NodeCacheCapable, ManagedResources: e.ManagedResources, Ignorable: e.Ignorable,
	}
}
