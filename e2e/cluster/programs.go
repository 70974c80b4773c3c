package cluster

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
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

// The programs of a Velero and of its object store.
const (
	Velero       = "velero"
	VeleroAWS    = "velero-plugin-for-aws"
	ObjectServer = "versitygw"
)

// Helm installs the chart.
const Helm = "helm"

// Descheduler evicts pods by policy.
const Descheduler = "descheduler"

// Operator writes the configuration of a Prometheus as the Prometheus Operator does.
const Operator = "operator"

// Krew installs plugins of kubectl, and KrewValidator reads their manifests.
const (
	Krew          = "krew"
	KrewValidator = "validate-krew-manifest"
)

// Kubectl asks a cluster as people do.
const Kubectl = "kubectl"

// source is what a module pins that is built together.
type source struct {
	// name of the source, and dir where the main module keeps its module.
	name, dir string
	// programs by the packages that make them.
	programs map[string]string
	// pin matches the line of go.mod with the version that the programs say.
	pin string
	// flags for the linker say that version: pin's whole, major and minor.
	flags string
	// takes is how long that is on two idle cores.
	takes string
	// asks is the environment variable that asks for an older version; empty: there
	// is none.
	asks string
}

const commands = "k8s.io/kubernetes/cmd/"

// kubePrograms are those of a control plane.
func kubePrograms() source {
	const x = " -X k8s.io/component-base/version."
	return source{
		name: "kube", dir: "e2e/tools/kube", programs: map[string]string{
			Etcd:              "go.etcd.io/etcd/server/v3",
			APIServer:         commands + APIServer,
			ControllerManager: commands + ControllerManager,
			Scheduler:         commands + Scheduler,
		},
		pin:   `(?m)^(?:require)?\s*k8s\.io/kubernetes (v(\d+)\.(\d+)\.\S+)`,
		flags: "-s -w" + x + "gitVersion=%[1]s" + x + "gitMajor=%[2]s" + x + "gitMinor=%[3]s",
		takes: "seven minutes",
		asks:  "PLIMSOLL_K8S",
	}
}

// kubeletProgram is what the emulated machines run beside it.
func kubeletProgram() source {
	s := kubePrograms()
	s.name, s.programs, s.takes, s.asks = "kubelet", map[string]string{Kubelet: commands + Kubelet}, "two minutes", ""
	return s
}

// veleroProgram is server, node-agent and command line.
func veleroProgram() source {
	return source{
		name: "velero", dir: "e2e/tools/velero",
		programs: map[string]string{Velero: "github.com/vmware-tanzu/velero/cmd/velero"},
		pin:      `(?m)^\s*github\.com/vmware-tanzu/velero (v(\d+)\.(\d+)\.\S+)`,
		flags:    "-s -w -X github.com/vmware-tanzu/velero/pkg/buildinfo.Version=%[1]s",
		takes:    "three minutes",
		asks:     "PLIMSOLL_VELERO",
	}
}

// storePrograms are the object store of a Velero's server, and its plugin for it.
func storePrograms() source {
	s := veleroProgram()
	s.name, s.takes, s.asks = "object-store", "a minute", ""
	s.programs = map[string]string{
		VeleroAWS:    "github.com/vmware-tanzu/velero-plugin-for-aws/velero-plugin-for-aws",
		ObjectServer: "github.com/versity/versitygw/cmd/versitygw",
	}
	return s
}

func helmPrograms() source {
	return source{
		name: "helm", dir: "e2e/tools/helm", programs: map[string]string{Helm: "helm.sh/helm/v4/cmd/helm"},
		pin:   `(?m)^\s*helm\.sh/helm/v4 (v(\d+)\.(\d+)\.\S+)`,
		flags: "-s -w -X helm.sh/helm/v4/internal/version.version=%[1]s",
		takes: "two minutes",
	}
}

func operatorProgram() source {
	return source{
		name: "operator", dir: "e2e/tools/operator", programs: map[string]string{Operator: "."},
		pin:   `(?m)^\s*github\.com/prometheus-operator/prometheus-operator (v(\d+)\.(\d+)\.\S+)`,
		flags: "-s -w -X main.version=%[1]s",
		takes: "two minutes",
	}
}

func krewPrograms() source {
	const at = "sigs.k8s.io/krew/cmd/"
	return source{
		name: "krew", dir: "e2e/tools/krew", programs: map[string]string{Krew: at + Krew, KrewValidator: at + KrewValidator},
		pin:   `(?m)^\s*sigs\.k8s\.io/krew (v(\d+)\.(\d+)\.\S+)`,
		flags: "-s -w -X sigs.k8s.io/krew/internal/version.gitTag=%[1]s",
		takes: "a minute",
	}
}

func deschedulerProgram() source {
	return source{
		name: "descheduler", dir: "e2e/tools/descheduler", programs: map[string]string{Descheduler: "sigs.k8s.io/descheduler/cmd/descheduler"},
		pin:   `(?m)^\s*sigs\.k8s\.io/descheduler (v(\d+)\.(\d+)\.\S+)`,
		flags: "-s -w -X sigs.k8s.io/descheduler/pkg/version.version=%[1]s",
		takes: "two minutes",
	}
}

