package pods

import (
	"testing"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

type requirement = corev1.NodeSelectorRequirement

func where(key, operator string, values ...string) requirement {
	return requirement{Key: key, Operator: corev1.NodeSelectorOperator(operator), Values: values}
}

func host(operator string, values ...string) requirement {
	return where(corev1.LabelHostname, operator, values...)
}

func expr(all ...requirement) corev1.NodeSelectorTerm {
	return corev1.NodeSelectorTerm{MatchExpressions: all}
}

func field(operator string, values ...string) corev1.NodeSelectorTerm {
	return corev1.NodeSelectorTerm{MatchFields: []requirement{where("metadata.name", operator, values...)}}
}

func TestAffinityOneNode(t *testing.T) {
	pool := where("pool", "In", "p1")
	for what, row := range map[string]struct {
		terms []corev1.NodeSelectorTerm
		node  string
		one   bool
	}{
		"one hostname":                        {[]corev1.NodeSelectorTerm{expr(host("In", "h1"))}, "h1", true},
		"one hostname and a pool":             {[]corev1.NodeSelectorTerm{expr(pool, host("In", "h1"))}, "h1", true},
		"the same hostname twice":             {[]corev1.NodeSelectorTerm{expr(host("In", "h1", "h1"))}, "h1", true},
		"the node's name":                     {[]corev1.NodeSelectorTerm{field("In", "n1")}, "n1", true},
		"the same host in every term":         {[]corev1.NodeSelectorTerm{expr(host("In", "h1"), pool), expr(host("In", "h1"))}, "h1", true},
		"name and hostname may be one node":   {[]corev1.NodeSelectorTerm{expr(host("In", "h1")), field("In", "n1")}, "n1", true},
		"two lists with one in common":        {[]corev1.NodeSelectorTerm{expr(host("In", "h1", "h2"), host("In", "h3", "h1"))}, "h1", true},
		"two hosts without one":               {[]corev1.NodeSelectorTerm{expr(host("NotIn", "h2"), host("In", "h1", "h2"))}, "h1", true},
		"an empty term beside it":             {[]corev1.NodeSelectorTerm{{}, expr(host("In", "h1"))}, "h1", true},
		"a term that excludes itself":         {[]corev1.NodeSelectorTerm{expr(host("In", "h1")), expr(host("In", "h2"), host("NotIn", "h2"))}, "h1", true},
		"no term matches any node":            {[]corev1.NodeSelectorTerm{{}}, "", true},
		"name in fields, hosts in labels":     {[]corev1.NodeSelectorTerm{{MatchFields: field("In", "n1").MatchFields, MatchExpressions: []requirement{host("In", "h1", "h2")}}}, "n1", true},
		"two hostnames":                       {[]corev1.NodeSelectorTerm{expr(host("In", "h1", "h2"))}, "", false},
		"another host in another term":        {[]corev1.NodeSelectorTerm{expr(host("In", "h1")), expr(host("In", "h2"))}, "", false},
		"a pool in another term":              {[]corev1.NodeSelectorTerm{expr(host("In", "h1")), expr(pool)}, "", false},
		"two names":                           {[]corev1.NodeSelectorTerm{field("In", "n1"), field("In", "n2")}, "", false},
		"every host but one":                  {[]corev1.NodeSelectorTerm{expr(host("NotIn", "h1"))}, "", false},
		"any hostname":                        {[]corev1.NodeSelectorTerm{expr(host("Exists"))}, "", false},
		"every node but one":                  {[]corev1.NodeSelectorTerm{field("NotIn", "n1")}, "", false},
		"a label of the pod's own":            {[]corev1.NodeSelectorTerm{expr(where("example.org/hostname", "In", "h1"))}, "", false},
		"the hostname as a field's name only": {[]corev1.NodeSelectorTerm{{MatchFields: []requirement{host("In", "h1")}}}, "", false},
	} {
		t.Run(what, func(t *testing.T) {
			node, one := onlyNode(&corev1.NodeSelector{NodeSelectorTerms: row.terms})
			assert.Equal(t, row.one, one)
			assert.Equal(t, row.node, node)
		})
	}
}

func TestAffinityPreferredDoesNotBind(t *testing.T) {
	pod := made(func(p *corev1.Pod) {
		p.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
			PreferredDuringSchedulingIgnoredDuringExecution: []corev1.PreferredSchedulingTerm{{Weight: 100, Preference: expr(host("In", "h1"))}},
		}}
	})
	assert.Empty(t, protections(pod, nil, DefaultRules()))
}

