// Etcd is etcd's own program, which upstream's scheduler_perf starts for each case.
package main

import (
	"os"

	"go.etcd.io/etcd/server/v3/etcdmain"
)

func main() { etcdmain.Main(os.Args) }
