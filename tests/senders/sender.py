# SPDX-License-Identifier: Apache-2.0
"""Makes spans named 0, 1, 2... and exports them by OTLP, for tests/senders/run.

  sender.py grpc|http|feed HOST:PORT ITEMS RATE_PER_S

grpc, http: the OpenTelemetry SDK for Python with its batch processor, both at their defaults. feed: requests of
half a second's spans to a collector beside it, each repeated until it is accepted, so that none is lost here.
Says "ready", begins at a line of input, says how many it made, and stays until its input ends.
"""
import http.client
import os
import sys
import time

kind, address, items, rate = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])


def pace(steps, per_s):
    start = time.monotonic()
    for i in range(steps):
        time.sleep(max(0.0, start + i / per_s - time.monotonic()))
        yield i


def prepare_sdk():
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor
    if kind == "grpc":
        from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
        options = {"endpoint": address, "insecure": True}
    else:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        options = {"endpoint": f"http://{address}/v1/traces"}

    def make():
        # Not before: the exports of the batch processor are every 5 s from here on.
        provider = TracerProvider()
        provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(**options)))
        tracer = provider.get_tracer("senders")
        for i in pace(items, rate):
            tracer.start_span(str(i)).end()

    return make


def prepare_feed():
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
    chunk = rate // 2

    def request(first):
        message = ExportTraceServiceRequest()
        spans = message.resource_spans.add().scope_spans.add().spans
        for i in range(first, min(first + chunk, items)):
            now_ns = time.time_ns()
            spans.add(name=str(i), trace_id=os.urandom(16), span_id=os.urandom(8), start_time_unix_nano=now_ns,
                      end_time_unix_nano=now_ns)
        return message.SerializeToString()

    def deliver(body):
        for attempt in range(50):
            try:
                connection = http.client.HTTPConnection(address, timeout=10)
                connection.request("POST", "/v1/traces", body, {"Content-Type": "application/x-protobuf"})
                status = connection.getresponse().status
                connection.close()
                if status == 200:
                    return
                print(f"the collector's receiver answers {status}", file=sys.stderr)
            except OSError as error:
                print(f"the collector's receiver: {error}", file=sys.stderr)
            time.sleep(0.2)
        raise SystemExit("the collector does not take what it is sent")

    def make():
        for i in pace(-(-items // chunk), rate / chunk):
            deliver(request(i * chunk))

    return make


make = prepare_feed() if kind == "feed" else prepare_sdk()
print("ready", flush=True)
if sys.stdin.readline():
    make()
    print(items, flush=True)
    sys.stdin.read()
# Without the hooks of the SDK at exit: whoever ends its input does not wait for anything more.
sys.stdout.flush()
os._exit(0)
