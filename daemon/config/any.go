package config

import (
	"io"

	"github.com/plimsoll-dev/plimsoll/files"
)

// Stdin is the name of standard input, where a file can be named.
const Stdin = "-"

// OpenAny reads a configuration of either kind, once; one that states no kind is
// read as an agent's. name is a file, [Stdin], or empty for the agent's defaults.
// The error is that of [Open].
func OpenAny(name string, stdin io.Reader) (Document, error) {
	var data []byte
	var err error
	switch name {
	case "":
		return Default(), nil
	case Stdin:
		data, err = files.ReadFrom("standard input", stdin, maxFileBytes)
	default:
		data, err = files.Read(name, maxFileBytes)
	}
	if err != nil {
		return nil, err
	}
	if KindOf(data) == (Controller{}).Kind() {
		return decodeOver(name, data, DefaultController())
	}
	return decodeOver(name, data, Default())
}

func decodeOver[T Document](name string, data []byte, defaults T) (Document, error) {
	if err := Decode(name, data, &defaults); err != nil {
		return nil, err
	}
	return defaults, nil
}
