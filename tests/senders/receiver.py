# SPDX-License-Identifier: Apache-2.0
"""An OTLP receiver that counts unique spans by name, for tests/senders/run.

  receiver.py http|grpc PORT [FORM]

Says "ready"; then reads commands, a line each: `refuse` and `admit` begin and end a window of FORM (unavailable,
retry-info, goaway), `stats` answers by JSON. Without FORM it refuses nothing: that is left to Headgate. HTTP is
served from non-blocking sockets, as the servers that Headgate answers for do it.
"""
import asyncio
import gzip
import json
import sys
import threading

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (ExportTraceServiceRequest,
                                                                      ExportTraceServiceResponse)

EXPORT = "opentelemetry.proto.collector.trace.v1.TraceService"


class Count:
    """What has come in. Any thread."""

    def __init__(self):
        self.lock = threading.Lock()
        self.names = set()
        self.spans = self.requests = self.refused = 0

    def take(self, body):
        names = [span.name for resource in ExportTraceServiceRequest.FromString(body).resource_spans
                 for scope in resource.scope_spans for span in scope.spans]
        with self.lock:
            self.requests += 1
            self.spans += len(names)
            self.names.update(names)

    def refuse(self):
        with self.lock:
            self.refused += 1

    def stats(self):
        with self.lock:
            return {"items": len(self.names), "duplicates": self.spans - len(self.names),
                    "requests": self.requests, "refused": self.refused}


class Http:
    """POST /v1/traces on connections that are kept."""

    def __init__(self, port, form, count):
        assert not form, "HTTP is refused by Headgate only"
        self.count = count
        started = threading.Event()

        async def main():
            server = await asyncio.start_server(self.serve, "0.0.0.0", port)
            started.set()
            await server.serve_forever()

        threading.Thread(target=asyncio.run, args=(main(),), daemon=True).start()
        if not started.wait(20):
            raise SystemExit(f"nothing listens on port {port}")

    async def serve(self, reader, writer):
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
                fields = {name.strip().lower(): value.strip()
                          for name, _, value in (line.partition(":") for line in head[1:] if line)}
                body = await reader.readexactly(int(fields["content-length"]))
                if fields.get("content-encoding") == "gzip":
                    body = gzip.decompress(body)
                self.count.take(body)
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/x-protobuf\r\nContent-Length: 0\r\n\r\n")
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # it has gone, or was reset
        finally:
            writer.close()


class Grpc:
    """TraceService/Export by c-core."""

    def __init__(self, port, form, count):
        self.port, self.form, self.count = port, form, count
        self.refusing = False
        self.server = None
        self.start([])

    def start(self, options):
        from concurrent.futures import ThreadPoolExecutor

        import grpc
        if self.server:
            # GOAWAY to all, and their connections closed.
            self.server.stop(None).wait()
        self.server = grpc.server(ThreadPoolExecutor(max_workers=4), options=options)
        self.server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(EXPORT, {
            "Export": grpc.unary_unary_rpc_method_handler(
                self.export, request_deserializer=None,
                response_serializer=ExportTraceServiceResponse.SerializeToString)}),))
        self.server.add_insecure_port(f"0.0.0.0:{self.port}")
        self.server.start()

    def export(self, body, context):
        import grpc
        if self.refusing and self.form == "unavailable":
            self.count.refuse()
            context.abort(grpc.StatusCode.UNAVAILABLE, "overloaded")
        if self.refusing and self.form == "retry-info":
            from google.protobuf.duration_pb2 import Duration
            from google.rpc.error_details_pb2 import RetryInfo
            from google.rpc.status_pb2 import Status
            status = Status(code=grpc.StatusCode.RESOURCE_EXHAUSTED.value[0], message="overloaded")
            status.details.add().Pack(RetryInfo(retry_delay=Duration(seconds=1)))
            self.count.refuse()
            context.set_trailing_metadata((("grpc-status-details-bin", status.SerializeToString()),))
            context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "overloaded")
        self.count.take(body)
        return ExportTraceServiceResponse()

    def refuse(self):
        self.refusing = True
        if self.form == "goaway":
            # c-core says GOAWAY to a connection of this age (gRFC A9), and closes it after the grace.
            self.start([("grpc.max_connection_age_ms", 1), ("grpc.max_connection_age_grace_ms", 1)])

    def admit(self):
        self.refusing = False
        if self.form == "goaway":
            self.start([])


def main():
    protocol, port, form = sys.argv[1], int(sys.argv[2]), (sys.argv + [""])[3]
    count = Count()
    server = {"http": Http, "grpc": Grpc}[protocol](port, form, count)
    print("ready", flush=True)
    for line in sys.stdin:
        command = line.strip()
        if command == "stats":
            print(json.dumps(count.stats()), flush=True)
        else:
            {"refuse": server.refuse, "admit": server.admit}[command]()
            print("done", flush=True)


if __name__ == "__main__":
    main()