func TestVolumeOnlyHere(t *testing.T) {
	volume := func(source corev1.PersistentVolumeSource, terms ...corev1.NodeSelectorTerm) *corev1.PersistentVolume {
		v := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv1"}, Spec: corev1.PersistentVolumeSpec{PersistentVolumeSource: source}}
		if terms != nil {
			v.Spec.NodeAffinity = &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: terms}}
		}
		return v
	}
	csi := corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: "d"}}
	zone := func(key string) corev1.NodeSelectorTerm { return expr(where(key, "In", "z1")) }
	for what, row := range map[string]struct {
		volume *corev1.PersistentVolume
		why    string // empty: any node can use it
	}{
		"local":                        {volume(corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: "/mnt/d1"}}, expr(host("In", "h1"))), "local /mnt/d1"},
		"hostPath":                     {volume(corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/data"}}), "hostPath /data"},
		"CSI, one hostname":            {volume(csi, expr(host("In", "h1"))), `kubernetes.io/hostname is one of ["h1"]`},
		"CSI, a few hostnames":         {volume(csi, expr(host("In", "h1", "h2"))), `["h1" "h2"]`},
		"CSI, one or another hostname": {volume(csi, expr(host("In", "h1")), expr(host("In", "h2"))), `["h2"]`},
		"CSI, hostname and zone":       {volume(csi, expr(where(corev1.LabelTopologyZone, "In", "z1"), host("In", "h1"))), `["h1"]`},
		"TopoLVM":                      {volume(csi, expr(where("topology.topolvm.io/node", "In", "n1"))), "topology.topolvm.io/node"},
		"OpenEBS":                      {volume(csi, expr(where("openebs.io/nodename", "In", "n1"))), "openebs.io/nodename"},
		"CSI, nothing required":        {volume(csi), ""},
		"CSI, an empty requirement":    {volume(csi, corev1.NodeSelectorTerm{}), ""},
		"a zone of Kubernetes":         {volume(csi, zone(corev1.LabelTopologyZone)), ""},
		"a region of Kubernetes":       {volume(csi, zone(corev1.LabelTopologyRegion)), ""},
		"a zone of EBS":                {volume(csi, zone("topology.ebs.csi.aws.com/zone")), ""},
		"a zone of vSphere":            {volume(csi, zone("topology.csi.vmware.com/k8s-zone")), ""},
		"a location of Hetzner":        {volume(csi, zone("csi.hetzner.cloud/location")), ""},
		"an old zone's key":            {volume(csi, zone(corev1.LabelFailureDomainBetaZone)), ""},
		"a kind of machine":            {volume(csi, zone(corev1.LabelInstanceTypeStable), zone(corev1.LabelArchStable)), ""},
		"one hostname or a zone":       {volume(csi, expr(host("In", "h1")), zone(corev1.LabelTopologyZone)), ""},
		"every host but one":           {volume(csi, expr(host("NotIn", "h1"))), ""},
		"NFS":                          {volume(corev1.PersistentVolumeSource{NFS: &corev1.NFSVolumeSource{}}), ""},
	} {
		t.Run(what, func(t *testing.T) {
			why := volumeOnlyHere(row.volume)
			if row.why == "" {
				assert.Empty(t, why)
				return
			}
			assert.Contains(t, why, row.why)
			assert.Contains(t, why, "pv1")
		})
	}
}

func TestAffinityNothingRequired(t *testing.T) {
	assert.Nil(t, requiredOfNode(nil))
	assert.Nil(t, requiredOfNode(&corev1.Affinity{PodAffinity: &corev1.PodAffinity{}}))
	assert.Nil(t, stripAffinity(&corev1.Affinity{PodAffinity: &corev1.PodAffinity{}}))
	assert.Nil(t, stripAffinity(&corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{}}))
	volume := &corev1.PersistentVolume{}
	assert.Empty(t, volumeOnlyHere(volume))
	volume.Spec.NodeAffinity = &corev1.VolumeNodeAffinity{}
	assert.Empty(t, volumeOnlyHere(volume))
}

func TestVolumeEmptyTerm(t *testing.T) {
	here := expr(host("In", "h1"))
	for _, terms := range [][]corev1.NodeSelectorTerm{{here, {}}, {{}, here}} {
		assert.Contains(t, requiredOnlyHere("pv", &corev1.NodeSelector{NodeSelectorTerms: terms}), "its volume pv can be used only where")
	}
	both := corev1.NodeSelectorTerm{MatchFields: field("In", "n1").MatchFields, MatchExpressions: []requirement{where("pool", "Exists")}}
	assert.NotEmpty(t, requiredOnlyHere("pv", &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{both}}))
	assert.Empty(t, requiredOnlyHere("pv", &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{here, expr(where("topology.kubernetes.io/zone", "In", "a"))}}))
}
