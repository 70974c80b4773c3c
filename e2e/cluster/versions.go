package cluster

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Versions are the minor versions of a program that are pinned, the newest first:
// "1.37", "1.36". Like [Program] it is called below the main module's directory.
func Versions(name string) ([]string, error) {
	wd, err := os.Getwd()
	if err != nil {
		return nil, err
	}
	for _, s := range sources() {
		if s.programs[name] != "" && s.asks != "" {
			module, err := s.find(wd)
			if err != nil {
				return nil, err
			}
			return s.versions(module)
		}
	}
	return nil, fmt.Errorf("program %s: one version of it is pinned", name)
}

// Pinned is the whole version of what [Program] builds for a name: "v1.34.4".
func Pinned(name string) (string, error) {
	name, version, _ := strings.Cut(name, "@")
	s, module, err := locate(name, version)
	if err != nil {
		return "", err
	}
	v, err := s.pinned(module)
	if err != nil {
		return "", err
	}
	return v[1], nil
}

// of is the source of another version, and its module: that of the newest has no
// version in its name.
func (s source) of(version, newest string) (source, string, error) {
	all, err := s.versions(newest)
	if err != nil {
		return s, "", err
	}
	if i := slices.Index(all, version); i < 0 {
		return s, "", fmt.Errorf("version %q is not pinned; those are: %s", version, strings.Join(all, ", "))
	} else if i == 0 {
		return s, newest, nil
	}
	s.name, s.dir, s.programs = s.name+version, s.dir+version, maps.Clone(s.programs)
	delete(s.programs, Etcd) // there is one for all
	return s, newest + version, nil
}

// versions are those that have a module, the newest first.
func (s source) versions(newest string) ([]string, error) {
	v, err := s.pinned(newest)
	if err != nil {
		return nil, err
	}
	older, err := filepath.Glob(newest + "[0-9]*")
	if err != nil {
		return nil, err
	}
	all := []string{v[2] + "." + v[3]}
	for _, dir := range older {
		all = append(all, strings.TrimPrefix(dir, newest))
	}
	slices.SortFunc(all[1:], func(a, b string) int { return cmp.Compare(minor(b), minor(a)) })
	return all, nil
}

// minor of "1.34" is 34.
func minor(version string) int {
	_, after, _ := strings.Cut(version, ".")
	n, err := strconv.Atoi(after)
	if err != nil {
		return -1 // the last of them
	}
	return n
}

// pinned is the version that a module pins: the line, the whole, major and minor.
func (s source) pinned(module string) ([]string, error) {
	mod, err := os.ReadFile(filepath.Join(module, "go.mod"))
	if err != nil {
		return nil, err
	}
	v := regexp.MustCompile(s.pin).FindStringSubmatch(string(mod))
	if v == nil {
		return nil, fmt.Errorf("%s/go.mod names no version: %s", module, s.pin)
	}
	return v, nil
}
