#!/usr/bin/env python3
"""nginx and HAProxy of Debian's in front of three zlock nodes: idle connections, long polls, and one node after the other restarted.

    tests/clients/balancers.py [--seconds 15] [--idle 5s] [--drain 5s] [--cache target/clients/balancers] [--zlock PATH]

Times are shorter than in docs/operating.md and stand in the same order: the balancers keep idle connections to nodes for 3 s and
nodes for `--idle`; a node that is told to stop serves on for `--drain`. Every answer must be a node's own: none may be the balancer's
502, 503 or 504, and none may be missing.

A connection that a node closes is of no harm when the balancer hears of it before it sends: on one machine that is so at once. So the
idle connections are used through links that take their time, just when one side or the other closes. They are POSTs, which balancers
do not send twice. `--idle 1s` shows that the test can fail: nodes close first then, and nginx answers 502. HAProxy has closed most of
its idle connections by then; where it has not, it closes the client's without an answer.

Exit code: 0 when all passed, 1 when something failed, 75 when neither balancer can be had here, or one of them; the last line says
why: "NOT RUN: ...".
"""

import sys

sys.dont_write_bytecode = True

import collections
import contextlib
import http.client
import json
import queue
import random
import socket
import tempfile
import threading
import time
from pathlib import Path

from scene import Cluster, Debian, Missing, arguments, built, free_port, get, not_run, say, started, wait_until

HAPROXY_PACKAGES = ["haproxy", "liblua5.3-0", "libopentracing-c-wrapper0", "libopentracing1"]
NGINX_PACKAGES = ["nginx"]
# How long the balancers keep idle connections to nodes, in seconds.
KEPT_S = 3
# HAProxy closes half of them each time this is over, in milliseconds: after the time above hardly one is left.
PURGE_MS = 250
# A long poll, in seconds.
WAIT_S = 4
# What bytes, and the end of a connection, take from one end of a link to the other, in seconds.
LINK_S = 0.1
# Clients that use idle connections at once, and how often for each of the two times.
EDGE_CLIENTS, EDGE_ROUNDS = 8, 3

HAPROXY = """
global
    maxconn 1000
defaults
    mode http
    timeout connect 2s
    timeout client 60s
    timeout server 60s
    timeout http-keep-alive 60s
    option redispatch 1
    retries 3
    option httpchk
    http-check send meth GET uri /readyz ver HTTP/1.1 hdr Host localhost
    default-server inter 300ms fall 2 rise 2 pool-purge-delay {purge_ms}ms
frontend clients
    bind {addr}
    default_backend zlock
backend zlock
    http-reuse safe
{servers}
"""

NGINX = """
daemon off;
pid {dir}/nginx.pid;
error_log {dir}/nginx-error.log;
worker_processes 1;
events {{ worker_connections 1000; }}
http {{
    access_log off;
    client_body_temp_path {dir}/body; proxy_temp_path {dir}/proxy; fastcgi_temp_path {dir}/fastcgi;
    uwsgi_temp_path {dir}/uwsgi; scgi_temp_path {dir}/scgi;
    keepalive_timeout 60s;
    upstream zlock {{
        zone zlock 64k;
{servers}
        keepalive 32;
        keepalive_timeout {kept}s;
    }}
    server {{
        listen {addr};
        location / {{
            proxy_pass http://zlock;
            proxy_http_version 1.1;
            proxy_set_header Connection "";
            proxy_set_header Host $http_host;
            proxy_connect_timeout 2s;
            proxy_read_timeout 60s;
        }}
    }}
}}
"""


class Link:
    """The way to a node, on which everything takes a while. It lasts as long as the program."""

    def __init__(self, node):
        self.node = node.rsplit(":", 1)
        self.server = socket.create_server(("127.0.0.1", 0))
        self.addr = "127.0.0.1:%d" % self.server.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            near, _ = self.server.accept()
            far = socket.create_connection(self.node)
            for one, other in [(near, far), (far, near)]:
                one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                way = queue.Queue()
                threading.Thread(target=self.take, args=(one, way), daemon=True).start()
                threading.Thread(target=self.give, args=(other, way), daemon=True).start()

    @staticmethod
    def take(one, way):
        data = b"-"
        while data:
            try:
                data = one.recv(65536)
            except OSError:
                data = b""
            way.put((time.monotonic() + LINK_S, data))

    @staticmethod
    def give(other, way):
        data = b"-"
        while data:
            at, data = way.get()
            time.sleep(max(0, at - time.monotonic()))
            try:
                other.sendall(data) if data else other.shutdown(socket.SHUT_RDWR)
            except OSError:
                # The other end has closed: what comes is for nobody.
                pass


