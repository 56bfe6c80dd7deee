// Workload is the process of a pod of tests. It carries out orders, see package workload of
// internal: first its arguments, one each, then those that arrive at the abstract socket that
// the variable ORDERS names. An argument may also be
//
//	on SIGNAL FILE DELAY   on TERM or QUIT write the time to a file, and end DELAY later
package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/evictd/evictd/internal/workload"
)

func main() {
	var orders []string
	for _, order := range os.Args[1:] {
		var signal, file, delay string
		if n, _ := fmt.Sscanf(order, "on %s %s %s", &signal, &file, &delay); n == 3 && strings.HasPrefix(file, "/") {
			orders = append(orders, "on "+signal+" note "+file, "on "+signal+" exit 0 "+delay)
			continue
		}
		orders = append(orders, order)
	}
	fmt.Fprintln(os.Stderr, workload.Listen(os.Getenv("ORDERS"), orders))
	os.Exit(1)
}
