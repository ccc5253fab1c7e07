#!/usr/bin/env python3
"""Real ZooKeeper clients against three zlock nodes: recipes of kazoo, Curator and node-zookeeper-client, zkCli, sessions that go on after
the node that their client is attached to was killed with kill -9, sessions that expire; then kazoo, Curator and HTTP clients on one
lock while leaders are killed or stopped.

    tests/clients/run.py [--newest] [--seconds 20] [--each 8] [--cache target/clients] [--zlock PATH]

With --newest Curator 5.7.1 and the client of ZooKeeper 3.9.3 take the places of Debian's: their jars are in the source package of
PySpark (430 MB from PyPI). What they log as an error while nothing fails counts as one.

Needs python3 with venv, a JDK, node with npm, and apt-get with Debian's archive: `apt-get download` takes the jars, and nothing is installed
outside of the cache. Exit code: 0 when all passed, 1 when something failed, 75 when all that could be run passed and a client could not be
fetched. The last line says which: "NOT RUN: ...".
"""

import sys

sys.dont_write_bytecode = True

import contextlib
import shutil
import signal
import socket
import subprocess
import tarfile
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path

from scene import FETCH_S, HERE, Cluster, Debian, Fetched, arguments, built, say, wait_until

PACKAGES = """libzookeeper-java libcurator-client-java libcurator-framework-java libcurator-recipes-java libslf4j-java
    libnetty-java libguava-java libsnappy-java libdropwizard-metrics-java libcommons-cli-java""".split()
JARS = ("zookeeper", "curator-", "slf4j-api.jar", "slf4j-nop.jar", "netty-", "guava.jar", "failureaccess", "snappy-java", "metrics-core", "commons-cli")
PYSPARK = "pyspark==4.0.1"
NEWEST_JARS = ("zookeeper", "curator-", "slf4j-api", "log4j-", "netty-", "guava", "snappy-java", "metrics-core", "commons-cli")
KAZOO = "kazoo==2.11.0"
NODE = "node-zookeeper-client@1.1.3"


def fetch(command, **more):
    """Runs a command that takes something from a registry."""
    subprocess.run(list(map(str, command)), check=True, timeout=FETCH_S, stdout=subprocess.DEVNULL, **more)


