package daemon

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"path/filepath"
	"time"

	"github.com/evictd/evictd/eviction/recorder"
	"github.com/evictd/evictd/eviction/simulate"
	"github.com/evictd/evictd/internal/serve"
)

// FlightDir is where the flight recorder of a state directory is.
func FlightDir(stateDir string) string {
	return filepath.Join(cmp.Or(stateDir, DefaultStateDir), "flight")
}

// EvictionsDir is where the recorder of a state directory keeps evictions.
func EvictionsDir(stateDir string) string {
	return filepath.Join(cmp.Or(stateDir, DefaultStateDir), "evictions")
}

// Stories is what the flight recorder knows of evictions: the document at /v1/why.
type Stories struct {
	Stories []recorder.Story `json:"stories"` // oldest first
	// Steps are those before evictions on the selected pod.
	Steps []recorder.Taken `json:"steps,omitempty"`
	// Scenario is the recording around the last of them.
	Scenario *simulate.File `json:"scenario,omitempty"`
}

// ReadStories reads the recording in a directory. An empty pod selects all stories; last
// keeps only the last of those selected.
func ReadStories(dir, pod string, last bool) (Stories, error) {
	recording, err := recorder.Read(dir)
	if err != nil {
		return Stories{}, err
	}
	stories := recording.Stories()
	if pod != "" {
		stories = recorder.About(stories, pod)
	}
	if n := len(stories); n > 1 && last {
		stories = stories[n-1:]
	}
	a := Stories{Stories: stories}
	if pod != "" {
		a.Steps = recorder.StepsOn(recording.Steps(), pod)
	}
	if n := len(stories); n > 0 {
		a.Scenario = recording.Scenario(&stories[n-1])
	}
	return a, nil
}

// flushPatience is how long a request of /v1/why waits until the flight recorder has written its queue to the disk. The
// client gives up after serve.Timeout.
const flushPatience = serve.Timeout - time.Second

// why serves /v1/why?pod=NAME&last=true: with all that the status shows, or without the last of it where the disk hangs.
func (d *Daemon) why(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	ctx, cancel := context.WithTimeout(r.Context(), flushPatience)
	defer cancel()
	if err := d.recorder.Flush(ctx); err != nil {
		d.log.Warn("the flight recorder waits for its disk: an answer is without what happened last", "dir", d.flightDir, "error", err)
	}
	a, err := ReadStories(d.flightDir, query.Get("pod"), query.Get("last") == "true")
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(a); err != nil {
		d.log.Debug("stories not delivered", "error", err)
	}
}
