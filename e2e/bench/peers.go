package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"strconv"
	"time"
)

// nodeExporter measures node_exporter with its default collectors beside what
// the agent used.
func nodeExporter(ctx context.Context, o *options, w *world, ours window) (rows []Row, err error) {
	o.say("node_exporter")
	address, err := freePort(ctx)
	if err != nil {
		return nil, err
	}
	programs, err := peerPrograms(ctx, o)
	if err != nil {
		return nil, err
	}
	p, err := w.startIn("node_exporter", filepath.Join(programs, "node_exporter"), "--web.listen-address="+address)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, p.end()) }()
	url := "http://" + address + "/metrics"
	if err := p.answers(ctx, url); err != nil {
		return nil, err
	}
	for _, every := range []time.Duration{time.Second, scrapePeriod} {
		used, err := p.watch(ctx, url, max(o.window/2, 2*every), every, unseen)
		if err != nil {
			return nil, err
		}
		row := Row{
			What: fmt.Sprintf("beside node_exporter scraped every %s", every), Ours: oursPerSecond(ours, len(w.pods)),
			Peer: fmt.Sprintf("%s a scrape, %s a second; %s", short(used.cpu/time.Duration(max(used.scrapes, 1))), short(used.perSecond()), mebibytes(used.memory)),
		}
		if ours.cpu > 0 {
			row.Ratio = cheaper(over(used.perSecond(), ours.perSecond()))
		}
		rows = append(rows, row)
	}
	return rows, nil
}

func oursPerSecond(ours window, pods int) string {
	if ours.cpu == 0 {
		return ""
	}
	return fmt.Sprintf("the whole agent, %d pods at one sample a second: %s a second", pods, short(ours.perSecond()))
}

// cAdvisor measures cAdvisor's manager on the world's pods, once a second as we
// sample.
func cAdvisor(ctx context.Context, o *options, w *world, ours window) (rows []Row, err error) {
	o.say("cAdvisor")
	address, err := freePort(ctx)
	if err != nil {
		return nil, err
	}
	programs, err := peerPrograms(ctx, o)
	if err != nil {
		return nil, err
	}
	p, err := w.startIn("cadvisor", filepath.Join(programs, "cadvisor"), "-listen", address, "-below", w.own.child("pods").Path,
		"-housekeeping_interval=1s", "-max_housekeeping_interval=1s", "-allow_dynamic_housekeeping=false", "-docker_only=false")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, p.end()) }()
	url := "http://" + address + "/containers"
	if err := p.answers(ctx, url); err != nil {
		return nil, err
	}
	if err := wait(ctx, o.window/3); err != nil { // it finds them one by one
		return nil, err
	}
	body, err := scrape(ctx, url)
	if err != nil {
		return nil, err
	}
	m := regexp.MustCompile(`^(\d+)\n$`).FindSubmatch(body)
	if m == nil {
		return nil, fmt.Errorf("cadvisor says %q", body)
	}
	containers, err := strconv.Atoi(string(m[1]))
	if err != nil || containers < len(w.pods) {
		return nil, errors.Join(fmt.Errorf("cadvisor sees %d cgroups of %d pods", containers, len(w.pods)), err)
	}
	used, err := p.watch(ctx, url, o.window, 2*o.window, unseen)
	if err != nil {
		return nil, err
	}
	row := Row{
		What: "beside cAdvisor: CPU a cgroup and second", Peer: fmt.Sprintf("%s (%d cgroups, %s a second; %s)",
			short(used.perSecond()/time.Duration(containers)), containers, short(used.perSecond()), mebibytes(used.memory)),
	}
	if ours.cpu > 0 {
		row.Ours = fmt.Sprintf("%s a pod and second, %s a second in all", short(ours.perSecond()/time.Duration(len(w.pods))), short(ours.perSecond()))
		row.Ratio = cheaper(over(used.perSecond(), ours.perSecond()))
	}
	return []Row{row}, nil
}
