package velero

import (
	"context"
	"fmt"
	"net"
	"net/url"
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
	"github.com/plimsoll-dev/plimsoll/e2e/deadline"
)

// Server is a real Velero server, that backs up into a real object store on
// loopback. It is in a network namespace of its own, for one of its ports cannot
// be chosen.
type Server struct {
	*cluster.Process
	// Store is the object store, versitygw over a directory.
	Store *cluster.Process

	c                     *cluster.Cluster
	namespace, kubeconfig string
	// What it is started with.
	arguments, env []string
	store          string // where it is
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
	ctx, cancel := deadline.Context(ctx, startTime)
	defer cancel()
	s := &Server{c: c, namespace: namespace, kubeconfig: c.Kubeconfig}
	crds, err := s.Command(ctx, "install", "--crds-only", "--dry-run", "-o", "yaml")
	if err != nil {
		return nil, err
	}
	if err := c.Apply(ctx, crds); err != nil {
		return nil, err
	}
	if err := s.startStore(ctx, dir); err != nil {
		return nil, err
	}
	if err := c.Apply(ctx, fmt.Appendf(nil, location, namespace, s.store)); err != nil {
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

// Bucket is the directory of a server's backups, below the one that it was given.
const Bucket = "store/backups"

// startStore starts the object store.
func (s *Server) startStore(ctx context.Context, dir string) (err error) {
	if s.store, err = s.c.Address(ctx); err != nil {
		return err
	}
	bucket := filepath.Join(dir, Bucket)
	if err := os.MkdirAll(bucket, 0o755); err != nil {
		return err
	}
	credentials := filepath.Join(dir, "credentials")
	text := fmt.Sprintf("[default]\naws_access_key_id=%s\naws_secret_access_key=%s\n", access, secret)
	if err := os.WriteFile(credentials, []byte(text), 0o600); err != nil {
		return err
	}
	// It looks at a snapshot again after 1 s, not 5.
	s.env = []string{"AWS_SHARED_CREDENTIALS_FILE=" + credentials, "CSI_SNAPSHOT_EARLY_FREQUENT_POLLING=true"}
	s.Store, err = s.c.Add(ctx, cluster.ObjectServer, listens(s.store),
		[]string{"ROOT_ACCESS_KEY=" + access, "ROOT_SECRET_KEY=" + secret}, "--port", s.store, "--quiet", "posix", filepath.Dir(bucket))
	if err != nil {
		return err
	}
	if err := s.Store.Start(); err != nil {
		return err
	}
	return s.Store.WaitReady(ctx)
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
func (s *Server) serve(ctx context.Context, args []string) (err error) {
	api, err := url.Parse(s.c.Admin.Host)
	if err != nil {
		return err
	}
	if s.Process, err = s.c.Add(ctx, cluster.Velero, nil, s.env, slices.Concat(s.arguments, args)...); err != nil {
		return err
	}
	s.Apart(api.Host, s.store)
	s.ReadyWhen(works(s.Process))
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
