// Package katalyst is the wire of outer plugins, which is that of Katalyst's
// eviction plugins: how a plugin introduces itself, which pods it is shown, and
// what its answers mean as Verdicts. Its messages are in v1alpha1. It does no
// I/O: plugins/outer connects and calls.
//
// # Usage
//
//	err := katalyst.CheckInfo(info)                          // at the registration
//	shown := katalyst.NewVisiblePods(pods, annotations)      // of each round
//	c := katalyst.Converter{Plugin: name, Shown: shown, …}
//	verdict := c.Threshold(answer)                           // of each answer
//
// # Trust
//
// Nothing in an answer is compared, executed or trusted beyond what Converter
// lets through; what it refuses is counted.
package katalyst

import (
	"errors"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	wire "github.com/plimsoll-dev/plimsoll/katalyst/v1alpha1"
	"github.com/plimsoll-dev/plimsoll/plugins"
)

// ErrOtherKind means that the socket belongs to another kind of plugin.
var ErrOtherKind = errors.New("not an eviction plugin")

// CheckInfo checks how a plugin introduces itself. It returns ErrOtherKind for
// another kind of plugin.
func CheckInfo(info *registration.PluginInfo) error {
	switch {
	case info.GetType() != wire.PluginType:
		return fmt.Errorf("%w: type %q, want %q", ErrOtherKind, Clip(info.GetType()), wire.PluginType)
	case !slices.Contains(info.GetSupportedVersions(), wire.Version):
		return fmt.Errorf("versions %q, want %s", Clip(strings.Join(info.GetSupportedVersions(), ",")), wire.Version)
	}
	return CheckName(info.GetName())
}

var pluginName = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._/-]{0,126}[A-Za-z0-9])?$`)

// CheckName says why no outer plugin can register under a name. A name is also the path
// of a file, that of its token; each file has one name.
func CheckName(name string) error {
	switch {
	case path.Clean(name) != name || !pluginName.MatchString(name):
		return fmt.Errorf("name %q: want up to 128 letters, digits, and . _ - /, and no part that is ., .. or empty", Clip(name))
	case slices.Contains(plugins.Names(), name):
		return fmt.Errorf("name %q is taken by a built-in plugin", name)
	}
	return nil
}

// MaxText is the longest text of a plugin that is kept, in bytes.
const MaxText = 256

// Clip cuts a text that came from a plugin.
func Clip(text string) string {
	if len(text) > MaxText {
		text = strings.Clone(text[:MaxText]) // do not keep the rest in memory
	}
	return strings.ToValidUTF8(text, "")
}
