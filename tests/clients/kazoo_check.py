"""kazoo against zlock. Ends with "kazoo: all checks passed", or an exception.

    kazoo_check.py check HOSTS
    kazoo_check.py attached HOSTS    says which node it is on, and goes on once that was killed: see run.py
    kazoo_check.py silent HOSTS      makes an ephemeral znode, tells of it, and waits to be killed
    kazoo_check.py beside HOSTS HTTP-HOSTS    its locks and those of HTTP clients, who waits for whom
"""

import sys
import threading
import time

from kazoo.client import KazooClient, KazooState
from kazoo.exceptions import BadVersionError, NoAuthError, NodeExistsError, NoNodeError, NotEmptyError, RolledBackError
from kazoo.recipe.barrier import DoubleBarrier
from kazoo.recipe.counter import Counter
from kazoo.recipe.election import Election
from kazoo.recipe.lock import Lock, ReadLock, Semaphore, WriteLock
from kazoo.recipe.partitioner import SetPartitioner
from kazoo.recipe.queue import LockingQueue, Queue
from kazoo.recipe.watchers import ChildrenWatch, DataWatch
from kazoo.security import CREATOR_ALL_ACL, OPEN_ACL_UNSAFE, make_digest_acl

from http_session import Session

MODE, HOSTS, *MORE = sys.argv[1:]
ROOT = "/kazoo-%d" % time.monotonic_ns()


def client(timeout=10, **more):
    one = KazooClient(hosts=HOSTS, timeout=timeout, **more)
    one.start(timeout=20)
    return one


def that(good, what):
    assert good, "FAILED: " + what
    print("ok", what)


def fails(error, call, *args, **more):
    try:
        call(*args, **more)
    except error:
        return True
    return False


def forbidden(reader, path, read="get"):
    """A node answers reads from its own copy, which may be behind the write of another client: sync first."""
    reader.sync(path)
    return fails(NoAuthError, getattr(reader, read), path)


def until(condition, what):
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline, "FAILED: " + what
        time.sleep(0.01)
    print("ok", what)


def znodes(one):
    one.ensure_path(ROOT + "/a")
    one.create(ROOT + "/a/b", b"x")
    that(one.get(ROOT + "/a/b")[0] == b"x", "create and read")
    that(one.set(ROOT + "/a/b", b"y", version=0).version == 1, "set")
    that(fails(BadVersionError, one.set, ROOT + "/a/b", b"", version=0), "bad version")
    that(fails(NotEmptyError, one.delete, ROOT + "/a"), "not empty")
    that(fails(NodeExistsError, one.create, ROOT + "/a"), "node exists")
    that(fails(NoNodeError, one.get, ROOT + "/none"), "no node")
    made = [one.create(ROOT + "/a/s-", sequence=True) for _ in range(3)]
    that([path[-1] for path in made] == ["1", "2", "3"], "sequential")
    txn = one.transaction()
    txn.create(ROOT + "/t", b"1")
    txn.check(ROOT + "/a/b", version=1)
    txn.delete(ROOT + "/t")
    that(txn.commit() == [ROOT + "/t", True, True], "transaction")
    txn = one.transaction()
    txn.create(ROOT + "/t", b"1")
    txn.delete(ROOT + "/none")
    results = txn.commit()
    that(isinstance(results[0], RolledBackError) and isinstance(results[1], NoNodeError), "a failed transaction")
    futures = [one.set_async(ROOT + "/a/b", b"z") for _ in range(2000)]
    that([future.get(30).version for future in futures] == list(range(2, 2002)), "2000 pipelined writes in order")
    that(one.server_version() >= (3, 5), "server_version")
    that(one.sync(ROOT) == ROOT, "sync")


def watches(one, two):
    seen = []
    DataWatch(one, ROOT + "/w", func=lambda data, stat: seen.append(data))
    two.create(ROOT + "/w", b"1")
    until(lambda: seen[-1:] == [b"1"], "a data watch sees a create")
    two.set(ROOT + "/w", b"2")
    until(lambda: seen[-1:] == [b"2"], "and a set")
    names = []
    ChildrenWatch(one, ROOT + "/w", func=lambda children: names.append(sorted(children)))
    two.create(ROOT + "/w/x", ephemeral=True)
    until(lambda: names[-1:] == [["x"]], "a children watch sees a child")
    two.delete(ROOT + "/w/x")
    until(lambda: names[-1:] == [[]], "and that it goes")


