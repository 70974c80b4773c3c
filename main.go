// Plimsoll detects disk, network and memory pressure on Kubernetes nodes and
// acts on it. See README.md.
package main

import (
	"os"

	"github.com/plimsoll-dev/plimsoll/daemon/cli"
)

func main() {
	os.Exit(cli.Main(os.Args[0], os.Args[1:], os.Stdout, os.Stderr))
}
