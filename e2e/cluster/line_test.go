package cluster_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/plimsoll-dev/plimsoll/e2e/cluster"
)

func TestLineDelaysAPIServer(t *testing.T) {
	long(t)
	o := bare()
	o.APIServers, o.Lines = 2, true
	c := cluster.New(t, o)
	slow := c.Lines[1]
	behind := client(t, c.AdminAt(1)).CoreV1().ConfigMaps(metav1.NamespaceDefault)
	write := func(name string) {
		_, err := c.Client.CoreV1().ConfigMaps(metav1.NamespaceDefault).Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	// Its own copy is what it was told.
	knows := func(name string) bool {
		_, err := behind.Get(t.Context(), name, metav1.GetOptions{ResourceVersion: "0"})
		return err == nil
	}
	write("first")
	eventually(t, "it hears", func() bool { return knows("first") })

	const late = 2 * time.Second
	slow.Events.Set(late)
	write("second")
	written := time.Now()
	_, err := behind.Get(t.Context(), "second", metav1.GetOptions{})
	require.NoError(t, err, "it reads what is stored")
	eventually(t, "it hears late", func() bool { return knows("second") })
	assert.GreaterOrEqual(t, time.Since(written), late)

	slow.Events.Set(time.Hour)
	write("third")
	_, err = behind.Get(t.Context(), "third", metav1.GetOptions{})
	require.NoError(t, err)
	assert.False(t, knows("third"))
	slow.Events.Set(0)
	eventually(t, "what was on its way comes at once", func() bool { return knows("third") })

	slow.Writes.Set(late)
	began := time.Now()
	_, err = behind.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "fourth"}}, metav1.CreateOptions{})
	require.NoError(t, err)
	assert.GreaterOrEqual(t, time.Since(began), late)
}
