"""Sends crafted requests to a master and prints what came back, one JSON object a line.

`probe.py PORT DIRECTORY CRYPTO_JSON [--fatal]` with the Python of a stock release. DIRECTORY is that of the
site (`pki/`, `cache/`); the key of the minion `m1` is accepted there already. Run against a stock
master and against ours, the output must be the same but for the differences that
`tests/e2e/probe.rs` lists. It judges nothing itself, and it never retries: a request that gets no
answer is printed as such.

What cannot be equal in two runs is masked by proving it: a ciphertext is decrypted, a signature
verified, and the result is printed. Everything else is printed as the bytes that came.
"""

import hashlib
import itertools
import json
import pathlib
import sys
import time

import msgpack
import salt.crypt
import salt.payload
import zmq

NONCE = "0123456789abcdef0123456789abcdef"
JID = "20260102030405060708"
ALGORITHMS = {"enc_algo": "OAEP-SHA1", "sig_algo": "PKCS1v15-SHA1"}
OPTS = {"fips_mode": False}


class Probe:
    def __init__(self, port, root, vectors):
        self.address = f"tcp://127.0.0.1:{port}"
        self.context = zmq.Context()
        self.root = pathlib.Path(root)
        self.keys = vectors["keys"]
        self.private = {}
        for name, key in self.keys.items():
            path = self.root / f"{name}.probe.pem"
            path.write_text(key["pkcs1"])
            self.private[name] = salt.crypt.PrivateKey.from_file(str(path))
        self.token = salt.crypt.PrivateKey.encrypt(self.private["minion"], b"salt")
        self.session = None
        self.shared = None
        # As of a minion: no two sealed requests have the same, and both masters get the same ones.
        self.nonces = itertools.count(1)

    def master(self):
        return salt.crypt.PublicKey.from_file(str(self.root / "pki" / "master.pub"))

    def send(self, payload):
        socket = self.context.socket(zmq.REQ)
        socket.setsockopt(zmq.LINGER, 0)
        socket.connect(self.address)
        try:
            socket.send(payload)
            return socket.recv() if socket.poll(120_000) else None
        finally:
            socket.close()

    # --- building

    def clear(self, load, **envelope):
        return salt.payload.dumps({"enc": "clear", "load": load, "version": 3, **envelope})

    def auth(self, key="minion", version=3, **changes):
        load = {"cmd": "_auth", "id": "m1", "nonce": NONCE, "pub": self.keys[key]["public"]}
        load.update(ALGORITHMS)
        load.update(changes)
        return self.clear(without_missing(load), version=version)

    def load(self, **load):
        nonce = f"{next(self.nonces):032x}"
        base = {"id": "m1", "nonce": nonce, "ts": int(time.time()), "tok": self.token}
        return without_missing({**base, **load})

    def sealed(self, load, key=None, version=3, **envelope):
        crypticle = salt.crypt.Crypticle(OPTS, key or (self.session if version > 2 else self.shared))
        outer = {"enc": "aes", "load": crypticle.dumps(load), "version": version, "id": "m1"}
        return salt.payload.dumps(without_missing({**outer, **ALGORITHMS, **envelope}))

    def publish(self, **changes):
        key = (self.root / "cache" / ".root_key").read_text()
        load = {"cmd": "publish", "user": "root", "key": key, "fun": "test.ping", "arg": [],
                "tgt": "m1", "tgt_type": "list", "ret": "", "jid": JID, "kwargs": {}}
        return self.clear(without_missing({**load, **changes}))

    # --- reading

    def shown(self, reply):
        if reply is None:
            return "no answer"
        value = unpack(reply)
        if isinstance(value, bytes) and len(value) % 16 == 0 and value:
            return self.opened(value)
        if isinstance(value, dict) and isinstance(value.get("load"), bytes):
            return self.verified(value)
        if isinstance(value, dict) and value.get("enc") == "pub":
            return {"unsigned keys": self.keys_shown(value)}
        if isinstance(value, dict) and isinstance(value.get("pillar"), bytes):
            return self.private_shown(value)
        return {"bytes": reply.hex(), "value": repr(value)}

    def opened(self, value):
        for name, key in (("session", self.session), ("shared", self.shared)):
            if key is None:
                continue
            try:
                plain = salt.crypt.Crypticle(OPTS, key).decrypt(value)
            except salt.crypt.AuthenticationError:
                continue
            return {f"sealed with the {name} key": plain.hex(), "text": repr(plain)}
        return {"bytes": value.hex()}

    def verified(self, value):
        algorithms = [
            name for name in salt.crypt.VALID_SIGNING_ALGORITHMS
            if "sig" in value and self.master().verify(value["load"], value["sig"], name)
        ]
        inner = unpack(value["load"])
        if inner.get("enc") == "pub":
            inner = self.keys_shown(inner)
        else:
            inner = {"bytes": value["load"].hex(), "value": repr(inner)}
        return {"outer": list(value), "signed with": algorithms, "inner": inner}

    def keys_shown(self, inner):
        shown = {"order": list(inner)}
        for name, value in inner.items():
            if name in ("aes", "session", "token"):
                shown[name] = self.decrypted(name, value)
            elif name == "sig":
                shared = self.decrypt(inner["aes"])
                digest = hashlib.sha256(shared[0]).hexdigest().encode()
                shown[name] = self.master().decrypt(value) == digest
            elif name == "pub_key":
                shown[name] = value == salt.crypt.clean_key(
                    (self.root / "pki" / "master.pub").read_text())
            elif name != "publish_port":
                shown[name] = repr(value)
        return shown

    def decrypt(self, value):
        for name in self.private:
            for algorithm in ("OAEP-SHA1", "OAEP-SHA224"):
                try:
                    return self.private[name].decrypt(value, algorithm), name, algorithm
                except ValueError:
                    continue
        return b"", "nobody", "none"

    def decrypted(self, name, value):
        plain, whose, algorithm = self.decrypt(value)
        text = plain.decode()
        if name == "session":
            self.session = text
        if name == "aes":
            self.shared = text
        return {"for": whose, "algorithm": algorithm, "length": len(text),
                "plain": text if name == "token" else None}

    def private_shown(self, value):
        key, whose, algorithm = self.decrypt(value["key"])
        inner = salt.crypt.Crypticle(OPTS, key.decode()).loads(value["pillar"])
        shown = {"outer": list(value), "for": whose, "algorithm": algorithm, "inner": list(inner)}
        if "data" in inner:
            data = unpack(inner["data"])
            shown["signed"] = self.master().verify(inner["data"], inner["sig"], "PKCS1v15-SHA1")
            shown["data"] = list(data)
            shown["same key"] = data["key"] == value["key"]
            inner = data
        shown["pillar"] = repr(inner.get("pillar", inner))
        shown["nonce"] = repr(inner.get("nonce"))
        return shown


