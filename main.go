// Plimsoll is the load line of a Kubernetes node: it reads what presses on the
// node, judges it, and acts on it. See README.md.
package main

import (
	"os"

	"github.com/plimsoll-dev/plimsoll/daemon"
)

func main() {
	os.Exit(daemon.Main(os.Args[1:], os.Stdout, os.Stderr))
}
