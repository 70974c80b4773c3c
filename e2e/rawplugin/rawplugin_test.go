package rawplugin_test

import (
	"context"
	"net"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/testing/protocmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/plimsoll-dev/plimsoll/e2e/rawplugin"
	"github.com/plimsoll-dev/plimsoll/katalyst/v1alpha1"
)

func TestRawPluginSpeaksGRPC(t *testing.T) {
	p := &rawplugin.Plugin{Name: "raw", Level: 2}
	conn := serve(t, p)
	host := registration.NewRegistrationClient(conn)
	info, err := host.GetInfo(t.Context(), &registration.InfoRequest{})
	require.NoError(t, err)
	assert.Empty(t, cmp.Diff(&registration.PluginInfo{
		Type: "EvictionPlugin", Name: "raw", SupportedVersions: []string{"v1alpha1"},
	}, info, protocmp.Transform()))

	_, err = host.NotifyRegistrationStatus(t.Context(), &registration.RegistrationStatus{Error: "no"})
	require.NoError(t, err)
	is, why := p.Registered()
	assert.False(t, is)
	assert.Equal(t, "no", why)
	_, err = host.NotifyRegistrationStatus(t.Context(), &registration.RegistrationStatus{PluginRegistered: true})
	require.NoError(t, err)
	is, why = p.Registered()
	assert.True(t, is)
	assert.Empty(t, why)

	plugin := v1alpha1.NewEvictionPluginClient(conn)
	_, err = plugin.GetToken(t.Context(), &v1alpha1.Empty{})
	assert.Equal(t, codes.Unimplemented, status.Code(err))
	met, err := plugin.ThresholdMet(t.Context(), &v1alpha1.GetThresholdMetRequest{})
	require.NoError(t, err)
	assert.Empty(t, cmp.Diff(&v1alpha1.ThresholdMetResponse{
		ThresholdValue: 1, ObservedValue: 1, ThresholdOperator: v1alpha1.ThresholdOperator_GREATER_THAN,
		MetType: v1alpha1.ThresholdMetType_HARD_MET, EvictionScope: "/dev/raw (a scope of any text)",
		Condition: &v1alpha1.Condition{Effects: []string{"NoSchedule"}, ConditionName: "RawPressure", MetCondition: true},
	}, met, protocmp.Transform()))
	assert.Equal(t, []string{
		"/pluginregistration.Registration/GetInfo", "/pluginregistration.Registration/NotifyRegistrationStatus",
		"/pluginregistration.Registration/NotifyRegistrationStatus", "/evictionplugin.v1alpha1.EvictionPlugin/GetToken",
		"/evictionplugin.v1alpha1.EvictionPlugin/ThresholdMet",
	}, p.Calls())
}

// Far more than the window that HTTP/2 begins with.
func TestRawPluginReadsManyPods(t *testing.T) {
	conn := serve(t, &rawplugin.Plugin{Name: "raw"})
	var pods [][]byte
	for i := range 200 {
		b, err := (&corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Name: "p", UID: types.UID(rune('a' + i)), Annotations: map[string]string{"bulk": strings.Repeat("x", 20<<10)},
		}}).Marshal()
		require.NoError(t, err)
		pods = append(pods, b)
	}
	for _, n := range []uint64{0, 1, 3} {
		got, err := v1alpha1.NewEvictionPluginClient(conn).GetTopEvictionPods(t.Context(), &v1alpha1.GetTopEvictionPodsRequest{
			ActivePods: pods[:50], TopN: n,
		})
		require.NoError(t, err)
		require.Len(t, got.GetTargetPods(), int(n))
		for i, b := range got.GetTargetPods() {
			var p corev1.Pod
			require.NoError(t, p.Unmarshal(b))
			assert.Equal(t, types.UID(rune('a'+i)), p.UID)
		}
	}
	_, err := v1alpha1.NewEvictionPluginClient(conn).GetEvictPods(t.Context(), &v1alpha1.GetEvictPodsRequest{ActivePods: pods})
	require.NoError(t, err)
}

func serve(t *testing.T, p *rawplugin.Plugin) *grpc.ClientConn {
	t.Helper()
	path := filepath.Join(t.TempDir(), "raw.sock")
	l, err := net.Listen("unix", path)
	require.NoError(t, err)
	done := make(chan error, 1)
	go func() { done <- p.Serve(l) }()
	conn, err := grpc.NewClient("passthrough:///raw", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", path)
		}))
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, conn.Close())
		require.NoError(t, l.Close())
		require.NoError(t, <-done)
	})
	return conn
}
