package pods

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/plimsoll-dev/plimsoll/names"
)

// OptOuts are annotations or labels, key=value, by which a pod's owner opts out of
// evictions. An owner writes them alone: they are honoured at soft, and at hard
// where the administrator says so.
type OptOuts []string

// DefaultOptOuts are Plimsoll's own, and the class that Katalyst never evicts.
func DefaultOptOuts() OptOuts {
	return OptOuts{names.SkipEviction + "=true", qosLevel + "=system_cores"}
}

// of returns the first opt-out that the pod has as an annotation or label; empty:
// none.
func (o OptOuts) of(pod *corev1.Pod) string {
	for _, optOut := range o {
		key, value, _ := strings.Cut(optOut, "=")
		for _, all := range []map[string]string{pod.Annotations, pod.Labels} {
			if got, there := all[key]; there && got == value {
				return optOut
			}
		}
	}
	return ""
}

// ValidateOptOut returns what is wrong with an entry of OptOuts; nil: nothing.
func ValidateOptOut(optOut string) error {
	key, value, _ := strings.Cut(optOut, "=")
	if value == "" {
		return fmt.Errorf("want key=value, such as plimsoll.dev/skip-eviction=true, got %q", optOut)
	}
	if wrong := validation.IsQualifiedName(key); len(wrong) > 0 {
		return fmt.Errorf("%q is no key of an annotation or label: %s", key, wrong[0])
	}
	return nil
}
