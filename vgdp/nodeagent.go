package vgdp

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ErrNodeAgent says that Velero's node-agent does not start with a ConfigMap.
var ErrNodeAgent = errors.New("node-agent ConfigMap")

// NodeAgent is the configuration of Velero's node-agents, the one JSON value of the
// ConfigMap that --node-agent-configmap names. It has all keys of Velero 1.18.3, used
// here or not; Velero ignores every other key.
type NodeAgent struct {
	LoadConcurrency    LoadConcurrency      `json:"loadConcurrency"`
	LoadAffinity       []LoadAffinity       `json:"loadAffinity"`
	BackupPVC          map[string]BackupPVC `json:"backupPVC"` // by the source's storage class
	RestorePVC         RestorePVC           `json:"restorePVC"`
	PodResources       PodResources         `json:"podResources"`
	PriorityClassName  string               `json:"priorityClassName"`
	PrivilegedFsBackup bool                 `json:"privilegedFsBackup"`
	CachePVC           CachePVC             `json:"cachePVC"`
	PodAnnotations     map[string]string    `json:"podAnnotations"`
	PodLabels          map[string]string    `json:"podLabels"`
}

// LoadConcurrency is how many data mover loads run on a node, and how many are prepared
// in the cluster.
type LoadConcurrency struct {
	GlobalConfig       int          `json:"globalConfig"`
	PerNodeConfig      []RuledCount `json:"perNodeConfig"`
	PrepareQueueLength int          `json:"prepareQueueLength"`
}

// RuledCount is a number for the nodes that a selector matches.
type RuledCount struct {
	NodeSelector metav1.LabelSelector `json:"nodeSelector"`
	Number       int                  `json:"number"`
}

// LoadAffinity says where the pods of data movers may run: those of one storage class,
// or with an empty one those of all classes without an entry.
type LoadAffinity struct {
	NodeSelector metav1.LabelSelector `json:"nodeSelector"`
	StorageClass string               `json:"storageClass"`
}

// BackupPVC is the volume that a DataUpload reads from.
type BackupPVC struct {
	StorageClass    string            `json:"storageClass"`
	ReadOnly        bool              `json:"readOnly"`
	SPCNoRelabeling bool              `json:"spcNoRelabeling"`
	Annotations     map[string]string `json:"annotations"`
	SecretNames     []string          `json:"secretNames"`
	ConfigMapNames  []string          `json:"configMapNames"`
}

// RestorePVC is the volume that a DataDownload writes to.
type RestorePVC struct {
	IgnoreDelayBinding bool     `json:"ignoreDelayBinding"`
	SecretNames        []string `json:"secretNames"`
	ConfigMapNames     []string `json:"configMapNames"`
}

// PodResources of data mover pods.
type PodResources struct {
	CPURequest              string `json:"cpuRequest"`
	CPULimit                string `json:"cpuLimit"`
	MemoryRequest           string `json:"memoryRequest"`
	MemoryLimit             string `json:"memoryLimit"`
	EphemeralStorageRequest string `json:"ephemeralStorageRequest"`
	EphemeralStorageLimit   string `json:"ephemeralStorageLimit"`
}

// CachePVC is the volume for a data mover's cache.
type CachePVC struct {
	StorageClass          string `json:"storageClass"`
	ResidentThresholdInMB int64  `json:"residentThresholdInMB"`
}

// PrepareLimit is how many loads may be Accepted or Prepared in the cluster; 0: no
// limit.
func (c *NodeAgent) PrepareLimit() int { return max(0, c.LoadConcurrency.PrepareQueueLength) }

// ReadNodeAgent decodes the data of the ConfigMap name as Velero does. What Velero
// refuses, so that it does not start, is an ErrNodeAgent; the caller then keeps
// the last valid one. What Velero silently ignores is a hint.
func ReadNodeAgent(name string, data map[string]string) (NodeAgent, []Hint, error) {
	refuse := func(format string, args ...any) (NodeAgent, []Hint, error) {
		return NodeAgent{}, nil, fmt.Errorf("%w %s: %w", ErrNodeAgent, name, fmt.Errorf(format, args...))
	}
	switch {
	case data == nil:
		return refuse("it has no data")
	case len(data) != 1:
		return refuse("it has %d keys, want exactly one", len(data))
	}
	for key, text := range data {
		var c NodeAgent
		if err := json.Unmarshal([]byte(text), &c); err != nil {
			return refuse("key %s: %w", key, describeJSONError(text, err))
		}
		return c, c.hints(text), nil
	}
	panic("unreachable: data has one key")
}

// describeJSONError names the key or the line that an error of encoding/json is about.
func describeJSONError(text string, err error) error {
	var wrong *json.UnmarshalTypeError
	var syntax *json.SyntaxError
	switch {
	case errors.As(err, &wrong):
		return fmt.Errorf("%s: want %s, got a %s", wrong.Field, wrong.Type, wrong.Value)
	case errors.As(err, &syntax):
		at := min(int(syntax.Offset), len(text))
		return fmt.Errorf("line %d: %w", 1+strings.Count(text[:at], "\n"), err)
	}
	return err
}
