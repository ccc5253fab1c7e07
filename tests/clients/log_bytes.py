#!/usr/bin/env python3
"""Bytes of the log, and bytes between nodes, for each write and each lock cycle over HTTP.

Usage: log_bytes.py PATH_OF_ZLOCK. Runs `zlock dev` in a temporary directory. One session does 2,000 sets of 100 bytes and 2,000
cycles of acquire and release, one after another, each with an Idempotency-Key. Prints by how much the log of a node grew, and
how much all nodes sent to each other, for one of each. `ss` (Debian's iproute2) counts the bytes between nodes.
"""

import http.client
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import uuid

COUNT = 2000
NODES = 3
DEADLINE_S = 60


def log_bytes(data):
    """Of all nodes."""
    files = [os.path.join(root, name) for root, _, names in os.walk(data) for name in names if name.endswith(".wal")]
    return sum(os.path.getsize(name) for name in files)


def sent_bytes(peer_ports):
    """By all nodes, on the connections to peer ports: each end of a connection counts what it sent."""
    command = ["ss", "-tinH", "state", "established"]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    total = 0
    for head, info in zip(lines[::2], lines[1::2]):
        ends = head.split()[2:4]
        if any(end.endswith(f":{port}") for port in peer_ports for end in ends):
            sent = re.search(r"bytes_sent:(\d+)", info)
            total += int(sent.group(1)) if sent else 0
    return total


class Client:
    """One connection to the leader, one session."""

    def __init__(self, port):
        self.connection = http.client.HTTPConnection("127.0.0.1", port)
        self.headers = {}
        self.headers["Zlock-Session-Key"] = self.call("POST", "/v1/sessions", {"timeout": "60s"})["session_key"]

    def call(self, method, path, body=None):
        headers = {**self.headers, "Idempotency-Key": str(uuid.uuid4())} if self.headers else {}
        if isinstance(body, dict):
            body = json.dumps(body)
            headers["content-type"] = "application/json"
        self.connection.request(method, path, body, headers)
        answer = self.connection.getresponse()
        text = answer.read()
        if answer.status not in (200, 201, 204):
            sys.exit(f"{method} {path}: {answer.status} {text.decode()}")
        return json.loads(text) if text else {}


def leader_port(ports):
    """Waits until a node knows the leader."""
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline:
        try:
            connection = http.client.HTTPConnection("127.0.0.1", ports[0])
            connection.request("GET", "/v1/locks/none")
            answer = connection.getresponse()
            answer.read()
            leader = answer.getheader("zlock-leader")
            if answer.status == 200 and leader:
                return ports[int(leader) - 1]
        except OSError:
            pass
        time.sleep(0.1)
    sys.exit("no leader in time")


def main():
    program, = sys.argv[1:]
    with tempfile.TemporaryDirectory() as data:
        command = [program, "dev", "--nodes", str(NODES), "--data", data, "--base-port", "0"]
        dev = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            deadline = time.monotonic() + DEADLINE_S
            while len(config := sorted(name for name in os.listdir(data) if name.endswith(".toml"))) < NODES:
                if time.monotonic() > deadline:
                    sys.exit("zlock dev did not begin")
                time.sleep(0.1)
            with open(os.path.join(data, config[0]), encoding="utf-8") as file:
                text = file.read()
            ports = lambda key: [int(port) for port in re.findall(rf'{key} = "[^"]*:(\d+)"', text)]
            http_ports, peer_ports = ports("http_addr"), ports("peer_addr")
            client = Client(leader_port(http_ports))
            for path in ("/app", "/app/config", "/app/config/orders"):
                client.call("POST", f"/v1/znodes{path}")

            def write():
                client.call("PUT", "/v1/znodes/app/config/orders", b"x" * 100)

            def lock_cycle():
                ticket = client.call("POST", "/v1/locks/app/locks/orders")["ticket"]
                client.call("DELETE", f"/v1/tickets{ticket}")

            for name, work in (("write", write), ("lock cycle", lock_cycle)):
                logs, sent = log_bytes(data), sent_bytes(peer_ports)
                for _ in range(COUNT):
                    work()
                # What the nodes still have to tell each other and their disks.
                time.sleep(0.5)
                logs, sent = log_bytes(data) - logs, sent_bytes(peer_ports) - sent
                print(f"{name}: {logs / COUNT / NODES:.0f} bytes of log at each node, {sent / COUNT:.0f} between nodes")
        finally:
            dev.send_signal(signal.SIGINT)
            dev.wait()


main()
