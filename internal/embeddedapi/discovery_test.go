package embeddedapi_test

import (
	"slices"
	"strings"
	"testing"

	"k8s.io/client-go/discovery"

	"github.com/evictd/evictd/internal/require"
)

// TestAggregatedDiscoverySaysWhatThePlainOneDoes holds that both give a client the same resources.
func TestAggregatedDiscoverySaysWhatThePlainOneDoes(t *testing.T) {
	client := serve(t, "").client(t).DiscoveryClient
	resources := func(d discovery.DiscoveryInterface) []string {
		_, lists, err := d.ServerGroupsAndResources()
		require.NoError(t, err)
		var all []string
		for _, list := range lists {
			for _, r := range list.APIResources {
				if r.Group == "" && r.Version == "" { // what aggregated discovery always gives
					r.Group, r.Version, _ = strings.Cut(list.GroupVersion, "/")
					if r.Version == "" {
						r.Group, r.Version = "", r.Group
					}
				}
				if strings.Contains(r.Name, "/") {
					r.SingularName = "" // the client takes that of the resource
				}
				all = append(all, list.GroupVersion+" "+r.String())
			}
		}
		slices.Sort(all)
		return all
	}
	_, at, failed, err := client.GroupsAndMaybeResources()
	require.NoError(t, err)
	if len(at) == 0 || len(failed) > 0 {
		t.Fatalf("not aggregated: %d group versions, %v failed", len(at), failed)
	}
	both, plain := resources(client), resources(client.WithLegacy())
	if !slices.Equal(both, plain) {
		only := func(in, notIn []string) string {
			return strings.Join(slices.DeleteFunc(slices.Clone(in), func(r string) bool { return slices.Contains(notIn, r) }), "\n")
		}
		t.Errorf("aggregated:\n%s\nplain:\n%s", only(both, plain), only(plain, both))
	}
}
