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
	if name == "" {
		return Default(), nil
	}
	data, err := readAny(name, stdin)
	if err != nil {
		return nil, err
	}
	if KindOf(data) == (Controller{}).Kind() {
		return decodeOver(name, data, DefaultController())
	}
	return decodeOver(name, data, Default())
}

// OpenAgent reads and checks an agent's configuration at path name, from stdin for Stdin,
// or gives the defaults for "".
func OpenAgent(name string, stdin io.Reader) (*Agent, error) {
	a := Default()
	if name == "" {
		return &a, nil
	}
	data, err := readAny(name, stdin)
	if err == nil {
		err = Decode(name, data, &a)
	}
	if err != nil {
		return nil, err
	}
	return &a, nil
}

func readAny(name string, stdin io.Reader) ([]byte, error) {
	if name == Stdin {
		return files.ReadFrom("standard input", stdin, maxFileBytes)
	}
	return files.Read(name, maxFileBytes)
}

func decodeOver[T Document](name string, data []byte, defaults T) (Document, error) {
	if err := Decode(name, data, &defaults); err != nil {
		return nil, err
	}
	return defaults, nil
}
