"""What tests of programs around a cluster need: three nodes on loopback, and programs of others in a cache, not installed."""

import argparse
import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
# How long one fetch from an archive or a registry may take.
FETCH_S = 300
# How long a test waits for what must happen.
PATIENCE_S = 60
# As sysexits.h has it: try again when what is missing is there.
NOT_RUN = 75


def say(*words):
    print("==", *words, flush=True)


def arguments(about, cache=""):
    """What every script takes: where the programs of others are kept, and the program under test."""
    words = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--cache", type=Path, default=Path("target/clients") / cache)
    words.add_argument("--zlock", type=Path, help="the program; built when not given")
    return words


def not_run(*reasons):
    """The exit code of a script that could not run all of it. Its last line says why."""
    print("NOT RUN: " + "; ".join(map(str, reasons)), flush=True)
    return NOT_RUN


class Missing(Exception):
    """A program that cannot be had here, and why."""


class Fetched:
    """Tools of others, each made once in the cache by a function. What cannot be fetched is in `missing`, with the reason."""

    def __init__(self, cache, makes):
        self.cache, self.missing = cache, {}
        cache.mkdir(parents=True, exist_ok=True)
        for name, make in makes.items():
            try:
                make()
            except (Missing, OSError, subprocess.SubprocessError) as error:
                self.missing[name] = str(error).splitlines()[0]
                say("%s CANNOT BE FETCHED: %s" % (name, self.missing[name]))

    def make_venv(self, name, packages):
        """A Python environment below the cache, with packages of PyPI."""
        venv = self.cache / name
        done = venv / ("done " + " ".join(packages))
        if not done.exists():
            shutil.rmtree(venv, ignore_errors=True)
            subprocess.run([sys.executable, "-m", "venv", venv], check=True)
            install = [venv / "bin/pip", "install", "--quiet", "--disable-pip-version-check", *packages]
            subprocess.run(install, check=True, timeout=FETCH_S)
            done.touch()

    def program(self, venv, name):
        return self.cache / venv / "bin" / name

    def has(self, name):
        return name not in self.missing

    def not_run(self):
        return not_run(*["%s cannot be fetched: %s" % missing for missing in self.missing.items()])


class Debian:
    """Programs of Debian packages, unpacked below the cache."""

    def __init__(self, cache, packages):
        self.root = cache / "x"
        if not (cache / "done").exists():
            self.root.mkdir(parents=True, exist_ok=True)
            try:
                # A warning about the user that downloads is no failure.
                fetch = ["apt-get", "download", "-q", *packages]
                subprocess.run(fetch, cwd=cache, check=True, timeout=FETCH_S, capture_output=True, text=True)
                for package in cache.glob("*.deb"):
                    subprocess.run(["dpkg", "-x", package, self.root], check=True, capture_output=True, text=True)
            except (OSError, subprocess.SubprocessError) as error:
                told = (getattr(error, "stderr", None) or str(error)).strip().splitlines()
                raise Missing("%s: %s" % (" ".join(packages), told[-1] if told else error)) from error
            (cache / "done").touch()
        libraries = ":".join(sorted(str(found) for found in self.root.glob("usr/lib/*-linux-gnu")))
        self.env = dict(os.environ, LD_LIBRARY_PATH=libraries)

    def program(self, path, *version):
        """A program that runs here, or the reason why it does not."""
        program = self.root / path
        try:
            subprocess.run([program, *version], env=self.env, check=True, timeout=20, capture_output=True, text=True)
        except (OSError, subprocess.SubprocessError) as error:
            told = (getattr(error, "stderr", None) or str(error)).strip().splitlines()
            raise Missing("%s: %s" % (program.name, told[0] if told else error)) from error
        return program


def free_ports(count):
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in held]
    for one in held:
        one.close()
    return ports


def free_port():
    (port,) = free_ports(1)
    return port


def built(program):
    """The program under test, built when none is given."""
    if program is None:
        subprocess.run(["cargo", "build", "--bin", "zlock"], check=True, cwd=ROOT)
        told = ["cargo", "metadata", "--no-deps", "--format-version", "1"]
        target = json.loads(subprocess.run(told, check=True, cwd=ROOT, capture_output=True).stdout)["target_directory"]
        program = Path(target) / "debug/zlock"
    return Path(program).resolve()


def get(addr, path, timeout=5):
    """Status and body of one answer; None when there was none."""
    try:
        with urllib.request.urlopen("http://%s%s" % (addr, path), timeout=timeout) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()
    except OSError:
        return None


def wait_until(what, look, process=None):
    """What a look finds at last. When a process is named, it must not end meanwhile."""
    deadline = time.monotonic() + PATIENCE_S
    while not (found := look()):
        assert process is None or process.poll() is None, "it ended before " + what
        assert time.monotonic() < deadline, "waited in vain until " + what
        time.sleep(0.1)
    return found


@contextlib.contextmanager
def started(command, log, end=signal.SIGTERM, **more):
    """A server. However this ends, it is gone afterwards."""
    with open(log, "ab") as out:
        process = subprocess.Popen(list(map(str, command)), stdin=subprocess.DEVNULL, stdout=out, stderr=out, **more)
    try:
        yield process
    except BaseException:
        print(Path(log).read_text()[-3000:], file=sys.stderr)
        raise
    finally:
        process.send_signal(end)
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


class Cluster:
    """Nodes on loopback, ended with the scene. With `zookeeper` they take ZooKeeper clients, too."""

    def __init__(self, program, data, *flags, nodes=3, zookeeper=False):
        addrs = ["127.0.0.1:%d" % port for port in free_ports(3 * nodes)]
        self.program, self.data, self.flags = program, data, flags
        self.http, self.peers = addrs[:nodes], addrs[nodes:2 * nodes]
        self.zookeeper = addrs[2 * nodes:] if zookeeper else []
        self.nodes = [None] * nodes

    def __enter__(self):
        for at in range(len(self.nodes)):
            self.start(at)
        return self

    def __exit__(self, kind, *_):
        for node in self.nodes:
            node.kill()
            node.wait()
        if kind is not None:
            for at in range(len(self.nodes)):
                print("-- node %d\n%s" % (at + 1, open(self.log(at)).read()[-3000:]), file=sys.stderr, flush=True)

    def log(self, at):
        return self.data / ("n%d.log" % at)

    def command(self, at):
        members = ",".join("%d=%s/%s" % (one, *addrs) for one, addrs in enumerate(zip(self.peers, self.http), 1))
        own = ["--node-id", str(at + 1), "--node-data-dir", str(self.data / ("n%d" % at))]
        if self.zookeeper:
            own += ["--zookeeper-listen", self.zookeeper[at]]
        return [self.program, "serve", *own, "--node-members", members, "--disk-free-bytes-min", "1", *self.flags]

    def start(self, at):
        with open(self.log(at), "ab") as log:
            self.nodes[at] = subprocess.Popen(self.command(at), stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def kill(self, at):
        self.nodes[at].kill()
        self.nodes[at].wait()

    def stop(self, at):
        self.nodes[at].terminate()
        code = self.nodes[at].wait(60)
        assert code == 0, "node %d ended with %s" % (at + 1, code)

    def wait_ready(self):
        for at in range(len(self.nodes)):
            wait_until("node %d is ready" % (at + 1), lambda: (get(self.http[at], "/readyz") or (0,))[0] == 200, self.nodes[at])

    def assert_all_lived(self):
        """A node that ends by itself is a fault, whatever the others have answered."""
        ended = [node.poll() for node in self.nodes]
        assert not any(code is not None for code in ended), "a node ended by itself: %s" % ended
