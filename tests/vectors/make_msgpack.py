#!/usr/bin/env python3
"""Takes known answers for `saltern_wire::msgpack` and `::ipc` from stock Salt.

    tests/vectors/make_msgpack.py [--oracle DIR]     (default /work/oracle)

DIR holds one virtual environment for each version, `venv-<version>`, with stock Salt in it. This
script runs itself in each, takes what stock's own code packs, reads and sends, and writes
`msgpack.json` beside itself. It also plays the master: every version's event listener reads the
frames of the file from a socket, so the framing that each version is said to want is the one that
its listener understands.

What packing gives must be the same in all versions; only frames and stamps differ.
"""

import argparse
import json
import logging
import os
import pathlib
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import types

HERE = pathlib.Path(__file__).resolve().parent
VERSIONS = ["3006.28", "3007.15", "3008.3"]
# Which framing a version's listeners read; checked by `listen` below.
PUB_FRAMING = {"3006.28": "prefixed", "3007.15": "bare", "3008.3": "bare"}


def describe(value):
    """A value as JSON: [type, ...]."""
    import datetime

    import msgpack
    import salt.defaults

    if value is None:
        return ["nil"]
    if isinstance(value, bool):
        return ["bool", value]
    if isinstance(value, int):
        return ["int", str(value)]
    if isinstance(value, float):
        return ["float", struct.pack(">d", value).hex()]
    if isinstance(value, str):
        return ["str", value]
    if isinstance(value, bytes):
        return ["bin", value.hex()]
    if isinstance(value, (list, tuple)) and not isinstance(value, msgpack.ExtType):
        return ["array", [describe(item) for item in value]]
    if isinstance(value, dict):
        return ["map", [[describe(key), describe(item)] for key, item in value.items()]]
    if isinstance(value, datetime.datetime):
        return ["ext", 78, value.strftime("%Y%m%dT%H:%M:%S.%f").encode().hex()]
    if isinstance(value, salt.defaults._Constant):
        packed = msgpack.packb((value.name, value.value), use_bin_type=True)
        return ["ext", 79, packed.hex()]
    if isinstance(value, msgpack.Timestamp):
        return ["ext", -1, value.to_bytes().hex()]
    if isinstance(value, msgpack.ExtType):
        return ["ext", value.code, value.data.hex()]
    raise TypeError(f"no description for {value!r}")


def pack_vectors():
    """Values, and what stock makes of them in both dialects."""
    import datetime

    import msgpack
    import salt.defaults
    import salt.payload

    edges = [0, 1, 0x7F, 0x80, 0xFF, 0x100, 0xFFFF, 0x10000, 0xFFFFFFFF, 0x100000000]
    edges += [2**63 - 1, 2**63, 2**64 - 1]
    negative = [-1, -32, -33, -128, -129, -32768, -32769, -(2**31), -(2**31) - 1, -(2**63)]
    values = [None, True, False, *edges, *negative]
    values += [0.0, -0.0, 1.5, 0.1, 1e300, float("inf"), 3.0]
    values += ["", "a", "m1.example.org", "h\u00e4\u00df \u4e16\u754c \U0001f9c2", "\0\n\r"]
    values += [b"", b"raw", b"\xff\xfe", bytes(range(256))]
    values += [[], {}, [1, [2, [3, []]]], (1, 2), {"a": {"b": {}}}]
    values += [list(range(15)), list(range(16)), {str(key): key for key in range(16)}]
    values += [{1: "a", 2.5: "b", None: "c", True: "d", b"\xff": "e", "f": b"\xff", 2**64 - 1: 0}]
    values += [datetime.datetime(2026, 11, 21, 7, 10, 35, 637714), salt.defaults.NOT_SET]
    values += [salt.defaults._Constant("WITH", "value")]
    values += [msgpack.ExtType(code, b"x" * size) for code, size in
               [(1, 1), (2, 2), (3, 3), (127, 4), (4, 8), (5, 16), (6, 17), (7, 0)]]
    values += [msgpack.Timestamp(1, 0), msgpack.Timestamp(1, 5), msgpack.Timestamp(-1, 5)]
    values += [
        # The loads of a real life, with the fields that stock sends.
        {"cmd": "_return", "id": "m1", "success": True, "return": True, "retcode": 0,
         "jid": "20261121071035637714", "fun": "test.ping", "fun_args": [], "user": "root",
         "_stamp": "2026-11-21T07:10:35.637714", "nonce": "fc68" * 8, "ts": 1795244782,
         "tok": bytes(range(255, -1, -1))},
        {"cmd": "publish", "tgt": ["m1", "m2"], "fun": "cmd.run", "arg": ["echo \xe4"],
         "key": "k" * 64, "tgt_type": "list", "ret": "", "jid": "",
         "kwargs": {"delimiter": ":", "show_timeout": True, "show_jid": False}, "user": "root"},
        {"file_|-x_|-/tmp/x_|-managed": {"result": None, "changes": {"diff": "-a\n+b\n" * 9},
         "comment": "", "duration": 12.345, "__run_num__": 0, "start_time": "07:10:35.637714"}},
    ]
    vectors = []
    for value in values:
        vectors.append({
            "value": describe(value),
            "raw": salt.payload.dumps(value).hex(),
            "bin": salt.payload.dumps(value, use_bin_type=True).hex(),
        })
    # Long values: only what stands before the filling, and of which byte that is.
    for size in [31, 32, 255, 256, 65535, 65536]:
        for kind, value, byte, count in [
            ("str", "a" * size, "61", size),
            ("bin", b"\xfe" * size, "fe", size),
            ("array", [None] * size, "c0", size),
            ("ext", msgpack.ExtType(9, b"\xfe" * size), "fe", size),
        ]:
            packed = [salt.payload.dumps(value, use_bin_type=flag) for flag in (False, True)]
            fill = bytes.fromhex(byte) * count
            assert all(one.endswith(fill) for one in packed)
            heads = [one[: len(one) - count].hex() for one in packed]
            vectors.append({"fill": [kind, byte, count], "raw": heads[0], "bin": heads[1]})
    # What has no packed form of its own, and what it is packed as.
    converted = [
        {"input": "2**64", "packed": salt.payload.dumps(2**64).hex()},
        {"input": "-(2**63)-1", "packed": salt.payload.dumps(-(2**63) - 1).hex()},
        {"input": "{7}", "packed": salt.payload.dumps({7}).hex()},
    ]
    return {"pack": vectors, "converted": converted}


