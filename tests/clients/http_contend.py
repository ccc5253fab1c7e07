"""HTTP clients that take one lock over and over: http_contend.py HOSTS LOCK SECONDS THREADS. A line for each grant."""

import json
import sys
import threading
import time
import urllib.error
import urllib.request
import uuid

HOSTS, LOCK, SECONDS, THREADS = sys.argv[1].split(","), sys.argv[2], float(sys.argv[3]), int(sys.argv[4])
UNTIL = time.monotonic() + SECONDS
PRINTING = threading.Lock()


class Client:
    """One client with one session. Whatever cannot be answered is asked again, on the next node, with the same key."""

    def __init__(self, number):
        self.number, self.turn, self.session = number, number, None

    def call(self, method, path, body=b"", key=None):
        while True:
            self.turn += 1
            request = urllib.request.Request(
                "http://%s%s" % (HOSTS[self.turn % len(HOSTS)], path), data=body, method=method
            )
            if self.session:
                request.add_header("Zlock-Session", self.session)
            if key:
                request.add_header("Idempotency-Key", key)
            try:
                with urllib.request.urlopen(request, timeout=15) as answer:
                    return answer.status, json.load(answer)
            except urllib.error.HTTPError as error:
                if error.code < 500:
                    return error.code, json.load(error)
            except OSError:
                pass
            time.sleep(0.1)

    def run(self):
        _, opened = self.call("POST", "/v1/sessions", b'{"timeout_ms":15000}')
        self.session = opened["session"]
        while time.monotonic() < UNTIL:
            key = str(uuid.uuid4())
            status, ticket = self.call("POST", "/v1/locks%s?wait=10s" % LOCK, key=key)
            if ticket.get("state") != "held":
                continue
            begin = time.monotonic_ns()
            time.sleep(0.002)
            end = time.monotonic_ns()
            with PRINTING:
                print("GRANT", begin, end, ticket["fencing_token"], "http-%d" % self.number, flush=True)
            self.call("DELETE", "/v1/tickets" + ticket["ticket"], key=str(uuid.uuid4()))


threads = [threading.Thread(target=Client(number).run) for number in range(THREADS)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
