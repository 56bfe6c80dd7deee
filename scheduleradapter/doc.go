// Package scheduleradapter is evictd-scheduler, the companion of evictd: it
// places pods by what kube-scheduler knows. This package assembles the parts
// below it: which plugin is made by whom, profiles out of a configuration, and
// the command line. It decides nothing.
//
// The words are Kubernetes' own. A pod is popped from the queue for an attempt;
// the nodes that pass every filter are feasible, and scored; the pod is assumed
// to be on the one picked, reserved, permitted, bound. Where none is feasible,
// preemption may nominate a node and name victims. A hint says whether an event
// may help a pod that a plugin rejected.
package scheduleradapter
