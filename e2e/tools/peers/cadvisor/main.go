// Command cadvisor is cAdvisor's own manager with the metrics and plugins that
// a kubelet gives it, on the cgroups below a path. cAdvisor's program itself is
// no module that can be pinned: it is built in a clone of its repository. All
// of cAdvisor's flags that are the library's are taken; /containers tells how
// many cgroups it samples.
package main

import (
	"flag"
	"fmt"
	"net/http"
	"os"
	"time"

	"github.com/google/cadvisor/lib/cache/memory"
	"github.com/google/cadvisor/lib/container"
	_ "github.com/google/cadvisor/lib/container/systemd/install"
	_ "github.com/google/cadvisor/lib/fs/overlay/install"
	_ "github.com/google/cadvisor/lib/fs/tmpfs/install"
	_ "github.com/google/cadvisor/lib/fs/vfs/install"
	"github.com/google/cadvisor/lib/manager"
	"github.com/google/cadvisor/lib/model"
	"github.com/google/cadvisor/lib/utils/sysfs"
)

func main() {
	listen := flag.String("listen", "127.0.0.1:0", "where /containers answers")
	below := flag.String("below", "/", "the cgroup below which all are sampled")
	flag.Parse()
	if err := run(*listen, *below); err != nil {
		fmt.Fprintln(os.Stderr, "cadvisor:", err)
		os.Exit(1)
	}
}

func run(listen, below string) error {
	// As a kubelet has them.
	metrics := container.MetricSet{
		container.CpuUsageMetrics: {}, container.MemoryUsageMetrics: {}, container.DiskIOMetrics: {}, container.NetworkUsageMetrics: {},
		container.ProcessMetrics: {}, container.OOMMetrics: {}, container.PressureMetrics: {},
	}
	m, err := manager.New(memory.New(2*time.Minute, nil), sysfs.NewRealSysFs(), manager.HousekeepingConfigFlags, metrics, []string{below}, nil, "", 0)
	if err != nil {
		return err
	}
	if err := m.Start(); err != nil {
		return err
	}
	http.HandleFunc("/containers", func(w http.ResponseWriter, _ *http.Request) {
		all, err := m.GetContainerInfoV2(below, model.RequestOptions{IdType: "name", Count: 1, Recursive: true})
		if err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, len(all))
	})
	server := &http.Server{Addr: listen, ReadHeaderTimeout: time.Minute}
	return server.ListenAndServe()
}