def without_missing(load):
    return {name: value for name, value in load.items() if value is not ...}


def unpack(packed):
    """As it is on the wire: text where it is UTF-8, in the order of the keys."""
    try:
        return salt.payload.loads(packed)
    except Exception as error:
        return f"not msgpack: {error!r}"


# --- the requests

def malformed(p):
    ping = {"cmd": "ping"}
    yield "empty", b""
    yield "text that is no msgpack", b"\xc1\xc1\xc1"
    yield "truncated map", b"\x83\xa3enc"
    yield "two values", msgpack.packb({"enc": "clear"}) + b"\x00"
    yield "a number", b"\x05"
    yield "a list", msgpack.packb([1, 2])
    yield "a text", msgpack.packb("enc load")
    yield "an empty map", b"\x80"
    yield "no load", msgpack.packb({"enc": "clear"})
    yield "no enc", msgpack.packb({"load": ping})
    yield "clear load is a text", p.clear("x")
    yield "clear load is a list", p.clear([1])
    yield "clear load is nil", p.clear(None)
    yield "id with NUL", p.clear({"cmd": "ping", "id": "a\0b"})
    yield "id is a number", p.clear({"cmd": "ping", "id": 5})
    yield "id is nil", p.clear({"cmd": "ping", "id": None})
    yield "id is True", p.clear({"cmd": "ping", "id": True})
    yield "id is a fraction", p.clear({"cmd": "ping", "id": 2.5})
    yield "id is not UTF-8", p.clear({"cmd": "ping", "id": b"\xff'\x00\n"})
    yield "id is a list", p.clear({"cmd": "ping", "id": ["x"]})
    for version in ("x", "3", " 2 ", 2, 2.9, True, -1, 2**64 - 1, ""):
        yield f"version {version!r}", p.clear(ping, version=version)
    yield "no version", msgpack.packb({"enc": "clear", "load": ping})
    yield "enc nil", salt.payload.dumps({"enc": None, "load": ping, "version": 3})
    for enc in ("foo", "pub", "CLEAR", "aes "):
        yield f"enc {enc!r}", salt.payload.dumps({"enc": enc, "load": ping, "version": 3})
    yield "bin dialect", msgpack.packb(
        {b"enc": b"clear", "load": {b"cmd": "ping"}, "version": 3}, use_bin_type=True)


