package chart

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
)

// NameOf an object among all of a cluster.
func NameOf(o *unstructured.Unstructured) string {
	return fmt.Sprintf("%s %s/%s", o.GroupVersionKind().GroupKind(), o.GetNamespace(), o.GetName())
}

// All objects there are, by name, but for those that come and go by themselves.
func All(t testing.TB, admin *rest.Config) map[string]schema.GroupVersionResource {
	t.Helper()
	client, err := dynamic.NewForConfig(admin)
	require.NoError(t, err)
	found, err := discovery.NewDiscoveryClientForConfig(admin)
	require.NoError(t, err)
	groups, err := found.ServerPreferredResources()
	require.NoError(t, err)
	list := map[string]schema.GroupVersionResource{}
	for _, group := range groups {
		version, err := schema.ParseGroupVersion(group.GroupVersion)
		require.NoError(t, err)
		for _, r := range group.APIResources {
			if r.Kind == "Event" || r.Kind == "Endpoints" || !slices.Contains(r.Verbs, "list") || !slices.Contains(r.Verbs, "delete") {
				continue
			}
			of := version.WithResource(r.Name)
			objects, err := client.Resource(of).List(t.Context(), metav1.ListOptions{})
			if apierrors.IsNotFound(err) { // it has just gone
				continue
			}
			require.NoError(t, err, of)
			for i := range objects.Items {
				list[NameOf(&objects.Items[i])] = of
			}
		}
	}
	return list
}

// More is what there is now and was not before.
func More(now, before map[string]schema.GroupVersionResource) (list []string) {
	for name := range now {
		if _, was := before[name]; !was {
			list = append(list, name)
		}
	}
	slices.Sort(list)
	return list
}
