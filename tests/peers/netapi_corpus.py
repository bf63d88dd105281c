"""Plays recorded requests to a web interface of Salt and prints what it answered, one JSON a line.

`netapi_corpus.py URL DIALECT REQUESTS SITE [--smoke | --python | NAME...]`: the dialect is
`cherrypy`, `tornado` or `wsgi`, the requests are lines of JSON as in
`tests/e2e/netapi/requests.jsonl`, the site is the directory of the master. With names only these
requests are played, with `--smoke` only those that say so, with `--python` those that need the
site's Salt in Python and all of SaltGUI, whose pages need it. Else all but those that need it.

A request has a `name`, one method with its path (`"get": "/keys"`), and perhaps

- `accept`: the header; `null` leaves it out; `application/json` unless said;
- `json`, `form`, `yaml`, `text`: the body with its usual content type; `raw` (text) or `hex` (bytes)
  with `type`, where `null` leaves the header out;
- `as`: the user whose session it is; `ann/x` is a session of ann's own for this name, for requests
  that end it or, as a log-in with it does in stock, give it to another user. `by` is
  `header` unless it is `cookie`. The player logs in before the request, once a session;
- `with`: the user whose name and password are put into each command;
- `<session:ann>` and `<token:ann>` anywhere: ann's session, and a token of the master for ann;
- `stream`: this many lines are read of an answer that never ends;
- `until`: asked again until the answer has this text: stock answers a client before it keeps a return;
- `compare`: `type` when the body is never the same twice, `status` when not even its type is;
- `only`: the dialects that the request is for;
- `smoke`: whether it is one of the few that stand for its kind;
- `python`: whether our master needs the site's own Salt for it.

One request is made after the other: stock answers 500 to some of several log-ins at once.

What no two runs share is masked: jids, tokens, times, process ids, ports, paths, grains.
"""

import http.client
import io
import json
import math
import re
import sys
import tarfile
import time
import urllib.parse

SECRET = "a secret of this test"
USERS = {
    name: {"username": name, "password": SECRET, "eauth": "sharedsecret"}
    for name in ("ann", "bob", "lim", "rita", "wilma", "nop")
}
USERS["flo"] = {"username": "flo", "password": "of the file", "eauth": "file"}
USERS["pia"] = {"username": "pia", "password": "secret", "eauth": "pam"}

METHODS = ("get", "post", "put", "delete", "patch", "head", "options")
# What clients look at, beside the status and the body. Not `set-cookie`: stock sets it with most
# answers, ours with the log-in only, and with other attributes.
HEADERS = (
    "access-control-allow-credentials",
    "access-control-allow-headers",
    "access-control-allow-methods",
    "access-control-allow-origin",
    "access-control-expose-headers",
    "access-control-max-age",
    "allow",
    "cache-control",
    "content-disposition",
    "content-type",
    "location",
    "www-authenticate",
    "x-auth-token",
)
# No answer takes longer in seconds, unless the interface never gives one.
LIMIT = 120


class Masks:
    """Puts a fixed word in the place of what differs from run to run."""

    def __init__(self, host, site):
        self.words = [(host, "HOST"), (site, "SITE")]

    def text(self, text):
        for word, name in self.words:
            text = text.replace(word, name)
        text = re.sub(r"-----BEGIN [A-Z ]+-----[^-]+-----END [A-Z ]+-----\n?", "PEM", text)
        text = re.sub(r"\b(?:[0-9a-f]{2}:){15,}[0-9a-f]{2}\b", "FINGERPRINT", text)
        # The year of a jid that the requests name themselves.
        text = re.sub(r"(?<![0-9A-Za-z])(?!2020)20[0-9]{18}(?![0-9A-Za-z])", "JID", text)
        text = re.sub(
            r"(?<![0-9A-Za-z])[0-9a-f]{32,128}(?![0-9A-Za-z])",
            lambda found: "0" * 40 if set(found[0]) == {"0"} else f"TOKEN{len(found[0])}",
            text,
        )
        text = re.sub(r"\b(?!2020)20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?\b", "STAMP", text)
        text = re.sub(r"\b(?!2020)20\d\d, [A-Z][a-z]{2} \d\d \d\d:\d\d:\d\d(?:\.\d+)?\b", "STAMP", text)
        text = re.sub(r"[A-Z][a-z]{2}, \d\d [A-Z][a-z]{2} \d{4} \d\d:\d\d:\d\d GMT", "DATE", text)
        text = re.sub(r"(?<![0-9.])1[0-9]{9}\.[0-9]+", "TIME", text)
        return re.sub(r"0x[0-9a-f]{8,}", "ADDRESS", text)

    def value(self, value):
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, float) and not math.isfinite(value):
            return repr(value)
        if isinstance(value, float) and value > 1e9:
            return "TIME"
        if isinstance(value, list):
            return [self.value(item) for item in value]
        if isinstance(value, dict):
            if "saltversion" in value:
                return "GRAINS"
            return {
                self.text(name): "PID" if name == "pid" or name == "__pub_pid" else self.value(item)
                for name, item in value.items()
            }
        return value