def clear_commands(p):
    yield "ping", p.clear({"cmd": "ping"})
    yield "ping with all kinds of values", p.clear(
        {"cmd": "ping", "a": [1, -1, 2.5, None, True, "x" * 40, b"\xff"], 5: {"b": {}}})
    yield "no cmd", p.clear({"x": 1})
    for cmd in ("nope", "_return", "__init__", "_prep_pub", "", None, 5):
        yield f"clear cmd {cmd!r}", p.clear({"cmd": cmd})


def auth(p):
    yield "auth", p.auth()
    yield "auth, key with line break at the end", p.auth(pub=p.keys["minion"]["public"] + "\n")
    yield "auth, key with CRLF", p.auth(pub=p.keys["minion"]["public"].replace("\n", "\r\n"))
    for version in (0, 1, 2):
        yield f"auth, version {version}", p.auth(version=version)
    yield "auth, SHA224", p.auth(enc_algo="OAEP-SHA224", sig_algo="PKCS1v15-SHA224")
    yield "auth, no algorithms", p.auth(enc_algo=..., sig_algo=...)
    token = p.master().encrypt("t" * 76, "OAEP-SHA1")
    yield "auth, token", p.auth(token=token)
    yield "auth, token of the other algorithm", p.auth(token=token, enc_algo="OAEP-SHA224")
    yield "auth, undecryptable token", p.auth(token=b"\xff" * 256)
    yield "auth, empty token", p.auth(token="")
    yield "auth, bad enc_algo with token", p.auth(token=token, enc_algo="OAEP-MD5")
    yield "auth, bad enc_algo", p.auth(enc_algo="OAEP-MD5")
    yield "auth, enc_algo nil", p.auth(enc_algo=None)
    yield "auth, bad sig_algo", p.auth(sig_algo="PKCS1v15-MD5")
    yield "auth, bad sig_algo, version 1", p.auth(sig_algo="PKCS1v15-MD5", version=1)
    yield "auth, no nonce", p.auth(nonce=...)
    yield "auth, short nonce", p.auth(nonce="abc")
    yield "auth, no nonce, version 1", p.auth(nonce=..., version=1)
    yield "auth, no id", p.auth(id=...)
    yield "auth, no pub", p.auth(pub=...)
    yield "auth, pub is a number", p.auth(pub=5)
    for bad in ("", ".", "..", "a/b", "a\\b", "../m1", "a\nb"):
        yield f"auth, id {bad!r}", p.auth(id=bad)
        yield f"auth, id {bad!r}, version 1", p.auth(id=bad, version=1)
    yield "auth, another key", p.auth("large")
    yield "auth, a third key", p.auth("master")
    yield "auth, rejected", p.auth(id="rejected1")
    yield "auth, pending", p.auth(id="pending1")
    yield "auth, pending, another key", p.auth("large", id="pending1")
    yield "auth, denied", p.auth(id="denied1")
    yield "auth, denied, version 1", p.auth(id="denied1", version=1)
    yield "auth, new", p.auth(id="new1")
    yield "auth, new, again", p.auth(id="new1")
    yield "auth, new, bad sig_algo", p.auth(id="new2", sig_algo="none")
    yield "auth, new, no key in pub", p.auth(id="new3", pub="no key")
    yield "auth, new, version 0", p.auth(id="new4", version=0)
    yield "auth, new, a name with space", p.auth(id="new 5")
    yield "auth, new, a name of umlauts", p.auth(id="größe")
    yield "auth, autosign", p.auth(id="auto-1")
    yield "auth, autosign, not a key", p.auth(id="auto-2", pub="no key")
    yield "auth, autoreject", p.auth(id="evil-1")
    yield "auth, autoreject, again", p.auth(id="evil-1")
    yield "auth, autosign by grain", p.auth(id="grain1", autosign_grains={"uuid": "8d0d7a"})
    yield "auth, a wrong grain", p.auth(id="grain2", autosign_grains={"uuid": "other"})
    yield "auth, grains are no map", p.auth(id="grain3", autosign_grains="uuid")
    yield "auth, m1 again", p.auth()


