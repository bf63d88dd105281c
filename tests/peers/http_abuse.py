"""Sends an HTTP server what no honest client sends, and prints what became of it.

`http_abuse.py HOST PORT TOKEN`: prints one JSON object a case: its `name`, the `status` (0 when the
connection was closed without one), the start of the `body`, the header names, and `lenient`, when
the bytes are no HTTP, so that the server may close without a word.

Bytes that come slowly are a pair: those that come at once, and those that follow one by one.
"""

import concurrent.futures
import json
import re
import socket
import sys
import threading
import time

# Longer than any time limit of the server's.
PATIENCE = 90
MEGABYTE = 1 << 20


def request(line, headers=(), body=b"", host=True):
    lines = [line, *(["Host: localhost"] if host else []), *headers]
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body


def posted(body, *headers, path="/login", kind="application/json"):
    body = body if isinstance(body, bytes) else body.encode()
    kinds = [f"Content-Type: {kind}", f"Content-Length: {len(body)}", *headers]
    return request(f"POST {path} HTTP/1.1", kinds, body)


def cases(token):
    """The name, the bytes, and whether the server may close without an answer."""
    auth = f"X-Auth-Token: {token}"
    cookie = f"Cookie: session_id={token}"
    ping = json.dumps([{"client": "local", "tgt": "*", "fun": "test.ping"}])
    yield "method-unknown", request("BREW / HTTP/1.1"), False
    yield "method-lower-case", request("get / HTTP/1.1"), False
    yield "method-trace", request("TRACE / HTTP/1.1"), False
    yield "method-connect", request("CONNECT other.example:443 HTTP/1.1"), False
    yield "method-wrong", request("DELETE /login HTTP/1.1"), False
    yield "version-unknown", request("GET / HTTP/9.9"), True
    yield "host-missing", request("GET /login/x HTTP/1.1", host=False), False
    yield "type-unknown", posted("<a/>", auth, kind="application/xml", path="/"), False
    yield "encoding-unknown", posted("abc", "Content-Encoding: zstd"), False
    yield "encoding-gzip-garbage", posted("abc", "Content-Encoding: gzip"), False
    yield "length-negative", request("POST /login HTTP/1.1", ["Content-Length: -1"]), True
    yield "length-word", request("POST /login HTTP/1.1", ["Content-Length: many"]), True
    yield "length-huge", request("POST /login HTTP/1.1", [f"Content-Length: {1 << 70}"]), True
    yield "length-twice", request(
        "POST /login HTTP/1.1", ["Content-Length: 2", "Content-Length: 20"], b"{}"
    ), True
    yield "length-and-chunked", request(
        "POST /login HTTP/1.1",
        ["Content-Length: 40", "Transfer-Encoding: chunked", "Content-Type: application/json"],
        b"0\r\n\r\nGET /stats HTTP/1.1\r\nHost: a\r\n\r\n",
    ), False
    yield "chunked-twice", request(
        "POST /login HTTP/1.1", ["Transfer-Encoding: chunked", "Transfer-Encoding: identity"], b"0\r\n\r\n"
    ), True
    yield "chunked-misspelt", request(
        "POST /login HTTP/1.1", ["Transfer-Encoding: xchunked"], b"0\r\n\r\n"
    ), True
    yield "chunk-size-overflows", request(
        "POST /login HTTP/1.1", ["Transfer-Encoding: chunked"], b"FFFFFFFFFFFFFFFFFF\r\n{}\r\n0\r\n\r\n"
    ), True
    yield "chunk-size-word", request(
        "POST /login HTTP/1.1", ["Transfer-Encoding: chunked"], b"many\r\n{}\r\n0\r\n\r\n"
    ), True
    yield "header-folded", request("GET /login/x HTTP/1.1", ["X-A: a", " b: c"]), True
    yield "header-space-before-colon", request("GET /login/x HTTP/1.1", ["Content-Length : 5"]), True
    yield "header-null-byte", request("GET /login/x HTTP/1.1", ["X-A: a\0b"]), True
    yield "header-bare-cr", request("GET /login/x HTTP/1.1", ["X-A: a\rX-B: b"]), True
    yield "header-without-colon", request("GET /login/x HTTP/1.1", ["nothing"]), True
    yield "headers-10000", request(
        "GET / HTTP/1.1", [f"X-{number}: {number}" for number in range(10_000)]
    ), True
    yield "header-of-a-megabyte", request("GET / HTTP/1.1", ["X-A: " + "a" * MEGABYTE]), True
    yield "path-of-a-megabyte", request("GET /" + "a" * MEGABYTE + " HTTP/1.1"), True
    yield "path-climbs", request("GET /static/../../../../etc/passwd HTTP/1.1"), False
    yield "path-climbs-encoded", request("GET /static/%2e%2e/%2e%2e/etc/passwd HTTP/1.1"), False
    yield "path-null-byte", request("GET /minions%00 HTTP/1.1"), False
    yield "body-100-megabytes", request(
        "POST /login HTTP/1.1",
        ["Content-Type: application/json", f"Content-Length: {100 * MEGABYTE}"],
        b" " * (100 * MEGABYTE),
    ), False
    yield "body-100-megabytes-chunked", request(
        "POST /login HTTP/1.1",
        ["Content-Type: application/json", "Transfer-Encoding: chunked"],
        (f"{MEGABYTE:x}\r\n".encode() + b" " * MEGABYTE + b"\r\n") * 100,
    ), False
    yield "body-shorter-than-its-length", request(
        "POST /login HTTP/1.1", ["Content-Type: application/json", "Content-Length: 100"], b"{"
    ), False
    yield "body-comes-byte-by-byte", (
        request("POST /login HTTP/1.1", ["Content-Type: application/json", "Content-Length: 1000"]),
        b" " * 1000,
    ), False
    yield "head-never-ends", b"POST /login HTTP/1.1\r\nHost: localhost\r\nX-A: ", True
    yield "json-invalid-utf8", posted(b'{"username": "\xff\xfe"}'), False
    yield "json-lone-surrogate", posted('{"username": "\\ud800", "password": "a", "eauth": "file"}'), False
    yield "json-deep", posted("[" * 200_000 + "]" * 200_000), False
    yield "json-deep-objects", posted('{"a":' * 100_000 + "1" + "}" * 100_000), False
    yield "json-truncated", posted('{"username": "ann"'), False
    yield "json-number-huge", posted("1" * 100_000), False
    yield "yaml-deep", posted("[" * 50_000, kind="application/x-yaml"), False
    yield "yaml-aliases", posted(
        "a: &a [x,x,x,x,x,x,x,x]\n"
        + "".join(
            f"{name}: &{name} [{','.join(['*' + before] * 8)}]\n"
            for before, name in zip("abcdefghi", "bcdefghij")
        ),
        kind="application/x-yaml",
    ), False
    yield "keys-of-prototypes", posted(
        '[{"__proto__": {"client": "local", "fun": "test.ping"}, "constructor": 1, "tgt": "*"}]', auth, path="/"
    ), False
    yield "keys-of-classes", posted('[{"__class__": "local", "__init__": 1, "client": "run"}]', auth, path="/"), False
    yield "function-missing", posted('[{"client": "runner"}]', auth, path="/"), False
    yield "function-without-module", posted('[{"client": "runner", "fun": "ping"}]', auth, path="/"), False
    yield "function-is-a-number", posted('[{"client": "runner", "fun": 7}]', auth, path="/"), False
    yield "function-is-missing-for-minions", posted('[{"client": "local", "tgt": "*"}]', auth, path="/"), False
    yield "target-missing", posted('[{"client": "local", "fun": "test.ping"}]', auth, path="/"), False
    yield "command-is-a-text", posted('["test.ping"]', auth, path="/"), False
    yield "arguments-are-no-mapping", posted(
        '[{"client": "local", "tgt": "*", "fun": "test.ping", "kwarg": [1]}]', auth, path="/"
    ), False
    yield "page-has-no-such-parameter", request("GET /minions?a=1 HTTP/1.1", [auth]), False
    yield "session-in-the-query", request(f"GET /events?token={token} HTTP/1.1"), False
    yield "client-unknown", posted('[{"client": "nothing", "fun": "a.b"}]', auth, path="/"), False
    yield "client-disabled", posted('[{"client": "ssh", "tgt": "*", "fun": "test.ping"}]', auth, path="/"), False
    yield "token-unknown", posted(ping, "X-Auth-Token: " + "0" * 40, path="/"), False
    yield "token-of-a-megabyte-in-the-body", posted(
        json.dumps([{"client": "local", "tgt": "*", "fun": "test.ping", "token": "0" * 500_000}]), path="/run"
    ), False
    yield "token-is-a-path", posted(
        '[{"client": "local", "tgt": "*", "fun": "test.ping", "token": "../../pki/master.pem"}]', path="/run"
    ), False
    yield "user-with-line-breaks", posted(
        json.dumps({"username": "a\r\nX-Evil: 1", "password": "b\r\n\r\n", "eauth": "file"})
    ), False
    yield "hook-with-line-breaks", request(
        "POST /hook/a%0d%0aX-Evil:%201 HTTP/1.1", ["Content-Length: 0"]
    ), False
    yield "cross-site-cookie", posted(ping, cookie, "Origin: http://elsewhere.example", path="/"), False
    yield "cross-site-logout", posted("{}", cookie, "Origin: http://elsewhere.example", path="/logout"), False
    yield "cross-site-fetch", posted(ping, cookie, "Sec-Fetch-Site: cross-site", path="/"), False
    yield "websocket-bad-version", request(
        "GET /ws HTTP/1.1",
        ["Upgrade: websocket", "Connection: Upgrade", "Sec-WebSocket-Version: 99", "Sec-WebSocket-Key: a", auth],
    ), False
    yield "last-event-id-nonsense", request("GET /events HTTP/1.1", [auth, "Last-Event-ID: ../../nonsense"]), False
    yield "tls-hello", bytes.fromhex("16030100c8010000c40303") + bytes(range(200)), True
    yield "http2-garbage", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\xff" * 1000, True
    yield "zeros", bytes(100_000), True


