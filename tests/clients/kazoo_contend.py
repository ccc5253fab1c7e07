"""kazoo clients that take one lock over and over: kazoo_contend.py HOSTS LOCK SECONDS THREADS own|of-curator. A line for each grant.

With `own` they are kazoo's own locks, with `of-curator` such as Curator sees.
"""

import sys
import threading
import time

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException
from kazoo.recipe.lock import Lock
from kazoo.retry import KazooRetry

HOSTS, LOCK, SECONDS, THREADS, NAMES = sys.argv[1], sys.argv[2], float(sys.argv[3]), int(sys.argv[4]), sys.argv[5]
UNTIL = time.monotonic() + SECONDS
PRINTING = threading.Lock()


class CuratorsLock(Lock):
    """A lock whose nodes are named as Curator's. With kazoo's own names Curator would take the lock while kazoo holds it."""

    _NODE_NAME = "-lock-"
    _EXCLUDE_NAMES = ["-lock-", "__lock__"]


RECIPE = {"own": Lock, "of-curator": CuratorsLock}[NAMES]


def run(number):
    retry = KazooRetry(max_tries=-1, delay=0.1, max_delay=1.0)
    client = KazooClient(hosts=HOSTS, timeout=15, connection_retry=retry, command_retry=retry)
    client.start(timeout=30)
    while time.monotonic() < UNTIL:
        # A new one each time, as a broken acquire leaves the old one in between.
        lock = RECIPE(client, LOCK, "kazoo-%d" % number)
        try:
            if not lock.acquire(timeout=20):
                continue
            begin = time.monotonic_ns()
            czxid = client.retry(client.get, LOCK + "/" + lock.node)[1].czxid
            time.sleep(0.002)
            end = time.monotonic_ns()
            with PRINTING:
                print("GRANT", begin, end, czxid, "kazoo-%d" % number, flush=True)
            client.retry(lock.release)
        except KazooException as error:
            print("retrying after", repr(error), file=sys.stderr)
    client.stop()


threads = [threading.Thread(target=run, args=(number,)) for number in range(THREADS)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
