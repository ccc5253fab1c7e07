#!/usr/bin/env python3
"""The container image, run by podman: three nodes of deploy/compose.yaml, in a network namespace of their own.

    tests/packages/image.py [--cache target/packages] [--zlock STATIC PROGRAM]

Builds the image with deploy/image.sh. Then a client takes a lock, the health check of the compose file is asked with and without a quorum,
the leader's container is killed, a node loses its volume, all nodes are restarted one by one from an image with another program, and a
node comes back with another address: writers that try the next node when one does not answer write all the time, and no acknowledged
write may be missing at the end. The other program is a copy that reports another commit. Names with a search domain are resolved, too.

Needs root. podman and what it needs are installed with apt-get where they are missing, podman-compose from PyPI below the cache.

Exit code: 0 when all passed, 1 when something failed, 75 when podman cannot be had here; the last line says why: "NOT RUN: ...".
"""

import sys
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "clients"))

import json
import os
import re
import subprocess
import threading
import time
import urllib.error
import urllib.request

from containers import IMAGE, podman, run, script
from scene import ROOT, say, wait_until

COMPOSE = "podman-compose==1.6.0"
NEXT_IMAGE = "localhost/zlock:next"
NODES = ["zlock-1", "zlock-2", "zlock-3"]
ENDPOINTS = ["127.0.0.1:7001", "127.0.0.1:7002", "127.0.0.1:7003"]
# Time until a node that was started again is ready, and longest time of one write, in seconds.
READY_S, WRITE_S = 60, 15
WRITERS = 4
# Services of Kubernetes have names such as this one, which clients shorten by a search domain.
DOMAIN = "shop.svc.cluster.local"


