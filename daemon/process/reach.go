package process

import (
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/plimsoll-dev/plimsoll/files"
)

// ErrNoKubeconfig says that there is neither a kubeconfig nor a service account of a pod.
var ErrNoKubeconfig = errors.New("no kubeconfig: set --kubeconfig, or --standalone to run without a cluster")

// MaxKubeconfig bounds a kubeconfig, in bytes.
const MaxKubeconfig = 16 << 20

// RestConfig is the client configuration of a kubeconfig, or of the pod's service
// account.
func RestConfig(kubeconfig string) (*rest.Config, error) {
	c, err := rest.InClusterConfig()
	if kubeconfig != "" {
		if err := files.Check(kubeconfig, MaxKubeconfig); err != nil { // clientcmd has no bound
			return nil, fmt.Errorf("kubeconfig: %w", err)
		}
		c, err = clientcmd.BuildConfigFromFlags("", kubeconfig)
	}
	switch {
	case errors.Is(err, rest.ErrNotInCluster):
		return nil, ErrNoKubeconfig
	case err != nil:
		return nil, fmt.Errorf("kubeconfig: %w", err)
	}
	c.UserAgent = "plimsoll-agent/" + Version()
	c.ContentType = runtime.ContentTypeProtobuf
	c.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	c.QPS = -1 // no rate limit in the client: rounds limit the requests
	c.WarningHandler = rest.NoWarnings{}
	return c, nil
}
