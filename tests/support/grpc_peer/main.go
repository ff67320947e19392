// SPDX-License-Identifier: Apache-2.0

// Command grpc_peer is both ends of unary gRPC calls for tests, on grpc-go of Debian 12. Messages are
// raw octets, so that no code has to be generated.
//
//	grpc_peer serve ADDRESS [MAX_MESSAGE_BYTES [WORK_KIB]]
//	    prints "ready" when it listens, serves until its standard input ends, then prints METHOD COUNT
//	    for each method called; each call of an Export costs the SHA-256 of so many KiB
//	grpc_peer call ADDRESS METHOD CALLS PARALLEL BYTES [gzip] [pause=MS]
//	    calls on one connection, prints STATUS COUNT for each status; each of the PARALLEL callers
//	    pauses between two calls
package main

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"net"
	"os"
	"sort"
	"strconv"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/status"
)

// octets takes the place of protobuf: a message is what it is.
type octets struct{}

func (octets) Marshal(v interface{}) ([]byte, error) { return *v.(*[]byte), nil }
func (octets) Unmarshal(data []byte, v interface{}) error {
	*v.(*[]byte) = append([]byte(nil), data...)
	return nil
}
func (octets) Name() string { return "proto" }

type counts struct {
	sync.Mutex
	of map[string]int
}

func (c *counts) add(name string) {
	c.Lock()
	defer c.Unlock()
	c.of[name]++
}

func (c *counts) print() {
	names := []string{}
	for name := range c.of {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		fmt.Println(name, c.of[name])
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

func number(text string) int {
	n, err := strconv.Atoi(text)
	if err != nil {
		fail(err)
	}
	return n
}

func work(kib int) {
	block := make([]byte, 1024)
	hash := sha256.New()
	for i := 0; i < kib; i++ {
		hash.Write(block)
	}
	hash.Sum(nil)
}

func serve(arguments []string) {
	listener, err := net.Listen("tcp", arguments[0])
	if err != nil {
		fail(err)
	}
	calls := &counts{of: map[string]int{}}
	options := []grpc.ServerOption{}
	if len(arguments) > 1 {
		options = append(options, grpc.MaxRecvMsgSize(number(arguments[1])))
	}
	kib := 0
	if len(arguments) > 2 {
		kib = number(arguments[2])
	}
	server := grpc.NewServer(options...)
	for service, method := range map[string]string{
		"opentelemetry.proto.collector.trace.v1.TraceService": "Export",
		"opentelemetry.proto.collector.logs.v1.LogsService":   "Export",
		"grpc.health.v1.Health":                               "Check",
	} {
		full, costs := "/"+service+"/"+method, method == "Export"
		handler := func(_ interface{}, _ context.Context, decode func(interface{}) error,
			_ grpc.UnaryServerInterceptor) (interface{}, error) {
			var request []byte
			if err := decode(&request); err != nil {
				return nil, err
			}
			calls.add(full)
			if costs {
				work(kib)
			}
			return &[]byte{}, nil
		}
		server.RegisterService(&grpc.ServiceDesc{
			ServiceName: service,
			HandlerType: (*interface{})(nil),
			Methods:     []grpc.MethodDesc{{MethodName: method, Handler: handler}},
		}, struct{}{})
	}
	fmt.Println("ready") // it listens
	go func() {
		io.Copy(io.Discard, os.Stdin)
		server.Stop()
	}()
	if err := server.Serve(listener); err != nil {
		fail(err)
	}
	calls.print()
}

func call(arguments []string) {
	address, method := arguments[0], arguments[1]
	total, parallel, size := number(arguments[2]), number(arguments[3]), number(arguments[4])
	options := []grpc.CallOption{}
	pause := time.Duration(0)
	for _, more := range arguments[5:] {
		if strings.HasPrefix(more, "pause=") {
			pause = time.Duration(number(more[len("pause="):])) * time.Millisecond
		} else {
			options = append(options, grpc.UseCompressor(more))
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	connection, err := grpc.DialContext(ctx, address, grpc.WithInsecure(), grpc.WithBlock())
	if err != nil {
		fail(err)
	}
	request := make([]byte, size)
	for i := range request {
		request[i] = byte(i * 7)
	}
	results := &counts{of: map[string]int{}}
	next := make(chan struct{}, total)
	for i := 0; i < total; i++ {
		next <- struct{}{}
	}
	close(next)
	var workers sync.WaitGroup
	for i := 0; i < parallel; i++ {
		workers.Add(1)
		go func() {
			defer workers.Done()
			for range next {
				ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
				var answer []byte
				err := connection.Invoke(ctx, method, &request, &answer, options...)
				results.add(status.Code(err).String())
				cancel()
				time.Sleep(pause)
			}
		}()
	}
	workers.Wait()
	results.print()
}

func main() {
	encoding.RegisterCodec(octets{})
	switch {
	case len(os.Args) >= 3 && os.Args[1] == "serve":
		serve(os.Args[2:])
	case len(os.Args) >= 7 && os.Args[1] == "call":
		call(os.Args[2:])
	default:
		fmt.Fprintln(os.Stderr, "usage: grpc_peer serve ADDRESS [MAX_MESSAGE_BYTES [WORK_KIB]] | call ADDRESS METHOD CALLS PARALLEL BYTES [gzip] [pause=MS]")
		os.Exit(2)
	}
}
