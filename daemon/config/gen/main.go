// Gen writes the documentation of the configuration to the file it is given.
package main

import (
	"bytes"
	"fmt"
	"os"

	"github.com/plimsoll-dev/plimsoll/daemon/config"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: gen FILE")
		os.Exit(2)
	}
	if err := write(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "gen:", err)
		os.Exit(1)
	}
}

func write(name string) error {
	var doc bytes.Buffer
	if err := config.Markdown(&doc); err != nil {
		return err
	}
	return os.WriteFile(name, doc.Bytes(), 0o644)
}
