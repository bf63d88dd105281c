"""Asks stock's salt-api as its users do, many questions in one process.

`api_client.py URL` reads one JSON object a line: `method`, `path`, perhaps `json` or `form`, and
`auth` when the token of the last login is to be sent, or `token` when the last one from `/token` is
to stand in the first command. It answers each with one line of JSON: the status and the body, which
is text where it is no JSON, and of an archive the names in it. With `until`, the end of an event's
tag, the path is that of a stream of events: it is read while the request under `meanwhile` is made,
and answered with the first event of that request's function whose tag ends so.
"""

import io
import json
import sys
import tarfile
import threading

import requests


class Api:
    def __init__(self, url):
        self.url = url
        self.session = ""
        self.token = ""

    def ask(self, call, **options):
        headers = {"Accept": "application/json"}
        if call.get("auth"):
            headers["X-Auth-Token"] = self.session
        if call.get("token"):
            call["json"][0]["token"] = self.token
        return requests.request(
            call["method"],
            self.url + call["path"],
            headers=headers,
            json=call.get("json"),
            data=call.get("form"),
            timeout=120,
            **options,
        )

    def answer(self, call):
        if "until" in call:
            return self.listen(call)
        response = self.ask(call)
        body = self.body(response)
        if response.status_code == 200 and call["method"] == "POST":
            if call["path"] == "/login":
                self.session = body["return"][0]["token"]
            if call["path"] == "/token":
                self.token = body[0]["token"]
        return {"status": response.status_code, "body": body}

    def body(self, response):
        if response.headers.get("Content-Type") == "application/x-tar":
            return tarfile.open(fileobj=io.BytesIO(response.content)).getnames()
        try:
            return response.json()
        except ValueError:
            return response.text if response.status_code < 300 else ""

    def listen(self, call):
        with self.ask(call, stream=True) as response:
            if response.status_code != 200:
                return {"status": response.status_code, "body": ""}
            lines = response.iter_lines(chunk_size=1, decode_unicode=True)
            # The first line says that the stream is open.
            next(lines)
            other = threading.Thread(target=self.ask, args=(call["meanwhile"],))
            other.start()
            fun = call["meanwhile"]["json"][0]["fun"]
            for line in lines:
                name, _, data = line.partition(":")
                event = json.loads(data) if name == "data" else {"tag": ""}
                if event["tag"].endswith(call["until"]) and event["data"].get("fun") == fun:
                    other.join()
                    return {"status": response.status_code, "body": event}


def main():
    api = Api(sys.argv[1])
    for line in sys.stdin:
        try:
            answer = api.answer(json.loads(line))
        except requests.RequestException as error:
            answer = {"status": 0, "body": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer, sort_keys=True), flush=True)


main()
