#!/usr/bin/env python3
"""zlock beside a real ZooKeeper 3.8, asked the same: four-letter words field by field, with the shape of each value; and null in each field
of each request.

    tests/clients/compare.py [--zlock PATH] [--cache target/clients]

Starts three servers of each on loopback, and again each without a quorum. ZooKeeper's jars come from Debian: those that are installed, or
`apt-get download` into the cache. Exit code: 0 when nothing differs but what docs/zookeeper.md says, 1 when something does, 75 when
ZooKeeper cannot be had: the last line says so, "NOT RUN: ...".
"""

import sys

sys.dont_write_bytecode = True

import contextlib
import re
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import time
from pathlib import Path

from scene import PATIENCE_S, Cluster, Debian, Missing, arguments, built, free_ports, not_run, say, wait_until

INSTALLED = Path("/usr/share/java")
PACKAGES = "libzookeeper-java libslf4j-java libnetty-java libsnappy-java libdropwizard-metrics-java libcommons-cli-java libcommons-io-java".split()
JARS = re.compile(r"(zookeeper|zookeeper-jute|slf4j-api|slf4j-nop|netty-[a-z-]+|snappy-java|metrics-core|commons-cli|commons-io)\.jar")
# How long an answer about null may take.
ANSWER_S = 3
WORDS = "conf cons crst dirs dump envi gtmk hash isro mntr ruok srst srvr stat stmk wchc wchp wchs".split()

# Fields of mntr that zlock has not, with the reason. All that ServerMetrics counts of ZooKeeper's own processors comes behind these.
NO_FIELD = {
    "zk_leader_uptime": "not kept",
    "zk_outstanding_tls_handshake": "handshakes are not counted while they last",
}
# Lines of words that are of another shape on purpose.
OTHER_LINES = {
    "envi": re.compile(r"java\.|os\.memory\."),
    # ZooKeeper's own expiry queues, by time.
    "dump": re.compile(r"N expire |\d+ expire |Session Sets|Global Sessions|Connections Sets|\t?(HEX|0x)|\t?ip: "),
}
# What is told of a request without one.
NO_ANSWER = "no answer"
# What is answered otherwise, as docs/zookeeper.md says: field -> (ZooKeeper, zlock).
OTHER_NULLS = {
    "check.path": (-8, -5),
    "addWatch.path": (0, -8),
    "addWatch.path recursive": (0, -8),
    "sasl.token": ("closed", 0),
    "setWatches2.persistent[0]": (0, -5),
    "setWatches2.persistentRecursive[0]": (0, -5),
    **{"multi: %s.path" % name: (NO_ANSWER, -5) for name in "create create2 createContainer createTTL delete check setData".split()},
    **{"setWatches.%s" % name: (-5, 0) for name in ("data", "exist", "child")},
    **{"setWatches2.%s" % name: (-5, 0) for name in ("data", "exist", "child", "persistent", "persistentRecursive")},
}


def ask(port, word):
    """The answer to a word, or nothing where nobody answers."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=10) as asked:
            asked.sendall(word.encode() + (b"\0" * 8 if word == "stmk" else b""))
            return b"".join(iter(lambda: asked.recv(65536), b"")).decode()
    except OSError:
        return ""


class Servers:
    """Three servers of a kind. However this ends, they are ended by their ids."""

    def __init__(self, name, commands, ports, data):
        self.name, self.commands, self.ports, self.data = name, commands, ports, data
        self.start()

    def start(self):
        with open(self.data / (self.name + ".log"), "ab") as log:
            self.processes = [subprocess.Popen(command, stdout=log, stderr=log, cwd=self.data) for command in self.commands]

    def anew(self):
        """ZooKeeper's servers once more, without data."""
        self.stop()
        for kept in self.data.glob("zk?/version-2"):
            shutil.rmtree(kept)
        self.start()
        self.wait()

    def mode(self, mode):
        """The port of a server in this mode."""
        for port in self.ports:
            if "Mode: %s\n" % mode in ask(port, "srvr"):
                return port
        return None

    def wait(self):
        wait_until(self.name + " has a leader", lambda: self.mode("leader") and self.mode("follower"))
        # A leader counts its followers when they have been fed.
        wait_until(self.name + " has followers", lambda: "zk_synced_followers\t2\n" in ask(self.mode("leader") or 0, "mntr").replace(".0\n", "\n"))

    def leave_one(self):
        for process in self.processes[1:]:
            process.send_signal(signal.SIGKILL)
            process.wait()
        wait_until(self.name + " has no quorum", lambda: ask(self.ports[0], "isro") == "null")

    def stop(self):
        for process in self.processes:
            process.kill()
            process.wait()


