// Package daemon assembles `evictd run`: it opens the node, follows the pods, starts the
// loop of eviction/control and connects what is around it: kill pipeline, agent, journal,
// flight recorder, publisher, status address. It decides nothing about evictions.
package daemon