READ = [
    # Minimal and other forms.
    "00", "cc05", "cd0005", "ce00000005", "cf0000000000000005", "cfffffffffffffffff",
    "d005", "d0ff", "d1fffe", "d2fffffffd", "d3fffffffffffffffc", "ca3fc00000", "ca7f800000",
    "a161", "d90161", "da000161", "db0000000161", "c40161", "c500 0161", "c60000 000161",
    "d901ff", "a1ff", "da0001ff", "c401ff", "a0", "c400", "d900",
    "dc0001c0", "dd00000001c0", "de000101c0", "df0000000101c0", "90", "80",
    # Texts and bytes inside, and keys of all sorts.
    "82a26964a26d31a3726574a2ff00", "82c4026964c4026d31a3726574c402ff00", "81a2fffec0",
    "81c402fffec0", "8301c0c0c0cb3ff8000000000000c0", "81c3c0", "82a161 01a161 02", "82a161 01c401 61 02",
    "92a3c3a428a3e282ac", "92a3eda080c403eda080", "91c403e282ac", "a2c080", "a4f4908080",
    # Extensions, known and not, whole and broken.
    "c7184e" + b"20261121T07:10:35.637714".hex(), "c7184e" + b"20261321T07:10:35.637714".hex(),
    "c70a4f92a74e4f545f534554c0", "c7014f90", "d44eff", "d40161", "d401ff", "c70001", "c7030161 6263",
    "d6ff00000001", "d7ff0000001400000001", "c70cff000000050000000400000001", "d5ff0000",
    "91d40161", "81d4016105", "91c7184e" + b"20261121T07:10:35.637714".hex(),
    "d8ff" + "00" * 16, "d7ffffffffffffffffff",
    # Malformed.
    "", "c1", "91c1", "92c0", "81a161", "a2ff", "d9", "d905", "da00", "c6ffffffff", "dd0000000f",
    "ca3f", "cb00", "cd00", "c7", "c701", "d4", "c0c0", "9000", "8190c0", "8180c0", "8191c0c0",
]


def read_vectors():
    """Packed bytes, what stock reads in them, and how it passes that on."""
    import salt.payload
    from salt.exceptions import SaltDeserializationError

    vectors = []
    for text in READ:
        packed = bytes.fromhex(text)
        vector = {"packed": packed.hex()}
        try:
            value = salt.payload.loads(packed)
            vector["wire"] = describe(value)
            vector["again_raw"] = salt.payload.dumps(value).hex()
            vector["again_bin"] = salt.payload.dumps(value, use_bin_type=True).hex()
        except SaltDeserializationError:
            pass
        try:
            vector["listener"] = describe(salt.payload.loads(packed, encoding="utf-8"))
        except SaltDeserializationError:
            pass
        vectors.append(vector)
    return vectors


EVENTS = [
    ("my/own/tag", {"x": 1}),
    ("salt/job/20261121071035637714/ret/m1",
     {"id": "m1", "return": "h\u00e4", "retcode": 0, "bytes": b"\xff\x00", "cmd": "_return"}),
    ("salt/big", {"text": "a" * 70000}),
]


