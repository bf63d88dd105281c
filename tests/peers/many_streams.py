"""Holds many streams of events open.

`many_streams.py URL TOKEN COUNT`: a line is answered with how many of the streams have begun, as soon
as all have; the next one with JSON, when all have ended: how many `ended` by a proper end of the
response, and the `seconds` between the line and the last end.
"""

import asyncio
import json
import sys
import time
import urllib.parse


async def follow(url, token, begun):
    """Whether a stream had a proper end. One that a busy master closes before it begins is opened anew."""
    has_begun = False
    while not has_begun:
        reader, writer = await asyncio.open_connection(url.hostname, url.port)
        writer.write(f"GET {url.path} HTTP/1.1\r\nHost: a\r\nX-Auth-Token: {token}\r\n\r\n".encode())
        try:
            async for line in reader:
                if line.startswith(b"retry:"):
                    has_begun = True
                    begun.release()
                # The last chunk of a response that was ended and not cut.
                if line == b"0\r\n":
                    return True
        except OSError:
            pass
        finally:
            writer.close()
    return False


async def main():
    url, token, count = urllib.parse.urlsplit(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    ask = lambda: asyncio.to_thread(sys.stdin.readline)
    begun = asyncio.Semaphore(0)
    streams = [asyncio.create_task(follow(url, token, begun)) for _ in range(count)]
    await ask()
    opened = 0
    try:
        async with asyncio.timeout(120):
            for opened in range(1, count + 1):
                await begun.acquire()
    except TimeoutError:
        pass
    print(opened, flush=True)
    await ask()
    began = time.monotonic()
    ended = await asyncio.gather(*streams)
    took = time.monotonic() - began
    print(json.dumps({"ended": sum(ended), "seconds": took}), flush=True)


asyncio.run(main())
