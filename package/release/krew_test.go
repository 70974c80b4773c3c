package main

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// krewPlugin is krew's Plugin (sigs.k8s.io/krew/pkg/index, v1alpha2).
type krewPlugin struct {
	metav1.TypeMeta `json:",inline"`

	Metadata struct {
		Name string `json:"name"`
	} `json:"metadata"`
	Spec struct {
		Version          string         `json:"version"`
		ShortDescription string         `json:"shortDescription"`
		Description      string         `json:"description"`
		Caveats          string         `json:"caveats"`
		Homepage         string         `json:"homepage"`
		Platforms        []krewPlatform `json:"platforms"`
	} `json:"spec"`
}

type krewPlatform struct {
	URI      string                `json:"uri"`
	Sha256   string                `json:"sha256"`
	Selector *metav1.LabelSelector `json:"selector"`
	Files    []krewFile            `json:"files"`
	Bin      string                `json:"bin"`
}

type krewFile struct {
	From string `json:"from"`
	To   string `json:"to"`
}

// lintKrew has what krew's index requires of a manifest.
func lintKrew(manifest string) error {
	var p krewPlugin
	if err := yaml.UnmarshalStrict([]byte(manifest), &p); err != nil {
		return err
	}
	var errs []error
	must := func(ok bool, what string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(what, args...))
		}
	}
	must(p.APIVersion == "krew.googlecontainertools.github.com/v1alpha2" && p.Kind == "Plugin", "kind %s/%s", p.APIVersion, p.Kind)
	must(regexp.MustCompile(`^[\w-]+$`).MatchString(p.Metadata.Name), "name %q", p.Metadata.Name)
	must(regexp.MustCompile(`^v\d+\.\d+\.\d+(-[\w.]+)?$`).MatchString(p.Spec.Version), "version %q", p.Spec.Version)
	must(p.Spec.ShortDescription != "" && len(p.Spec.ShortDescription) <= 50 && !strings.HasSuffix(p.Spec.ShortDescription, "."), "short description %q", p.Spec.ShortDescription)
	must(p.Spec.Description != "" && strings.HasPrefix(p.Spec.Homepage, "https://"), "description or homepage")
	must(len(p.Spec.Platforms) > 0, "no platform")
	for i, at := range p.Spec.Platforms {
		must(regexp.MustCompile(`^[a-f0-9]{64}$`).MatchString(at.Sha256), "platform %d: sha256 %q", i, at.Sha256)
		must(strings.HasPrefix(at.URI, "https://") && strings.HasSuffix(at.URI, ".tar.gz") && strings.Contains(at.URI, p.Spec.Version), "platform %d: uri %q", i, at.URI)
		must(at.Selector != nil && at.Selector.MatchLabels["os"] == "linux" && slices.Contains([]string{"amd64", "arm64"}, at.Selector.MatchLabels["arch"]) && strings.Contains(at.URI, at.Selector.MatchLabels["arch"]), "platform %d: selector", i)
		must(at.Bin == "kubectl-"+p.Metadata.Name, "platform %d: bin %q: kubectl looks for kubectl-%s", i, at.Bin, p.Metadata.Name)
		must(slices.Contains(at.Files, krewFile{at.Bin, "."}), "platform %d: the binary is not installed", i)
	}
	return errors.Join(errs...)
}

func TestKrew(t *testing.T) {
	text, err := os.ReadFile("../../.krew.yaml")
	require.NoError(t, err)
	var archives []string
	manifest, err := krew(string(text), "v1.2.3-rc.1", func(archive string) (string, error) {
		archives = append(archives, archive)
		return strings.Repeat(fmt.Sprint(len(archives)), 64), nil
	})
	require.NoError(t, err)
	t.Run("the manifest is one of krew", func(t *testing.T) {
		require.NoError(t, lintKrew(manifest))
	})
	t.Run("each archive has its own sum", func(t *testing.T) {
		b := build{source: source{tag: "v1.2.3-rc.1"}}
		assert.Equal(t, []string{b.archive("amd64"), b.archive("arm64")}, archives)
		var p krewPlugin
		require.NoError(t, yaml.Unmarshal([]byte(manifest), &p))
		require.Len(t, p.Spec.Platforms, 2)
		for i, at := range p.Spec.Platforms {
			assert.Equal(t, "https://github.com/plimsoll-dev/plimsoll/releases/download/v1.2.3-rc.1/"+archives[i], at.URI)
			assert.Equal(t, strings.Repeat(fmt.Sprint(i+1), 64), at.Sha256)
		}
	})
	t.Run("a mistake in it is found", func(t *testing.T) {
		for was, is := range map[string]string{
			"bin: kubectl-plimsoll": "bin: plimsoll", "os: linux": "os: plan9", "  homepage:": "  site:",
			"sha256: \"1": "sha256: \"x", "v1alpha2": "v1", "Show which workloads wait because of others": "Show which workloads wait because of others, for how long",
		} {
			require.Contains(t, manifest, was)
			assert.Error(t, lintKrew(strings.ReplaceAll(manifest, was, is)), is)
		}
	})
	t.Run("an archive that is missing", func(t *testing.T) {
		_, err := krew(string(text), "v1.2.3", func(string) (string, error) { return "", os.ErrNotExist })
		assert.ErrorIs(t, err, os.ErrNotExist)
	})
}
