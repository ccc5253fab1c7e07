#!/usr/bin/env python3
"""Noise at all ports with TLS of three nodes: HTTP, ZooKeeper and peers. An honest client writes meanwhile.

    tests/clients/tls_noise.py [--seconds 900] [--seed N] [--zlock PATH]

`zlock tls init` makes the certificates, and the nodes require them as in docs/security.md. Noise comes before the handshake, as damaged
ClientHellos, after a handshake with a valid certificate, and from strangers: without a certificate, with an expired one, and with one of
another authority. No write may fail, no node may end or panic, no term may begin, no stranger may get an answer, and the memory of a
node may grow by 64 MiB at most.

A hello in correct form with a member's certificate is left out: the owner of a member's key is trusted (docs/security.md).

Exit code: 0 when all passed, 1 when something failed, 75 when openssl, which makes the expired certificate, cannot be had; all else has
passed then, and the last line says so: "NOT RUN: ...".
"""

import sys

sys.dont_write_bytecode = True

import collections
import http.client
import json
import os
import random
import re
import shutil
import socket
import ssl
import struct
import subprocess
import tempfile
import threading
import time
import zlib
from pathlib import Path

from scene import Cluster, arguments, built, free_ports, get, not_run, say

# Connections of noise at once: each thread has one at most.
THREADS = 50
# Longest pause between two connections of one thread, in seconds.
PAUSE_S = 0.4
# Time between two writes of the honest client, and time that each may take.
WRITE_EVERY_S, WRITE_S = 0.05, 10
# Writes on one connection of the honest client.
WRITES_PER_CONNECTION = 20
# The honest client writes for this time before the noise begins.
CALM_S = 5
GROWTH_BYTES_MAX = 64 << 20
# Time for which noise waits for an answer, and, seldom, for the end of its connection.
ANSWER_S, END_S = 0.5, 15
NODES = 3

FREE_BYTES = [
    b"GET /v1/cluster HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"\x00\x00\x00\x2d" + bytes(45),
    b"ruok",
    b"PROXY TCP4 1.2.3.4 5.6.7.8 1 2\r\n",
    b"\x0d\x0a\x0d\x0a\x00\x0d\x0a\x51\x55\x49\x54\x0a\x21\x11\x00\x0c" + bytes(12),
]
PUT = b"PUT /v1/znodes/noise HTTP/1.1\r\nHost: localhost\r\n"
BROKEN_HTTP = [
    b"GET /v1/cluster HTT",
    b"GET /v1/cluster HTTP/1.1\r\nHost: loc",
    b"GET /v1/cluster HTTP/9.9\r\nHost: localhost\r\n\r\n",
    b"GET /v1/cluster HTTP/1.1\r\n\r\n",
    b"GET /\x00\xff HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"G\x00T / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: localhost\r\n folded: yes\r\n: none\r\n\r\n",
    b"GET /" + b"a" * (1 << 20) + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: localhost\r\n" + b"x: y\r\n" * 10_000 + b"\r\n",
    b"GET /v1/cluster HTTP/1.1\r\nHost: localhost\r\n\r\n" * 50 + b"GE",
    PUT + b"Content-Length: 18446744073709551616\r\n\r\nx",
    PUT + b"Content-Length: 18446744073709551615\r\n\r\nx",
    PUT + b"Content-Length: 4294967296\r\n\r\nx",
    PUT + b"Content-Length: 4194304\r\n\r\nx",
    PUT + b"Content-Length: -1\r\n\r\n",
    PUT + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
    PUT + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    PUT + b"Transfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\nx",
    PUT + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhel",
    PUT + b"Expect: 100-continue\r\nContent-Length: 5\r\n\r\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\xff\xff\xff\x00\x00\x00\x00\x00\x00" * 20,
]
# A ConnectRequest of a new session with a timeout of 4 s.
CONNECT = struct.pack(">iiqiqi16s?", 45, 0, 0, 4000, 0, 16, bytes(16), False)


class Broken(Exception):
    """A promise that was broken, in words."""


