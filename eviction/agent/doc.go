// Package agent runs evictd-agent, the process that connects to the API server and
// the container runtime for evictd. It sends the agent node conditions, evictions,
// events and orders to the runtime, and receives pods and the runtime's inventory.
// No call waits for the agent, and the package decides nothing about evictions.
//
// Messages carry state, not steps: the newest conditions of the node, and each eviction
// with what has happened to it. A new agent is sent all of it. An eviction is dropped
// when the agent reports that the API server has all of it.
//
// evictd opens the agent's program once (O_PATH) and every start executes that
// descriptor: the agent's user needs the permission to execute the file, not access to
// its directory, and a restarted agent has the version of the running evictd. Under systemd
// the agent is a unit of its own that a connection to Config.Address starts.
//
// The agent has no capability but CAP_DAC_READ_SEARCH and has no_new_privs. The socket of the
// container runtime belongs to root, so the agent asks evictd for connected descriptors
// over a second pair of sockets. An agent that does not read for 10 s, or sends nothing for
// a minute, is ended and started again.
//
// Soft victims are stopped by orders to the runtime (Stopper): containers together, then
// sidecars from the last to the first, then sandboxes. The kill pipeline sends SIGTERM when
// an order fails and SIGKILL when the grace is over. The runtime stops the sandbox of a
// hard victim after its end.
package agent
