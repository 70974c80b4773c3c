package capabilities

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/rest"

	"github.com/plimsoll-dev/plimsoll/vgdp/gate"
)

const (
	policies   = "/apis/admissionregistration.k8s.io/"
	validating = "validatingadmissionpolicies"
	mutating   = "mutatingadmissionpolicies"
	jobPath    = "/apis/batch/v1/namespaces/plimsoll-system/cronjobs/" + gate.ReleaseHidden
)

// Read what a cluster serves, by discovery, which every authenticated client may read.
// now is the time by the API server's clock.
func Read(ctx context.Context, client rest.Interface, now time.Time) (Cluster, error) {
	var c Cluster
	var server version.Info
	if _, err := get(ctx, client, "/version", &server); err != nil {
		return c, err
	}
	c.Version = server.GitVersion
	for _, v := range []string{"v1", "v1beta1"} {
		if c.Mutating != "" {
			break
		}
		resources, err := served(ctx, client, policies+v)
		if err != nil {
			return c, err
		}
		if slices.Contains(resources, mutating) {
			c.Mutating = v
		}
		if v == "v1" && slices.Contains(resources, validating) {
			c.Validating = v
		}
	}
	of := gate.Resource()
	resources, err := served(ctx, client, "/apis/"+of.Group+"/"+of.Version)
	if err != nil {
		return c, err
	}
	c.Gates = slices.Contains(resources, of.Resource)
	c.Job, err = readJob(ctx, client, now)
	return c, err
}

// served are the resources of a group's version; none if it is not served.
func served(ctx context.Context, client rest.Interface, path string) (names []string, err error) {
	var list metav1.APIResourceList
	if _, err := get(ctx, client, path, &list); err != nil {
		return nil, err
	}
	for i := range list.APIResources {
		names = append(names, list.APIResources[i].Name)
	}
	return names, nil
}

// get an object as JSON; there is false if it does not exist.
func get(ctx context.Context, client rest.Interface, path string, into any) (there bool, err error) {
	b, err := client.Get().AbsPath(path).SetHeader("Accept", "application/json").MaxRetries(0).DoRaw(ctx)
	switch {
	case apierrors.IsNotFound(err):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("%s: %w", path, err)
	}
	if err := json.Unmarshal(b, into); err != nil {
		return false, fmt.Errorf("%s: %w", path, err)
	}
	return true, nil
}

func readJob(ctx context.Context, client rest.Interface, now time.Time) (Job, error) {
	var job batchv1.CronJob
	there, err := get(ctx, client, jobPath, &job)
	switch {
	case apierrors.IsForbidden(err), apierrors.IsUnauthorized(err):
		return Job{Unread: true, Why: "whether CronJob " + gate.ReleaseHidden + " works could not be read"}, nil
	case err != nil:
		return Job{}, err
	case !there:
		return Job{Why: "CronJob " + gate.ReleaseHidden + " is not installed (deploy/release-hidden.yaml)"}, nil
	}
	return judge(&job, now), nil
}

// judge tells whether the CronJob works: it succeeded not long ago. One that cannot start
// its pods, or whose schedule was made longer, does not.
func judge(job *batchv1.CronJob, now time.Time) Job {
	const name = "CronJob " + gate.ReleaseHidden
	last := job.Status.LastSuccessfulTime
	switch {
	case job.Spec.Suspend != nil && *job.Spec.Suspend:
		return Job{Why: name + " is suspended"}
	case last == nil:
		return Job{Why: name + " has not succeeded yet (it runs every " + gate.ReleasePeriod.String() + "; kubectl -n plimsoll-system get jobs)"}
	case now.Sub(last.Time) > 3*gate.ReleasePeriod:
		return Job{Why: name + " has not succeeded since " + last.UTC().Format(time.RFC3339) + " (kubectl -n plimsoll-system get jobs)"}
	}
	return Job{Works: true, Why: name + " releases what no controller does, every " + gate.ReleasePeriod.String()}
}
