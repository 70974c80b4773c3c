// Command programs builds programs that tests run, where they are not in the
// user's cache yet: before the tests, and beside those that need none.
//
// # Usage
//
//	go run ./e2e/programs kube-apiserver velero helm
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/plimsoll-dev/plimsoll/e2e/cluster"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	for _, name := range os.Args[1:] {
		if _, err := cluster.Program(ctx, name); err != nil {
			fmt.Fprintf(os.Stderr, "programs: %v\n", err)
			os.Exit(1) //nolint:gocritic // nothing is left to tidy up
		}
	}
}
