package pods

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The records that the API server keeps of a pod's creation, as it writes them.
const (
	recordOfPlaced = `{"f:spec":{"f:containers":{"k:{\"name\":\"a\"}":{".":{},"f:image":{},"f:name":{},"f:resources":{}}},"f:restartPolicy":{}}}`
	recordOfNamed  = `{"f:spec":{"f:containers":{"k:{\"name\":\"a\"}":{".":{},"f:image":{},"f:name":{}}},"f:nodeName":{}}}`
	recordOfStatus = `{"f:status":{"f:conditions":{".":{},"k:{\"type\":\"PodScheduled\"}":{".":{},"f:status":{}}}}}`
	recordOfLabel  = `{"f:metadata":{"f:labels":{".":{},"f:a":{}}}}`
)

func record(fields, subresource string) metav1.ManagedFieldsEntry {
	return metav1.ManagedFieldsEntry{Manager: "m", Operation: "Update", APIVersion: "v1", FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(fields), Subresource: subresource}
}

// made is a pod that nothing protects: a ReplicaSet's, placed by a scheduler.
func made(changes ...func(*corev1.Pod)) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: "web-1", Namespace: "shop", UID: "u1",
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web", UID: "r1", Controller: new(true)}},
			ManagedFields:   []metav1.ManagedFieldsEntry{record(recordOfStatus, "status"), record(recordOfPlaced, "")},
		},
		Spec: corev1.PodSpec{
			NodeName:   "n1",
			Priority:   new(int32(1000)),
			Containers: []corev1.Container{{Name: "a"}},
		},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, QOSClass: corev1.PodQOSBurstable},
	}
	for _, change := range changes {
		change(pod)
	}
	return pod
}

func annotated(key, value string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { metav1.SetMetaDataAnnotation(&p.ObjectMeta, key, value) }
}

func labelled(key, value string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { metav1.SetMetaDataLabel(&p.ObjectMeta, key, value) }
}

func prioritized(value int32) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Spec.Priority = &value }
}

func in(namespace string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Namespace = namespace }
}

func owned(owners ...metav1.OwnerReference) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.OwnerReferences = owners }
}

func recorded(entries ...metav1.ManagedFieldsEntry) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.ManagedFields = entries }
}

func selecting(key, value string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{key: value} }
}

func requiring(terms ...corev1.NodeSelectorTerm) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: terms},
		}}
	}
}

func claiming(names ...string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		for _, name := range names {
			p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: "v-" + name, VolumeSource: corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name},
			}})
		}
	}
}

func scratch(volume string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: volume, VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}})
	}
}

// static is a pod as a kubelet shows a static one, of node n1.
func static(hash string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		annotated(configMirror, hash)(p)
		annotated(configHash, hash)(p)
		p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: "n1", UID: "node", Controller: new(true)}}
	}
}

// mover is a pod as Velero's node-agent makes one for a load.
func mover(label, kind string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		labelled("velero.io/"+label, "it")(p)
		p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "velero.io/v2alpha1", Kind: kind, Name: "it", UID: "load", Controller: new(true)}}
	}
}

func codes(all []Protection) []string {
	var found []string
	for _, p := range all {
		found = append(found, p.Code)
	}
	return found
}

func owner(apiVersion, kind string, controller *bool) metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: apiVersion, Kind: kind, Name: "o1", UID: "o", Controller: controller}
}