def acls(one, two):
    one.add_auth("digest", "bob:secret")
    one.create(ROOT + "/acl", b"", acl=[make_digest_acl("bob", "secret", all=True)])
    that(forbidden(two, ROOT + "/acl"), "an ACL forbids")
    one.set(ROOT + "/acl", b"x")
    one.delete(ROOT + "/acl")
    creators(two)


def creators(one):
    """Its id is empty, which kazoo writes as null."""
    mine = client(default_acl=CREATOR_ALL_ACL, auth_data=[("digest", "alice:secret")])
    mine.create(ROOT + "/mine", b"x", acl=CREATOR_ALL_ACL)
    that(forbidden(one, ROOT + "/mine"), "CREATOR_ALL_ACL in create")
    mine.create(ROOT + "/mine2", b"x", acl=CREATOR_ALL_ACL, include_data=True)
    that(forbidden(one, ROOT + "/mine2"), "in create2")
    mine.create(ROOT + "/mine3", b"x", acl=OPEN_ACL_UNSAFE)
    mine.set_acls(ROOT + "/mine3", CREATOR_ALL_ACL)
    that(forbidden(one, ROOT + "/mine3"), "in set_acls")
    mine.ensure_path(ROOT + "/deep/er")
    that(forbidden(one, ROOT + "/deep/er"), "in ensure_path")
    txn = mine.transaction()
    txn.create(ROOT + "/mine4", b"x", acl=CREATOR_ALL_ACL)
    that(txn.commit() == [ROOT + "/mine4"] and forbidden(one, ROOT + "/mine4"), "in a transaction")
    with mine.Lock(ROOT + "/mine-lock", "mine"):
        that(forbidden(one, ROOT + "/mine-lock", "get_children"), "and a lock takes it")
    mine.stop()


def locks(one, two):
    mine, yours = one.Lock(ROOT + "/lock", "one"), two.Lock(ROOT + "/lock", "two")
    mine.acquire()
    that(mine.contenders() == ["one"] and not yours.acquire(blocking=False), "a lock excludes")
    mine.release()
    that(yours.acquire(timeout=10), "a lock is handed over")
    yours.release()
    reads = ReadLock(one, ROOT + "/rw"), ReadLock(two, ROOT + "/rw")
    that(all(lock.acquire(timeout=10) for lock in reads), "readers share")
    write = WriteLock(two, ROOT + "/rw")
    that(not write.acquire(blocking=False), "a writer waits for readers")
    for lock in reads:
        lock.release()
    that(write.acquire(timeout=10), "a writer")
    write.release()
    semaphores = [Semaphore(which, ROOT + "/semaphore", max_leases=2) for which in (one, two, one)]
    that(semaphores[0].acquire() and semaphores[1].acquire(), "a semaphore of two")
    that(not semaphores[2].acquire(blocking=False), "and no third")
    semaphores[0].release()
    semaphores[1].release()