class Secured(Cluster):
    """Nodes as in docs/security.md. `http` has the addresses on loopback without TLS."""

    def __init__(self, program, data):
        super().__init__(program, data, nodes=NODES)
        ports = free_ports(4 * NODES)
        plain, *tls = [ports[at:at + NODES] for at in range(0, 4 * NODES, NODES)]
        self.http = ["127.0.0.1:%d" % port for port in plain]
        self.tls = dict(zip(("http", "zookeeper", "peers"), tls))
        addrs = enumerate(zip(self.tls["peers"], self.tls["http"]), 1)
        self.members = ",".join("%d=localhost:%d/localhost:%d" % (one, *both) for one, both in addrs)
        self.certificates = self.authority("certs")

    def authority(self, name):
        """A directory with an authority, and certificates of members and of the client `worker`."""
        to = self.data / name
        command = [self.program, "tls", "init", "--out", to, "--members", self.members, "--client", "worker"]
        subprocess.run(command, check=True, capture_output=True)
        return to

    def command(self, at):
        node = self.certificates / ("node-%d" % (at + 1))
        flags = {"node-id": at + 1, "node-data-dir": self.data / ("n%d" % at), "node-members": self.members,
                 "disk-free-bytes-min": 1, "http-listen": self.http[at], "peers-tls": "require",
                 "peers-tls-ca": self.certificates / "ca.pem", "tls-client-ca": self.certificates / "ca.pem",
                 "tls-client-certificates": "required"}
        flags |= {"%s-listen" % name: "127.0.0.1:%d" % self.tls[port][at]
                  for port, name in (("http", "http-tls"), ("zookeeper", "zookeeper-tls"), ("peers", "peers"))}
        for of in ("tls", "peers-tls"):
            flags |= {of + "-certificate": "%s.pem" % node, of + "-key": "%s-key.pem" % node}
        return [self.program, "serve", *[str(word) for flag, value in flags.items() for word in ("--" + flag, value)]]

    def rss(self, at):
        status = Path("/proc/%d/status" % self.nodes[at].pid).read_text()
        return int(re.search(r"VmRSS:\s+(\d+) kB", status)[1]) << 10

    def term(self):
        """The highest term that a node knows."""
        answers = [get(addr, "/v1/cluster") for addr in self.http]
        status = [answer and answer[0] for answer in answers]
        assert status == [200] * NODES, "a node does not tell its term: %s" % status
        return max(json.loads(body)["term"] for _, body in answers)


