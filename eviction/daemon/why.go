package daemon

import (
	"cmp"
	"encoding/json"
	"net/http"
	"path/filepath"

	"github.com/evictd/evictd/eviction/recorder"
	"github.com/evictd/evictd/eviction/simulate"
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

// why serves /v1/why?pod=NAME&last=true.
func (d *Daemon) why(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
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
