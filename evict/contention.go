package evict

import (
	"slices"

	"github.com/plimsoll-dev/plimsoll/plugins"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// maxParties is the number of culprits, and of sufferers, in a decision.
const maxParties = 3

// causes are the verdicts that a decision rests on, with their contention.
func causes(r *evaluation) []Cause {
	list := causesBetween(r.Before, r.Levels)
	for i := range list {
		at := slices.IndexFunc(r.Levels.Verdicts, list[i].isOf)
		if at >= 0 && list[i].Level > plugins.None {
			list[i].Contention = contentionOf(r.Input, r.Levels.Verdicts[at])
			list[i].Credit = r.credits[verdictKey(r.Levels.Verdicts[at])]
		}
	}
	return list
}

// contentionOf is the contention that a verdict is about, shortened and with pod names
// from the API server; nil where there is none.
func contentionOf(in Input, v plugins.Verdict) *snapshot.Contention {
	about := func(c snapshot.Contention) bool {
		return string(c.Resource) == string(v.Resource) && (c.Device == "" || c.Device == v.Scope)
	}
	i := slices.IndexFunc(in.Contention, about)
	if i < 0 {
		return nil
	}
	c := in.Contention[i]
	c.Culprits, c.MoreCulprits = short(c.Culprits, c.MoreCulprits)
	c.Sufferers, c.MoreSufferers = short(c.Sufferers, c.MoreSufferers)
	for i := range c.Culprits {
		setPodName(in.Cluster, &c.Culprits[i].Party)
	}
	for i := range c.Sufferers {
		setPodName(in.Cluster, &c.Sufferers[i].Party)
	}
	return &c
}

// short is a copy of the first elements of a list, and how many more there are.
func short[T any](list []T, more int) ([]T, int) {
	n := min(maxParties, len(list))
	return slices.Clone(list[:n]), more + len(list) - n
}

func setPodName(cluster *Cluster, p *snapshot.Party) {
	if cluster == nil || p.PodUID == "" {
		return
	}
	if pod, known := cluster.Pods.ByCgroupUID(p.PodUID); known {
		p.Name = pod.Namespace + "/" + pod.Name
	}
}
