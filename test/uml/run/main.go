package main

import (
	"context"
	"fmt"
	"github.com/evictd/evictd/test/uml"
	"os"
	"time"
)

func main() {
	uml.Main()
	k, err := uml.Find()
	if os.Getenv("K") == "debian" {
		k, err = uml.Debian()
	}
	if err != nil {
		panic(err)
	}
	t := time.Now()
	s, err := uml.Machine{Kernel: k, Memory: 1024}.Run(context.Background(), uml.Command{Args: os.Args[1:], Output: os.Stdout})
	fmt.Println(s, err, time.Since(t))
}
