"""Posts what the arguments say to webhooks, with the library of Python, and prints each status.

The first two arguments are the master's; each further one is a JSON object: `url`, and perhaps `body` (text), `headers`, `method`.
"""

import json
import ssl
import sys
import urllib.error
import urllib.request

trusting = ssl.create_default_context()
trusting.check_hostname = False
trusting.verify_mode = ssl.CERT_NONE

for argument in sys.argv[3:]:
    call = json.loads(argument)
    request = urllib.request.Request(
        call["url"],
        data=call.get("body", "").encode(),
        headers=call.get("headers", {}),
        method=call.get("method", "POST"),
    )
    try:
        with urllib.request.urlopen(request, context=trusting, timeout=180) as answer:
            print(answer.status)
    except urllib.error.HTTPError as error:
        print(error.code)
