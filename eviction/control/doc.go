// Package control is the loop that senses, asks eviction what to do, and does it.
// It decides nothing. It never blocks: pods are received and reports are sent over
// bounded queues; a report that is not read in time is lost and counted.
//
// # When the loop wakes
//
// The loop sleeps in epoll between housekeeping passes, of which one is also due when the grace
// period of a soft threshold ends. They are due at multiples of their interval on the host's clock,
// with the process's other regular work (internal/tick). The kernel wakes it: by usage
// notifications of cgroup v1 halfway to a hard threshold of memory, and from 128 MiB
// before it all the way (memcg-threshold), by changes of memory.events.local on v2
// (memory-events), where memory.high of the pods' cgroup is halfway to a threshold, by PSI
// triggers (memory-stall). A notification only wakes the loop; the amounts that are available
// decide.
//
// It also polls. It sleeps no longer than the nearest hard threshold is away at the
// highest plausible rate (for memory 2 GiB/s by each processor, and 6 GiB/s at least), or at a
// sixteenth of that rate where the kernel notifies of the crossing, and no longer than a
// quarter of the time that is left at the present rate. Where the kernel notifies of what pods
// use alone, as on v2, one processor may use up what is left outside of them. The bounds are 5 ms
// near a threshold, 1 ms when it is about to be crossed and for 20 ms after a usage
// notification, 1 s far from all thresholds, and 5 s where the kernel notifies halfway and less
// than the other half is page cache. A threshold
// that acts without an eligible pod does not shorten the sleep. Polls and notifications use a
// third of a processor at most.
//
// A pass reads node-level figures only. Pods are measured when Decide asks for their
// usage, every 50 ms while a memory threshold is less than a second away, and in turn
// on housekeeping passes. Filesystems are asked for new figures a second before each
// housekeeping pass.
//
// # The thread of the loop
//
// The goroutine of Run is locked to a thread with SCHED_FIFO at the lowest priority,
// where the machine permits that, and a budget of half of each second: above it, it has a normal
// priority until it has stayed within it for ten seconds. Between the wake
// and the first signal it allocates no memory, opens no file and logs nothing; if a node has more pods than evictd
// may keep open (cgroup.Room), it opens the files of the others.
//
// While a threshold of memory is less than 256 MiB away, and for every sleep below 200 ms, the
// thread is blocked in epoll_wait(2): the kernel wakes it, and no thread of normal priority,
// which waits for the processor on a busy machine, is between an event and the loop. Farther
// away the goroutine is parked in Go's poller, which costs less where nothing happens.
package control
