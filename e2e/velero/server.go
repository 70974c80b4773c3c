package velero

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"

	"github.com/plimsoll-dev/plimsoll/e2e/cluster"
)

// Server is a real Velero server, that backs up into a real object store on
// loopback.
type Server struct {
	*cluster.Process
	// Store is the object store, versitygw over a directory.
	Store *cluster.Process

	c                     *cluster.Cluster
	namespace, kubeconfig string
	// What it is started with.
	arguments []string
	env       string
}

// startTime is many times what an idle machine needs (6 s).
const startTime = 2 * time.Minute

// NewServer installs Velero in a namespace of a cluster, as its own command line
// does, and starts its server with further arguments. What it keeps is below
// dir.
func NewServer(ctx context.Context, c *cluster.Cluster, namespace, dir string, args ...string) (*Server, error) {
	if _, err := cluster.Program(ctx, cluster.Velero); err != nil { // long before the start's own deadline counts
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	s := &Server{c: c, namespace: namespace, kubeconfig: c.Kubeconfig}
	crds, err := s.Command(ctx, "install", "--crds-only", "--dry-run", "-o", "yaml")
	if err != nil {
		return nil, err
	}
	if err := c.Apply(ctx, crds); err != nil {
		return nil, err
	}
	at, err := s.store(ctx, dir)
	if err != nil {
		return nil, err
	}
	if err := c.Apply(ctx, fmt.Appendf(nil, location, namespace, at)); err != nil {
		return nil, err
	}
	plugins := filepath.Join(dir, "plugins")
	if err := pluginsIn(ctx, plugins); err != nil {
		return nil, err
	}
	s.arguments = []string{
		"server", "--kubeconfig", s.kubeconfig, "--namespace", namespace, "--plugin-dir", plugins, "--store-validation-frequency", "10s",
	}
	if err := s.serve(ctx, args); err != nil {
		return nil, err
	}
	return s, s.available(ctx)
}

// available waits until Velero has found its store: before that it fails each
// Backup.
func (s *Server) available(ctx context.Context) error {
	client, err := dynamic.NewForConfig(s.c.Admin)
	if err != nil {
		return err
	}
	locations := client.Resource(schema.GroupVersionResource{Group: "velero.io", Version: "v1", Resource: "backupstoragelocations"}).Namespace(s.namespace)
	return wait.PollUntilContextCancel(ctx, 100*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		location, err := locations.Get(ctx, "default", metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		phase, _, err := unstructured.NestedString(location.Object, "status", "phase")
		return phase == "Available", err
	})
}

// Restart ends the server and starts it with other arguments.
func (s *Server) Restart(ctx context.Context, args ...string) error {
	if err := s.Kill(); err != nil {
		return err
	}
	return s.serve(ctx, args)
}

// location is where backups go.
const location = `
apiVersion: velero.io/v1
kind: BackupStorageLocation
metadata: {name: default, namespace: %s}
spec:
  provider: aws
  default: true
  objectStorage: {bucket: backups}
  config: {region: us-east-1, s3ForcePathStyle: "true", s3Url: "http://%s", checksumAlgorithm: ""}
`

const access, secret = "access", "secret-of-tests"

// store starts the object store, and returns its address.
func (s *Server) store(ctx context.Context, dir string) (string, error) {
	address, err := s.c.Address(ctx)
	if err != nil {
		return "", err
	}
	data := filepath.Join(dir, "store")
	if err := os.MkdirAll(filepath.Join(data, "backups"), 0o755); err != nil { // a bucket is a directory
		return "", err
	}
	credentials := filepath.Join(dir, "credentials")
	text := fmt.Sprintf("[default]\naws_access_key_id=%s\naws_secret_access_key=%s\n", access, secret)
	if err := os.WriteFile(credentials, []byte(text), 0o600); err != nil {
		return "", err
	}
	s.env = "AWS_SHARED_CREDENTIALS_FILE=" + credentials
	s.Store, err = s.c.Add(ctx, cluster.ObjectServer, listens(address),
		[]string{"ROOT_ACCESS_KEY=" + access, "ROOT_SECRET_KEY=" + secret}, "--port", address, "--quiet", "posix", data)
	if err != nil {
		return "", err
	}
	if err := s.Store.Start(); err != nil {
		return "", err
	}
	return address, s.Store.WaitReady(ctx)
}

// pluginsIn makes a directory with the plugin for S3: Velero takes each program
// in it for one.
func pluginsIn(ctx context.Context, dir string) error {
	plugin, err := cluster.Program(ctx, cluster.VeleroAWS)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return os.Symlink(plugin, filepath.Join(dir, cluster.VeleroAWS))
}

// serve starts the server.
func (s *Server) serve(ctx context.Context, args []string) error {
	metrics, err := s.c.Address(ctx)
	if err != nil {
		return err
	}
	profiles, err := s.c.Address(ctx)
	if err != nil {
		return err
	}
	with := slices.Concat(s.arguments, []string{"--metrics-address", metrics, "--profiler-address", profiles}, args)
	if s.Process, err = s.c.Add(ctx, cluster.Velero, listens(metrics), []string{s.env}, with...); err != nil {
		return err
	}
	if err := s.Start(); err != nil {
		return err
	}
	return s.WaitReady(ctx)
}

// listens asks whether somebody does.
func listens(address string) func(context.Context) error {
	return func(ctx context.Context) error {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
		if err != nil {
			return err
		}
		return conn.Close()
	}
}

// Command runs Velero's command line.
func (s *Server) Command(ctx context.Context, args ...string) ([]byte, error) {
	path, err := cluster.Program(ctx, cluster.Velero)
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, path, append(args, "--kubeconfig", s.kubeconfig, "--namespace", s.namespace)...)
	out, err := cmd.Output()
	if err != nil {
		var said []byte
		if e, is := err.(*exec.ExitError); is { //nolint:errorlint // Output wraps nothing
			said = e.Stderr
		}
		return nil, fmt.Errorf("velero %v: %w: %s", args, err, said)
	}
	return out, nil
}