class Answers:
    """What clients heard, and what they should not have heard."""

    def __init__(self):
        self.lock, self.counts, self.wrong = threading.Lock(), collections.Counter(), []

    def note(self, who, status, of_a_node, what):
        with self.lock:
            self.counts["%s %s" % (who, status)] += 1
            if not of_a_node:
                self.wrong.append("%s: %s" % (who, what))


def ask(connection, who, method, path, body, answers):
    """One request over a balancer, and who has answered it."""
    try:
        connection.request(method, path, body)
        answer = connection.getresponse()
        told = answer.read()
        # A node marks its answers; a balancer's own have no such header.
        node = answer.getheader("zlock-node")
        answers.note(who, answer.status, node is not None, "%s %s: %d %r" % (method, path, answer.status, told[:80]))
    except (OSError, http.client.HTTPException) as error:
        answers.note(who, "none", False, "%s %s: %r" % (method, path, error))
        connection.close()


def on_edge(addr, who, pauses, answers):
    """Uses a connection again after each of these times of rest, counted from its last answer."""
    connection = http.client.HTTPConnection(addr, timeout=60)
    for pause in [0, *pauses]:
        time.sleep(pause)
        ask(connection, who, "POST", "/v1/znodes/written/n-?mode=persistent-sequential", b"x", answers)
    connection.close()


def on_edges(addrs, idle_s, answers):
    """All rest for about the same time: no connection of a balancer's pool is fresh."""
    clients = []
    for name, addr in addrs.items():
        for _ in range(EDGE_CLIENTS):
            # From a little before the one side closes until the other has heard of it.
            pauses = [edge + random.uniform(-2, 1) * LINK_S for edge in (idle_s, KEPT_S) for _ in range(EDGE_ROUNDS)]
            clients.append(threading.Thread(target=on_edge, args=(addr, name + " edge", pauses, answers)))
    [one.start() for one in clients]
    [one.join() for one in clients]


def client(balancer, addr, kind, answers, ended):
    """One client on one connection to a balancer: it is idle, polls or writes until the end."""
    connection = http.client.HTTPConnection(addr, timeout=WAIT_S + 60)
    number = 0
    while not ended.is_set():
        number += 1
        method, path, body = "GET", "/v1/cluster", None
        if kind == "poller":
            path = "/v1/znodes/polled?watch=data&wait=%ds" % WAIT_S
        elif kind == "writer" or number % 2:
            # What a balancer does not try again by itself.
            method, path, body = "POST", "/v1/znodes/written/n-?mode=persistent-sequential", b"x"
        ask(connection, "%s %s" % (balancer, kind), method, path, body, answers)
        if kind == "idler":
            # Around the times after which one side or the other closes.
            ended.wait(random.uniform(0.5, 2.5) * KEPT_S)
        elif kind == "writer":
            ended.wait(random.uniform(0, 0.1))
    connection.close()


def haproxy(debian, data, http):
    addr = "127.0.0.1:%d" % free_port()
    servers = "\n".join("    server n%d %s check" % (at, one) for at, one in enumerate(http, 1))
    config = data / "haproxy.cfg"
    config.write_text(HAPROXY.format(addr=addr, servers=servers, purge_ms=PURGE_MS))
    return [debian.program("usr/sbin/haproxy", "-v"), "-db", "-f", config], addr


def nginx(debian, data, http):
    addr = "127.0.0.1:%d" % free_port()
    servers = "\n".join("        server %s max_fails=1 fail_timeout=1s;" % one for one in http)
    config = data / "nginx.conf"
    config.write_text(NGINX.format(dir=data, addr=addr, servers=servers, kept=KEPT_S))
    program = debian.program("usr/sbin/nginx", "-v")
    return [program, "-p", data, "-e", data / "nginx-error.log", "-c", config], addr