def expired(certificates, to):
    """Files of a certificate of the client that has expired; None without openssl."""
    if shutil.which("openssl") is None:
        return None
    key, request, names, certificate = (to / ("expired" + end) for end in ("-key.pem", ".csr", ".txt", ".pem"))
    names.write_text("subjectAltName=DNS:localhost,URI:zlock://zlock/1\nextendedKeyUsage=serverAuth,clientAuth\n")
    new = ["req", "-new", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-subj", "/O=zlock/CN=worker"]
    authority = ["-CA", certificates / "ca.pem", "-CAkey", certificates / "ca-key.pem", "-set_serial", "7"]
    signed = ["x509", "-req", "-in", request, *authority, "-days", "-1", "-extfile", names, "-out", certificate]
    for command in ([*new, "-keyout", key, "-out", request], signed):
        subprocess.run(["openssl", *command], check=True, capture_output=True)
    return certificate, key


def context(authority, files=None):
    made = ssl.create_default_context(cafile=authority)
    if files is not None:
        made.load_cert_chain(*files)
    return made


class Identities:
    """Contexts of TLS: valid ones by port, and those of strangers by name."""

    def __init__(self, cluster):
        own, ca = cluster.certificates, cluster.certificates / "ca.pem"
        files = lambda at, name: (at / (name + ".pem"), at / (name + "-key.pem"))
        worker = [context(ca, files(own, "client-worker")) for _ in range(2)]
        worker[1].maximum_version = ssl.TLSVersion.TLSv1_2
        nodes = [context(ca, files(own, "node-%d" % (at + 1))) for at in range(NODES)]
        # The port for peers takes every certificate of its authority until a hello comes.
        self.valid = {"http": worker, "zookeeper": worker, "peers": [*nodes, worker[0]]}
        other, old = cluster.authority("others"), expired(own, cluster.data)
        self.has_expired = old is not None
        self.strangers = {"no certificate": [context(ca)],
                          "another authority": [context(ca, files(other, name)) for name in ("client-worker", "node-1")]}
        if old:
            self.strangers["expired"] = [context(ca, old)]


class Noise(threading.Thread):
    """One connection after the other, each with noise of some kind."""

    def __init__(self, scene, number):
        super().__init__(daemon=True)
        self.scene, self.random = scene, random.Random("%d/%d" % (scene.seed, number))

    def run(self):
        kinds = [self.early, self.hello, self.certified, self.stranger]
        while not self.scene.over.wait(self.random.uniform(0, PAUSE_S)):
            self.port = self.random.choice(list(self.scene.cluster.tls))
            target = ("127.0.0.1", self.random.choice(self.scene.cluster.tls[self.port]))
            # Half of the noise shares the address, and so its bounds, with the honest client and the members.
            source = self.random.choice(("127.0.0.1", "127.0.0.%d" % self.random.randrange(2, 10)))
            try:
                with socket.create_connection(target, 5, (source, 0)) as connection:
                    self.random.choice(kinds)(connection)
            except TimeoutError:
                self.count("kept open by the node")
            except OSError:
                # ssl.SSLError, too.
                self.count("refused or reset by the node")
            except Broken as broken:
                self.scene.fail(str(broken))
            except Exception as error:
                self.scene.fail("the script itself: %r" % error)
                raise

    def count(self, what):
        self.scene.count("%-9s  %s" % (self.port, what))

    def one_in(self, number):
        return self.random.randrange(number) == 0

    def noise(self):
        return self.random.randbytes(int(2 ** self.random.uniform(0, 16)))

    def reads(self, connection):
        """All that comes until nothing more does for a while, or until the end."""
        connection.settimeout(END_S if self.one_in(20) else ANSWER_S)
        came = 0
        while came < 1 << 20 and (bytes_ := connection.recv(1 << 16)):
            came += len(bytes_)

    def ends(self, connection):
        """The end of a connection in one of some ways."""
        way = self.random.randrange(4)
        if way == 0:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        elif way == 1:
            connection.shutdown(socket.SHUT_WR)
            self.reads(connection)
        elif way == 2:
            self.reads(connection)

    def sends(self, connection, data):
        """Bytes at once, or in pieces with pauses."""
        if self.one_in(3):
            cuts = sorted(self.random.randrange(len(data) + 1) for _ in range(self.random.randrange(1, 8)))
            for start, end in zip([0, *cuts], [*cuts, len(data)]):
                connection.sendall(data[start:end])
                self.scene.over.wait(self.random.uniform(0, 1))
        else:
            connection.sendall(data)

    def early(self, connection):
        """Bytes that are no handshake."""
        data = self.random.choice((self.noise(), b"\x16\x03\x01" + self.noise(), self.random.choice(FREE_BYTES)))
        self.count("bytes before a handshake")
        self.sends(connection, data)
        self.ends(connection)

    def hello(self, connection):
        """A ClientHello with damage, or without."""
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        tls = self.random.choice(self.scene.identities.valid[self.port]).wrap_bio(incoming, outgoing, server_hostname="localhost")
        try:
            tls.do_handshake()
        except ssl.SSLWantReadError:
            pass
        data = bytearray(outgoing.read())
        way = self.random.choice(("flipped", "cut", "repeated", "whole", "stretched"))
        if way == "flipped":
            for _ in range(self.random.randrange(1, 6)):
                data[self.random.randrange(len(data))] ^= self.random.randrange(1, 256)
        elif way == "cut":
            del data[self.random.randrange(1, len(data)):]
        elif way == "repeated":
            data *= self.random.randrange(2, 50)
        elif way == "stretched":
            # The lengths of the record and of the message.
            data[3:5] = self.random.randbytes(2)
            data[6:9] = self.random.randbytes(3)
        self.count("ClientHello, " + way)
        self.sends(connection, bytes(data))
        self.ends(connection)

    def certified(self, connection):
        """Noise behind a handshake with a valid certificate."""
        connection.settimeout(30)
        try:
            tls = self.random.choice(self.scene.identities.valid[self.port]).wrap_socket(connection, server_hostname="localhost")
        except OSError:
            self.count("valid handshake REFUSED")
            raise
        with tls:
            what, data = self.message()
            self.count("handshake, then " + what)
            self.sends(tls, data)
            way = self.random.choice(("end", "end", "close of TLS", "bytes beside TLS"))
            if way == "end":
                self.ends(tls)
                return
            self.count("%s and no close of TCP" % way if way == "close of TLS" else way)
            if way == "close of TLS":
                # Only the sent close_notify matters: the node's may lie behind an answer.
                tls.settimeout(ANSWER_S)
                try:
                    connection = tls.unwrap()
                except (ssl.SSLError, TimeoutError):
                    connection = tls
            with socket.socket(fileno=os.dup(connection.fileno())) as below:
                below.settimeout(ANSWER_S)
                if way == "bytes beside TLS" or self.one_in(2):
                    below.sendall(self.random.choice((self.noise(), b"\x17\x03\x03" + self.noise())))
                self.reads(below)

    def message(self):
        """A word for it, and bytes for the protocol of the port."""
        if self.one_in(4):
            return "random bytes", self.noise()
        if self.port == "http":
            return "broken HTTP", self.random.choice(BROKEN_HTTP)
        if self.port == "zookeeper":
            length = self.random.choice((0, 1, 45, 4096, 1 << 20, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF))
            packet = struct.pack(">I", length) + self.noise()
            cut = CONNECT[:self.random.randrange(1, len(CONNECT))]
            noise = self.noise()
            request = struct.pack(">Iii", len(noise) + 8, self.random.randrange(100), self.random.randrange(-10, 110)) + noise
            return self.random.choice((("half a packet", cut), ("a length", packet), ("a session and a length", CONNECT + packet),
                                       ("a session and a request", CONNECT + request)))
        noise = self.noise()
        frame = struct.pack("<II", len(noise), zlib.crc32(noise)) + noise
        length = struct.pack("<II", self.random.choice((0, 4096, 17 << 20, 0x7FFFFFFF, 0xFFFFFFFF)), 0) + noise
        return self.random.choice((("a random frame", frame), ("half a frame", frame[:-1]), ("a length", length)))

    def stranger(self, connection):
        """A request by a stranger, who gets no byte of an answer."""
        who = self.random.choice(list(self.scene.identities.strangers))
        self.count("stranger, " + who)
        connection.settimeout(END_S)
        request = {"http": FREE_BYTES[0], "zookeeper": CONNECT, "peers": self.message()[1]}[self.port]
        tls = self.random.choice(self.scene.identities.strangers[who]).wrap_socket(connection, server_hostname="localhost")
        with tls:
            tls.sendall(request)
            if answer := tls.recv(100):
                raise Broken("a stranger (%s) got an answer at the port %s: %r" % (who, self.port, answer))


class Honest(threading.Thread):
    """A client that writes one znode through all nodes in turn, over https."""

    def __init__(self, scene):
        super().__init__(daemon=True)
        self.scene, self.written, self.longest_s = scene, 0, 0.0

    def run(self):
        connections = {}
        try:
            self.write(connections, 0, "POST")
            due = time.monotonic()
            while not self.scene.over.wait(due - time.monotonic()):
                due = max(due, time.monotonic() - 1) + WRITE_EVERY_S
                self.write(connections, self.written % NODES, "PUT")
        except (OSError, http.client.HTTPException, AssertionError) as error:
            self.scene.fail("write %d of the honest client failed: %r" % (self.written + 1, error))

    def write(self, connections, at, method):
        connection, uses = connections.get(at, (None, WRITES_PER_CONNECTION))
        if uses == WRITES_PER_CONNECTION:
            if connection:
                connection.close()
            valid, port = self.scene.identities.valid["http"][0], self.scene.cluster.tls["http"][at]
            connection, uses = http.client.HTTPSConnection("localhost", port, timeout=WRITE_S, context=valid), 0
        connections[at] = connection, uses + 1
        began = time.monotonic()
        connection.request(method, "/v1/znodes/honest", b"%d" % self.written)
        answer = connection.getresponse()
        body = answer.read()
        assert answer.status in (200, 201), "node %d answered %d %r" % (at + 1, answer.status, body)
        self.longest_s = max(self.longest_s, time.monotonic() - began)
        self.written += 1


class Scene:
    """All that threads share."""

    def __init__(self, cluster, seed):
        self.cluster, self.seed, self.identities = cluster, seed, Identities(cluster)
        self.over, self.failures = threading.Event(), []
        self.counts, self.lock = collections.Counter(), threading.Lock()

    def count(self, what):
        with self.lock:
            self.counts[what] += 1

    def fail(self, words):
        self.failures.append(words)

    def watch(self, seconds, term, rss):
        """Looks at all nodes until the time is over or something failed. Returns the greatest growth of each."""
        until, growth = time.monotonic() + seconds, [0] * NODES
        while time.monotonic() < until and not self.failures:
            self.cluster.assert_all_lived()
            now = self.cluster.term()
            assert now == term, "term %d has begun; it was %d" % (now, term)
            for at in range(NODES):
                growth[at] = max(growth[at], self.cluster.rss(at) - rss[at])
                assert growth[at] <= GROWTH_BYTES_MAX, "the memory of node %d has grown from %d to %d bytes" % (
                    at + 1, rss[at], rss[at] + growth[at])
            time.sleep(1)
        return growth


def run(scene, seconds):
    honest = Honest(scene)
    noise = [Noise(scene, number) for number in range(THREADS)]
    threads, growth = [honest], None
    honest.start()
    try:
        scene.watch(CALM_S, scene.cluster.term(), [scene.cluster.rss(at) for at in range(NODES)])
        term, rss = scene.cluster.term(), [scene.cluster.rss(at) for at in range(NODES)]
        say("noise for %d s; term %d, MiB of memory: %s" % (seconds, term, [one >> 20 for one in rss]))
        for thread in noise:
            thread.start()
        threads += noise
        growth = scene.watch(seconds, term, rss)
    finally:
        scene.over.set()
        for thread in threads:
            thread.join(2 * END_S)
        for what, count in sorted(scene.counts.items()):
            print("%8d  %s" % (count, what))
        print("%8d  writes of the honest client; the longest took %.3f s" % (honest.written, honest.longest_s))
    scene.cluster.assert_all_lived()
    assert not scene.failures, "; ".join(scene.failures)
    print("%8d  MiB is the greatest growth of a node's memory" % (max(growth) >> 20))
    for at in range(NODES):
        assert "panicked" not in scene.cluster.log(at).read_text(), "node %d panicked" % (at + 1)
    for port in scene.cluster.tls:
        for kind in ("bytes", "ClientHello", "handshake", "stranger"):
            assert any(what.startswith("%-9s  %s" % (port, kind)) for what in scene.counts), "no %s at %s" % (kind, port)
        refused = scene.counts["%-9s  valid handshake REFUSED" % port]
        assert refused == 0, "%d handshakes with valid certificates failed at %s" % (refused, port)


def main():
    words = arguments(__doc__)
    words.add_argument("--seconds", type=int, default=900)
    words.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    told = words.parse_args()
    say("seed", told.seed)
    with tempfile.TemporaryDirectory() as data, Secured(built(told.zlock), Path(data)) as cluster:
        cluster.wait_ready()
        scene = Scene(cluster, told.seed)
        try:
            run(scene, told.seconds)
        except AssertionError as broken:
            print("FAILED: %s (seed %d)" % (broken, told.seed), flush=True)
            raise
    if not scene.identities.has_expired:
        return not_run("openssl cannot be had: no certificate has expired")
    say("passed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
