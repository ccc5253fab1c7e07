"""HTTP clients that take one lock over and over: http_contend.py HOSTS LOCK SECONDS THREADS. A line for each grant."""

import sys
import threading
import time
import uuid

from http_session import Session

HOSTS, LOCK, SECONDS, THREADS = sys.argv[1].split(","), sys.argv[2], float(sys.argv[3]), int(sys.argv[4])
UNTIL = time.monotonic() + SECONDS
PRINTING = threading.Lock()


def run(number):
    session = Session(HOSTS, number)
    while time.monotonic() < UNTIL:
        ticket = session.acquire(LOCK, "exclusive", "wait=10s")
        if ticket.get("state") != "held":
            continue
        begin = time.monotonic_ns()
        time.sleep(0.002)
        end = time.monotonic_ns()
        with PRINTING:
            print("GRANT", begin, end, ticket["fencing_token"], "http-%d" % number, flush=True)
        session.call("DELETE", "/v1/tickets" + ticket["ticket"], key=str(uuid.uuid4()))


threads = [threading.Thread(target=run, args=(number,)) for number in range(THREADS)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
