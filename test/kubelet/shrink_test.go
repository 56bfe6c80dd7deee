package kubelet_test

import (
	"encoding/json"
	"slices"

	"github.com/evictd/evictd/eviction/simulate"
	"github.com/evictd/evictd/internal/shrink"
)

// smaller deletes pods, then any part of a scenario, as long as something is wrong with it.
func smaller(f *simulate.File, wrong func(*simulate.File) bool) *simulate.File {
	try := func(text []byte) bool {
		f := &simulate.File{}
		return json.Unmarshal(text, f) == nil && wrong(f)
	}
	text := encode(f)
	for n := range mostPods {
		if less := withoutPod(text, podName(n)); try(less) {
			text = less
		}
	}
	f = &simulate.File{}
	if err := json.Unmarshal(shrink.JSON(text, try), f); err != nil {
		panic(err)
	}
	return f
}

// withoutPod deletes a pod and all that names it.
func withoutPod(text []byte, name string) []byte {
	return shrink.Edit(text, func(v any) any {
		switch v := v.(type) {
		case map[string]any:
			delete(v, name)
		case []any:
			return slices.DeleteFunc(v, func(v any) bool {
				pod, _ := v.(map[string]any)
				meta, _ := pod["metadata"].(map[string]any)
				return v == name || meta["name"] != nil && "default/"+meta["name"].(string) == name
			})
		}
		return v
	})
}

func encode(v any) []byte {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return text
}