func TestProtections(t *testing.T) {
	local := claimsByName{"data": {known: true, onlyHere: "its volume pv1 is a disk of this node (local /mnt/d1)"}}
	remote := claimsByName{"data": {known: true}, "web-1-tmp": {known: true}}
	denied := claimsByName{"data": {why: errors.New("get claim shop/data: forbidden")}}
	for what, row := range map[string]struct {
		pod    *corev1.Pod
		claims claimsByName
		codes  []string
		why    string // part of the reason: the fact that decided
	}{
		"an ordinary pod":                   {pod: made()},
		"a pod without a node":              {pod: made(func(p *corev1.Pod) { p.Spec.NodeName, p.ManagedFields = "", nil })},
		"static":                            {pod: made(static("0123")), codes: []string{Static, NoController}, why: "n1"},
		"static, with an empty value":       {pod: made(static("")), codes: []string{Static, NoController}, why: configMirror},
		"a hash alone is not static":        {pod: made(annotated(configHash, "0123"))},
		"priority at the limit":             {pod: made(prioritized(2_000_000_000)), codes: []string{Critical}, why: "2000000000"},
		"priority of the system":            {pod: made(prioritized(2_000_001_000)), codes: []string{Critical}, why: "2000001000"},
		"priority one below the limit":      {pod: made(prioritized(1_999_999_999))},
		"no priority":                       {pod: made(func(p *corev1.Pod) { p.Spec.Priority = nil })},
		"of a DaemonSet":                    {pod: made(owned(owner("apps/v1", "DaemonSet", new(true)))), codes: []string{DaemonSet}, why: "o1"},
		"of another API's DaemonSet":        {pod: made(owned(owner("apps.kruise.io/v1alpha1", "DaemonSet", new(true))))},
		"a DaemonSet as a mere owner":       {pod: made(owned(owner("apps/v1", "DaemonSet", nil))), codes: []string{NoController}},
		"of a Job":                          {pod: made(owned(owner("batch/v1", "Job", new(true))))},
		"the controller comes second":       {pod: made(owned(owner("v1", "ConfigMap", nil), owner("batch/v1", "Job", new(true))))},
		"nobody's":                          {pod: made(owned()), codes: []string{NoController}, why: "0 ownerReferences"},
		"owned, not controlled":             {pod: made(owned(owner("v1", "ConfigMap", nil))), codes: []string{NoController}, why: "1 ownerReferences"},
		"controller: false":                 {pod: made(owned(owner("apps/v1", "ReplicaSet", new(false)))), codes: []string{NoController}},
		"a Node as its controller":          {pod: made(owned(owner("v1", "Node", new(true)))), codes: []string{NoController}},
		"some API's own Node":               {pod: made(owned(owner("example.org/v1", "Node", new(true))))},
		"its creator named the node":        {pod: made(recorded(record(recordOfNamed, ""))), codes: []string{OnlyHere}, why: "n1"},
		"named by a later owner too":        {pod: made(recorded(record(recordOfPlaced, ""), record(`{"f:spec":{"f:nodeName":{}}}`, ""))), codes: []string{OnlyHere}},
		"the record is not readable":        {pod: made(recorded(record(`{"f:spec":`, "")))},
		"hostname in nodeSelector":          {pod: made(selecting(corev1.LabelHostname, "h1")), codes: []string{OnlyHere}, why: "h1"},
		"a pool in nodeSelector":            {pod: made(selecting("pool", "n1"))},
		"one hostname required":             {pod: made(requiring(expr(host("In", "h1")))), codes: []string{OnlyHere}, why: `"h1"`},
		"one of two hostnames":              {pod: made(requiring(expr(host("In", "h1", "h2"))))},
		"the node by its name":              {pod: made(requiring(field("In", "n1"))), codes: []string{OnlyHere}, why: `"n1"`},
		"local volume":                      {pod: made(claiming("data")), claims: local, codes: []string{OnlyHere}, why: "/mnt/d1"},
		"volume of the network":             {pod: made(claiming("data")), claims: remote},
		"another claim's volume is local":   {pod: made(claiming("other")), claims: claimsByName{"other": {known: true}, "data": local["data"]}},
		"claim not looked up yet":           {pod: made(claiming("data")), codes: []string{Unresolved}, why: "not looked up"},
		"claim that nobody may read":        {pod: made(claiming("data")), claims: denied, codes: []string{Unresolved}, why: "get claim shop/data: forbidden"},
		"ephemeral volume, local":           {pod: made(scratch("tmp")), claims: claimsByName{"web-1-tmp": local["data"]}, codes: []string{OnlyHere}},
		"ephemeral volume, of the network":  {pod: made(scratch("tmp")), claims: remote},
		"ephemeral volume, not looked up":   {pod: made(scratch("tmp")), claims: claimsByName{"tmp": {known: true}}, codes: []string{Unresolved}, why: "web-1-tmp"},
		"a directory of the host, no claim": {pod: made(func(p *corev1.Pod) { p.Spec.Volumes = []corev1.Volume{{Name: "d"}} })},
		"in kube-system":                    {pod: made(in("kube-system")), codes: []string{Namespace}, why: "kube-system"},
		"in velero":                         {pod: made(in("velero")), codes: []string{Namespace}},
		"in Plimsoll's namespace":           {pod: made(in("plimsoll-system")), codes: []string{Namespace}},
		"in a namespace named like it":      {pod: made(in("kube-system-2"))},
		"a data upload":                     {pod: made(mover("data-upload", "DataUpload")), codes: []string{Mover}, why: `"it"`},
		"a data download":                   {pod: made(mover("data-download", "DataDownload")), codes: []string{Mover}},
		"a pod volume backup":               {pod: made(mover("pod-volume-backup", "PodVolumeBackup")), codes: []string{Mover}},
		"a pod volume restore":              {pod: made(mover("pod-volume-restore", "PodVolumeRestore")), codes: []string{Mover}},
		"a mover without a controller":      {pod: made(mover("data-upload", ""), owned()), codes: []string{Mover, NoController}},
		"a mover's label as an annotation":  {pod: made(annotated("velero.io/data-upload", "du-1"))},
		"backed up by Velero":               {pod: made(labelled("velero.io/backup-name", "b1"))},
		"opted out is not protected":        {pod: made(annotated("plimsoll.dev/skip-eviction", "true"))},
		"a static pod's picture": {
			pod:   made(static("01"), prioritized(2_000_001_000), in("kube-system"), recorded(record(recordOfNamed, ""))),
			codes: []string{Static, Critical, NoController, OnlyHere, Namespace},
		},
		"a mover on one node with two volumes": {
			pod:    made(mover("data-upload", "DataUpload"), selecting(corev1.LabelHostname, "h"), claiming("data", "more")),
			claims: local, codes: []string{Mover, OnlyHere, OnlyHere, Unresolved},
		},
	} {
		t.Run(what, func(t *testing.T) {
			found := protections(row.pod, row.claims, DefaultRules())
			assert.Equal(t, row.codes, codes(found))
			if row.why != "" {
				assert.Contains(t, found[0].Why, row.why)
			}
			for _, p := range found {
				assert.NotContains(t, p.Why, "%!", "a reason with a fault in its form")
				assert.Equal(t, strings.TrimSpace(p.Why), p.Why)
			}
			assert.Equal(t, found, protections(strip(row.pod), row.claims, DefaultRules()), "stripping took away what decides")
		})
	}
}