def classpath(cache):
    found = [jar for jar in INSTALLED.glob("*.jar") if JARS.fullmatch(jar.name)] if INSTALLED.is_dir() else []
    if not any(jar.name == "zookeeper.jar" for jar in found):
        found = Debian(cache, PACKAGES).root / "usr/share/java"
        found = [jar for jar in found.glob("*.jar") if JARS.fullmatch(jar.name)]
    return ":".join(map(str, found))


def zookeeper(jars, data):
    ports = free_ports(9)
    commands = []
    for at in range(3):
        own = data / ("zk%d" % at)
        own.mkdir()
        (own / "myid").write_text("%d" % (at + 1))
        lines = ["tickTime=2000", "initLimit=10", "syncLimit=15", "maxClientCnxns=0", "dataDir=%s" % own, "clientPort=%d" % ports[at], "clientPortAddress=127.0.0.1",
                 "4lw.commands.whitelist=*", "admin.enableServer=false", "extendedTypesEnabled=true"]
        lines += ["server.%d=127.0.0.1:%d:%d" % (one + 1, ports[3 + one], ports[6 + one]) for one in range(3)]
        (own / "zoo.cfg").write_text("\n".join(lines) + "\n")
        commands.append(["java", "-Xmx96m", "-Dzookeeper.extendedTypesEnabled=true", "-cp", jars, "org.apache.zookeeper.server.quorum.QuorumPeerMain", own / "zoo.cfg"])
    return Servers("zookeeper", commands, ports[:3], data)


def zlock(program, data):
    cluster = Cluster(program, data, "--zookeeper-four-letter-words", "*", zookeeper=True)
    ports = [int(addr.rsplit(":")[-1]) for addr in cluster.zookeeper]
    return Servers("zlock", [cluster.command(at) for at in range(3)], ports, data)


# ---- words


def shape(value):
    """A value without what it says: number, address, date or text."""
    value = re.sub(r"^/.*", "PATH", value.strip())
    value = re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d UTC", "DATE", value)
    value = re.sub(r"0x[0-9a-f]+", "HEX", value)
    value = re.sub(r"3\.8\.0-\S+,", "VERSION,", value)
    return re.sub(r"-?\d+(\.\d+)?", "N", value)


def fields(word, text):
    """The lines of an answer as fields with the shape of their values."""
    found = {}
    for line in text.splitlines():
        if word in ("cons", "stat") and line.startswith(" /"):
            inside = line[line.index("(") + 1:line.rindex(")")]
            # The connection that asks has no session, and is not listed by zlock.
            if word == "stat" or "sid=" in inside:
                found.update((key, shape(value) if key != "lop" else "OP") for key, value in (one.split("=") for one in inside.split(",")))
            continue
        key, separator, value = next(((line.partition(by)) for by in ("\t", "=", ": ", ":") if by in line.strip()), (line, "", ""))
        found[shape(key) if not separator else key] = shape(value)
    return found


