#!/usr/bin/env python3
"""Real ZooKeeper clients against three zlock nodes: recipes of kazoo and Curator, then kazoo, Curator and HTTP clients on one lock
while nodes are killed with kill -9.

    tests/clients/run.py [--seconds 20] [--each 4] [--cache target/clients] [--zlock PATH]

Needs python3 with venv, a JDK, and apt-get with Debian's archive: `apt-get download` takes the jars, nothing is installed. A client
that cannot be fetched is an error, not a skip.
"""

import argparse
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
PACKAGES = """libzookeeper-java libcurator-client-java libcurator-framework-java libcurator-recipes-java libslf4j-java
    libnetty-java libguava-java libsnappy-java libdropwizard-metrics-java libcommons-cli-java""".split()
JARS = ("zookeeper", "curator-", "slf4j-api.jar", "slf4j-nop.jar", "netty-", "guava.jar", "failureaccess", "snappy-java", "metrics-core", "commons-cli")
LOCK = "/contended"


def say(*words):
    print("==", *words, flush=True)


class Clients:
    """The clients, fetched once into the cache."""

    def __init__(self, cache):
        cache.mkdir(parents=True, exist_ok=True)
        self.python = cache / "venv/bin/python"
        if subprocess.run([self.python, "-c", "import kazoo"], stderr=subprocess.DEVNULL).returncode if self.python.exists() else True:
            subprocess.run([sys.executable, "-m", "venv", cache / "venv"], check=True)
            subprocess.run([self.python, "-m", "pip", "install", "--quiet", "kazoo==2.11.0"], check=True)
        java = cache / "java"
        if not (java / "done").exists():
            (java / "x").mkdir(parents=True, exist_ok=True)
            subprocess.run(["apt-get", "download", "-q", *PACKAGES], cwd=java, check=True)
            for package in java.glob("*.deb"):
                subprocess.run(["dpkg", "-x", package, java / "x"], check=True)
            (java / "done").touch()
        found = sorted(jar for jar in (java / "x/usr/share/java").glob("*.jar") if jar.name.startswith(JARS))
        self.classpath = ":".join(map(str, [java, *found]))
        subprocess.run(["javac", "-cp", self.classpath, "-d", java, HERE / "CuratorCheck.java"], check=True)

    def curator(self, *words):
        return ["java", "-cp", self.classpath, "CuratorCheck", *map(str, words)]

    def kazoo(self, script, *words):
        return [str(self.python), str(HERE / script), *map(str, words)]


def free_ports(count):
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in held]
    for one in held:
        one.close()
    return ports


class Cluster:
    """Three nodes."""

    def __init__(self, program, data):
        ports = free_ports(9)
        self.program, self.data = program, data
        self.http = ["127.0.0.1:%d" % port for port in ports[0:3]]
        self.peers = ["127.0.0.1:%d" % port for port in ports[3:6]]
        self.zookeeper = ["127.0.0.1:%d" % port for port in ports[6:9]]
        self.nodes = [None] * 3
        for at in range(3):
            self.start(at)

    def start(self, at):
        members = ",".join("%d=%s/%s" % (one + 1, self.peers[one], self.http[one]) for one in range(3))
        flags = ["--node-id", str(at + 1), "--members", members, "--data-dir", str(self.data / ("n%d" % at)),
                 "--zookeeper-listen", self.zookeeper[at], "--zookeeper-words", "*", "--free-disk-min", "1"]
        log = open(self.data / ("n%d.log" % at), "ab")
        self.nodes[at] = subprocess.Popen([self.program, "serve", *flags], stdout=log, stderr=log)

    def kill(self, at):
        self.nodes[at].send_signal(signal.SIGKILL)
        self.nodes[at].wait()

    def leader(self):
        for at in range(3):
            try:
                with socket.create_connection(self.zookeeper[at].split(":"), timeout=2) as asked:
                    asked.sendall(b"srvr")
                    answer = b"".join(iter(lambda: asked.recv(4096), b""))
                    if b"Mode: leader" in answer:
                        return at
            except OSError:
                pass
        return None

    def wait_for_leader(self):
        deadline = time.monotonic() + 60
        while (leader := self.leader()) is None:
            assert time.monotonic() < deadline, "no leader"
            time.sleep(0.1)
        return leader

    def stop(self):
        for node in self.nodes:
            node.terminate()
        return [node.wait(30) for node in self.nodes]


def contend(clients, cluster, seconds, each):
    """Everybody on one lock, leaders killed now and then. Grants must not overlap, and their tokens must rise."""
    hosts = ",".join(cluster.zookeeper)
    commands = {
        "curator": clients.curator("contend", hosts, LOCK, seconds, each),
        "kazoo": clients.kazoo("kazoo_contend.py", hosts, LOCK, seconds, each),
        "http": clients.kazoo("http_contend.py", ",".join(cluster.http), LOCK, seconds, each),
    }
    running = {name: subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for name, command in commands.items()}
    until, kills = time.monotonic() + seconds, 0
    while time.monotonic() < until - 5:
        time.sleep(4)
        leader = cluster.wait_for_leader()
        cluster.kill(leader)
        kills += 1
        time.sleep(1)
        cluster.start(leader)
    grants = []
    for name, process in running.items():
        out, _ = process.communicate(timeout=120)
        assert process.returncode == 0, "the %s clients failed" % name
        grants += [line.split()[1:] for line in out.splitlines() if line.startswith("GRANT ")]
    grants = sorted((int(begin), int(end), int(token), who) for begin, end, token, who in grants)
    for (_, end, token, who), (begin, _, next_token, next_who) in zip(grants, grants[1:]):
        assert end <= begin, "%s and %s held the lock at the same time" % (who, next_who)
        assert token < next_token, "the token of %s, %d, is not above that of %s, %d" % (next_who, next_token, who, token)
    counts = {name: sum(who.startswith(name) for *_, who in grants) for name in running}
    assert all(counts.values()), "somebody never had the lock: %s" % counts
    say("%d grants without overlap and with rising tokens under %d kills of the leader: %s" % (len(grants), kills, counts))


def main():
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--seconds", type=int, default=20, help="of contention")
    words.add_argument("--each", type=int, default=4, help="clients of each kind")
    words.add_argument("--cache", type=Path, default=Path("target/clients"))
    words.add_argument("--zlock", type=Path, help="the program; built when not given")
    words = words.parse_args()
    clients = Clients(words.cache.resolve())
    program = words.zlock
    if program is None:
        subprocess.run(["cargo", "build", "--bin", "zlock"], check=True, cwd=HERE.parent.parent)
        program = Path(os.environ.get("CARGO_TARGET_DIR", HERE.parent.parent / "target")) / "debug/zlock"
    with tempfile.TemporaryDirectory() as data:
        cluster = Cluster(program, Path(data))
        try:
            cluster.wait_for_leader()
            hosts = ",".join(cluster.zookeeper)
            for name, command in [
                ("kazoo", clients.kazoo("kazoo_check.py", hosts)),
                ("Curator", clients.curator("check", hosts)),
            ]:
                say(name)
                subprocess.run(command, check=True, timeout=300)
            say("contention")
            contend(clients, cluster, words.seconds, words.each)
        except BaseException:
            for at in range(3):
                print(open(Path(data) / ("n%d.log" % at)).read()[-4000:], file=sys.stderr)
            raise
        finally:
            cluster.stop()
    say("all real clients passed")


main()
