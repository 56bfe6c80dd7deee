package nodestatus

// API is the state of the connection to the API server, as the agent last reported it.
type API struct {
	// Connected says whether the last request was answered, and since when that holds.
	Connected bool `json:"connected"`
	Since     Time `json:"since,omitzero"`
	// Error is the error of the last request; "" where it succeeded.
	Error string `json:"error,omitempty"`
	// Refused are the errors of forbidden requests, by what they are for.
	Refused map[string]string `json:"refused,omitempty"`
	// Conflict says that another program writes the node's conditions, which evictd
	// then leaves alone; "" without one.
	Conflict string `json:"conflict,omitempty"`
	// Requests counts the requests to the API server, by status code; "0" is without an
	// answer.
	Requests map[string]uint64 `json:"requests,omitempty"`
	// Restarts of the agent.
	Restarts uint64 `json:"restarts"`
	// Untold counts the evictions not fully written to the API server.
	Untold int `json:"untold"`
}
