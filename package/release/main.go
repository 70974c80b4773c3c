// Release makes what is published of a version into a new directory, from the commit
// that is tagged with it:
//
//	go run ./package/release DIR
//
// The same commit and the same Go give the same bytes. What stands in the way of a
// release is an error before anything is built: no tag, a tag that is no version, a
// file that is not committed, a version that the chart or the changelog does not
// have, a directory that is there already.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if len(os.Args) != 2 || strings.HasPrefix(os.Args[1], "-") {
		fmt.Fprintln(os.Stderr, "usage: release DIR")
		os.Exit(2) //nolint:gocritic // nothing is left to tidy up
	}
	if err := publish(ctx, os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}
