package main

import (
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
)

// peersDir is where the main module keeps the one that pins the peers.
const peersDir = "e2e/tools/peers"

// peerPrograms is the directory with the peers' programs. They are built into
// the user's cache when they are not there: whole or not at all, and whoever
// comes second waits for the first.
func peerPrograms(ctx context.Context, o *options) (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	key, err := recipe(peersDir)
	if err != nil {
		return "", fmt.Errorf("programs of the peers: %w", err)
	}
	dir := filepath.Join(cache, "plimsoll", "peers-"+key)
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return "", err
	}
	held, err := os.OpenFile(dir+".lock", os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return "", err
	}
	defer held.Close()
	if err := syscall.Flock(int(held.Fd()), syscall.LOCK_EX); err != nil {
		return "", fmt.Errorf("lock %s: %w", held.Name(), err)
	}
	if _, err := os.Stat(dir); err == nil {
		return dir, nil
	}
	o.say("building node_exporter and cAdvisor, once, into %s", dir)
	return dir, buildPeers(ctx, dir)
}

// recipe names what the module's programs are built from.
func recipe(module string) (string, error) {
	hash := sha256.New()
	for _, name := range []string{"go.mod", "go.sum", "cadvisor/main.go"} {
		text, err := os.ReadFile(filepath.Join(module, name))
		if err != nil {
			return "", err
		}
		fmt.Fprintf(hash, "%d %s", len(text), text)
	}
	fmt.Fprintf(hash, "%s/%s %s", runtime.GOOS, runtime.GOARCH, runtime.Version())
	return fmt.Sprintf("%.6x", hash.Sum(nil)), nil
}

func buildPeers(ctx context.Context, dir string) error {
	half := dir + ".half"
	if err := os.RemoveAll(half); err != nil {
		return fmt.Errorf("left over from a build that was cut: %w", err)
	}
	c := exec.CommandContext(ctx, "go", "-C", peersDir, "build", "-trimpath", "-ldflags", "-s -w", "-o", half+"/", "tool")
	// What the caller's own build was told is not meant for this one.
	c.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=", "GOWORK=off", "GOOS=", "GOARCH=")
	c.Stdout, c.Stderr = os.Stderr, os.Stderr
	if err := c.Run(); err != nil {
		return fmt.Errorf("build %s: %w", peersDir, err)
	}
	return os.Rename(half, dir)
}
