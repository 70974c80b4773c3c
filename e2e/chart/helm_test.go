package chart_test

import (
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/plimsoll-dev/plimsoll/e2e/chart"
)

func named(t *testing.T, list []*unstructured.Unstructured, name string) *unstructured.Unstructured {
	t.Helper()
	for _, o := range list {
		if chart.NameOf(o) == name {
			return o
		}
	}
	t.Fatalf("there is no %s", name)
	return nil
}