def send(address, name, data, lenient):
    answer = {"name": name, "lenient": lenient}
    began = time.monotonic()
    received = b""
    with socket.create_connection(address, timeout=PATIENCE) as connection:
        try:
            at_once, slowly = data if isinstance(data, tuple) else (data, b"")
            connection.sendall(at_once)
            threading.Thread(target=trickle, args=(connection, slowly), daemon=True).start()
        except OSError:
            # Refused before it was read to its end; there may be an answer all the same.
            pass
        try:
            while len(received) < 20_000 and not is_whole(received):
                part = connection.recv(8192)
                if not part:
                    break
                received += part
        except OSError as error:
            answer["error"] = f"{type(error).__name__}: {error}"
    head, _, body = received.partition(b"\r\n\r\n")
    status = re.match(rb"HTTP/1\.[01] (\d{3})", head)
    answer["status"] = int(status[1]) if status else 0
    names = [line.partition(b":")[0].decode("latin-1").lower() for line in head.split(b"\r\n")[1:]]
    answer["headers"] = names
    answer["body"] = body.decode("utf-8", "replace")[:2000]
    answer["seconds"] = round(time.monotonic() - began, 1)
    return answer


def trickle(connection, data):
    for byte in data:
        try:
            connection.sendall(bytes([byte]))
        except OSError:
            return
        time.sleep(0.2)


def is_whole(received):
    head, end, body = received.partition(b"\r\n\r\n")
    length = re.search(rb"(?i)\r\ncontent-length: (\d+)", head)
    return bool(end and length and len(body) >= int(length[1]))


def main():
    host, port, token = sys.argv[1:]
    address = (host, int(port))
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        sent = [pool.submit(send, address, *case) for case in cases(token)]
        for one in sent:
            print(json.dumps(one.result()), flush=True)


main()
