// Package loop runs the scheduler. Core is what follows from attempts, whoever
// drives them. Loop drives one on a live cluster: a single goroutine owns table,
// queue and promises; changes of the cluster, outcomes of bindings and everything
// else that is to happen to them come through one mailbox. The loop waits for
// nobody: what takes time, at the API server above all, runs beside it and comes
// back as a message.
//
// The package speaks to no API server itself; package kube does.
package loop
