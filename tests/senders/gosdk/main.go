// SPDX-License-Identifier: Apache-2.0

// The OTLP exporters of the OpenTelemetry SDK for Go at their defaults, for tests/senders. Same
// protocol as sender.py: it says "ready", at "go" it makes spans named 0, 1, 2..., says how many it
// made, and stays until its standard input ends.
package main

import (
	"bufio"
	"context"
	"fmt"
	"log"
	"os"
	"strconv"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/trace"
)

func exporter(protocol string, address string) (*otlptrace.Exporter, error) {
	if protocol == "grpc" {
		return otlptracegrpc.New(context.Background(), otlptracegrpc.WithEndpoint(address),
			otlptracegrpc.WithInsecure())
	}
	return otlptracehttp.New(context.Background(), otlptracehttp.WithEndpoint(address),
		otlptracehttp.WithInsecure())
}

func main() {
	if len(os.Args) != 5 || (os.Args[1] != "grpc" && os.Args[1] != "http") {
		log.Fatal("usage: gosdk grpc|http HOST:PORT ITEMS RATE_PER_S")
	}
	items, err := strconv.Atoi(os.Args[3])
	if err != nil {
		log.Fatal(err)
	}
	rate, err := strconv.Atoi(os.Args[4])
	if err != nil {
		log.Fatal(err)
	}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { log.Print(err) }))
	in := bufio.NewScanner(os.Stdin)
	fmt.Println("ready")
	if !in.Scan() {
		return
	}
	// Not before: the exports of the batch processor are every 5 s from here on.
	out, err := exporter(os.Args[1], os.Args[2])
	if err != nil {
		log.Fatal(err)
	}
	tracer := trace.NewTracerProvider(trace.WithBatcher(out)).Tracer("senders")
	start := time.Now()
	for i := 0; i < items; i++ {
		time.Sleep(time.Until(start.Add(time.Duration(i) * time.Second / time.Duration(rate))))
		_, span := tracer.Start(context.Background(), strconv.Itoa(i))
		span.End()
	}
	fmt.Println(items)
	for in.Scan() {
	}
}
