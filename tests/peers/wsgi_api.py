"""Serves stock's rest_wsgi as its code means it.

`wsgi_api.py MASTER_CONFIG PORT`: stock's own server refuses every answer of it under Python 3, since
they are text and a server of WSGI takes bytes. Here they are encoded on their way.
"""

import os
import sys
from wsgiref.simple_server import make_server


def main():
    config, port = sys.argv[1:]
    os.environ["SALT_MASTER_CONFIG"] = config
    from salt.netapi import rest_wsgi

    def application(environ, start_response):
        parts = rest_wsgi.application(environ, start_response)
        return [part.encode() if isinstance(part, str) else part for part in parts]

    make_server("127.0.0.1", int(port), application).serve_forever()


main()
