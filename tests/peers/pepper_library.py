"""Uses Salt's API by `pepper`, the library of the package `salt-pepper`.

`pepper_library.py URL`: logs in as `ann` and calls what its users call; prints one line of JSON a
call. What no two masters share is left out.
"""

import json
import sys

import pepper

SECRET = "a secret of this test"


def attempt(name, call):
    try:
        result = call()
    except (pepper.PepperException, Exception) as error:  # noqa: what it raises is its contract
        result = type(error).__name__ + ": " + str(error)
    print(json.dumps([name, result], sort_keys=True), flush=True)
    return result


def main():
    api = pepper.Pepper(sys.argv[1])
    attempt("wrong password", lambda: api.login("ann", "guess", "sharedsecret"))
    login = api.login("ann", SECRET, "sharedsecret")
    attempt("login", lambda: [sorted(login), login["user"], login["eauth"], login["perms"]])
    attempt("local", lambda: api.local("*", "test.ping"))
    attempt("arguments", lambda: api.local("m1", "test.echo", arg=["grüße"]))
    attempt("list", lambda: api.local(["m1"], "test.ping", tgt_type="list"))
    attempt("kwarg", lambda: api.local("m1", "grains.get", arg=["no_such"], kwarg={"default": "none"}))
    started = api.local_async("*", "test.ping")
    attempt("local_async", lambda: [sorted(started["return"][0]), started["return"][0]["minions"]])
    attempt("runner", lambda: api.runner("test.arg", a=1))
    attempt("lookup_jid", lambda: api.lookup_jid("20200101000000000000"))
    attempt("wheel", lambda: api.wheel("key.finger", match="m1")["return"][0]["data"]["success"])
    attempt("low", lambda: api.low([{"client": "local", "tgt": "m1", "fun": "test.ping"}]))
    attempt("unknown client", lambda: api.low([{"client": "nothing", "tgt": "m1", "fun": "test.ping"}]))
    attempt("hook", lambda: api.req("/hook/from/pepper", {"a": 1}))
    attempt("job", lambda: sorted(api.req_get("/jobs/20200101000000000000")))


main()