def send_events(version):
    """What `fire_event` of this version writes into master_event_pull.ipc."""
    import datetime

    import salt.config
    import salt.transport.frame
    import salt.utils.event

    # The stamp of every event, so that a new run gives the same file.
    class Frozen(datetime.datetime):
        @classmethod
        def now(cls, tz=None):
            return cls(2026, 11, 21, 7, 10, 35, 637714, tzinfo=tz)

        utcnow = now

    salt.utils.event.datetime = types.SimpleNamespace(datetime=Frozen, timezone=datetime.timezone)
    with tempfile.TemporaryDirectory() as sock_dir:
        opts = salt.config.master_config(None)
        opts.update(sock_dir=sock_dir, cachedir=sock_dir, __role="master")
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(os.path.join(sock_dir, "master_event_pull.ipc"))
        listener.listen(8)
        received, complete = bytearray(), threading.Event()
        expected = len(EVENTS)

        def read():
            connection, _ = listener.accept()
            with connection:
                while not complete.is_set():
                    part = connection.recv(65536)
                    received.extend(part)
                    if not part or len(split_prefixed(received)) == expected:
                        complete.set()

        reader = threading.Thread(target=read, daemon=True)
        reader.start()
        with salt.utils.event.MasterEvent(sock_dir, opts=opts, listen=False) as events:
            for tag, data in EVENTS:
                assert events.fire_event(dict(data), tag, timeout=5000)
        assert complete.wait(20), f"{version}: got {bytes(received[:80])!r}"
        listener.close()
    frames = split_prefixed(received)
    vectors = []
    for (tag, _), frame in zip(EVENTS, frames):
        body = salt.utils.msgpack.loads(frame[4:], raw=False)["body"]
        assert frame == salt.transport.frame.frame_msg_ipc(body)
        read_tag, data = salt.utils.event.SaltEvent.unpack(body)
        assert read_tag == tag
        vector = {"tag": tag, "data": body[len(tag) + 2 :].hex(), "prefixed": frame.hex()}
        if len(frame) > 1000:
            # The filling of the long event is left out on both sides.
            start = body.index(b"a" * 70000) - len(tag) - 2
            vector["fill"] = ["61", 70000, start, frame.index(b"a" * 70000)]
            vector["data"] = vector["data"].replace("61" * 70000, "")
            vector["prefixed"] = vector["prefixed"].replace("61" * 70000, "")
        vectors.append(vector)
    return vectors


def split_prefixed(received):
    """The whole frames in a stream of length-prefixed ones."""
    frames, at = [], 0
    while at + 4 <= len(received):
        end = at + 4 + struct.unpack_from(">I", received, at)[0]
        if end > len(received):
            break
        frames.append(bytes(received[at:end]))
        at = end
    return frames


def listen(version):
    """Checks that this version's listener reads the events in the framing said above."""
    import salt.config
    import salt.transport.frame
    import salt.utils.event

    with tempfile.TemporaryDirectory() as sock_dir:
        opts = salt.config.master_config(None)
        opts.update(sock_dir=sock_dir, cachedir=sock_dir, __role="master")
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(os.path.join(sock_dir, "master_event_pub.ipc"))
        listener.listen(8)
        done = threading.Event()

        def write():
            connection, _ = listener.accept()
            with connection:
                for tag, data in EVENTS:
                    data = salt.payload.dumps(dict(data, _stamp="now"), use_bin_type=True)
                    frame = salt.transport.frame.frame_msg_ipc(tag.encode() + b"\n\n" + data)
                    connection.sendall(frame[4:] if PUB_FRAMING[version] == "bare" else frame)
                done.wait(30)

        threading.Thread(target=write, daemon=True).start()
        with salt.utils.event.MasterEvent(sock_dir, opts=opts, listen=True) as events:
            for tag, data in EVENTS:
                event = events.get_event(wait=10, tag=tag, full=True)
                assert event == {"tag": tag, "data": dict(data, _stamp="now")}, (version, event)
        done.set()
        listener.close()


def emit(version):
    """All that one version has to say."""
    import salt.version

    logging.disable()
    assert salt.version.__version__ == version, salt.version.__version__
    listen(version)
    vectors = {**pack_vectors(), "read": read_vectors(), "sent": send_events(version)}
    json.dump(vectors, sys.stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--oracle", default="/work/oracle", type=pathlib.Path)
    parser.add_argument("--emit", metavar="VERSION", help="used by the script itself")
    options = parser.parse_args()
    if options.emit:
        return emit(options.emit)
    answers = {}
    for version in VERSIONS:
        python = options.oracle / f"venv-{version}" / "bin" / "python"
        command = [python, "-W", "ignore", __file__, "--emit", version]
        answers[version] = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE,
                                                     text=True).stdout)
    common = {}
    for section in ["pack", "converted", "read"]:
        common[section] = answers[VERSIONS[0]][section]
        for version in VERSIONS[1:]:
            assert answers[version][section] == common[section], (version, section)
    frames = {version: {"pub": PUB_FRAMING[version], "sent": answers[version]["sent"]}
              for version in VERSIONS}
    write(HERE / "msgpack.json", {"made_by": pathlib.Path(__file__).name, **common,
                                  "frames": frames})


def write(path, vectors):
    """One vector a line, so that a change can be read."""
    lines = []
    for section, content in vectors.items():
        if isinstance(content, list):
            rows = ",\n".join(json.dumps(row, ensure_ascii=True) for row in content)
            lines.append(f"{json.dumps(section)}: [\n{rows}\n]")
        else:
            lines.append(f"{json.dumps(section)}: {json.dumps(content, ensure_ascii=True)}")
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