def sealed(p):
    event = {"cmd": "_minion_event", "tag": "my/tag", "data": {"a": 1}, "pretag": None}
    e = lambda **changes: p.load(**{**event, **changes})
    yield "event", p.sealed(e())
    yield "event, no nonce", p.sealed(e(nonce=...))
    yield "event, nil nonce", p.sealed(e(nonce=None))
    yield "event, old ts", p.sealed(e(ts=5))
    yield "event, fraction as ts", p.sealed(e(ts=time.time()))
    yield "event, ts in the future", p.sealed(e(ts=int(time.time()) + 100_000))
    yield "event, no token", p.sealed(e(tok=...))
    yield "event, bad token", p.sealed(e(tok=b"\xff" * 256))
    yield "event, empty token", p.sealed(e(tok=b""))
    foreign = salt.crypt.PrivateKey.encrypt(p.private["large"], b"salt")
    yield "event, foreign token", p.sealed(e(tok=foreign))
    yield "event, other load id", p.sealed(e(id="pending1"))
    yield "event, other envelope id", p.sealed(e(), id="pending1")
    yield "event, both ids of another", p.sealed(e(id="pending1"), id="pending1")
    yield "event, ids unknown", p.sealed(e(id="ghost"), id="ghost")
    yield "event, no envelope id", p.sealed(e(), id=...)
    yield "event, load id a number", p.sealed(e(id=5))
    yield "event, load id with NUL", p.sealed(e(id="m1\0"))
    yield "event, envelope id a path", p.sealed(e(), id="../m1")
    yield "event, shared key with version 3", p.sealed(e(), key=p.shared)
    yield "event, session key with version 2", p.sealed(e(), key=p.session, version=2)
    yield "event, version 2", p.sealed(e(), version=2)
    yield "event, version 2, no token", p.sealed(e(tok=...), version=2)
    yield "event, version 2, bad token", p.sealed(e(tok=b"\xff" * 256), version=2)
    yield "event, version 1", p.sealed(e(), version=1)
    yield "load is a text", p.sealed("text")
    yield "load is a list", p.sealed([1])
    outer = {"enc": "aes", "version": 3, "id": "m1"}
    yield "load is a clear map", salt.payload.dumps({**outer, "load": e()})
    yield "load is random", salt.payload.dumps({**outer, "load": b"\x01" * 96})
    yield "load is empty", salt.payload.dumps({**outer, "load": b""})
    yield "load is nil", salt.payload.dumps({**outer, "load": None})
    raw = salt.crypt.Crypticle(OPTS, p.session).encrypt(b"pickle::\xc1")
    yield "load is no msgpack", salt.payload.dumps({**outer, "load": raw})
    yield "no cmd", p.sealed(p.load())
    for cmd in ("nope", "__init__", "ping", "publish", "", None, 5):
        yield f"sealed cmd {cmd!r}", p.sealed(p.load(cmd=cmd))


