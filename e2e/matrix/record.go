package matrix

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
)

// State of a function on a version.
type State string

// States of a function that was tried.
const (
	Works State = "works"
	// Less: it works as far as Why says.
	Less State = "smaller"
	// Off: it cannot work there; Why says what is missing.
	Off State = "off"
	// Fails: one of its tests does, which Why names.
	Fails State = "fails"
)

// Smaller is the attribute by which a test says what is less on a version. That it
// ran against one it says by the attribute named after the program, as
// [cluster.Shared] and [cluster.New] do of the API server.
const Smaller = "smaller"

// Record is what came of a function's tests on a version.
type Record struct {
	Function string `json:"function"`
	// Version is the whole one: "v1.34.4".
	Version string `json:"version"`
	State   State  `json:"state"`
	Why     string `json:"why,omitempty"`
	// Date and Commit of the run; a commit with "+" had changes beside it.
	Date   string `json:"date"`
	Commit string `json:"commit"`
}

// Records of all functions and versions.
type Records []Record

// ReadRecords from a file; none where there is no file.
func ReadRecords(path string) (Records, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var all Records
	if err := json.Unmarshal(text, &all); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return all, nil
}

// Write them in an order of their own.
func (all Records) Write(path string) error {
	slices.SortFunc(all, func(a, b Record) int {
		return cmp.Or(cmp.Compare(a.Function, b.Function), cmp.Compare(a.Version, b.Version))
	})
	text, err := json.MarshalIndent(all, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(text, '\n'), 0o644)
}

// Find the record of a function on a version.
func (all Records) Find(function, version string) (Record, bool) {
	for _, r := range all {
		if r.Function == function && r.Version == version {
			return r, true
		}
	}
	return Record{}, false
}

// With another record, in the place of that of the same function and version.
func (all Records) With(r Record) Records {
	rest := slices.DeleteFunc(slices.Clone(all), func(old Record) bool {
		return old.Function == r.Function && old.Version == r.Version
	})
	return append(rest, r)
}
