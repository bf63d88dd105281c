"""Takes spans from whoever sends any, as an OpenTelemetry collector does (OTLP over HTTP, protobuf
and JSON), and writes each as a line of JSON.

`collector.py SPANS PORT`: appends to the file SPANS, writes the number of its port into the file PORT.
"""

import http.server
import json
import sys
import threading

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
)

SPANS, PORT = sys.argv[1:]
LOCK = threading.Lock()


def of_protobuf(body):
    for sent in ExportTraceServiceRequest.FromString(body).resource_spans:
        for scope in sent.scope_spans:
            for span in scope.spans:
                yield {
                    "form": "protobuf",
                    "scope": scope.scope.name,
                    "name": span.name,
                    "trace": span.trace_id.hex(),
                    "span": span.span_id.hex(),
                    "parent": span.parent_span_id.hex(),
                    "began": span.start_time_unix_nano,
                    "ended": span.end_time_unix_nano,
                    "attributes": {
                        entry.key: entry.value.string_value for entry in span.attributes
                    },
                }


def of_json(body):
    for sent in json.loads(body)["resourceSpans"]:
        for scope in sent["scopeSpans"]:
            for span in scope["spans"]:
                yield {
                    "form": "json",
                    "scope": scope["scope"]["name"],
                    "name": span["name"],
                    "trace": span["traceId"],
                    "span": span["spanId"],
                    "parent": span["parentSpanId"],
                    "began": int(span["startTimeUnixNano"]),
                    "ended": int(span["endTimeUnixNano"]),
                    "attributes": {
                        entry["key"]: entry["value"].get("stringValue")
                        for entry in span["attributes"]
                    },
                }


class Collector(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        read = of_json if "json" in self.headers["Content-Type"] else of_protobuf
        with LOCK, open(SPANS, "a") as spans:
            for span in read(body):
                print(json.dumps(span), file=spans)
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Collector)
with open(PORT, "w") as port:
    print(server.server_port, file=port)
server.serve_forever()
