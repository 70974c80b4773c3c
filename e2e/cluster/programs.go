package cluster

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"syscall"
	"time"
)

// The programs, by the names that [Program] and [Options] know them by.
const (
	Etcd              = "etcd"
	APIServer         = "kube-apiserver"
	ControllerManager = "kube-controller-manager"
	Scheduler         = "kube-scheduler"
	Kubelet           = "kubelet"
)

// moduleDir is where the main module keeps the one that pins the programs.
const moduleDir = "e2e/tools/kube"

// Program is the path of one of the programs. When they are not in the user's
// cache yet all are built, which takes about ten minutes on two cores; stderr
// says so. It must be called somewhere below the main module's directory.
func Program(ctx context.Context, name string) (string, error) {
	if !slices.Contains([]string{Etcd, APIServer, ControllerManager, Scheduler, Kubelet}, name) {
		return "", fmt.Errorf("program %s: there is no such", name)
	}
	wd, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("program %s: %w", name, err)
	}
	module, err := findModule(wd)
	if err != nil {
		return "", fmt.Errorf("program %s: %w", name, err)
	}
	dir, err := cachedPrograms(ctx, module)
	if err != nil {
		return "", fmt.Errorf("program %s: %w", name, err)
	}
	return filepath.Join(dir, name), nil
}

// findModule looks for the programs' module at dir and above.
func findModule(dir string) (string, error) {
	for at := dir; ; at = filepath.Dir(at) {
		module := filepath.Join(at, moduleDir)
		if _, err := os.Stat(filepath.Join(module, "go.mod")); err == nil {
			return module, nil
		}
		if at == filepath.Dir(at) {
			return "", fmt.Errorf("no %s at %s or above", moduleDir, dir)
		}
	}
}

// cachedPrograms is the directory with the programs that module pins, built when
// it is not there. Whoever comes second waits for the first; it is there whole
// or not at all.
func cachedPrograms(ctx context.Context, module string) (string, error) {
	flags, key, err := recipe(module)
	if err != nil {
		return "", err
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(cache, "plimsoll", "kube-"+key)
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return "", err
	}
	held, err := lock(ctx, dir+".lock")
	if err != nil {
		return "", err
	}
	defer held.Close()
	if _, err := os.Stat(dir); err == nil {
		return dir, nil
	}
	return dir, buildPrograms(ctx, module, flags, dir)
}

// recipe is how the module's programs are built, and a name for what comes out.
func recipe(module string) (flags []string, key string, err error) {
	mod, err := os.ReadFile(filepath.Join(module, "go.mod"))
	if err != nil {
		return nil, "", err
	}
	sum, err := os.ReadFile(filepath.Join(module, "go.sum"))
	if err != nil {
		return nil, "", err
	}
	v := regexp.MustCompile(`(?m)^\s*k8s\.io/kubernetes (v(\d+)\.(\d+)\.\S+)`).FindSubmatch(mod)
	if v == nil {
		return nil, "", fmt.Errorf("%s/go.mod names no version of k8s.io/kubernetes", module)
	}
	const x = " -X k8s.io/component-base/version."
	flags = []string{
		"-trimpath", "-ldflags",
		fmt.Sprintf("-s -w%sgitVersion=%s%sgitMajor=%s%sgitMinor=%s", x, v[1], x, v[2], x, v[3]),
	}
	hash := sha256.New()
	fmt.Fprintf(hash, "%s\n%s\n%q %s/%s\n", mod, sum, flags, runtime.GOOS, runtime.GOARCH)
	return flags, fmt.Sprintf("%.6x", hash.Sum(nil)), nil
}

// buildPrograms builds beside dir and moves the result there.
func buildPrograms(ctx context.Context, module string, flags []string, dir string) error {
	half := dir + ".half"
	if err := os.RemoveAll(half); err != nil {
		return fmt.Errorf("left over from a build that was cut: %w", err)
	}
	start := time.Now()
	say := func(format string, args ...any) {
		fmt.Fprintf(os.Stderr, "kubernetes: "+format+"\n", args...)
	}
	say("building %s, once, for about ten minutes on two cores", dir)
	args := slices.Concat([]string{"-C", module, "build"}, flags, []string{"-o", half + "/", "tool"})
	if err := goCommand(ctx, args, func() { say("still building after %s", time.Since(start).Round(time.Second)) }); err != nil {
		return fmt.Errorf("build %s: %w", module, err)
	}
	// The package of etcd's program has another name.
	if err := os.Rename(filepath.Join(half, "server"), filepath.Join(half, Etcd)); err != nil {
		return err
	}
	if err := os.Rename(half, dir); err != nil {
		return err
	}
	say("built in %s", time.Since(start).Round(time.Second))
	return nil
}

// goCommand runs the go command to its end and calls meanwhile every half minute.
func goCommand(ctx context.Context, args []string, meanwhile func()) error {
	cmd := exec.Command("go", args...) //nolint:noctx // below: the whole process group ends with ctx
	// What the caller's own build was told is not meant for this one.
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=", "GOWORK=off", "GOOS=", "GOARCH=")
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	build, err := startChild(cmd, syscall.SIGTERM)
	if err != nil {
		return err
	}
	every := time.NewTicker(30 * time.Second)
	defer every.Stop()
	for {
		select {
		case <-build.ended:
			if !cmd.ProcessState.Success() {
				return errors.New(cmd.ProcessState.String())
			}
			return nil
		case <-every.C:
			meanwhile()
		case <-ctx.Done():
			_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // it may have ended
			<-build.ended
			return ctx.Err()
		}
	}
}

// lock holds path against every other process until the file is closed.
func lock(ctx context.Context, path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	poll := time.NewTicker(100 * time.Millisecond)
	defer poll.Stop()
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return f, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, errors.Join(fmt.Errorf("lock %s: %w", path, err), f.Close())
		}
		select {
		case <-poll.C:
		case <-ctx.Done():
			return nil, errors.Join(fmt.Errorf("lock %s: %w", path, ctx.Err()), f.Close())
		}
	}
}
