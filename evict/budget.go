package evict

import (
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/plimsoll-dev/plimsoll/pods"
)

// Limits are how many evictions there may be, whatever presses.
type Limits struct {
	PerRound     int `yaml:"perRound" unit:"pods" why:"The most evictions in one round, forced ones included; fewer where fewer release enough."`
	PerMinute    int `yaml:"perMinute" unit:"pods" why:"Eviction rate limit of the node (a token bucket), forced evictions included: a faulty plugin must not empty a node. Without saved state the bucket starts empty."`
	PerOwnerHour int `yaml:"perOwnerHour" unit:"pods" why:"Eviction rate limit of one owner (Deployment, StatefulSet, …) on this node: evicting the same workload again and again does not help."`
}

// Budgets are token buckets of the evictions that are left. Their clock is
// CLOCK_BOOTTIME, which nobody can set. The zero value is unknown: empty.
type Budgets struct {
	// Boot is the boot ID of the times; another boot's say nothing of now, but
	// that they were before it.
	Boot string `json:"boot,omitempty"`
	// Since is when every bucket that is not kept was empty.
	Since time.Duration `json:"since"`
	// Node and Owners are when each bucket was empty, or will have been had
	// nothing been taken out of it.
	Node   time.Duration            `json:"node"`
	Owners map[string]time.Duration `json:"owners,omitempty"`
	// Alone is the same of the bucket of those that go without the controller.
	Alone time.Duration `json:"alone,omitzero"`
}

// at brings the buckets to this boot. What cannot be so, and what is not
// known, is empty.
func (b Budgets) at(boot string, now time.Duration) Budgets {
	b.Owners = maps.Clone(b.Owners)
	switch {
	case b.Boot == "":
		return Budgets{Boot: boot, Since: now, Node: now, Alone: now}
	case b.Boot != boot:
		return Budgets{Boot: boot}
	}
	b.Since, b.Node, b.Alone = min(b.Since, now), min(b.Node, now), min(b.Alone, now)
	for owner, empty := range b.Owners {
		b.Owners[owner] = min(empty, now)
	}
	return b
}

// bucket holds size tokens at most, a new one every step.
type bucket struct {
	size int
	step time.Duration
}

func (l Limits) node() bucket {
	return bucket{l.PerMinute, time.Minute / time.Duration(max(1, l.PerMinute))}
}

func (l Limits) owner() bucket {
	return bucket{l.PerOwnerHour, time.Hour / time.Duration(max(1, l.PerOwnerHour))}
}

// left is how many tokens there are.
func (k bucket) left(empty, now time.Duration) int { return min(k.size, int((now-empty)/k.step)) }

// take one out: when the bucket was empty then.
func (k bucket) take(empty, now time.Duration) time.Duration {
	return max(empty, now-time.Duration(k.size)*k.step) + k.step
}

// next is in how long there is one.
func (k bucket) next(empty, now time.Duration) time.Duration { return empty + k.step - now }

func (b Budgets) owned(owner string) time.Duration {
	if empty, kept := b.Owners[owner]; kept {
		return empty
	}
	return b.Since
}

// spend takes a token for a pod out of both buckets. Buckets that are full
// again are forgotten.
func (b Budgets) spend(l Limits, p *pods.Pod, now time.Duration) Budgets {
	b.Owners = maps.Clone(b.Owners)
	maps.DeleteFunc(b.Owners, func(_ string, empty time.Duration) bool {
		return empty <= b.Since || l.owner().left(empty, now) >= l.PerOwnerHour
	})
	if b.Owners == nil {
		b.Owners = map[string]time.Duration{}
	}
	b.Owners[ownerOf(p)] = l.owner().take(b.owned(ownerOf(p)), now)
	b.Node = l.node().take(b.Node, now)
	return b
}

// refund gives a token back that was not used.
func (b Budgets) refund(l Limits, owner string) Budgets {
	b.Owners = maps.Clone(b.Owners)
	if _, kept := b.Owners[owner]; kept {
		b.Owners[owner] -= l.owner().step
		b.Node -= l.node().step
	}
	return b
}

func ownerOf(p *pods.Pod) string { return Owner(p.Namespace, p.Owner.Kind, p.Owner.Name) }

// Owner names the workload that a pod belongs to, by its controller. What is
// made anew under another name or UID by the same workload (the ReplicaSet of a
// rollout, the Job of a CronJob) is the same one.
func Owner(namespace, kind, name string) string {
	if kind == "ReplicaSet" || kind == "Job" {
		if cut := strings.LastIndex(name, "-"); cut > 0 {
			name = name[:cut]
		}
	}
	return namespace + "/" + kind + "/" + name
}

// rate is why the budgets let no pod of the node go now; empty when one may.
func (in Input) rate(m Memory) (Code, string) {
	k := in.Config.Limits.node()
	if k.left(m.Budgets.Node, in.Uptime) > 0 {
		return "", ""
	}
	return CodeRate, fmt.Sprintf("eviction rate limit of this node reached (%d per minute); next eviction possible at %s",
		k.size, in.clockIn(k.next(m.Budgets.Node, in.Uptime)))
}

// ownerRate is the same of the pods of one owner.
func (in Input) ownerRate(m Memory, p *pods.Pod) (Code, string) {
	k, empty := in.Config.Limits.owner(), m.Budgets.owned(ownerOf(p))
	if k.left(empty, in.Uptime) > 0 {
		return "", ""
	}
	return CodeRate, fmt.Sprintf("eviction rate limit of %s on this node reached (%d per hour); next eviction possible at %s",
		ownerOf(p), k.size, in.clockIn(k.next(empty, in.Uptime)))
}

func (in Input) clockIn(d time.Duration) string { return clock(in.Time.Add(d)) }