def returns(p):
    base = {"cmd": "_return", "success": True, "return": True, "retcode": 0, "fun": "test.ping",
            "fun_args": [], "user": "root", "jid": JID}
    r = lambda **changes: p.load(**{**base, **changes})
    yield "return", p.sealed(r())
    yield "return, version 2", p.sealed(r(), version=2)
    yield "return, req", p.sealed(r(jid="req"))
    yield "return, no jid", p.sealed(r(jid=...))
    yield "return, no return", p.sealed(r(**{"return": ...}))
    yield "return, resource of another minion", p.sealed(r(resource_id="pending1"))
    yield "events", p.sealed(p.load(cmd="_minion_event", events=[
        {"tag": "a/b", "data": {}}, {"tag": "salt/key", "data": {}}], pretag="p"))
    yield "events, no list", p.sealed(p.load(cmd="_minion_event", events=5))
    yield "events, no tag", p.sealed(p.load(cmd="_minion_event", events=[{"data": {}}]))
    yield "event, no data", p.sealed(p.load(cmd="_minion_event", tag="x"))
    yield "event, no tag", p.sealed(p.load(cmd="_minion_event", data={}))
    yield "resources, none", p.sealed(
        p.load(cmd="_register_resources", resources={}, resource_grains={}))


def pillar(p):
    base = {"cmd": "_pillar", "grains": {}, "saltenv": None, "pillarenv": None,
            "pillar_override": {}, "extra_minion_data": {}, "ver": "2"}
    q = lambda **changes: p.load(**{**base, **changes})
    yield "pillar", p.sealed(q())
    yield "pillar, SHA224", p.sealed(q(), enc_algo="OAEP-SHA224")
    yield "pillar, no ver", p.sealed(q(ver=...))
    yield "pillar, no nonce", p.sealed(q(nonce=...))
    yield "pillar, no grains", p.sealed(q(grains=...))
    yield "pillar, version 2", p.sealed(q(), version=2)
    yield "pillar, version 1", p.sealed(q(), version=1)
    yield "pillar, bad enc_algo", p.sealed(q(), enc_algo="x")
    yield "pillar, bad sig_algo", p.sealed(q(), sig_algo="x")


