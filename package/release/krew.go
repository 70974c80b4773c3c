package main

import (
	"fmt"
	"path"
	"strings"
	"text/template"
)

// krew renders the template of the plugin's manifest, in the form of
// krew-release-bot: addURIAndSha is where an archive will be, and its sum.
func krew(text, tag string, sum func(archive string) (string, error)) (string, error) {
	parsed, err := template.New(".krew.yaml").Funcs(template.FuncMap{
		"addURIAndSha": func(address, tag string) (string, error) {
			address = strings.ReplaceAll(address, "{{ .TagName }}", tag)
			of, err := sum(path.Base(address))
			return fmt.Sprintf("uri: %s\n      sha256: %q", address, of), err
		},
	}).Parse(text)
	if err != nil {
		return "", err
	}
	var out strings.Builder
	if err := parsed.Execute(&out, struct{ TagName string }{tag}); err != nil {
		return "", err
	}
	return out.String(), nil
}
