package chart

import (
	"fmt"
	"os/exec"
)

// MakeImage has make build the image of the source in tree to the directory out;
// more are further variables of the Makefile.
func MakeImage(tree, out, version string, more ...string) error {
	args := append([]string{"-C", tree, "image", "OUT=" + out, "VERSION=" + version, "CREATED=1760000000"}, more...)
	said, err := exec.Command("make", args...).CombinedOutput() //nolint:noctx // callers keep what it builds
	if err != nil {
		return fmt.Errorf("make image: %w\n%s", err, said)
	}
	return nil
}