class Player:
    def __init__(self, url, dialect, site):
        self.host = urllib.parse.urlsplit(url).netloc
        self.dialect = dialect
        self.masks = Masks(self.host, site)
        self.sessions = {}
        self.tokens = {}

    def play(self, row):
        method = next(method for method in METHODS if method in row)
        path = self.filled(row[method])
        body, headers = self.body(row)
        accept = row.get("accept", "application/json")
        if accept is not None:
            headers["Accept"] = accept
        if "as" in row:
            session = self.session(row["as"])
            if row.get("by") == "cookie":
                headers["Cookie"] = f"session_id={session}"
            else:
                headers["X-Auth-Token"] = session
        for name, value in row.get("headers", {}).items():
            headers[name] = self.filled(value)
        end = time.monotonic() + LIMIT
        while True:
            answer, raw = self.answer(method.upper(), path, headers, body, row)
            if row.get("until", "").encode() in raw or time.monotonic() > end:
                return answer
            time.sleep(0.1)

    def answer(self, method, path, headers, body, row):
        """What is compared of the answer, and its bytes."""
        connection = http.client.HTTPConnection(self.host, timeout=LIMIT)
        try:
            # By hand, because the library would add an Accept-Encoding, and a length to no body.
            connection.putrequest(method, path, skip_accept_encoding=True)
            for name, value in headers.items():
                connection.putheader(name, value)
            if body is not None:
                connection.putheader("Content-Length", str(len(body)))
            elif method in ("POST", "PUT", "PATCH"):
                connection.putheader("Content-Length", "0")
            connection.endheaders(body)
            response = connection.getresponse()
            if "stream" in row and response.status == 200:
                raw = b"".join(response.readline() for _ in range(row["stream"]))
            else:
                raw = response.read()
            return self.shown(row, response, raw), raw
        except (OSError, http.client.HTTPException) as error:
            return {"status": 0, "headers": {}, "body": f"{type(error).__name__}: {error}"}, b""
        finally:
            connection.close()

    def shown(self, row, response, raw):
        headers = {}
        for name, value in response.getheaders():
            if name.lower() in HEADERS:
                headers[name.lower()] = self.masks.text(value)
        shown = {"status": response.status, "headers": headers}
        compare = row.get("compare")
        if compare == "status":
            headers.clear()
        elif compare != "type":
            shown["body"] = self.shown_body(headers.get("content-type", ""), raw)
        return shown

    def shown_body(self, kind, raw):
        if kind == "application/x-tar" and raw:
            return tarfile.open(fileobj=io.BytesIO(raw)).getnames()
        text = raw.decode("utf-8", "backslashreplace")
        if kind.startswith("application/json"):
            try:
                return self.masks.value(json.loads(text))
            except ValueError:
                pass
        return page(self.masks.text(text))

    # --- what is sent

    def body(self, row):
        headers = {}
        credentials = USERS[row["with"]] if "with" in row else {}
        if "json" in row:
            kind = "application/json"
            low = row["json"]
            for chunk in low if isinstance(low, list) else [low]:
                if credentials:
                    chunk.update(credentials)
            body = self.filled(json.dumps(low, ensure_ascii=False))
        elif "form" in row:
            kind = "application/x-www-form-urlencoded"
            body = self.filled(row["form"])
            if credentials:
                body += "&" + urllib.parse.urlencode(credentials)
        elif "yaml" in row:
            kind, body = "application/x-yaml", row["yaml"]
        elif "text" in row:
            kind, body = "text/plain", row["text"]
        elif "raw" in row or "hex" in row:
            kind, body = row["type"], row.get("raw")
        else:
            return None, headers
        if kind is not None:
            headers["Content-Type"] = kind
        return bytes.fromhex(row["hex"]) if body is None else body.encode(), headers

    def filled(self, text):
        text = re.sub(r"<session:([a-z/]+)>", lambda name: self.session(name[1]), text)
        return re.sub(r"<token:([a-z/]+)>", lambda name: self.token(name[1]), text)

    def session(self, name):
        if name not in self.sessions:
            user = USERS[name.partition("/")[0]]
            answer = self.post("/login", user)
            self.sessions[name] = answer["return"][0]["token"]
        return self.sessions[name]

    def token(self, name):
        """A token of the master's: what a session of rest_tornado is by itself."""
        if self.dialect != "cherrypy":
            return self.session(name)
        if name not in self.tokens:
            self.tokens[name] = self.post("/token", [USERS[name]])[0]["token"]
        return self.tokens[name]

    def post(self, path, value):
        connection = http.client.HTTPConnection(self.host, timeout=LIMIT)
        kinds = {"Content-Type": "application/json", "Accept": "application/json"}
        connection.request("POST", path, json.dumps(value), kinds)
        response = connection.getresponse()
        text = response.read()
        connection.close()
        if response.status != 200:
            raise SystemExit(f"{path}: {response.status} {text!r}")
        return json.loads(text)


def page(text):
    """Of CherryPy's page for an error its title and message: the rest is looks, and its traceback."""
    found = re.search(r"<h2>(.*?)</h2>\s*<p>(.*?)</p>\s*<pre id=\"traceback\">", text, re.DOTALL)
    return f"{found[1]}: {found[2]}" if found else text


def is_for(row, dialect):
    if dialect not in row.get("only", [dialect]):
        return False
    if dialect == "wsgi":
        # Its only path, and it has no sessions.
        path = next(row[method] for method in METHODS if method in row)
        return path in ("/", "/run") and "as" not in row and "<" not in json.dumps(row)
    return True


def is_chosen(row, names):
    needs_python = row.get("python", False)
    if names == ["--smoke"]:
        return row.get("smoke", False) and not needs_python
    if names == ["--python"]:
        return needs_python or row["name"].startswith("saltgui-")
    return row["name"] in names if names else not needs_python


def main():
    url, dialect, requests, site, *names = sys.argv[1:]
    player = Player(url, dialect, site)
    with open(requests, encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    rows = [row for row in rows if is_for(row, dialect) and is_chosen(row, names)]
    for row in rows:
        started = time.monotonic()
        answer = player.play(row)
        took = round(time.monotonic() - started, 3)
        print(json.dumps({"name": row["name"], "took": took, **answer}), flush=True)


main()