func kubectlProgram() source {
	const x = " -X k8s.io/component-base/version."
	return source{
		name: "kubectl", dir: "e2e/tools/kubectl", programs: map[string]string{Kubectl: "."},
		pin:   `(?m)^\s*k8s\.io/kubectl v0((\.)(\d+)\.\S+)`, // v0.37.1 is that of v1.37.1
		flags: "-s -w" + x + "gitVersion=v1%[1]s" + x + "gitMajor=1" + x + "gitMinor=%[3]s",
		takes: "two minutes",
	}
}

// Program is the path of one of the programs: of the newest version that is
// pinned, of an older one that an environment variable asks for (PLIMSOLL_K8S,
// PLIMSOLL_VELERO), or of the one that the name says: "kube-apiserver@1.34". When
// they are not in the user's cache yet all of their source are built, which takes
// some minutes on two cores; stderr says so. It must be called somewhere below the
// main module's directory.
func Program(ctx context.Context, name string) (string, error) {
	name, version, _ := strings.Cut(name, "@")
	s, module, err := locate(name, version)
	if err != nil {
		return "", err
	}
	dir, err := s.cached(ctx, module)
	if err != nil {
		return "", fmt.Errorf("program %s: %w", name, err)
	}
	return filepath.Join(dir, name), nil
}

// locate the source of a program in a version, and its module.
func locate(name, version string) (source, string, error) {
	wd, err := os.Getwd()
	if err != nil {
		return source{}, "", err
	}
	for _, s := range sources() {
		if s.programs[name] == "" {
			continue
		}
		module, err := s.find(wd)
		if version = cmp.Or(version, os.Getenv(s.asks)); err == nil && version != "" && s.asks != "" && name != Etcd {
			s, module, err = s.of(version, module)
		}
		if err != nil {
			err = fmt.Errorf("program %s: %w", name, err)
		}
		return s, module, err
	}
	return source{}, "", fmt.Errorf("program %s: there is no such", name)
}

func sources() []source {
	return []source{kubePrograms(), kubeletProgram(), veleroProgram(), storePrograms(), helmPrograms(), operatorProgram(), krewPrograms(), kubectlProgram(), deschedulerProgram()}
}

// find looks for the programs' module at dir and above.
func (s source) find(dir string) (string, error) {
	for at := dir; ; at = filepath.Dir(at) {
		module := filepath.Join(at, s.dir)
		if _, err := os.Stat(filepath.Join(module, "go.mod")); err == nil {
			return module, nil
		}
		if at == filepath.Dir(at) {
			return "", fmt.Errorf("no %s at %s or above", s.dir, dir)
		}
	}
}

// cached is the directory with the programs that module pins, built when it is
// not there. Whoever comes second waits for the first; it is there whole or not
// at all.
func (s source) cached(ctx context.Context, module string) (string, error) {
	flags, key, err := s.recipe(module)
	if err != nil {
		return "", err
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(cache, "plimsoll", s.name+"-"+key)
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
	return dir, s.build(ctx, module, flags, dir)
}

// recipe is how the module's programs are built, and a name for what comes out.
func (s source) recipe(module string) (flags []string, key string, err error) {
	mod, err := os.ReadFile(filepath.Join(module, "go.mod"))
	if err != nil {
		return nil, "", err
	}
	sum, err := os.ReadFile(filepath.Join(module, "go.sum"))
	if err != nil {
		return nil, "", err
	}
	v, err := s.pinned(module)
	if err != nil {
		return nil, "", err
	}
	flags = []string{"-trimpath", "-gcflags=all=-dwarf=false", "-ldflags", fmt.Sprintf(s.flags, v[1], v[2], v[3])}
	hash := sha256.New()
	fmt.Fprintf(hash, "%s\n%s\n%q %q %s/%s\n", mod, sum, flags, s.programs, runtime.GOOS, runtime.GOARCH)
	if slices.Contains(slices.Collect(maps.Values(s.programs)), ".") { // it is the module's own
		main, err := os.ReadFile(filepath.Join(module, "main.go"))
		if err != nil {
			return nil, "", err
		}
		hash.Write(main)
	}
	return flags, fmt.Sprintf("%.6x", hash.Sum(nil)), nil
}

// build builds beside dir and moves the result there.
func (s source) build(ctx context.Context, module string, flags []string, dir string) error {
	half := dir + ".half"
	if err := os.RemoveAll(half); err != nil {
		return fmt.Errorf("left over from a build that was cut: %w", err)
	}
	start := time.Now()
	say := func(format string, args ...any) {
		fmt.Fprintf(os.Stderr, s.name+": "+format+"\n", args...)
	}
	say("building %s, once, for about %s on two cores", dir, s.takes)
	packages := slices.Sorted(maps.Values(s.programs))
	args := slices.Concat([]string{"-C", module, "build"}, flags, []string{"-o", half + "/"}, packages)
	if err := goCommand(ctx, args, func() { say("still building after %s", time.Since(start).Round(time.Second)) }); err != nil {
		return fmt.Errorf("build %s: %w", module, err)
	}
	if s.programs[Etcd] != "" { // its package has another name
		if err := os.Rename(filepath.Join(half, "server"), filepath.Join(half, Etcd)); err != nil {
			return err
		}
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
	// What the caller's own build was told is not meant for this one. The compiler collects no
	// garbage: see the Makefile.
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=", "GOWORK=off", "GOOS=", "GOARCH=", "GOGC=off", "GOMEMLIMIT=2GiB")
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
