package main

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"os"
	"runtime/debug"
	"strings"

	"github.com/CycloneDX/cyclonedx-go"
)

// writeSBOM lists what is linked into a program, as the program itself says. It
// bears neither a time nor a number of its own: the same program has the same.
func writeSBOM(path string, p program, version string) error {
	content, err := os.ReadFile(p.path)
	if err != nil {
		return err
	}
	main := golang(p.info.Main.Path, version)
	main.Type = cyclonedx.ComponentTypeApplication
	main.Hashes = &[]cyclonedx.Hash{{Algorithm: cyclonedx.HashAlgoSHA256, Value: fmt.Sprintf("%x", sha256.Sum256(content))}}
	main.Properties = &[]cyclonedx.Property{{Name: "GOOS", Value: "linux"}, {Name: "GOARCH", Value: p.arch}}

	components := []cyclonedx.Component{golang("std", strings.TrimPrefix(p.info.GoVersion, "go"))}
	uses := []string{components[0].BOMRef}
	for _, module := range p.info.Deps {
		c, err := component(module)
		if err != nil {
			return err
		}
		components, uses = append(components, c), append(uses, c.BOMRef)
	}
	bom := cyclonedx.NewBOM()
	bom.Metadata = &cyclonedx.Metadata{Component: &main}
	bom.Components = &components
	// Which module uses which is not in a program: all stand below the first.
	bom.Dependencies = &[]cyclonedx.Dependency{{Ref: main.BOMRef, Dependencies: &uses}}

	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := cyclonedx.NewBOMEncoder(f, cyclonedx.BOMFileFormatJSON).SetPretty(true).Encode(bom); err != nil {
		return err
	}
	return f.Close()
}

// component of a module, or of what it was replaced by.
func component(module *debug.Module) (cyclonedx.Component, error) {
	if module.Replace != nil {
		module = module.Replace
	}
	c := golang(module.Path, module.Version)
	sum, is := strings.CutPrefix(module.Sum, "h1:")
	if !is {
		return c, nil // a module of a directory has none
	}
	// A SHA-256 over the hashes of the module's files, as in go.sum.
	hash, err := base64.StdEncoding.DecodeString(sum)
	if err != nil {
		return c, fmt.Errorf("sum of %s: %w", module.Path, err)
	}
	c.Hashes = &[]cyclonedx.Hash{{Algorithm: cyclonedx.HashAlgoSHA256, Value: hex.EncodeToString(hash)}}
	return c, nil
}

func golang(path, version string) cyclonedx.Component {
	purl := "pkg:golang/" + path + "@" + version
	return cyclonedx.Component{Type: cyclonedx.ComponentTypeLibrary, BOMRef: purl, Name: path, Version: version, PackageURL: purl}
}
