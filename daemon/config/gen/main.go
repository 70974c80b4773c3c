// Gen writes what is made from the configuration's struct: its documentation, and
// the definitions in the schema of the chart's values.
package main

import (
	"bytes"
	"fmt"
	"os"

	"github.com/plimsoll-dev/plimsoll/daemon/config"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: gen DOCUMENT SCHEMA")
		os.Exit(2)
	}
	if err := write(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "gen:", err)
		os.Exit(1)
	}
}

func write(document, schema string) error {
	var doc bytes.Buffer
	if err := config.Markdown(&doc); err != nil {
		return err
	}
	if err := replace(document, doc.Bytes()); err != nil {
		return err
	}
	have, err := os.ReadFile(schema)
	if err != nil {
		return err
	}
	made, err := config.ValuesSchema(have)
	if err != nil {
		return fmt.Errorf("%s: %w", schema, err)
	}
	return replace(schema, made)
}

// replace leaves alone what is the same already: by its time go test knows that a file that a test
// reads has changed.
func replace(path string, content []byte) error {
	if have, err := os.ReadFile(path); err == nil && bytes.Equal(have, content) {
		return nil
	}
	return os.WriteFile(path, content, 0o644)
}
