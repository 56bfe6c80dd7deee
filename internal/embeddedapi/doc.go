// Package embeddedapi is the embedded API: Kubernetes' REST semantics for the kinds
// that both programs use, on one host, with objects as YAML manifests in a directory.
// It does not authenticate, so it listens on a unix socket or loopback only. It
// runs no containers, and no controllers but those of disruption budgets, quotas and namespaces.
//
// A resource is a table with one writer at a time: it checks the resourceVersion, takes the
// next revision, adds the object to the journal, and then publishes it. The manifest is written
// afterwards (temporary file, rename), once for all changes of a moment; the journal is emptied
// when all are written, and read by a start after a kill. What a start cannot read there is kept.
// Stored objects never change, so readers need no copies. A watch begins anywhere in the last
// 4,096 changes of its table, or fewer if their objects have more than 32 MiB. From then on it is offered
// the changes that have the value of its most exact requirement, such as the node of a pod, and is
// not woken by others. No writer waits for a watch: if so many changes are offered and not sent, the
// watch gets 410 and lists again. Revisions are reserved in blocks, so that none is used
// twice after a crash.
//
// A manifest that differs from what the store wrote, by inode, time or size, was written
// by another program. It passes the admission of a request after 200 ms without a
// further write. Budgets are computed when pods change, and again under a lock at every
// eviction, so that no two evictions use the same disruption.
//
// The handlers are written on apimachinery's parts (serializers, selectors, patches, Status, the managers of fields).
// What an object becomes and whether it is valid is decided by Kubernetes' own strategies, in internal/embeddedapi/strategy.
package embeddedapi
