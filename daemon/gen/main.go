// Gen writes files for packages from the command tree into a directory:
// compressed manual pages and shell completions. Their date is
// SOURCE_DATE_EPOCH.
package main

import (
	"compress/gzip"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

	"github.com/plimsoll-dev/plimsoll/daemon/cli"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: gen DIR")
		os.Exit(2)
	}
	root := cli.Commands()
	if err := errors.Join(manual(root, filepath.Join(os.Args[1], "man")), completions(root, os.Args[1])); err != nil {
		fmt.Fprintln(os.Stderr, "gen:", err)
		os.Exit(1)
	}
}

// manual writes a page for each command.
func manual(root *cobra.Command, dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	root.DisableAutoGenTag = true
	header := &doc.GenManHeader{Section: "1", Source: "Plimsoll", Manual: "Plimsoll"}
	if err := doc.GenManTree(root, header, dir); err != nil {
		return err
	}
	pages, err := filepath.Glob(filepath.Join(dir, "*.1"))
	if err != nil {
		return err
	}
	for _, page := range pages {
		if err := compress(page); err != nil {
			return err
		}
	}
	return nil
}

// compress replaces page by page.gz, without name and time in its header.
func compress(page string) error {
	text, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	f, err := os.Create(page + ".gz")
	if err != nil {
		return err
	}
	z := gzip.NewWriter(f)
	_, err = z.Write(text)
	return errors.Join(err, z.Close(), f.Close(), os.Remove(page))
}

func completions(root *cobra.Command, dir string) error {
	at := func(shell string) string { return filepath.Join(dir, "plimsoll."+shell) }
	return errors.Join(
		root.GenBashCompletionFileV2(at("bash"), true),
		root.GenZshCompletionFile(at("zsh")),
		root.GenFishCompletionFile(at("fish"), true),
	)
}
