package cli

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/plimsoll-dev/plimsoll/daemon/view"
)

// Formats of an answer.
const (
	asText = "text"
	asJSON = "json"
	asYAML = "yaml"
	asWide = "wide" // text with further columns
)

// outputFlag adds -o; wide where the text has further columns.
func outputFlag(c *cobra.Command, to *string, wide ...string) {
	formats := append([]string{asText, asJSON, asYAML}, wide...)
	c.Flags().StringVarP(to, "output", "o", asText, "output `FORMAT`: "+oneOf(formats))
}

func oneOf(list []string) string {
	last := len(list) - 1
	return strings.Join(list[:last], ", ") + " or " + list[last]
}

func checkOutput(o string, wide ...string) error {
	formats := append([]string{asText, asJSON, asYAML}, wide...)
	if !slices.Contains(formats, o) {
		return usageError{fmt.Errorf("-o %q: want %s", o, oneOf(formats))}
	}
	return nil
}

// isObject: the format is one of whole objects, for programs.
func isObject(output string) bool { return output == asJSON || output == asYAML }

// writeObject writes JSON, or the same as YAML.
func writeObject(w io.Writer, output string, v any) error {
	if output == asJSON {
		return view.WriteJSON(w, v)
	}
	var b bytes.Buffer
	if err := view.WriteJSON(&b, v); err != nil {
		return err
	}
	text, err := yaml.JSONToYAML(b.Bytes())
	if err != nil {
		return err
	}
	_, err = w.Write(append([]byte("---\n"), text...))
	return err
}