def compare_words(real, ours, wrong):
    """Field by field, of a leader and of a follower, with a session that has a watch and an ephemeral znode."""
    for mode in ("leader", "follower"):
        ports = [servers.mode(mode) for servers in (real, ours)]
        clients = [Client(port) for port in ports]
        for client in clients:
            client.call(1, text("/compare-" + mode) + buffer(b"x") + OPEN + int32(1))
            client.call(4, text("/compare-" + mode) + b"\1")
        for word in WORDS:
            theirs, mine = [ask(port, word) for port in ports]
            there, here = fields(word, theirs), fields(word, mine)
            passed = OTHER_LINES.get(word)
            for field, value in there.items():
                if not field or passed and passed.match(field) or word == "mntr" and (field in NO_FIELD or field not in BASE_FIELDS):
                    continue
                # Members, znodes and sessions are named as they are.
                if field.startswith(("server.", "0x", "\t0x", "/compare", "\t/compare", "/", "\t/")) or word == "hash" or "/compare" in field:
                    continue
                if field not in here:
                    wrong.append("%s of a %s: zlock has no %r" % (word, mode, field))
                elif word not in ("gtmk", "envi") and field != "zk_version" and here[field] != value and not {here[field], value} <= {"N", "PATH", "VERSION, built on DATE"}:
                    wrong.append("%s of a %s: %s is %r, of ZooKeeper %r" % (word, mode, field, here[field], value))
        for port in ports:
            version = ask(port, "srvr").splitlines()[0]
            if not re.fullmatch(r"Zookeeper version: 3\.8\.0-\S+, built on \d{4}-\d\d-\d\d \d\d:\d\d UTC", version):
                wrong.append("a version that parsers do not read: " + version)
        for one in ("zk_quorum_size", "zk_synced_followers", "zk_learners", "zk_pending_syncs", "zk_peer_state", "zk_server_state"):
            values = [re.search("%s\t(.*)\n" % one, ask(port, "mntr")) for port in ports]
            values = [found and found[1].removesuffix(".0") for found in values]
            if values[0] != values[1]:
                wrong.append("mntr of a %s: %s is %s, of ZooKeeper %s" % (mode, one, values[1], values[0]))
        for client in clients:
            client.socket.close()
    say("words of leaders and followers compared: %d words" % len(WORDS))


def compare_without_quorum(real, ours, wrong):
    for servers in (real, ours):
        servers.leave_one()
    for word in WORDS:
        theirs, mine = ask(real.ports[0], word), ask(ours.ports[0], word)
        if word in ("envi", "gtmk", "stmk"):
            continue
        if theirs.strip() != mine.strip():
            wrong.append("%s without a quorum: %r, of ZooKeeper %r" % (word, mine, theirs))
    for servers in (real, ours):
        try:
            Client(servers.ports[0])
            wrong.append(servers.name + " lets a client in without a quorum")
        except EOFError:
            pass
    say("words without a quorum compared, and that nobody is let in")


# ---- null


def int32(value):
    return struct.pack(">i", value)


def int64(value):
    return struct.pack(">q", value)


NULL = int32(-1)


def text(value):
    return NULL if value is None else int32(len(value)) + value.encode()


def buffer(value):
    return NULL if value is None else int32(len(value)) + value


def vector(items):
    return NULL if items is None else int32(len(items)) + b"".join(items)


def acl(scheme, name):
    return vector([int32(31) + text(scheme) + text(name)])


OPEN = acl("world", "anyone")


class Client:
    """A connection with a session."""

    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=20)
        self.send(int32(0) + int64(0) + int32(10000) + int64(0) + buffer(None) + b"\0")
        self.packet()

    def send(self, frame):
        self.socket.sendall(int32(len(frame)) + frame)

    def take(self, count):
        taken = b""
        while len(taken) < count:
            try:
                more = self.socket.recv(count - len(taken))
            except ConnectionError:
                more = b""
            if not more:
                raise EOFError
            taken += more
        return taken

    def packet(self):
        return self.take(struct.unpack(">i", self.take(4))[0])

    def call(self, op, body, xid=1):
        """The error of the answer, or of the first result of a multi that failed."""
        self.send(struct.pack(">ii", xid, op) + body)
        while True:
            answer = self.packet()
            number, _, error = struct.unpack(">iqi", answer[:16])
            if number == -1:
                continue
            if op == 14 and error == 0 and answer[16:20] == NULL and answer[20:21] == b"\0":
                return struct.unpack(">i", answer[21:25])[0]
            return error