class Site:
    """The three containers."""

    def __init__(self, compose):
        self.compose = compose

    def up(self, *services, image=IMAGE):
        env = dict(os.environ, ZLOCK_IMAGE=image)
        command = [self.compose, "--file", ROOT / "deploy/compose.yaml", "up", "--detach", "--no-recreate", *services]
        done = subprocess.run(command, env=env, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr

    def container(self, service):
        found = podman("ps", "--all", "--quiet", "--filter", "label=com.docker.compose.service=" + service).stdout.split()
        assert len(found) == 1, "%s has %d containers" % (service, len(found))
        return found[0]

    def zlock(self, service, *command, check=True):
        return podman("exec", self.container(service), "/zlock", *command, check=check)

    def version(self, service):
        return self.zlock(service, "--version").stdout

    def is_healthy(self, service):
        """Runs the health check that the compose file gives to the container."""
        return podman("healthcheck", "run", self.container(service), check=False).returncode == 0

    def wait_ready(self, *services):
        for service in services:
            ready = lambda: self.zlock(service, "ready", "--endpoints", "127.0.0.1:7001", check=False).returncode == 0
            begun = time.monotonic()
            wait_until("%s is ready" % service, ready)
            assert time.monotonic() - begun < READY_S

    def leader(self):
        for service, endpoint in zip(NODES, ENDPOINTS):
            with urllib.request.urlopen("http://%s/v1/cluster" % endpoint, timeout=5) as answer:
                if json.load(answer)["role"] == "leader":
                    return service
        raise AssertionError("no node leads")

    def remove(self, service, *, volume=False):
        container = self.container(service)
        podman("stop", "--time", "30", container)
        podman("rm", container)
        if volume:
            podman("volume", "rm", "zlock_" + service)

    def logs(self):
        for service in NODES:
            found = podman("ps", "--all", "--quiet", "--filter", "label=com.docker.compose.service=" + service).stdout.split()
            for container in found:
                done = podman("logs", "--tail", "20", container, check=False)
                print("-- %s\n%s%s" % (service, done.stdout, done.stderr), file=sys.stderr)


def request(method, endpoint, path, data=None):
    """Status of one answer; None when none came."""
    raw = {"accept": "application/octet-stream"}
    call = urllib.request.Request("http://%s%s" % (endpoint, path), data=data, method=method, headers=raw)
    try:
        with urllib.request.urlopen(call, timeout=3) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()
    except OSError:
        return None, b""


class Writers:
    """Clients that set a counter each, one number after the other, at the next node when one does not answer."""

    def __init__(self):
        self.stopping = threading.Event()
        self.written, self.longest, self.fault = [0] * WRITERS, 0.0, None
        self.threads = [threading.Thread(target=self.write, args=(writer,)) for writer in range(WRITERS)]

    def __enter__(self):
        for writer in range(WRITERS):
            status, body = request("POST", ENDPOINTS[0], "/v1/znodes/writer-%d" % writer, b"0")
            assert status in (200, 201), "%s: %s" % (status, body)
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.stopping.set()
        for thread in self.threads:
            thread.join()

    def write(self, writer):
        at = writer
        while not self.stopping.is_set() and not self.fault:
            number, begun = self.written[writer] + 1, time.monotonic()
            # A set of the same number may be repeated whatever became of the first try.
            while True:
                status, body = request("PUT", ENDPOINTS[at % 3], "/v1/znodes/writer-%d" % writer, b"%d" % number)
                if status == 200:
                    break
                at += 1
                if status not in (None, 503, 504) or time.monotonic() - begun > WRITE_S:
                    self.fault = "write %d of writer %d: %s %s" % (number, writer, status, body)
                    return
                time.sleep(0.05)
            self.written[writer] = number
            self.longest = max(self.longest, time.monotonic() - begun)

    def check(self):
        assert not self.fault, self.fault
        for writer, written in enumerate(self.written):
            for endpoint in ENDPOINTS:
                status, data = request("GET", endpoint, "/v1/znodes/writer-%d" % writer)
                assert status == 200 and int(data) == written, "writer %d: %s of %d at %s" % (writer, data, written, endpoint)
        say("%d writes, none lost, the longest took %.1f s" % (sum(self.written), self.longest))


def check_first_lock(site, begun):
    site.wait_ready(*NODES)
    done = site.zlock("zlock-1", "lock", "first", "--endpoints", "zlock-1:7001,zlock-2:7001,zlock-3:7001", "--", "/zlock", "version")
    assert "commit" in done.stdout, done.stdout + done.stderr
    say("a lock, %.1f s after `compose up`" % (time.monotonic() - begun))


def check_health(site):
    first, *others = NODES
    for service in NODES:
        assert site.is_healthy(service), "%s is ready, and its health check fails" % service
    for service in others:
        podman("stop", "--time", "30", site.container(service))
    wait_until("a node without a quorum is not healthy", lambda: not site.is_healthy(first))
    for service in others:
        podman("start", site.container(service))
    site.wait_ready(*NODES)
    assert site.is_healthy(first)
    say("the health check of the compose file passes, fails without a quorum, and passes again")


def check_kill(site):
    leader = site.leader()
    podman("kill", site.container(leader))
    done = site.zlock(next(node for node in NODES if node != leader), "lock", "second", "--endpoints",
                      ",".join(node + ":7001" for node in NODES if node != leader), "--", "/zlock", "version")
    assert "commit" in done.stdout, done.stdout + done.stderr
    podman("start", site.container(leader))
    site.wait_ready(leader)
    say("the container of the leader was killed, another node granted a lock, and the container came back")


def check_lost_volume(site):
    site.remove("zlock-2", volume=True)
    site.up("zlock-2")
    site.wait_ready("zlock-2")
    say("a node that lost its volume is ready again")


def build_next(scratch):
    """Builds the other image, and returns what its program says to --version."""
    program = Path(os.environ["ZLOCK"])
    version = run(program, "--version").stdout
    commit = re.search(r"commit ([0-9a-f]{12})", version)
    assert commit, "the program was built without a commit: " + version
    old, new = (text.encode() for text in (commit[1], commit[1][::-1]))
    data = program.read_bytes()
    assert data.count(old) == 1 and new != old, "%s stands %d times in the program" % (commit[1], data.count(old))
    other = scratch / "zlock-next"
    other.write_bytes(data.replace(old, new))
    other.chmod(0o755)
    run("env", "ZLOCK=%s" % other, ROOT / "deploy/image.sh", NEXT_IMAGE)
    return version.replace(commit[1], commit[1][::-1])


def check_rolling_restart(site, version):
    for service in NODES:
        assert site.version(service) != version
        site.remove(service)
        site.up(service, image=NEXT_IMAGE)
        site.wait_ready(service)
        assert site.version(service) == version, site.version(service)
    say("every node was restarted from an image with another program: " + version.strip())


def check_other_address(site):
    address = lambda: podman("inspect", "--format", "{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}",
                             site.container("zlock-3")).stdout.strip()
    before = address()
    site.remove("zlock-3")
    # Takes the address that has become free, or the next one.
    podman("run", "--detach", "--name", "takes-the-address", "--network", "zlock_default", "--ip", before, IMAGE,
           "serve", "--node-id", "1", "--node-members", "1=127.0.0.1:7101/127.0.0.1:7001")
    site.up("zlock-3", image=NEXT_IMAGE)
    site.wait_ready("zlock-3")
    after = address()
    assert before != after, before
    podman("rm", "--force", "takes-the-address")
    say("a node came back with the address %s instead of %s" % (after, before))


def check_search_domain(site):
    """A client in the network whose resolver has a search domain and `ndots`, as in a pod of Kubernetes."""
    name = "zlock-0.zlock-peers"
    podman("network", "create", "pods")
    podman("run", "--detach", "--name", "pod", "--network", "pods", "--network-alias", "%s.%s" % (name, DOMAIN), IMAGE,
           "serve", "--node-id", "1", "--node-members", "1=127.0.0.1:7101/127.0.0.1:7001", "--http-listen", "0.0.0.0:7001")
    client = ["run", "--rm", "--network", "pods", "--dns-search", DOMAIN, "--dns-opt", "ndots:5", IMAGE]
    ready = lambda: podman(*client, "ready", "--endpoints", name + ":7001", check=False).returncode == 0
    wait_until("%s is resolved by the search domain" % name, ready)
    podman("rm", "--force", "pod")
    podman("network", "rm", "pods")
    say("%s was resolved by the search domain %s" % (name, DOMAIN))


def play(tools, scratch):
    site = Site(tools / "podman-compose")
    version = build_next(scratch)
    try:
        begun = time.monotonic()
        site.up()
        check_first_lock(site, begun)
        check_health(site)
        with Writers() as writers:
            check_kill(site)
            check_lost_volume(site)
            check_rolling_restart(site, version)
            check_other_address(site)
        writers.check()
        check_search_domain(site)
    except BaseException:
        site.logs()
        raise
    say("the image does what deploy/compose.yaml and the pages say")


if __name__ == "__main__":
    sys.exit(script(__doc__, [COMPOSE], [IMAGE], play))