class Clients(Fetched):
    def __init__(self, cache, newest):
        self.cache, self.newest = cache, newest
        super().__init__(cache, {"kazoo": self.make_kazoo, "curator": self.make_curator, "node": self.make_node})

    def make_kazoo(self):
        self.python = self.cache / "venv/bin/python"
        if not self.python.exists() or subprocess.run([self.python, "-c", "import kazoo"], stderr=subprocess.DEVNULL).returncode:
            subprocess.run([sys.executable, "-m", "venv", self.cache / "venv"], check=True)
            fetch([self.python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", KAZOO])

    def make_curator(self):
        java = self.cache / ("java-newest" if self.newest else "java")
        found = self.of_pyspark(java) if self.newest else Debian(java, PACKAGES).root / "usr/share/java"
        wanted = NEWEST_JARS if self.newest else JARS
        found = sorted(jar for jar in found.glob("*.jar") if jar.name.startswith(wanted))
        self.classpath = ":".join(map(str, [java, *found]))
        # A broken check is no missing client.
        if subprocess.run(["javac", "-cp", self.classpath, "-d", java, HERE / "CuratorCheck.java"]).returncode:
            raise SystemExit("CuratorCheck.java does not compile")

    @staticmethod
    def of_pyspark(java):
        jars = java / "jars"
        if not (jars / "done").exists():
            jars.mkdir(parents=True, exist_ok=True)
            fetch([sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-binary", ":all:", PYSPARK, "-d", java])
            (package,) = java.glob("pyspark-*.tar.gz")
            with tarfile.open(package) as package_file:
                for member in package_file:
                    name = Path(member.name).name
                    if name.endswith(".jar") and name.startswith(NEWEST_JARS):
                        (jars / name).write_bytes(package_file.extractfile(member).read())
            package.unlink()
            (jars / "done").touch()
        return jars

    def make_node(self):
        if not (self.cache / "node/node_modules/node-zookeeper-client").exists():
            (self.cache / "node").mkdir(parents=True, exist_ok=True)
            fetch(["npm", "install", "--no-audit", "--no-fund", "--prefix", self.cache / "node", NODE])
        # It looks for what it needs beside itself.
        shutil.copy(HERE / "node_check.js", self.cache / "node")

    def curator(self, *words):
        return ["java", "-cp", self.classpath, "CuratorCheck", *map(str, words)]

    def zkcli(self, hosts):
        return ["java", "-cp", self.classpath, "org.apache.zookeeper.ZooKeeperMain", "-server", hosts]

    def kazoo(self, script, *words):
        return [str(self.python), str(HERE / script), *map(str, words)]

    def node(self, *words):
        return ["node", str(self.cache / "node/node_check.js"), *map(str, words)]

    def commands(self, mode, *hosts, names=("kazoo", "curator", "node")):
        """How each client that is there is run in a mode that these have."""
        all_of_them = {
            "kazoo": lambda: self.kazoo("kazoo_check.py", mode, *hosts),
            "curator": lambda: self.curator(mode, *hosts),
            "node": lambda: self.node(mode, *hosts),
        }
        return {name: all_of_them[name]() for name in names if self.has(name)}


class Ensemble(Cluster):
    """Three nodes that take ZooKeeper clients."""

    def __init__(self, program, data):
        super().__init__(program, data, "--zookeeper-four-letter-words", "*", zookeeper=True)

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

    def ask(self, method, path, body=None):
        """One request over HTTP, to any node that answers."""
        for at in range(60):
            request = urllib.request.Request("http://%s%s" % (self.http[at % 3], path), data=body, method=method)
            try:
                with urllib.request.urlopen(request, timeout=10) as answer:
                    return answer.status
            except urllib.error.HTTPError as error:
                if error.code < 500:
                    return error.code
            except OSError:
                pass
            time.sleep(0.5)
        raise AssertionError("no node answers")

    def change(self, path):
        assert self.ask("PUT", "/v1/znodes" + path, b"changed") == 200

    def is_there(self, path):
        return self.ask("GET", "/v1/znodes" + path) == 200

    def wait_for_leader(self):
        return wait_until("there is a leader", lambda: [at] if (at := self.leader()) is not None else None)[0]


@contextlib.contextmanager
def started(command, **more):
    """A client. However this ends, it is gone afterwards."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, **more)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def told(process, word):
    """The words behind this one, once the process says it."""
    for line in process.stdout:
        print("  ", line.rstrip(), flush=True)
        if line.startswith(word + " "):
            return line.split()[1:]
    raise AssertionError("it ended without saying " + word)


def kill_what_they_are_attached_to(clients, cluster):
    """Each client's node is killed with kill -9. Meanwhile what it watches changes. Its session goes on elsewhere, and it hears of it."""
    for name, command in clients.commands("attached", ",".join(cluster.zookeeper)).items():
        say("kill -9 of the node that", name, "is attached to")
        with started(command, stdin=subprocess.PIPE) as process:
            port, watched = told(process, "ATTACHED")
            at = [addr.rsplit(":")[-1] for addr in cluster.zookeeper].index(port)
            cluster.kill(at)
            cluster.change(watched)
            out, _ = process.communicate("killed\n", timeout=120)
            print(out, end="")
            assert process.returncode == 0, "the session of %s did not go on" % name
        cluster.start(at)
        cluster.wait_for_leader()


def expire(clients, cluster):
    """A client that is killed says nothing more: its ephemeral znode goes with its session, and not before its timeout."""
    if not clients.has("kazoo"):
        return
    with started(clients.kazoo("kazoo_check.py", "silent", ",".join(cluster.zookeeper)), stdin=subprocess.PIPE) as process:
        # It is killed on the way out.
        (path,) = told(process, "SILENT")
        assert cluster.is_there(path)
    began = time.monotonic()
    while cluster.is_there(path):
        assert time.monotonic() < began + 60, "a session does not expire"
        time.sleep(0.1)
    took = time.monotonic() - began
    # A sign of life is sent when a third of the timeout of four seconds is over.
    assert took > 4 / 3, "a session expired after %.1f s" % took
    say("a session of 4 s expired %.1f s after its client was killed" % took)


def beside(clients, cluster):
    """Locks of kazoo and Curator beside those of HTTP clients, in both orders."""
    hosts = ",".join(cluster.zookeeper), ",".join(cluster.http)
    for name, command in clients.commands("beside", *hosts, names=("kazoo", "curator")).items():
        say(name, "beside HTTP")
        subprocess.run(command, check=True, timeout=300)


def zkcli(clients, cluster):
    """ZooKeeper's own shell, from its standard input."""
    if not clients.has("curator"):
        return
    script = "create /cli hello\nset /cli world\nget -s /cli\nls /\ncreate -e -s /cli/e- x\nls /cli\ndeleteall /cli\nquit\n"
    done = subprocess.run(
        clients.zkcli(",".join(cluster.zookeeper)), input=script, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120
    )
    for wanted in ["Created /cli", "world", "dataVersion = 1", "[cli, ", "Created /cli/e-0000000000", "[e-0000000000]"]:
        assert wanted in done.stdout, "zkCli did not say %r: %s" % (wanted, done.stdout)
    assert not cluster.is_there("/cli"), done.stdout
    say("zkCli creates, sets, gets, lists and deletes")


def contend(clients, cluster, lock, kinds, seconds, each):
    """Clients of these kinds on one lock, leaders killed and stopped (SIGSTOP) in turns. Grants must not overlap, and their tokens must
    rise."""
    hosts = ",".join(cluster.zookeeper)
    commands = {
        "http": lambda: [sys.executable, HERE / "http_contend.py", ",".join(cluster.http), lock, str(seconds), str(each)],
        "curator": lambda: clients.curator("contend", hosts, lock, seconds, each),
        "kazoo": lambda: clients.kazoo("kazoo_contend.py", hosts, lock, seconds, each, "of-curator" if "curator" in kinds else "own"),
    }
    grants, faults = [], 0
    with contextlib.ExitStack() as stack:
        running = {name: stack.enter_context(started(commands[name]())) for name in kinds if name == "http" or clients.has(name)}
        until = time.monotonic() + seconds
        while time.monotonic() < until - 5:
            time.sleep(4)
            leader = cluster.wait_for_leader()
            if faults % 2:
                # For longer than an election takes: it goes on as one who does not know that it is deposed.
                cluster.nodes[leader].send_signal(signal.SIGSTOP)
                time.sleep(3)
                cluster.nodes[leader].send_signal(signal.SIGCONT)
            else:
                cluster.kill(leader)
                time.sleep(1)
                cluster.start(leader)
            faults += 1
        for name, process in running.items():
            out, _ = process.communicate(timeout=120)
            assert process.returncode == 0, "the %s clients failed" % name
            grants += [line.split()[1:] for line in out.splitlines() if line.startswith("GRANT ")]
    grants = sorted((int(begin), int(end), int(token), who) for begin, end, token, who in grants)
    for (_, end, token, who), (begin, _, next_token, next_who) in zip(grants, grants[1:]):
        assert end <= begin, "%s and %s held the lock at the same time" % (who, next_who)
        assert token < next_token, "the token of %s, %d, is not above that of %s, %d" % (next_who, next_token, who, token)
    counts = {name: sum(who.startswith(name) for *_, who in grants) for name in running}
    assert all(counts.values()), "a kind of client never had the lock: %s" % counts
    say("%d grants without overlap and with rising tokens under %d kills and stops of the leader: %s" % (len(grants), faults, counts))


def main():
    words = arguments(__doc__)
    words.add_argument("--newest", action="store_true", help="the newest Curator and client of ZooKeeper")
    words.add_argument("--seconds", type=int, default=20, help="of contention")
    words.add_argument("--each", type=int, default=8, help="clients of each kind")
    words = words.parse_args()
    clients = Clients(words.cache.resolve(), words.newest)
    with tempfile.TemporaryDirectory() as data, Ensemble(built(words.zlock), Path(data)) as cluster:
        cluster.wait_for_leader()
        for name, command in clients.commands("check", ",".join(cluster.zookeeper)).items():
            say(name)
            said = subprocess.run(command, check=True, timeout=300, stdout=subprocess.PIPE, text=True).stdout
            print(said, end="", flush=True)
            # The leader of the check is interrupted.
            errors = [line for line in said.splitlines() if " ERROR " in line and "LeaderSelector" not in line]
            assert not errors, "%s logs an error: %s" % (name, errors[0])
        beside(clients, cluster)
        zkcli(clients, cluster)
        kill_what_they_are_attached_to(clients, cluster)
        expire(clients, cluster)
        # kazoo with its own names and HTTP; then all three, where kazoo takes Curator's names.
        for lock, kinds in [("/contended", ("http", "kazoo")), ("/mixed", ("http", "curator", "kazoo"))]:
            say("contention of", *kinds)
            contend(clients, cluster, lock, kinds, words.seconds, words.each)
    if clients.missing:
        return clients.not_run()
    say("all real clients passed")
    return 0


sys.exit(main())
