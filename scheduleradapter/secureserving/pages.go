package secureserving

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	flagz "k8s.io/apiserver/pkg/server/flagz/api/v1beta1"
	statusz "k8s.io/apiserver/pkg/server/statusz/api/v1beta1"
	configv1 "k8s.io/kube-scheduler/config/v1"
)

// component is the name by which clients of kube-scheduler know the pages.
const component = "kube-scheduler"

const notice = `
%s %s
Warning: This endpoint is not meant to be machine parseable, has no formatting compatibility guarantees and is for debugging purposes only.

`

// Configz serves the configuration in force as JSON.
func Configz(config *configv1.KubeSchedulerConfiguration) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, map[string]any{"componentconfig": config})
	}
}

// Flagz serves the flags and their values: as text, or as JSON to a client that
// accepts JSON.
func Flagz(flags *pflag.FlagSet) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		page := flagz.Flagz{TypeMeta: typeOf("Flagz"), ObjectMeta: metav1.ObjectMeta{Name: component}, Flags: map[string]string{}}
		flags.VisitAll(func(f *pflag.Flag) { page.Flags[f.Name] = f.Value.String() })
		write(w, r, "flagz", &page, func(w io.Writer) {
			for _, name := range slices.Sorted(maps.Keys(page.Flags)) {
				fmt.Fprintf(w, "%s=%s\n", name, page.Flags[name])
			}
		})
	}
}

// Statusz serves versions, start and paths: as text, or as JSON to a client that
// accepts JSON.
func Statusz(version string, started time.Time, paths []string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		up := time.Since(started).Truncate(time.Second)
		page := statusz.Statusz{
			TypeMeta: typeOf("Statusz"), ObjectMeta: metav1.ObjectMeta{Name: component}, StartTime: metav1.NewTime(started),
			UptimeSeconds: int64(up.Seconds()), GoVersion: runtime.Version(), BinaryVersion: version, Paths: paths,
		}
		write(w, r, "statusz", &page, func(w io.Writer) {
			fmt.Fprintf(w, "Started: %s\nUp: %s\nGo version: %s\nBinary version: %s\nPaths: %s\n",
				started.Format(time.UnixDate), up, page.GoVersion, version, strings.Join(paths, " "))
		})
	}
}

func typeOf(kind string) metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: "config.k8s.io/v1beta1", Kind: kind}
}

func write(w http.ResponseWriter, r *http.Request, name string, document any, text func(io.Writer)) {
	if strings.Contains(r.Header.Get("Accept"), "application/json") {
		writeJSON(w, document)
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	fmt.Fprintf(w, notice, component, name)
	text(w)
}

func writeJSON(w http.ResponseWriter, document any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(document)
}
