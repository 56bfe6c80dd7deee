// Package intent keeps evictions from before the first signal until the journal has them, in
// memory that survives the process: a file in a tmpfs that is mapped with MAP_SHARED (mmap(2)). It
// does not interpret the entries.
//
// A write never waits and allocates nothing: the pages are allocated and mapped when the file is
// opened, and a tmpfs has no disk. A process that is killed in the middle of a write leaves the
// entry of before, or an entry that does not match its checksum. A reboot empties a tmpfs, and
// ends the pods as well.
package intent