def multi(op, body):
    return int32(op) + b"\0" + NULL + body + NULL + b"\1" + NULL


def nulls():
    """Each field of each request, null: its name, the operation, the body and the xid."""
    creates = [("create", 1, 0, b""), ("create2", 15, 0, b""), ("createContainer", 19, 4, b""), ("createTTL", 21, 5, int64(100000))]
    schemes = ["world", "auth", "digest", "ip", "x509", "super", "nope", None]
    for name, op, flags, behind in creates:
        end = int32(flags) + behind
        yield name + ".path", op, text(None) + buffer(b"x") + OPEN + end, 1
        yield name + ".data", op, text("/d%d" % op) + buffer(None) + OPEN + end, 1
        yield name + ".acl", op, text("/a%d" % op) + buffer(b"") + vector(None) + end, 1
        for scheme in schemes:
            yield "%s.acl.id of %s" % (name, scheme), op, text("/i%d%s" % (op, scheme)) + buffer(b"") + acl(scheme, None) + end, 1
        inside = text("/m%d" % op) + buffer(None) + OPEN + end
        yield "multi: %s.data" % name, 14, multi(op, inside), 1
        yield "multi: %s.path" % name, 14, multi(op, text(None) + buffer(b"") + OPEN + end), 1
        yield "multi: %s.acl" % name, 14, multi(op, text("/n%d" % op) + buffer(b"") + vector(None) + end), 1
        for scheme in schemes:
            inside = text("/j%d%s" % (op, scheme)) + buffer(b"") + acl(scheme, None) + end
            yield "multi: %s.acl.id of %s" % (name, scheme), 14, multi(op, inside), 1
    for scheme in schemes:
        yield "setACL.acl.id of %s" % scheme, 7, text("/null") + acl(scheme, None) + int32(-1), 1
    yield "setACL.acl", 7, text("/null") + vector(None) + int32(-1), 1
    for name, op in [("exists", 3), ("getData", 4), ("getChildren", 8), ("getChildren2", 12)]:
        yield name + ".path", op, NULL + b"\0", 1
        yield name + ".path with a watch", op, NULL + b"\1", 1
    for name, op in [("delete", 2), ("check", 13)]:
        yield name + ".path", op, NULL + int32(-1), 1
    for name, op, body in [("delete", 2, b""), ("check", 13, b""), ("setData", 5, buffer(b""))]:
        yield "multi: %s.path" % name, 14, multi(op, NULL + body + int32(-1)), 1
    for name, op in [("getData", 4), ("getChildren", 8)]:
        yield "multiRead: %s.path" % name, 22, multi(op, NULL + b"\0"), 1
    yield "setData.path", 5, NULL + buffer(b"") + int32(-1), 1
    yield "setData.data", 5, text("/null") + NULL + int32(-1), 1
    yield "setACL.path", 7, NULL + OPEN + int32(-1), 1
    for name, op in [("getACL", 6), ("sync", 9), ("getEphemerals", 103), ("getAllChildrenNumber", 104)]:
        yield name + ".path", op, NULL, 1
    yield "reconfig, all", 16, NULL * 3 + int64(-1), 1
    yield "checkWatches.path", 17, NULL + int32(3), 1
    yield "removeWatches.path", 18, NULL + int32(3), 1
    yield "addWatch.path", 106, NULL + int32(0), 1
    yield "addWatch.path recursive", 106, NULL + int32(1), 1
    yield "sasl.token", 102, NULL, 1
    yield "auth.scheme", 100, int32(0) + NULL + buffer(b"x:y"), -4
    yield "auth.auth of digest", 100, int32(0) + text("digest") + NULL, -4
    yield "auth.auth of ip", 100, int32(0) + text("ip") + NULL, -4
    for request, op, lists in [("setWatches", 101, ("data", "exist", "child")),
                               ("setWatches2", 105, ("data", "exist", "child", "persistent", "persistentRecursive"))]:
        for at, name in enumerate(lists):
            for what, null in [("", vector(None)), ("[0]", vector([NULL]))]:
                body = b"".join(null if one == at else vector([]) for one in range(len(lists)))
                yield "%s.%s%s" % (request, name, what), op, int64(1) + body, -8


