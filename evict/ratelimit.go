package evict

import (
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/plimsoll-dev/plimsoll/pods"
	"github.com/plimsoll-dev/plimsoll/problems"
)

// Limits are the eviction rate limits; they hold whatever the pressure.
type Limits struct {
	PerRound     int `yaml:"perRound" unit:"pods" why:"The most evictions in one round, forced ones included; fewer where fewer release enough."`
	PerMinute    int `yaml:"perMinute" unit:"pods" why:"Eviction rate limit of the node (a token bucket), forced evictions included: a faulty plugin must not empty a node. Without saved state the bucket starts empty."`
	PerOwnerHour int `yaml:"perOwnerHour" unit:"pods" why:"Eviction rate limit of one owner (Deployment, StatefulSet, …) on this node: evicting the same workload again and again does not help."`
}

// maxEvictions bounds every eviction rate limit: one a second for an hour.
const maxEvictions = 3600

// Validate says which values must not be used.
func (l Limits) Validate(at problems.Section) {
	at.Int("perRound", l.PerRound, 1, maxEvictions)
	at.Int("perMinute", l.PerMinute, 1, maxEvictions)
	at.Int("perOwnerHour", l.PerOwnerHour, 1, maxEvictions)
}

// RateLimits are the token buckets of the eviction rate limits. Times are of
// CLOCK_BOOTTIME, which cannot be set. The zero value is unknown, that is empty.
type RateLimits struct {
	// Boot is the boot ID of the times. Times of another boot mean only that
	// they were before this one.
	Boot string `json:"boot,omitempty"`
	// Since is when every bucket that is not stored was empty.
	Since time.Duration `json:"since"`
	// Node and Owners are the time at which each bucket was empty. A bucket is
	// this one number: its tokens are the steps that have passed since.
	Node   time.Duration            `json:"node"`
	Owners map[string]time.Duration `json:"owners,omitempty"`
	// Fallback is the bucket of evictions without the controller.
	Fallback time.Duration `json:"alone,omitzero"`
}

// onBoot converts the buckets to this boot. An impossible or unknown bucket is empty.
func (b RateLimits) onBoot(boot string, now time.Duration) RateLimits {
	b.Owners = maps.Clone(b.Owners)
	switch {
	case b.Boot == "":
		return RateLimits{Boot: boot, Since: now, Node: now, Fallback: now}
	case b.Boot != boot:
		return RateLimits{Boot: boot}
	}
	b.Since, b.Node, b.Fallback = min(b.Since, now), min(b.Node, now), min(b.Fallback, now)
	for owner, empty := range b.Owners {
		b.Owners[owner] = min(empty, now)
	}
	return b
}

// tokenBucket is a token bucket: at most size tokens, a new one every step.
type tokenBucket struct {
	size int
	step time.Duration
}

func (l Limits) nodeBucket() tokenBucket {
	return tokenBucket{l.PerMinute, time.Minute / time.Duration(max(1, l.PerMinute))}
}

func (l Limits) ownerBucket() tokenBucket {
	return tokenBucket{l.PerOwnerHour, time.Hour / time.Duration(max(1, l.PerOwnerHour))}
}

// left is the number of tokens.
func (k tokenBucket) left(empty, now time.Duration) int { return min(k.size, int((now-empty)/k.step)) }

// take removes a token and returns the new time at which the bucket was empty.
func (k tokenBucket) take(empty, now time.Duration) time.Duration {
	return max(empty, now-time.Duration(k.size)*k.step) + k.step
}

// next is the time until the next token.
func (k tokenBucket) next(empty, now time.Duration) time.Duration { return empty + k.step - now }

func (b RateLimits) emptyOf(owner string) time.Duration {
	if empty, kept := b.Owners[owner]; kept {
		return empty
	}
	return b.Since
}

// spend takes a token for a pod from the node's and the owner's bucket. Full
// owner buckets are dropped.
func (b RateLimits) spend(l Limits, p *pods.Pod, now time.Duration) RateLimits {
	b.Owners = maps.Clone(b.Owners)
	maps.DeleteFunc(b.Owners, func(_ string, empty time.Duration) bool {
		return empty <= b.Since || l.ownerBucket().left(empty, now) >= l.PerOwnerHour
	})
	if b.Owners == nil {
		b.Owners = map[string]time.Duration{}
	}
	b.Owners[ownerOf(p)] = l.ownerBucket().take(b.emptyOf(ownerOf(p)), now)
	b.Node = l.nodeBucket().take(b.Node, now)
	return b
}

// spent tells whether a token was taken from buckets that began empty.
func (b RateLimits) spent() bool {
	return len(b.Owners) > 0 || b.Node != b.Since || b.Fallback != b.Since
}

// refund returns the tokens of a pod that was not evicted.
func (b RateLimits) refund(l Limits, c *Chosen) RateLimits {
	b.Owners = maps.Clone(b.Owners)
	if _, kept := b.Owners[c.Owner]; kept {
		b.Owners[c.Owner] -= l.ownerBucket().step
		b.Node -= l.nodeBucket().step
	}
	if c.Fallback {
		b.Fallback -= fallbackBucket().step
	}
	return b
}

func ownerOf(p *pods.Pod) string { return Owner(p.Namespace, p.Owner.Kind, p.Owner.Name) }

// Owner names the workload that a pod belongs to, by its controller. Objects that
// one workload recreates under new names (the ReplicaSets of a Deployment, the
// Jobs of a CronJob) give the same name.
func Owner(namespace, kind, name string) string {
	if kind == "ReplicaSet" || kind == "Job" {
		if cut := strings.LastIndex(name, "-"); cut > 0 {
			name = name[:cut]
		}
	}
	return namespace + "/" + kind + "/" + name
}

// nodeRateLimit is why the node's eviction rate limit allows no eviction now; empty when
// it allows one.
func nodeRateLimit(in Input, b RateLimits) (Code, string) {
	k := in.Config.Limits.nodeBucket()
	if k.left(b.Node, in.Uptime) > 0 {
		return "", ""
	}
	return CodeRateLimit, fmt.Sprintf("eviction rate limit of this node reached (%d per minute); next eviction possible at %s",
		k.size, clock(in.Time.Add(k.next(b.Node, in.Uptime))))
}
