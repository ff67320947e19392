// SPDX-License-Identifier: Apache-2.0

// Command requests_server is the Go side of requests_bench: net/http as people use it. It reads the
// body and answers 200, and refuses by its own 429 what is under /own.
//
//	requests_server ADDRESS
//	    prints "ready" when it listens
package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
)

func main() {
	listener, err := net.Listen("tcp", os.Args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	http.HandleFunc("/own", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Retry-After", "1")
		w.WriteHeader(http.StatusTooManyRequests)
	})
	http.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		io.WriteString(w, "ok\n")
	})
	fmt.Println("ready")
	http.Serve(listener, nil)
}
