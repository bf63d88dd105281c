#!/usr/bin/env python3
"""Makes the pictures of the console in docs/console of what its tests have left in target/console.

`make console-shots` runs both. A page has few colours, so each picture is a PNG with a palette. It is
written with Python alone: what it needs is a filter, a table of colours and zlib.
"""

import pathlib
import struct
import sys
import zlib

ROOT = pathlib.Path(__file__).resolve().parent.parent
MAX_BYTES = 150_000

# Pictures of target/console, and their names in docs/console.
CHOSEN = {
    "three/now-light": "now",
    "three/now-dark": "now-dark",
    "three/jobs-light": "jobs",
    "three/job-state-dark": "job-dark",
    "three/run-confirm-light": "run",
    "three/keys-light": "keys",
    "three/events-dark": "events-dark",
    "three/batches-light": "batches",
    "three/minion-narrow": "minion-narrow",
    "three/drift-light": "drift",
    "three/audit-verified-light": "audit",
    "three/orchestration-light": "orchestration",
    "three/orchestration-running-light": "orchestration-running",
    "three/reactor-letter-light": "reactor",
    "three/schedule-job-light": "schedule",
    "many/minions-light": "minions-5000",
}


def pixels(data):
    """Width, height and the RGB of each pixel of a PNG with 8 bits a channel, without interlacing."""
    width, height, depth, kind = struct.unpack(">IIBB", data[16:26])
    if depth != 8 or kind not in (2, 6):
        sys.exit("the browser writes another kind of PNG")
    size = 4 if kind == 6 else 3
    packed, place = b"", 8
    while place < len(data):
        length, name = struct.unpack(">I4s", data[place : place + 8])
        if name == b"IDAT":
            packed += data[place + 8 : place + 8 + length]
        place += 12 + length
    raw, stride = zlib.decompress(packed), width * size
    before, found = bytearray(stride), []
    for row in range(height):
        start = row * (stride + 1)
        line = bytearray(raw[start + 1 : start + 1 + stride])
        unfilter(raw[start], line, before, size)
        found += [bytes(line[at : at + 3]) for at in range(0, stride, size)]
        before = line
    return width, height, found


def unfilter(kind, line, above, size):
    """Undoes the filter of a line in place (PNG, clause 9)."""
    for at in range(len(line) if kind else 0):
        left = line[at - size] if at >= size else 0
        corner = above[at - size] if at >= size else 0
        if kind == 1:
            guess = left
        elif kind == 2:
            guess = above[at]
        elif kind == 3:
            guess = (left + above[at]) // 2
        else:
            first = left + above[at] - corner
            guess = min((left, above[at], corner), key=lambda one: abs(first - one))
        line[at] = (line[at] + guess) & 255


def distance(one, other):
    return sum((a - b) ** 2 for a, b in zip(one, other))


def palette(found):
    """Up to 256 colours, and which of them each colour becomes.

    The most frequent come first. Then those that are unlike all before them: a small mark in a colour of
    its own would turn grey otherwise.
    """
    counts = {}
    for colour in found:
        counts[colour] = counts.get(colour, 0) + 1
    by_count = sorted(counts, key=counts.get, reverse=True)
    chosen, rest = by_count[:96], by_count[96:]
    for unlike in (900, 200, 0):
        for colour in rest:
            if len(chosen) < 256 and min(distance(colour, one) for one in chosen) > unlike:
                chosen.append(colour)
    places = {colour: place for place, colour in enumerate(chosen)}
    for colour in rest:
        if colour not in places:
            places[colour] = places[min(chosen, key=lambda one: distance(one, colour))]
    return chosen, places


def chunk(name, data):
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def reduced(data):
    """The same picture with a palette."""
    width, height, found = pixels(data)
    chosen, places = palette(found)
    rows = bytearray()
    for row in range(height):
        rows.append(0)
        rows += bytes(places[colour] for colour in found[row * width : (row + 1) * width])
    head = struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)
    parts = [(b"IHDR", head), (b"PLTE", b"".join(chosen)), (b"IDAT", zlib.compress(bytes(rows), 9)), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunk(name, part) for name, part in parts)


def main():
    target = ROOT / "docs/console"
    target.mkdir(exist_ok=True)
    for source, name in CHOSEN.items():
        picture = reduced((ROOT / f"target/console/{source}.png").read_bytes())
        if len(picture) > MAX_BYTES:
            sys.exit(f"{name}.png has {len(picture)} bytes, more than {MAX_BYTES}")
        (target / f"{name}.png").write_bytes(picture)
        print(f"docs/console/{name}.png: {len(picture)} bytes")


main()
