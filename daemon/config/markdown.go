package config

import (
	"fmt"
	"io"
	"reflect"
	"strings"
)

const markdownHead = `# Configuration

The agent reads one YAML file, named by ` + "`--config`" + `; without one it runs with the defaults below. Flags override the file.

` + "```yaml" + `
apiVersion: %s
kind: %s
tick: 1s
plugins:
  memoryStall:
    soft:
      stallFull: 0.15
` + "```" + `

A key that is left out keeps its default; a list that is given replaces the whole list. The file is read strictly: an unknown, misplaced or repeated key, a key without a value, or a value without its unit is an error that names its line and path.

- Durations are written as Go writes them: ` + "`500ms`, `10s`, `1m30s`" + `. A bare number is an error.
- Sizes are written as Kubernetes writes quantities: ` + "`256Mi`, `1Gi`" + `.
- Ratios go from 0 to 1: ` + "`0.25`" + ` is a quarter.

` + "`plimsoll config check FILE`" + ` lists every mistake, ` + "`plimsoll config print [FILE]`" + ` prints what is in effect.

The file is read again when its content changes, on SIGHUP, and on POST to ` + "`/-/reload`" + ` on the local socket. A file with a mistake changes nothing: the last good one stays in force, and the log, the metric ` + "`plimsoll_config_last_reload_successful`" + ` and ` + "`plimsoll doctor`" + ` say so. Changes below these keys take effect only when the agent is restarted: %s.

This table is generated from the program.

| Key | Default | Unit | Description |
|---|---|---|---|
`

// Markdown writes docs/configuration.md: how the file is read, and a table of
// every key with its default, unit and description. The error is w's.
func Markdown(w io.Writer) error {
	agent := Default()
	var b strings.Builder
	atStart := agent.AtStart()
	for i, key := range atStart {
		atStart[i] = "`" + key + "`"
	}
	fmt.Fprintf(&b, markdownHead, APIVersion, agent.Kind(), strings.Join(atStart, ", "))
	table(&b, agent)
	controller := DefaultController()
	fmt.Fprintf(&b, markdownController, APIVersion, controller.Kind(), "`"+strings.Join(controller.AtStart(), "`, `")+"`")
	table(&b, controller)
	_, err := io.WriteString(w, b.String())
	return err
}

const markdownController = `
## The controller

` + "`plimsoll controller --config FILE`" + ` reads a file of its own, in the same way; it is read again when its content changes and on SIGHUP.

` + "```yaml" + `
apiVersion: %s
kind: %s
backups:
  enabled: true
  limit: 2
` + "```" + `

Changes below these keys take effect only when the controller is restarted: %s.

| Key | Default | Unit | Description |
|---|---|---|---|
`

func table(b *strings.Builder, d Document) {
	walk(structOf(d), func(path string, f field) {
		fmt.Fprintf(b, "| `%s` | %s | %s | %s |\n", path, defaultCell(f), unitCell(f), f.description)
	})
}

// defaultCell is empty for a section.
func defaultCell(f field) string {
	switch f.value.Kind() {
	case reflect.Struct:
		return ""
	case reflect.Slice:
		elements := make([]string, f.value.Len())
		for i := range elements {
			elements[i] = writeScalar(f.value.Index(i), "")
		}
		return "`[" + strings.Join(elements, ", ") + "]`"
	default:
		return "`" + writeScalar(f.value, f.unit) + "`"
	}
}

func unitCell(f field) string {
	if f.value.Kind() == reflect.Struct {
		return ""
	}
	if f.value.Kind() == reflect.Slice {
		return "list of " + f.unit
	}
	switch formOf(f.value.Type(), f.unit) {
	case formBool:
		return "true or false"
	case formDuration:
		return "duration"
	case formRatio:
		return "ratio 0–1"
	default:
		return f.unit
	}
}