def recipes(one, two):
    counter = Counter(one, ROOT + "/counter")
    for _ in range(20):
        counter += 1
    that(counter.value == 20, "a counter")
    queue = LockingQueue(one, ROOT + "/queue")
    queue.put_all([b"a", b"b"])
    that(queue.get(timeout=10) == b"a" and queue.consume(), "a locking queue")
    plain = Queue(two, ROOT + "/plain")
    plain.put(b"x")
    that(plain.get() == b"x", "a queue")
    led = []
    election = Election(one, ROOT + "/election", "one")
    election.run(lambda: led.append(1))
    that(led == [1], "an election")
    barriers = [DoubleBarrier(which, ROOT + "/barrier", 2) for which in (one, two)]
    threads = [threading.Thread(target=lambda one=one: (one.enter(), one.leave())) for one in barriers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    that(not any(thread.is_alive() for thread in threads), "a double barrier")
    parts = SetPartitioner(one, ROOT + "/partition", set=("x", "y"), time_boundary=0.1)
    parts.wait_for_acquire(20)
    that(sorted(parts) == ["x", "y"], "a partitioner")
    parts.finish()


def sessions(one):
    other = client()
    other.create(ROOT + "/e", ephemeral=True)
    other.stop()
    one.sync(ROOT)
    that(one.exists(ROOT + "/e") is None, "an ephemeral goes with its session")
    states = []
    one.add_listener(states.append)
    one.create(ROOT + "/e", ephemeral=True)
    before = one.client_id
    # The socket breaks; the session is resumed, here or on another node.
    one._connection._socket.shutdown(2)
    until(lambda: states[-2:] == [KazooState.SUSPENDED, KazooState.CONNECTED], "a session is resumed")
    that(one.client_id == before and one.exists(ROOT + "/e").ephemeralOwner == before[0], "and is the same one")
    one.remove_listener(states.append)


def check():
    one, two = client(), client()
    znodes(one)
    watches(one, two)
    acls(one, two)
    locks(one, two)
    recipes(one, two)
    sessions(one)
    one.stop()
    two.stop()
    print("kazoo: all checks passed")


def attached():
    one = client(timeout=15)
    one.create(ROOT, ephemeral=True)
    one.create(ROOT + "-watched")
    changed = threading.Event()
    one.get(ROOT + "-watched", watch=lambda event: changed.set())
    before = one.client_id
    print("ATTACHED", one._connection._socket.getpeername()[1], ROOT + "-watched", flush=True)
    sys.stdin.readline()
    that(changed.wait(30), "a watch hears of what it missed")
    stat = one.retry(one.exists, ROOT)
    that(one.client_id == before and stat.ephemeralOwner == before[0], "the session goes on elsewhere")
    one.stop()


def silent():
    client(timeout=4).create(ROOT, ephemeral=True)
    print("SILENT", ROOT, flush=True)
    sys.stdin.readline()


def beside():
    """Each recipe beside a ticket of each mode, in both orders. kazoo's Lock does not see readers, neither its own nor these."""
    one, http = client(), Session(MORE[0].split(","))
    for mode in ["exclusive", "write", "election", "read"]:
        for recipe in [Lock, WriteLock, ReadLock]:
            shared = mode == "read" and recipe is ReadLock
            unseen = mode == "read" and recipe is Lock
            pair = "a ticket of mode %s and kazoo's %s" % (mode, recipe.__name__)
            path = "%s-%s-%s" % (ROOT, mode, recipe.__name__)
            mine = recipe(one, path)
            first = http.acquire(path, mode, "wait=10s")
            assert first["state"] == "held", first
            that(mine.acquire(blocking=False) == (shared or unseen), pair + ": kazoo behind it " + ("goes on" if shared or unseen else "waits"))
            http.release(first)
            that(mine.is_acquired or mine.acquire(timeout=10), pair + ": kazoo has it then")
            czxid = one.get(path + "/" + mine.node)[1].czxid
            that(first["fencing_token"] < czxid, pair + ": with a larger token")
            second = http.acquire(path, mode, "keep=true&wait=1ms")
            that((second["state"] == "held") == shared, pair + ": HTTP behind it " + ("goes on" if shared else "waits"))
            mine.release()
            second = http.wait(second)
            that(second["state"] == "held" and second["fencing_token"] > czxid, pair + ": HTTP has it then, with a larger token")
            http.release(second)
    elections(one, http)
    one.stop()
    print("kazoo: all pairs passed")


def elections(one, http):
    path, led = ROOT + "-led", threading.Event()
    first = http.acquire(path, "election", "wait=10s")
    leader = threading.Thread(target=lambda: Election(one, path, "kazoo").run(led.set))
    leader.start()
    until(lambda: len(one.get_children(path)) == 2, "an election of kazoo waits for a candidate over HTTP")
    that(not led.is_set(), "and does not lead")
    http.release(first)
    leader.join(20)
    that(led.is_set(), "an election of kazoo leads after it")


{"check": check, "attached": attached, "silent": silent, "beside": beside}[MODE]()