def rolling_restart(cluster):
    for at in range(3):
        began = time.monotonic()
        cluster.stop(at)
        took = time.monotonic() - began
        cluster.start(at)
        cluster.wait_ready()
        say("node %d stopped in %.1f s and came back after %.1f s" % (at + 1, took, time.monotonic() - began))
        # The balancers must have taken it in again before the next one goes.
        time.sleep(2)


def serve_behind(stack, ways, data, nodes):
    """The addresses of balancers in front of nodes."""
    addrs = {}
    for name, (debian, configure) in ways.items():
        command, addr = configure(debian, data, nodes)
        process = stack.enter_context(started(command, data / (name + ".log"), env=debian.env))
        wait_until(name + " serves", lambda: (get(addr, "/readyz") or (0,))[0] == 200, process)
        addrs[name] = addr
    return addrs


def run(words, ways):
    program = built(words.zlock)
    flags = ["--http-idle-timeout", words.idle, "--node-drain-time", words.drain, "--node-exempt-addresses", "127.0.0.1"]
    with contextlib.ExitStack() as stack:
        data = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        cluster = stack.enter_context(Cluster(program, data, *flags))
        cluster.wait_ready()
        answers, ended, clients = Answers(), threading.Event(), []
        addrs = serve_behind(stack, ways, data, cluster.http)
        for addr in addrs.values():
            for path in ("polled", "written"):
                connection = http.client.HTTPConnection(addr)
                connection.request("POST", "/v1/znodes/" + path, b"x")
                assert connection.getresponse().status in (201, 409)
        links = [Link(node).addr for node in cluster.http]
        far = stack.enter_context(tempfile.TemporaryDirectory())
        on_edges(serve_behind(stack, ways, Path(far), links), float(words.idle.removesuffix("s")), answers)
        say("connections used just when they are closed:", json.dumps(answers.counts))
        for name, addr in addrs.items():
            for kind in ["idler"] * 12 + ["poller"] * 6 + ["writer"] * 3:
                clients.append(threading.Thread(target=client, args=(name, addr, kind, answers, ended)))
        [one.start() for one in clients]
        try:
            time.sleep(words.seconds)
            say("%d s of idle connections, long polls and writes" % words.seconds, json.dumps(answers.counts))
            rolling_restart(cluster)
            time.sleep(WAIT_S)
        finally:
            ended.set()
            [one.join() for one in clients]
        say("and a rolling restart:", json.dumps(answers.counts))
        for name in addrs:
            for kind in ("idler", "poller", "writer"):
                done = sum(answers.counts["%s %s %d" % (name, kind, status)] for status in (200, 201))
                assert done > 5, "%s %s did nothing" % (name, kind)
        assert not answers.wrong, "%d answers are no node's: %s" % (len(answers.wrong), answers.wrong[:10])


def main():
    words = arguments(__doc__, "balancers")
    words.add_argument("--seconds", type=int, default=15, help="before the first node is restarted")
    words.add_argument("--idle", default="5s", help="the nodes' http.idle_timeout in seconds: above the %d s of the balancers, or the test fails" % KEPT_S)
    words.add_argument("--drain", default="5s", help="the nodes' node.drain_time: the same")
    words = words.parse_args()
    ways, missing = {}, []
    for name, packages, configure, program in [
        ("haproxy", HAPROXY_PACKAGES, haproxy, "usr/sbin/haproxy"),
        ("nginx", NGINX_PACKAGES, nginx, "usr/sbin/nginx"),
    ]:
        try:
            debian = Debian(words.cache.resolve() / name, packages)
            debian.program(program, "-v")
            ways[name] = (debian, configure)
        except Missing as why:
            missing.append("%s: %s" % (name, why))
    if ways:
        run(words, ways)
        say("no answer of a balancer's own: " + ", ".join(ways))
    if missing:
        return not_run(*missing)
    return 0


sys.exit(main())
