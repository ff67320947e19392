// SPDX-License-Identifier: Apache-2.0

// What runs in the pods of tests/kubernetes/run beside the collector: a client that pushes, a small
// server that nobody protects, and something to sleep.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"slices"
	"sync"
	"syscall"
	"time"
)

// result is what became of the requests of one run.
type result struct {
	Seconds   float64 `json:"seconds"`
	Sent      int     `json:"sent"`
	Served    int     `json:"served"`
	Refused   int     `json:"refused"`
	TimedOut  int     `json:"timed_out"`
	Reset     int     `json:"reset"`
	NoRoute   int     `json:"no_route"`
	HTTPError int     `json:"http_error"`
	Other     int     `json:"other"`
	LastError string  `json:"last_error"`
	P50       float64 `json:"p50_s"`
	P99       float64 `json:"p99_s"`

	mutex sync.Mutex
	times []float64
}

func (r *result) note(took time.Duration, status int, err error) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	r.Sent++
	var timeout net.Error
	switch {
	case err == nil && status/100 == 2:
		r.Served++
		r.times = append(r.times, took.Seconds())
	case err == nil:
		r.HTTPError++
		r.LastError = fmt.Sprint("status ", status)
	case errors.Is(err, syscall.ECONNREFUSED):
		r.Refused++
	case errors.As(err, &timeout) && timeout.Timeout():
		r.TimedOut++
	case errors.Is(err, syscall.ECONNRESET):
		r.Reset++
	case errors.Is(err, syscall.EHOSTUNREACH):
		r.NoRoute++
	default:
		r.Other++
		r.LastError = err.Error()
	}
}

func (r *result) print(start time.Time) {
	r.Seconds = time.Since(start).Seconds()
	if slices.Sort(r.times); len(r.times) > 0 {
		r.P50 = r.times[len(r.times)/2]
		r.P99 = r.times[len(r.times)*99/100]
	}
	json.NewEncoder(os.Stdout).Encode(r)
}

// push sends the Nth request, on a connection of its own: a group of `series` series to a pushgateway,
// or a GET where the URL has a path.
func push(client *http.Client, base string, get bool, groups, series, n int) (int, error) {
	method, url := http.MethodGet, base
	var body bytes.Buffer
	if !get {
		method, url = http.MethodPut, fmt.Sprintf("%s/metrics/job/load/instance/%d", base, n%groups)
		for s := range series {
			fmt.Fprintf(&body, "load{series=\"%d\"} %d\n", s, n)
		}
	}
	request, err := http.NewRequest(method, url, &body)
	if err != nil {
		return 0, err
	}
	answer, err := client.Do(request)
	if err != nil {
		return 0, err
	}
	answer.Body.Close()
	return answer.StatusCode, nil
}

// load sends at a rate, whatever becomes of those before (-rate), or from a number of clients that each
// wait for the answer (-clients), and prints a result.
func load(ctx context.Context, arguments []string) {
	flags := flag.NewFlagSet("load", flag.ExitOnError)
	rate := flags.Float64("rate", 0, "requests a second, open loop")
	clients := flags.Int("clients", 0, "clients, closed loop")
	duration := flags.Duration("duration", 10*time.Second, "how long")
	timeout := flags.Duration("timeout", 2*time.Second, "of one request")
	get := flags.Bool("get", false, "GET the address instead of pushing to it")
	groups := flags.Int("groups", 20, "groups pushed to")
	series := flags.Int("series", 100, "series a push")
	limit := flags.Int("limit", 4000, "requests under way at most")
	flags.Parse(arguments)
	client := &http.Client{Timeout: *timeout, Transport: &http.Transport{DisableKeepAlives: true}}
	one := func(r *result, n int) {
		begin := time.Now()
		status, err := push(client, flags.Arg(0), *get, *groups, *series, n)
		r.note(time.Since(begin), status, err)
	}
	r := &result{}
	start := time.Now()
	end := start.Add(*duration)
	var running sync.WaitGroup
	for c := range *clients {
		running.Add(1)
		go func() {
			defer running.Done()
			for n := c; time.Now().Before(end) && ctx.Err() == nil; n += *clients {
				one(r, n)
			}
		}()
	}
	free := make(chan struct{}, *limit)
	for n := 0; *rate > 0 && ctx.Err() == nil; n++ {
		due := start.Add(time.Duration(float64(n) / *rate * float64(time.Second)))
		if due.After(end) {
			break
		}
		time.Sleep(time.Until(due))
		free <- struct{}{}
		running.Add(1)
		go func() {
			defer running.Done()
			one(r, n)
			<-free
		}()
	}
	running.Wait()
	r.print(start)
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: client {load|serve ADDRESS|sleep}")
		os.Exit(2)
	}
	switch os.Args[1] {
	case "load":
		load(ctx, os.Args[2:])
	case "serve":
		go http.ListenAndServe(os.Args[2], http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprintln(w, "ok")
		}))
		<-ctx.Done()
	case "sleep":
		<-ctx.Done()
	default:
		fmt.Fprintln(os.Stderr, "unknown:", os.Args[1])
		os.Exit(2)
	}
}
