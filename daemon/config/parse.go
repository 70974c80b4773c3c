package config

import (
	"bytes"
	"errors"
	"io"
	"sort"
	"strings"

	"go.yaml.in/yaml/v3"
)

// maxFileBytes bounds what is parsed; a configuration has a few KiB.
const maxFileBytes = 256 << 10

// parse reads the single YAML document of data. The node is nil for an empty
// file. A mistake has its line and no key.
func parse(file string, data []byte) (*yaml.Node, *Error) {
	if len(data) > maxFileBytes {
		return nil, &Error{File: file, Reason: "larger than 256Ki: not a configuration file"}
	}
	first, second, err := parseStream(data)
	if err != nil {
		return nil, syntaxError(file, data, err)
	}
	if second != nil {
		return nil, &Error{File: file, Line: second.Line, Reason: "a second YAML document begins here: want one"}
	}
	if first == nil || first.Content[0].ShortTag() == "!!null" {
		return nil, nil
	}
	return first.Content[0], nil
}

func parseStream(data []byte) (first, second *yaml.Node, err error) {
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	if first, err = nextDocument(decoder); first == nil || err != nil {
		return nil, nil, err
	}
	second, err = nextDocument(decoder)
	return first, second, err
}

// nextDocument is nil at the end of the stream.
func nextDocument(decoder *yaml.Decoder) (*yaml.Node, error) {
	var n yaml.Node
	err := decoder.Decode(&n)
	if errors.Is(err, io.EOF) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return &n, nil
}

// syntaxError finds the line of a mistake, because the library names the start
// of the surrounding block, one line too few, or none. A mistake shows in every
// prefix of the file that reaches its line and in no shorter one, so the first
// such prefix ends with it. (An open bracket shows in every prefix behind it:
// then the line is the bracket's.)
func syntaxError(file string, data []byte, err error) *Error {
	lines := bytes.SplitAfter(data, []byte("\n"))
	what := syntaxMessage(err)
	at := sort.Search(len(lines)-1, func(i int) bool {
		_, _, err := parseStream(bytes.Join(lines[:i+1], nil))
		return err != nil && syntaxMessage(err) == what
	})
	indent := lines[at][:len(lines[at])-len(bytes.TrimLeft(lines[at], " \t"))]
	if bytes.ContainsRune(indent, '\t') {
		what = "a tab in the indentation: write spaces"
	}
	return &Error{File: file, Line: at + 1, Reason: "not YAML: " + what}
}

// syntaxMessage is the library's message without prefix and line.
func syntaxMessage(err error) string {
	message := strings.TrimPrefix(err.Error(), "yaml: ")
	if rest, ok := strings.CutPrefix(message, "line "); ok {
		if _, after, ok := strings.Cut(rest, ": "); ok {
			message = after
		}
	}
	return strings.ReplaceAll(message, "\n", " ")
}
