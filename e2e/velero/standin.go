package velero

import (
	"context"
	"fmt"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
)

// Resource of Backups.
func Resource() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "velero.io", Version: "v1", Resource: "backups"}
}

// Run is one run of a Backup's work.
type Run struct {
	Name string
	// Begin is when it had become InProgress; End is when its work ended, zero
	// before that.
	Begin, End time.Time
}

// StandIn stands in for Velero's backup controller, and does what that does
// with a Backup's phase (pkg/controller/backup_controller.go of Velero 1.18.3):
// it sees updates to ReadyToStart, never a Backup that was so when it came to
// know of it, and patches without regard to the version that it read. Nothing
// is backed up.
type StandIn struct {
	Client    dynamic.Interface
	Namespace string
	// Workers is --concurrent-backups.
	Workers int
	// Work is a Backup's; it ends with ctx, and the Backup then stays InProgress.
	Work func(ctx context.Context, name string)

	mu   sync.Mutex // guards runs
	runs []Run
}

// Run until ctx is done; what runs then stays InProgress.
func (s *StandIn) Run(ctx context.Context) error {
	factory := dynamicinformer.NewFilteredDynamicSharedInformerFactory(s.Client, 0, s.Namespace, nil)
	informer := factory.ForResource(Resource()).Informer()
	// As controller-runtime does: what failed is done again, later each time.
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[string]())
	defer context.AfterFunc(ctx, queue.ShutDown)()
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		UpdateFunc: func(_, o any) {
			if u, ok := o.(*unstructured.Unstructured); ok && ready(u) {
				queue.Add(u.GetName())
			}
		},
	})
	if err != nil {
		return err
	}
	var workers sync.WaitGroup
	defer workers.Wait()
	for range s.Workers {
		workers.Go(func() {
			for name, ended := queue.Get(); !ended; name, ended = queue.Get() {
				if s.backUp(ctx, name) != nil {
					queue.AddRateLimited(name)
				} else {
					queue.Forget(name)
				}
				queue.Done(name)
			}
		})
	}
	informer.RunWithContext(ctx)
	return nil
}

func ready(u *unstructured.Unstructured) bool {
	phase, _, err := unstructured.NestedString(u.Object, "status", "phase")
	return err == nil && phase == "ReadyToStart"
}

func (s *StandIn) backUp(ctx context.Context, name string) error {
	backups := s.Client.Resource(Resource()).Namespace(s.Namespace)
	u, err := backups.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if !ready(u) {
		return nil
	}
	if err := s.patch(ctx, name, "InProgress"); err != nil {
		return err
	}
	end := s.begin(name)
	s.Work(ctx, name)
	end()
	for ctx.Err() == nil && s.patch(ctx, name, "Completed") != nil { // Velero retries this one
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(100 * time.Millisecond):
		}
	}
	return nil
}

func (s *StandIn) patch(ctx context.Context, name, phase string) error {
	_, err := s.Client.Resource(Resource()).Namespace(s.Namespace).Patch(ctx, name, types.MergePatchType,
		fmt.Appendf(nil, `{"status":{"phase":%q}}`, phase), metav1.PatchOptions{FieldManager: "velero"})
	return err
}

func (s *StandIn) begin(name string) (end func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := len(s.runs)
	s.runs = append(s.runs, Run{Name: name, Begin: time.Now()})
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.runs[at].End = time.Now()
	}
}

// Runs so far, in the order of their beginning.
func (s *StandIn) Runs() []Run {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Run(nil), s.runs...)
}
