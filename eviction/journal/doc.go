// Package journal is a small durable map of entries, by kind and id, that survives
// a crash. It is written in the background: no caller waits for the disk. It does
// not interpret the entries.
//
// A line of the file is a checksum and JSON. The file is compacted at 1 MiB and holds at
// most 1,024 entries; 2 MiB of disk are allocated for it, so that it can be written on a full
// disk, also after a restart. A torn file, or a file of another program, is renamed and
// kept; on a read-only disk nothing is stored and evictd runs.
package journal
