package nodestatus

// API is how the daemon stands to the API server, as its agent last said.
type API struct {
	// Connected says whether the API server answered last, and since when.
	Connected bool `json:"connected"`
	Since     Time `json:"since,omitzero"`
	// Error is what went wrong last; "" while nothing does.
	Error string `json:"error,omitempty"`
	// Refused are the things the API server does not let the daemon do, by name.
	Refused map[string]string `json:"refused,omitempty"`
	// Conflict says who else writes the node's conditions; "" for nobody. They
	// are then left to the other.
	Conflict string `json:"conflict,omitempty"`
	// Requests counts what was asked of the API server, by status code; "0" got
	// no answer.
	Requests map[string]uint64 `json:"requests,omitempty"`
	// Restarts of the agent.
	Restarts uint64 `json:"restarts"`
	// Untold counts the evictions that the API server has not been told yet.
	Untold int `json:"untold"`
}
