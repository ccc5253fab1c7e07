#!/usr/bin/env python3
"""Counts what one request goes through in a node: function bodies entered, files, and returns.

Usage: walks.py --zlock PROGRAM [--show]

PROGRAM is a debug build, in which hardly a function is inlined. It runs as a cluster of one node
under callgrind. A walk is done several times. A function counts when it returned at least once each
time, beside what an idle node does meanwhile. Functions of this repository alone count, and a
closure counts as the function that it stands in. Needs valgrind.
"""

import argparse
import collections
import http.client
import json
import pathlib
import re
import socket
import struct
import subprocess
import tempfile
import time

TIMES = 10
CRATES = {crate.name for crate in (pathlib.Path(__file__).resolve().parent.parent / "crates").iterdir()}
# A snapshot is made of a log of so many bytes, and within this time.
SNAPSHOT_LOG_BYTES = 4 << 20
SNAPSHOT_S = 8
WRITE_BYTES = 500_000
# A node under callgrind is about 50 times slower.
PATIENCE_S = 120


def free_ports(count):
    """Ports that nobody listens at."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [held.getsockname()[1] for held in sockets]
    for held in sockets:
        held.close()
    return ports


class Node:
    """A node under callgrind."""

    def __init__(self, zlock, directory):
        self.directory = directory
        self.http, peer, self.zookeeper = free_ports(3)
        config = directory / "node.toml"
        config.write_text(
            f'node.id = 1\nnode.data_dir = "{directory}/data"\nzookeeper.listen = "127.0.0.1:{self.zookeeper}"\n'
            f'disk.snapshot_log_bytes = "{SNAPSHOT_LOG_BYTES}B"\n'
            f'node.members = [{{ id = 1, peer_addr = "127.0.0.1:{peer}", http_addr = "127.0.0.1:{self.http}" }}]\n'
        )
        out = directory / "out"
        command = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={out}", zlock, "serve", "--config", config]
        self.child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.dumps = 0
        until = time.monotonic() + PATIENCE_S
        while not self.is_ready():
            if self.child.poll() is not None or time.monotonic() > until:
                raise SystemExit("the node is not ready")
            time.sleep(0.5)
        self.link = http.client.HTTPConnection("127.0.0.1", self.http, timeout=PATIENCE_S)

    def is_ready(self):
        link = http.client.HTTPConnection("127.0.0.1", self.http, timeout=PATIENCE_S)
        try:
            link.request("GET", "/readyz")
            return link.getresponse().status == 200
        except OSError:
            return False
        finally:
            link.close()

    def ask(self, method, path, body=None, **headers):
        self.link.request(method, path, body, headers)
        answer = self.link.getresponse()
        told = answer.read()
        if answer.status >= 300:
            raise SystemExit(f"{method} {path}: {answer.status} {told}")
        return told

    def control(self, what):
        words = ["callgrind_control", what, str(self.child.pid)]
        subprocess.run(words, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def returns(self, do):
        """How often each function returned while something was done, by file and name; and how long it took."""
        self.control("-z")
        began = time.monotonic()
        do()
        took = time.monotonic() - began
        self.dumps += 1
        self.control("-d")
        return returns(self.directory / f"out.{self.dumps}"), took

    def walk(self, do, times=TIMES):
        """The functions that each doing enters, with their returns for one."""
        busy, took = self.returns(lambda: [do(number) for number in range(times)])
        idle, idled = self.returns(lambda: time.sleep(max(took, 1)))
        each = {name: (count - idle[name] * took / idled) / times for name, count in busy.items()}
        return {name: round(count) for name, count in each.items() if count > 0.9}

    def end(self):
        self.child.terminate()
        self.child.wait()


def returns(dump):
    """Reads a dump of callgrind: calls by the file and the name of the called function."""
    names = {"f": {}, "n": {}}

    def name(kind, text):
        number, _, rest = text.partition(" ")
        return names[kind].setdefault(number, rest) if rest else names[kind][number]

    counts, file, called, of = collections.Counter(), "", "", ""
    for line in dump.read_text().splitlines():
        key, _, value = line.partition("=")
        if key in ("fl", "fi", "fe"):
            file = name("f", value)
        elif key in ("cfi", "cfl"):
            of = name("f", value)
        elif key in ("fn", "cfn"):
            text = name("n", value)
            if key == "cfn":
                called = text
        elif key == "calls":
            source = re.search(r"crates/(\w+/src/.*\.rs)$", of or file)
            if source and source[1].split("/")[0] in CRATES:
                counts[source[1], bare(called)] += int(value.split()[0])
            of = ""
    return counts


def bare(function):
    """A name without closures, types of generics, and the hash."""
    function = re.sub(r"::\{\{closure\}\}|::\{closure#\d+\}|::h[0-9a-f]{16}$|'\d+$", "", function)
    while (shorter := re.sub(r"<[^<>]*>", "", function)) != function:
        function = shorter
    return function


class ZooKeeper:
    """A client of the ZooKeeper port that waits for each answer."""

    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port), PATIENCE_S)
        self.send(struct.pack(">iqiqi16s?", 0, 0, 300_000, 0, 16, bytes(16), False))
        self.receive()
        self.xid = 0

    def send(self, packet):
        self.socket.sendall(struct.pack(">i", len(packet)) + packet)

    def receive(self):
        length = struct.unpack(">i", self.exactly(4))[0]
        return self.exactly(length)

    def exactly(self, length):
        got = b""
        while len(got) < length:
            got += self.socket.recv(length - len(got))
        return got

    def call(self, op, body):
        self.xid += 1
        self.send(struct.pack(">ii", self.xid, op) + body)
        while struct.unpack(">i", (answer := self.receive())[:4])[0] != self.xid:
            pass
        return answer

    def create(self, path):
        text = struct.pack(">i", len(path)) + path.encode()
        words = (struct.pack(">i", len(word)) + word for word in (b"world", b"anyone"))
        acl = struct.pack(">ii", 1, 31) + b"".join(words)
        answer = self.call(1, text + struct.pack(">i", 0) + acl + struct.pack(">i", 0))
        assert answer[12:16] == bytes(4), answer

    def watch(self, path):
        self.call(3, struct.pack(">i", len(path)) + path.encode() + b"\x01")

    def event(self):
        assert struct.unpack(">i", self.receive()[:4])[0] == -1


def without(walk, other):
    """The functions of a walk that another walk does not enter."""
    return {name: count for name, count in walk.items() if name not in other}


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--zlock", required=True)
    parser.add_argument("--show", action="store_true", help="the functions, too")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        node = Node(args.zlock, pathlib.Path(directory))
        try:
            opened = json.loads(node.ask("POST", "/v1/sessions", '{"timeout": "5m"}'))
            session = {"Zlock-Session-Key": opened["session_key"]}
            client, watching = ZooKeeper(node.zookeeper), ZooKeeper(node.zookeeper)
            node.ask("POST", "/v1/locks/warm", **session)
            client.create("/created")
            acquired = node.walk(lambda time: node.ask("POST", f"/v1/locks/acquired-{time}", **session))
            walks = {"acquire over HTTP": acquired}
            created = node.walk(lambda time: client.create(f"/created-{time}"))
            walks["create of a ZooKeeper client"] = created
            for number in range(TIMES):
                watching.watch(f"/watched-{number}")

            def told(number):
                client.create(f"/watched-{number}")
                watching.event()

            events = node.walk(told)
            walks["watch event, without the create that causes it"] = without(events, created)
            node.ask("PUT", "/v1/znodes/created", b"")
            written = node.walk(lambda _: node.ask("PUT", "/v1/znodes/created", b"x" * WRITE_BYTES))

            def saved(_):
                for _ in range(SNAPSHOT_LOG_BYTES // WRITE_BYTES + 1):
                    node.ask("PUT", "/v1/znodes/created", b"x" * WRITE_BYTES)
                time.sleep(SNAPSHOT_S)

            snapshots = node.walk(saved, 3)
            walks["snapshot, without the writes before it"] = without(snapshots, written)
        finally:
            node.end()
    print("| request or event | distinct functions | files with these functions | returns from these functions |")
    print("|---|---|---|---|")
    for name, walk in walks.items():
        print(f"| {name} | {len(walk)} | {len({file for file, _ in walk})} | {sum(walk.values())} |")
        if args.show:
            for (file, function), count in sorted(walk.items()):
                print(f"    {file}: {function} {count}")


main()
