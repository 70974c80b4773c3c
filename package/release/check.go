package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"sigs.k8s.io/yaml"
)

// source is the commit that a release is made from.
type source struct {
	tag     string // of the version, such as v1.2.3 or v1.2.3-rc.1
	created int64  // when the commit was made, in seconds since 1970
	image   string // the repository of the image that the manifest names
	date    string // of the version in the changelog
	changes string // what the changelog says of the version
}

// number is the version without the v, as the chart and the changelog have it.
func (s source) number() string { return strings.TrimPrefix(s.tag, "v") }

// check the repository in the current directory: the source of the release that it
// is tagged as.
func check(ctx context.Context) (source, error) {
	var s source
	if err := committed(ctx); err != nil {
		return s, err
	}
	tags, err := git(ctx, "tag", "--points-at", "HEAD")
	if err != nil {
		return s, err
	}
	chart, err := os.ReadFile("deploy/Chart.yaml")
	if err != nil {
		return s, err
	}
	if s.tag, err = version(strings.Fields(tags), chart); err != nil {
		return s, err
	}
	for _, path := range []string{"deploy/release-hidden.yaml", "deploy/plimsoll.yaml"} {
		manifest, err := os.ReadFile(path)
		if err != nil {
			return s, err
		}
		if s.image, err = repository(manifest, s.tag); err != nil {
			return s, fmt.Errorf("%s: %w", path, err)
		}
	}
	changelog, err := os.ReadFile("CHANGELOG.md")
	if err != nil {
		return s, err
	}
	if s.date, s.changes, err = section(string(changelog), s.number()); err != nil {
		return s, fmt.Errorf("CHANGELOG.md: %w", err)
	}
	created, err := git(ctx, "log", "-1", "--format=%ct")
	if err != nil {
		return s, err
	}
	s.created, err = strconv.ParseInt(created, 10, 64)
	return s, err
}

// committed tells which files are not as HEAD has them, or are not in it. The settings
// of this user's git hide none (status.showUntrackedFiles, core.excludesFile,
// .git/info/exclude), nor does a .gitignore that is not committed: what is hidden would
// be compiled in, too. The record that make e2e leaves is part of nothing that is built.
func committed(ctx context.Context) error {
	const record = ":(exclude,top)e2e/last-green.txt"
	changed, err := git(ctx, "status", "--porcelain", "--untracked-files=no", "--", ".", record)
	if err != nil {
		return err
	}
	others, err := git(ctx, "ls-files", "--others", "--exclude-from=.gitignore", "--", ".", record)
	if err != nil {
		return err
	}
	if others != "" {
		changed = strings.TrimSpace(changed + "\n?? " + strings.ReplaceAll(others, "\n", "\n?? "))
	}
	if changed != "" {
		return fmt.Errorf("not committed, so no commit has what would be built: commit or remove\n%s", changed)
	}
	return nil
}

// version is the one of the tags on HEAD that the chart has, too: as appVersion, and
// without the v as its own version.
func version(tags []string, chart []byte) (string, error) {
	var has struct{ Version, AppVersion string }
	if err := yaml.Unmarshal(chart, &has); err != nil {
		return "", fmt.Errorf("deploy/Chart.yaml: %w", err)
	}
	if len(tags) == 0 {
		return "", fmt.Errorf("no tag on HEAD; deploy/Chart.yaml has %s: git tag -s %[1]s -m %[1]s", has.AppVersion)
	}
	// What Debian and RPM order as SemVer does: alpha, beta, rc.
	form := regexp.MustCompile(`^v(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-(alpha|beta|rc)\.(0|[1-9]\d*))?$`)
	versions := slices.DeleteFunc(slices.Clone(tags), func(tag string) bool { return !form.MatchString(tag) })
	if len(versions) == 0 {
		return "", fmt.Errorf("the tag on HEAD is no version: %s: want one such as v1.2.3, or v1.2.3-rc.1 (alpha, beta, rc)", strings.Join(tags, ", "))
	}
	if !slices.Contains(versions, has.AppVersion) || "v"+has.Version != has.AppVersion {
		return "", fmt.Errorf("HEAD is tagged %s, and deploy/Chart.yaml has version %q and appVersion %q: "+
			"set them to the version without and with its v, then go test ./e2e/chart -run TestPlainManifest -update, commit, and tag that commit",
			strings.Join(versions, ", "), has.Version, has.AppVersion)
	}
	return has.AppVersion, nil
}

// repository of the image that all containers of a manifest have, with that tag.
func repository(manifest []byte, tag string) (string, error) {
	var found []string
	for _, m := range regexp.MustCompile(`(?m)^ +(?:- )?image: "?([^"\s]+)"?$`).FindAllSubmatch(manifest, -1) {
		found = append(found, string(m[1]))
	}
	if len(found) == 0 {
		return "", errors.New("no container has an image")
	}
	name, isTag := strings.CutSuffix(found[0], ":"+tag)
	if !isTag || len(slices.Compact(found)) > 1 {
		return "", fmt.Errorf("images are %s, not all of %s: go test ./e2e/chart -run TestPlainManifest -update", strings.Join(found, ", "), tag)
	}
	return name, nil
}

// section is what a changelog says of a version, and the date of it, from its
// heading "## 1.2.3 - 2026-12-01" to that of the version before.
func section(changelog, number string) (date, text string, err error) {
	heading := regexp.MustCompile(`(?m)^## ` + regexp.QuoteMeta(number) + ` - (\d{4}-\d\d-\d\d)\n`)
	at := heading.FindStringSubmatchIndex(changelog)
	if at == nil {
		return "", "", fmt.Errorf("no heading \"## %s - YYYY-MM-DD\": give it to what is below \"## Unreleased\"", number)
	}
	text, _, _ = strings.Cut(changelog[at[1]:], "\n## ")
	if text = strings.TrimSpace(text); text == "" {
		return "", "", fmt.Errorf("nothing below \"## %s\"", number)
	}
	return changelog[at[2]:at[3]], text, nil
}

// trimmed is what a command prints.
func trimmed(b []byte) string { return string(bytes.TrimSpace(b)) }