def opened(servers):
    """A session with the leader, also when there is a new one."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            return Client(servers.mode("leader") or 0)
        except (EOFError, OSError):
            assert time.monotonic() < deadline, servers.name + " lets nobody in"
            time.sleep(0.1)


def make_null(servers):
    opened(servers).call(1, text("/null") + buffer(b"x") + OPEN + int32(0))


def answer_to(servers, op, body, xid):
    """The error that a session of its own is answered, or "closed", or NO_ANSWER. ZooKeeper fails on a connection's second watch of null."""
    client = opened(servers)
    with client.socket:
        client.call(100, int32(0) + text("digest") + buffer(b"bob:x"), -4)
        client.socket.settimeout(ANSWER_S)
        try:
            return client.call(op, body, xid)
        except TimeoutError:
            return NO_ANSWER
        except EOFError:
            return "closed"


def compare_nulls(real, ours, wrong):
    for servers in (real, ours):
        make_null(servers)
    count = 0
    for name, op, body, xid in nulls():
        expected = OTHER_NULLS.get(name)
        # Once more where an answer was to come: a busy machine may be late.
        for _ in range(1 if expected and expected[0] == NO_ANSWER else 2):
            theirs = answer_to(real, op, body, xid)
            if theirs != NO_ANSWER:
                break
            # A leader that gives none gives no new session any either.
            real.anew()
            make_null(real)
        mine = answer_to(ours, op, body, xid)
        count += 1
        if (theirs, mine) != (expected or (theirs, theirs)):
            wrong.append("null in %s: zlock answers %s, ZooKeeper %s" % (name, mine, theirs))
    say("null compared in %d fields, %d of them otherwise on purpose" % (count, len(OTHER_NULLS)))


BASE_FIELDS = """zk_version zk_server_state zk_peer_state zk_ephemerals_count zk_num_alive_connections zk_avg_latency zk_min_proposal_size
    zk_outstanding_requests zk_znode_count zk_global_sessions zk_non_mtls_remote_conn_count zk_last_client_response_size zk_packets_sent
    zk_packets_received zk_max_proposal_size zk_max_client_response_size zk_synced_followers zk_connection_drop_probability zk_watch_count
    zk_synced_non_voting_followers zk_synced_observers zk_auth_failed_count zk_min_latency zk_max_file_descriptor_count
    zk_approximate_data_size zk_open_file_descriptor_count zk_last_proposal_size zk_pending_syncs zk_leader_uptime zk_local_sessions
    zk_uptime zk_max_latency zk_outstanding_tls_handshake zk_learners zk_min_client_response_size zk_non_mtls_local_conn_count
    zk_quorum_size""".split()


def main():
    words = arguments(__doc__).parse_args()
    try:
        jars = classpath(words.cache.resolve() / "zookeeper")
        subprocess.run(["java", "-version"], check=True, stderr=subprocess.DEVNULL)
    except (Missing, OSError, subprocess.SubprocessError) as error:
        return not_run("ZooKeeper cannot be had: " + str(error).splitlines()[0])
    program = built(words.zlock)
    wrong = []
    with tempfile.TemporaryDirectory() as data, contextlib.ExitStack() as stack:
        both = []
        for start in (lambda: zookeeper(jars, Path(data)), lambda: zlock(program, Path(data))):
            both.append(start())
            stack.callback(both[-1].stop)
        for servers in both:
            servers.wait()
        for compare in (compare_words, compare_nulls, compare_without_quorum):
            found = []
            compare(*both, found)
            for one in found:
                print("DIFFERS:", one, flush=True)
            wrong += found
    say("%d differences" % len(wrong))
    return 1 if wrong else 0


# The servers are ended on the way out.
signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
sys.exit(main())
