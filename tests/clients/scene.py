"""What tests of programs around a cluster need: three nodes on loopback, and programs of Debian's in a cache, not installed."""

import os
import socket
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path

HERE = Path(__file__).resolve().parent
# How long one fetch from the archive may take.
FETCH_S = 180
# As sysexits.h has it: try again when what is missing is there.
NOT_RUN = 75


def say(*words):
    print("==", *words, flush=True)


class Missing(Exception):
    """A program that cannot be had here, and why."""


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


def built(program):
    """The program under test, built when none is given."""
    if program is None:
        subprocess.run(["cargo", "build", "--bin", "zlock"], check=True, cwd=HERE.parent.parent)
        program = Path(os.environ.get("CARGO_TARGET_DIR", HERE.parent.parent / "target")) / "debug/zlock"
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


def wait_until(what, look, seconds=60):
    deadline = time.monotonic() + seconds
    while not (found := look()):
        assert time.monotonic() < deadline, "waited in vain until " + what
        time.sleep(0.1)
    return found


class Cluster:
    """Three nodes, ended with the scene."""

    def __init__(self, program, data, *flags):
        ports = free_ports(6)
        self.program, self.data, self.flags = program, data, flags
        self.http = ["127.0.0.1:%d" % port for port in ports[0:3]]
        self.peers = ["127.0.0.1:%d" % port for port in ports[3:6]]
        self.nodes = [None] * 3

    def __enter__(self):
        for at in range(3):
            self.start(at)
        return self

    def __exit__(self, kind, *_):
        for node in self.nodes:
            node.kill()
            node.wait()
        if kind is not None:
            for at in range(3):
                print("-- node %d\n%s" % (at + 1, open(self.log(at)).read()[-3000:]), flush=True)

    def log(self, at):
        return self.data / ("n%d.log" % at)

    def start(self, at):
        members = ",".join("%d=%s/%s" % (one + 1, self.peers[one], self.http[one]) for one in range(3))
        own = ["--node-id", str(at + 1), "--data-dir", str(self.data / ("n%d" % at))]
        command = [self.program, "serve", *own, "--members", members, "--free-disk-min", "1", *self.flags]
        log = open(self.log(at), "ab")
        self.nodes[at] = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def stop(self, at):
        self.nodes[at].terminate()
        code = self.nodes[at].wait(60)
        assert code == 0, "node %d ended with %s" % (at + 1, code)

    def wait_ready(self):
        for at in range(3):
            wait_until("node %d is ready" % (at + 1), lambda: (get(self.http[at], "/readyz") or (0,))[0] == 200)
