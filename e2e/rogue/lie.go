package main

import (
	"context"
	"fmt"
	"math"
	"strings"

	"google.golang.org/grpc"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/plimsoll-dev/plimsoll/katalyst/v1alpha1"
)

// liar answers each question with what no plugin should say.
type liar struct {
	v1alpha1.UnimplementedEvictionPluginServer
	registration.UnimplementedRegistrationServer
	*rogue
	// bulk is how many bytes its answers are large.
	bulk int
}

func (r *rogue) lie(ctx context.Context) error { return r.answer(ctx, &liar{rogue: r}) }

func (r *rogue) flood(ctx context.Context) error {
	return r.answer(ctx, &liar{rogue: r, bulk: 9 << 20})
}

func (r *rogue) answer(ctx context.Context, l *liar) error {
	listener, err := r.listen(ctx)
	if err != nil {
		return err
	}
	s := grpc.NewServer(grpc.MaxRecvMsgSize(64 << 20))
	v1alpha1.RegisterEvictionPluginServer(s, l)
	registration.RegisterRegistrationServer(s, l)
	return s.Serve(listener)
}

func (l *liar) GetInfo(context.Context, *registration.InfoRequest) (*registration.PluginInfo, error) {
	return &registration.PluginInfo{Type: "EvictionPlugin", Name: l.name, SupportedVersions: []string{"v0", "v1alpha1", "v9"}}, nil
}

func (l *liar) NotifyRegistrationStatus(context.Context, *registration.RegistrationStatus) (*registration.RegistrationStatusResponse, error) {
	return &registration.RegistrationStatusResponse{}, nil
}

// ThresholdMet is soft, or of a type that there is not.
func (l *liar) ThresholdMet(_ context.Context, r *v1alpha1.GetThresholdMetRequest) (*v1alpha1.ThresholdMetResponse, error) {
	absurd := []float64{math.NaN(), math.Inf(1), -1, math.MaxFloat64}
	return &v1alpha1.ThresholdMetResponse{
		ThresholdValue: absurd[l.chance(4)], ObservedValue: absurd[l.chance(4)],
		ThresholdOperator:  v1alpha1.ThresholdOperator(l.chance(100)),
		MetType:            []v1alpha1.ThresholdMetType{v1alpha1.ThresholdMetType_SOFT_MET, 3, 99, -1}[l.chance(4)],
		EvictionScope:      strings.Repeat("scope ", l.chance(10_000)),
		GracePeriodSeconds: []int64{0, -1, math.MinInt64, math.MaxInt64}[l.chance(4)],
		Condition: &v1alpha1.Condition{
			ConditionType: v1alpha1.ConditionType(l.chance(5)), Effects: []string{"NoExecute", "NoSchedule", "Nonsense", ""},
			ConditionName: []string{"Ready", "MemoryPressure", "not a name", strings.Repeat("x", 5000), ""}[l.chance(5)], MetCondition: true,
		},
		CandidatePods: l.forbidden(r.GetActivePods()),
	}, nil
}

func (l *liar) GetTopEvictionPods(_ context.Context, r *v1alpha1.GetTopEvictionPodsRequest) (*v1alpha1.GetTopEvictionPodsResponse, error) {
	return &v1alpha1.GetTopEvictionPodsResponse{TargetPods: l.forbidden(r.GetActivePods()), DeletionOptions: l.deletion()}, nil
}

// GetEvictPods forces those that nobody may evict.
func (l *liar) GetEvictPods(_ context.Context, r *v1alpha1.GetEvictPodsRequest) (*v1alpha1.GetEvictPodsResponse, error) {
	response := &v1alpha1.GetEvictPodsResponse{}
	for _, pod := range l.forbidden(r.GetActivePods()) {
		response.EvictPods = append(response.EvictPods, &v1alpha1.EvictPod{
			Pod: pod, Reason: strings.Repeat("because ", l.chance(5000)), DeletionOptions: l.deletion(), ForceEvict: true,
			EvictionPluginName: "kube-scheduler",
		})
	}
	return response, nil
}

func (l *liar) deletion() *v1alpha1.DeletionOptions {
	return &v1alpha1.DeletionOptions{GracePeriodSeconds: []int64{0, -1, math.MaxInt64}[l.chance(3)]}
}

// forbidden are the pods that it was shown and that do not begin with "fair",
// others that it was not shown, made-up ones, and what is no pod at all; each
// fair one under a UID that is not its own.
func (l *liar) forbidden(shown [][]byte) [][]byte {
	var list [][]byte
	for _, b := range shown {
		var p corev1.Pod
		if p.Unmarshal(b) != nil {
			continue
		}
		if strings.HasPrefix(p.Name, "fair") {
			p.UID += "0"
		}
		p.Labels, p.Annotations, p.OwnerReferences = nil, nil, nil // as if nothing protected it
		p.Namespace, p.Spec.Priority = "default", nil
		list = append(list, encoded(p))
	}
	for i := range 20 {
		list = append(list, encoded(corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("fair-", i), UID: types.UID(fmt.Sprint(l.chance(1 << 30)))}}))
	}
	list = append(list, nil, []byte{0xff, 0xff}, make([]byte, l.bulk))
	if len(list) > 23 {
		list = append(list, list[0], list[0])
	}
	return list
}

func encoded(p corev1.Pod) []byte {
	b, err := p.Marshal()
	if err != nil {
		return nil
	}
	return b
}