// maintaining makes it a pod of a job of Velero's server that maintains a backup repository.
func maintaining(p *corev1.Pod) {
	in("velero")(p)
	labelled("velero.io/repo-name", "shop-default-kopia")(p)
	owned(owner("batch/v1", "Job", new(true)))(p)
}

// A maintenance is throttled as a mover is; nothing but its namespace protects it.
func TestMaintenancePod(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*corev1.Pod)
		want   bool
	}{
		"of Velero's job":         {func(*corev1.Pod) {}, true},
		"in another namespace":    {in("shop"), false},
		"of no job":               {owned(), false},
		"of a Job of no such API": {owned(owner("example.org/v1", "Job", new(true))), false},
		"of a ReplicaSet":         {owned(owner("apps/v1", "ReplicaSet", new(true))), false},
		"without the name":        {labelled("velero.io/repo-name", ""), false},
	} {
		t.Run(name, func(t *testing.T) {
			pod := made(maintaining, c.change)
			p := toPod(strip(pod), nil, DefaultRules())
			assert.Equal(t, c.want, p.Maintenance)
			assert.Equal(t, c.want, p.known().Maintenance)
			assert.False(t, p.IsMover())
			assert.NotContains(t, codes(p.Protections), Mover)
		})
	}
	rules := DefaultRules()
	rules.Namespaces = []string{"backups"}
	assert.True(t, toPod(made(maintaining, in("backups")), nil, rules).Maintenance, "where the administrator has Velero")
}

func TestProtectionsConfigured(t *testing.T) {
	rules := Rules{Namespaces: []string{"shop"}, Priority: 500}
	assert.Equal(t, []string{Critical, Namespace}, codes(protections(made(), nil, rules)))
	assert.Empty(t, protections(made(in("kube-system"), prioritized(499)), nil, rules))
}

func TestProtectionsAllNamed(t *testing.T) {
	facts := []struct {
		code   string
		change func(*corev1.Pod)
	}{
		{Mover, mover("data-upload", "DataUpload")},
		{Critical, prioritized(2_000_000_000)},
		{OnlyHere, selecting(corev1.LabelHostname, "n1")},
		{Unresolved, claiming("c")},
		{Namespace, in("velero")},
	}
	for set := range 1 << len(facts) {
		pod := made()
		var want []string
		for i, fact := range facts {
			if set&(1<<i) != 0 {
				fact.change(pod)
				want = append(want, fact.code)
			}
		}
		assert.Equal(t, want, codes(protections(pod, nil, DefaultRules())))
	}
	assert.Len(t, slices.Compact(labelsThatDecide()), 6)
}
