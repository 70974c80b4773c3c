package main

import (
	_ "embed"
	"regexp"
	"runtime"
	"strings"
	"text/template"
)

//go:embed notes.md
var notesTemplate string

// notes of a release: what changed, how to get it, how to check it. image is the
// digest of its image.
func notes(from source, image string) (string, error) {
	const repository = "https://github.com/plimsoll-dev/plimsoll"
	parsed, err := template.New("notes.md").Parse(notesTemplate)
	if err != nil {
		return "", err
	}
	var out strings.Builder
	err = parsed.Execute(&out, map[string]string{
		"Tag": from.tag, "Number": from.number(), "Date": from.date, "Image": from.image + ":" + from.tag + "@" + image,
		"Changes": absolute(from.changes, repository+"/blob/"+from.tag+"/"), "Docs": repository + "/blob/" + from.tag + "/docs/",
		"Files": repository + "/releases/download/" + from.tag + "/", "Go": runtime.Version(),
	})
	return out.String(), err
}

// absolute has links of a document to files of the repository lead below base.
func absolute(text, base string) string {
	return regexp.MustCompile(`\]\(([^)\s]+)\)`).ReplaceAllStringFunc(text, func(link string) string {
		target := link[2 : len(link)-1]
		if strings.Contains(target, "://") || strings.HasPrefix(target, "#") {
			return link
		}
		return "](" + base + target + ")"
	})
}
