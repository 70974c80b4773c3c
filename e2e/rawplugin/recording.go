package rawplugin

import (
	"bytes"
	"embed"
	"encoding/hex"
	"fmt"
	"strings"
)

//go:embed testdata/*.txt
var recordings embed.FS

// Recording has the answers of a plugin of one generation of the wire, each as the
// bytes of its message, by method and case.
type Recording map[string][]byte

// RecordedUID stands in the answers for the UID of a pod. Each UID of the API server has
// its length.
const RecordedUID = "01234567-89ab-4cde-8f01-23456789abcd"

// Generations are the names of the recordings, the oldest first.
func Generations() []string { return []string{"2023", "2025", "today"} }

// Recorded reads the recording of a generation: lines of a name and a message in
// hexadecimal, and comments.
func Recorded(generation string) (Recording, error) {
	file, err := recordings.ReadFile("testdata/" + generation + ".txt")
	if err != nil {
		return nil, err
	}
	r := Recording{}
	for line := range strings.Lines(string(file)) {
		line = strings.TrimSuffix(line, "\n")
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		name, digits, found := strings.Cut(line, ": ")
		if !found {
			name, found = strings.CutSuffix(line, ":") // an empty message
		}
		message, err := hex.DecodeString(digits)
		if err != nil || !found {
			return nil, fmt.Errorf("recording of %s: line %q: want NAME: HEXADECIMAL", generation, line)
		}
		r[name] = message
	}
	return r, nil
}

// Answer is a recorded answer about a pod.
func (r Recording) Answer(name, uid string) ([]byte, error) {
	message, is := r[name]
	if !is || len(uid) != len(RecordedUID) {
		return nil, fmt.Errorf("no recorded answer %q about pod %q", name, uid)
	}
	return bytes.ReplaceAll(message, []byte(RecordedUID), []byte(uid)), nil
}
