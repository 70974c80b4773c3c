// Package config reads, checks, prints and documents the configuration of
// Plimsoll, and reloads it while the agent runs.
//
// # The schema is a struct
//
// A document is a Go struct of plain types; its tags are all that the decoder,
// the printer and the generated documentation know of it:
//
//	Tick time.Duration `yaml:"tick" why:"How often the host is sampled."`
//
// yaml names the key, why says in a sentence what it is for, unit says how the
// value is written. Supported are bool, string, int, [time.Duration], float64
// with unit:"ratio" (0 to 1), uint64 with unit:"bytes" (a Kubernetes quantity),
// []string, structs, slices of structs, and embedded structs tagged
// yaml:",inline". A field of any other type, or without a yaml tag, is a
// mistake in the program and panics at first use. Other packages can define
// such structs without importing this one, and say beside them, in a method
// Validate, which values must not be used ([problems.Section]).
//
// # Usage
//
//	file, err := config.Open("/etc/plimsoll/agent.yaml", nil)
//	agent := file.Current()
//
// # Concurrency
//
// A [File] may be used from any goroutine; an [Agent] that it handed out is
// shared and must not be changed. Everything else is a function of its
// arguments.
package config

import (
	"github.com/plimsoll-dev/plimsoll/names"
	"github.com/plimsoll-dev/plimsoll/problems"
)

//go:generate go run ./gen ../../docs/configuration.md ../../deploy/values.schema.json

// APIVersion is what every configuration file states as its apiVersion.
const APIVersion = names.APIVersion

// Document is a configuration with a file of its own.
type Document interface {
	// Kind is what the file states as its kind.
	Kind() string
	// Validate lists what is wrong with values that are each well-formed.
	Validate() problems.List
}