def publish(p):
    yield "publish", p.publish()
    yield "publish, the same jid again", p.publish()
    for missing in ("user", "key", "fun", "arg", "tgt", "tgt_type", "ret", "kwargs"):
        yield f"publish, no {missing}", p.publish(**{missing: ...})
        yield f"publish, no {missing}, bad key", p.publish(**{"key": "x", missing: ...})
        yield f"publish, no {missing}, no match", p.publish(**{"tgt": "ghost", missing: ...})
    yield "publish, bad key", p.publish(key="x")
    yield "publish, nil key", p.publish(key=None)
    yield "publish, empty key", p.publish(key="")
    yield "publish, number as key", p.publish(key=5)
    yield "publish, unknown user", p.publish(jid="20260102030405060710", user="nobody-here")
    yield "publish, unknown user, bad key", p.publish(user="nobody-here", key="x")
    yield "publish, sudo user", p.publish(jid="20260102030405060709", user="sudo_ann")
    yield "publish, sudo user, bad key", p.publish(user="sudo_ann", key="x")
    yield "publish, sudo without name", p.publish(user="sudo_")
    yield "publish, user is a number", p.publish(user=5)
    yield "publish, user barred", p.publish(user="barred")
    yield "publish, function barred", p.publish(fun="barred.function")
    yield "publish, function barred, bad key", p.publish(fun="barred.function", key="x")
    yield "publish, one of the functions barred", p.publish(
        fun=["test.ping", "barred.x"], arg=[[], []])
    yield "publish, several functions", p.publish(fun=["test.ping", "test.echo"], arg=[[], ["a"]])
    yield "publish, function is a number", p.publish(fun=5)
    yield "publish, token", p.publish(kwargs={"token": "x"})
    yield "publish, eauth", p.publish(kwargs={"eauth": "pam", "username": "x", "password": "y"})
    yield "publish, glob", p.publish(tgt="m*", tgt_type="glob")
    yield "publish, no match", p.publish(tgt="ghost", tgt_type="glob")
    yield "publish, list without match", p.publish(tgt=["ghöst", "it's", 'a"b\n'], tgt_type="list")
    yield "publish, list as text", p.publish(tgt="m1,ghost")
    yield "publish, list", p.publish(tgt=["m1", "ghost"])
    yield "publish, list twice", p.publish(tgt=["m1", "m1", "ghost", "ghost"])
    yield "publish, list without match as text", p.publish(tgt="ghost,other")
    yield "publish, list of a glob", p.publish(tgt=["m*"])
    yield "publish, list with spaces", p.publish(tgt="m1, ghost")
    yield "publish, regular expression", p.publish(tgt="m[0-9]", tgt_type="pcre")
    yield "publish, wrong regular expression", p.publish(tgt="(", tgt_type="pcre")
    yield "publish, unknown target type", p.publish(tgt_type="nonsense")
    yield "publish, target type nil", p.publish(tgt_type=None)
    yield "publish, target a number", p.publish(tgt=5)
    yield "publish, jid a word", p.publish(jid="word")
    yield "publish, jid a number", p.publish(jid=5)
    yield "publish, delimiter", p.publish(kwargs={"delimiter": "/"})
    yield "publish, kwargs a list", p.publish(kwargs=[])
    yield "publish, kwargs nil", p.publish(kwargs=None)
    yield "publish, metadata", p.publish(kwargs={"metadata": {"a": 1}, "nocache": True})


def fatal(p):
    """Each of these ends a worker of stock's for good: none of its later requests is answered."""
    yield "version nil", p.clear({"cmd": "ping"}, version=None)
    yield "version a list", p.clear({"cmd": "ping"}, version=[3])
    event = {"cmd": "_minion_event", "tag": "my/tag", "data": {}}
    yield "no ts", p.sealed(p.load(**event, ts=...))
    yield "ts a text", p.sealed(p.load(**event, ts="now"))
    raw = salt.crypt.Crypticle(OPTS, p.session).encrypt(b"\x80")
    yield "load without its prefix", salt.payload.dumps(
        {"enc": "aes", "version": 3, "id": "m1", "load": raw})
    yield "no id in the load", p.sealed(p.load(**event, id=...))
    yield "a ping at the end", p.clear({"cmd": "ping"})


def main():
    port, root, vectors = sys.argv[1:4]
    probe = Probe(port, root, json.loads(pathlib.Path(vectors).read_text()))
    groups = [malformed, clear_commands, auth, sealed, publish, returns, pillar]
    if sys.argv[4:] == ["--fatal"]:
        groups.append(fatal)
    for group in groups:
        for name, payload in group(probe):
            started = time.monotonic()
            answer = probe.shown(probe.send(payload))
            print(json.dumps({"name": f"{group.__name__}: {name}", "answer": answer}), flush=True)
            took = time.monotonic() - started
            if took > 2:
                print(f"{name}: {took:.1f} s", file=sys.stderr)


main()
