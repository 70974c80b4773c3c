// Image makes the container image of the program from what go build made: an OCI
// layout, as a directory and as a tar of it, with an image for each architecture
// that holds the program and nothing else, and a CycloneDX SBOM of each:
//
//	go run . -ref NAME:TAG -created SECONDS OUT PROGRAM…
//
// The same programs, name and time give the same bytes.
package main

import (
	"cmp"
	"debug/buildinfo"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

// program is one that was built, for one architecture.
type program struct {
	path string
	arch string
	info *buildinfo.BuildInfo
}

func run(args []string) error {
	flags := flag.NewFlagSet("image", flag.ContinueOnError)
	ref := flags.String("ref", "", "`NAME:TAG` of the image")
	created := flags.Int64("created", 0, "when its source was written, in `SECONDS` since 1970")
	if err := flags.Parse(args); err != nil {
		return err
	}
	_, tag, tagged := cutLast(*ref, ":")
	if !tagged || strings.Contains(tag, "/") || flags.NArg() < 2 {
		return errors.New("usage: image -ref NAME:TAG -created SECONDS OUT PROGRAM…")
	}
	out := flags.Arg(0)
	programs, err := read(flags.Args()[1:])
	if err != nil {
		return err
	}
	for _, p := range programs {
		if err := writeSBOM(filepath.Join(out, "sbom-"+p.arch+".cdx.json"), p, tag); err != nil {
			return fmt.Errorf("sbom of %s: %w", p.path, err)
		}
	}
	digest, err := writeLayout(filepath.Join(out, "image"), programs, *ref, tag, time.Unix(*created, 0).UTC())
	if err != nil {
		return err
	}
	if err := writeTar(filepath.Join(out, "image.tar"), filepath.Join(out, "image")); err != nil {
		return fmt.Errorf("image.tar: %w", err)
	}
	fmt.Printf("%s@%s\n", *ref, digest)
	return nil
}

// read what the programs say of themselves, by architecture.
func read(paths []string) ([]program, error) {
	var list []program
	for _, path := range paths {
		info, err := buildinfo.ReadFile(path)
		if err != nil {
			return nil, err
		}
		p := program{path: path, info: info, arch: setting(info, "GOARCH")}
		if os := setting(info, "GOOS"); os != "linux" || setting(info, "CGO_ENABLED") != "0" {
			return nil, fmt.Errorf("%s: built for %s, with CGO_ENABLED=%s: want a static one for linux", path, os, setting(info, "CGO_ENABLED"))
		}
		list = append(list, p)
	}
	slices.SortFunc(list, func(a, b program) int { return cmp.Compare(a.arch, b.arch) })
	return list, nil
}

func setting(info *buildinfo.BuildInfo, key string) string {
	for _, s := range info.Settings {
		if s.Key == key {
			return s.Value
		}
	}
	return ""
}

func cutLast(s, sep string) (before, after string, found bool) {
	if i := strings.LastIndex(s, sep); i >= 0 {
		return s[:i], s[i+len(sep):], true
	}
	return s, "", false
}
