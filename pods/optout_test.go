package pods

import (
	"testing"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
)

func TestOptOuts(t *testing.T) {
	const skip = "plimsoll.dev/skip-eviction"
	site := append(DefaultOptOuts(), "example.com/keep=yes")
	for name, row := range map[string]struct {
		optOuts OptOuts
		change  func(*corev1.Pod)
		want    string
	}{
		"by annotation":              {DefaultOptOuts(), annotated(skip, "true"), skip + "=true"},
		"by label":                   {DefaultOptOuts(), labelled(skip, "true"), skip + "=true"},
		"opted in":                   {DefaultOptOuts(), annotated(skip, "false"), ""},
		"another spelling":           {DefaultOptOuts(), annotated(skip, "True"), ""},
		"Katalyst's system cores":    {DefaultOptOuts(), annotated(qosLevel, "system_cores"), qosLevel + "=system_cores"},
		"Katalyst's shared cores":    {DefaultOptOuts(), annotated(qosLevel, "shared_cores"), ""},
		"a key of the site":          {site, labelled("example.com/keep", "yes"), "example.com/keep=yes"},
		"of another site":            {DefaultOptOuts(), labelled("example.com/keep", "yes"), ""},
		"a value with an equal sign": {OptOuts{"a=b=c"}, annotated("a", "b=c"), "a=b=c"},
		"none":                       {nil, annotated(skip, "true"), ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := &Watcher{OptOuts: row.optOuts}
			w.pods = w.newStore()
			assert.NoError(t, w.pods.Add(made(row.change)))
			p := w.List(DefaultRules()).Pods[0]
			assert.Equal(t, row.want, p.OptedOut)
			assert.Empty(t, p.Protections, "an owner's word is no protection")
		})
	}
}

func TestValidateOptOut(t *testing.T) {
	for _, optOut := range DefaultOptOuts() {
		assert.NoError(t, ValidateOptOut(optOut))
	}
	for optOut, want := range map[string]string{
		"plimsoll.dev/skip-eviction": "want key=value", "a=": "want key=value", "": "want key=value",
		"=true": `"" is no key`, "a b=c": `"a b" is no key`,
	} {
		assert.ErrorContains(t, ValidateOptOut(optOut), want)
	}
}
