package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"

	"github.com/plimsoll-dev/plimsoll/e2e/deadline"
)

// kindTime is how long Apply waits for a kind that a CustomResourceDefinition
// just before has brought.
const kindTime = 15 * time.Second

// mapper finds the resource of a kind, and where to send it.
type mapper struct {
	kinds  *restmapper.DeferredDiscoveryRESTMapper
	client dynamic.Interface
}

func newMapper(as *rest.Config) (m mapper, err error) {
	found, err := discovery.NewDiscoveryClientForConfig(as)
	if err != nil {
		return mapper{}, err
	}
	m.kinds = restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(found))
	m.client, err = dynamic.NewForConfig(as)
	return m, err
}

// apply is [Cluster.Apply].
func (m mapper) apply(ctx context.Context, manifests ...[]byte) error {
	for _, manifest := range manifests {
		objects, err := decode(manifest)
		if err != nil {
			return fmt.Errorf("apply: %w", err)
		}
		for _, o := range objects {
			if err := m.applyOne(ctx, o); err != nil {
				return fmt.Errorf("apply %s %s: %w", o.GetKind(), o.GetName(), err)
			}
		}
	}
	return nil
}

func decode(manifest []byte) ([]*unstructured.Unstructured, error) {
	var all []*unstructured.Unstructured
	documents := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(manifest), 4096)
	for {
		o := new(unstructured.Unstructured)
		err := documents.Decode(&o.Object)
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return nil, err
		}
		switch {
		case len(o.Object) == 0: // only comments
		case o.IsList():
			err = o.EachListItem(func(item runtime.Object) error {
				all = append(all, item.(*unstructured.Unstructured))
				return nil
			})
		default:
			all = append(all, o)
		}
		if err != nil {
			return nil, err
		}
	}
}

func (m mapper) applyOne(ctx context.Context, o *unstructured.Unstructured) error {
	mapping, err := m.find(ctx, o)
	if err != nil {
		return err
	}
	to := m.client.Resource(mapping.Resource)
	options := metav1.ApplyOptions{FieldManager: "plimsoll-e2e", Force: true}
	if mapping.Scope.Name() == meta.RESTScopeNameRoot {
		_, err = to.Apply(ctx, o.GetName(), o, options)
		return err
	}
	if o.GetNamespace() == "" {
		o.SetNamespace(metav1.NamespaceDefault)
	}
	_, err = to.Namespace(o.GetNamespace()).Apply(ctx, o.GetName(), o, options)
	return err
}

// find the resource of an object's kind, which the API server may be about to serve.
func (m mapper) find(ctx context.Context, o *unstructured.Unstructured) (mapping *meta.RESTMapping, err error) {
	ctx, cancel := deadline.Context(ctx, kindTime)
	defer cancel()
	kind := o.GroupVersionKind()
	err = until(ctx, kind.String(), func(context.Context) error {
		mapping, err = m.kinds.RESTMapping(kind.GroupKind(), kind.Version)
		if meta.IsNoMatchError(err) {
			m.kinds.Reset()
		}
		return err
	})
	return mapping, err
}
