#!/usr/bin/env python3
"""What trials by new users, and reports about other lock services, have found wrong: each input is played again on three nodes, and
what comes is compared with what is right.

    tests/clients/trials.py [--zlock PATH] [ROW...]

Prints a line for each row: its name, `holds` or `FAILS`, and what came. Exit code: 0 when all hold, 1 when one does not. With names
only those rows are played. Needs python3 on Linux, and nothing from elsewhere.
"""

import sys

sys.dont_write_bytecode = True

import ctypes
import json
import os
import pty
import re
import select
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import time
from pathlib import Path

from scene import Cluster, arguments, built, wait_until

ROWS = {}
# Of a znode that a ZooKeeper client creates.
EPHEMERAL_SEQUENTIAL = 3


def row(name):
    def keep(play):
        ROWS[name] = play
        return play

    return keep


class Wrong(Exception):
    """What came is not what is right."""


def expect(holds, came):
    if not holds:
        raise Wrong(came)
    return came


def one_line(text):
    return " ".join(str(text).split())[:160]


class Answer:
    """An answer as its bytes came."""

    def __init__(self, text):
        self.text = text
        head, _, self.body = text.partition("\r\n\r\n")
        lines = head.split("\r\n")
        self.status = int(lines[0].split()[1]) if len(lines[0].split()) > 1 else 0
        self.headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])}

    def json(self):
        return json.loads(self.body)

    def __str__(self):
        return one_line("%d %s" % (self.status, self.body))


class Scene:
    """Three nodes, the program, and HTTP by hand."""

    def __init__(self, program, cluster, directory):
        self.program, self.cluster, self.directory = program, cluster, directory
        self.env = dict(os.environ, ZLOCK_ENDPOINTS=",".join(cluster.http), XDG_CONFIG_HOME=str(directory))

    def command(self, *args, program=None):
        return [str(program or self.program), *map(str, args)]

    def z(self, *args, timeout=60, program=None):
        """Runs a command to its end: its exit code, and what it said."""
        done = subprocess.run(self.command(*args, program=program), env=self.env, capture_output=True, text=True, timeout=timeout,
                              stdin=subprocess.DEVNULL)
        return done.returncode, done.stdout + done.stderr

    def begin(self, *args, program=None, **more):
        """Starts a command that goes on."""
        more = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True, **more}
        return subprocess.Popen(self.command(*args, program=program), env=self.env, **more)

    def raw(self, text, at=0, half_close=False, timeout=15):
        """Sends these bytes, and hears what comes until the node closes."""
        host, port = self.cluster.http[at].split(":")
        with socket.create_connection((host, int(port)), timeout=timeout) as stream:
            stream.sendall(text.encode() if isinstance(text, str) else text)
            if half_close:
                stream.shutdown(socket.SHUT_WR)
            heard = b""
            while piece := stream.recv(65536):
                heard += piece
        return heard.decode(errors="replace")

    def http(self, line, *headers, body="", at=0):
        own = ["%s HTTP/1.1" % line, "Host: %s" % self.cluster.http[at], "Connection: close", "Content-Length: %d" % len(body.encode())]
        return Answer(self.raw("\r\n".join([*own, *headers, "", body]), at))

    def session(self, **fields):
        opened = self.http("POST /v1/sessions", "Content-Type: application/json", body=json.dumps({"timeout": "30s", **fields}))
        return "Zlock-Session-Key: " + opened.json()["session_key"]

    def holds(self, lock):
        """Who holds a lock, as `zlock locks` tells it."""
        return self.http("GET /v1/locks/" + lock).json().get("holders", [])

    def until_held(self, lock):
        wait_until("%s is held" % lock, lambda: self.holds(lock))

    def zookeeper(self):
        return ZooKeeper(self.cluster.zookeeper[0])

    def leader(self):
        return json.loads(self.http("GET /v1/cluster").body)["leader"]


class ZooKeeper:
    """A client that speaks so much of ZooKeeper's protocol as the rows need."""

    def __init__(self, addr, zxid=0):
        host, port = addr.split(":")
        self.stream = socket.create_connection((host, int(port)), timeout=15)
        self.send(struct.pack(">iqiqi", 0, zxid, 30000, 0, 16) + bytes(16) + b"\0")
        self.refused = not self.frame()
        self.xid = 0

    def send(self, payload):
        self.stream.sendall(struct.pack(">i", len(payload)) + payload)

    def frame(self):
        def exactly(count):
            heard = b""
            while len(heard) < count:
                piece = self.stream.recv(count - len(heard))
                if not piece:
                    return b""
                heard += piece
            return heard

        head = exactly(4)
        return exactly(*struct.unpack(">i", head)) if head else b""

    def ask(self, kind, payload):
        """The error and the payload of the answer."""
        self.xid += 1
        self.send(struct.pack(">ii", self.xid, kind) + payload)
        while True:
            answer = self.frame()
            if not answer:
                raise Wrong("the connection was closed")
            xid, _, error = struct.unpack(">iqi", answer[:16])
            if xid == self.xid:
                return error, answer[16:]

    @staticmethod
    def text(value):
        value = value.encode()
        return struct.pack(">i", len(value)) + value

    def create(self, path, data=b"", perms=31, flags=0):
        acl = struct.pack(">ii", 1, perms) + self.text("world") + self.text("anyone")
        return self.ask(1, self.text(path) + struct.pack(">i", len(data)) + data + acl + struct.pack(">i", flags))[0]

    def exists(self, path, watch):
        return self.ask(3, self.text(path) + (b"\1" if watch else b"\0"))[0]

    def get(self, path):
        error, payload = self.ask(4, self.text(path) + b"\0")
        length = struct.unpack(">i", payload[:4])[0] if not error else 0
        return error, payload[4:4 + length].decode()


def without_process_descriptors(errno):
    """For a process that is about to start: `pidfd_open` fails."""
    def forbid():
        instruction = lambda code, when_true, when_false, operand: struct.pack("HBBI", code, when_true, when_false, operand)
        lines = instruction(0x20, 0, 0, 0) + instruction(0x15, 0, 1, 434) + instruction(6, 0, 0, 0x50000 | errno) + instruction(6, 0, 0, 0x7FFF0000)
        kept = ctypes.create_string_buffer(lines, len(lines))

        class Program(ctypes.Structure):
            _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_void_p)]

        libc = ctypes.CDLL(None)
        libc.prctl(38, 1, 0, 0, 0)
        assert libc.prctl(22, 2, ctypes.byref(Program(4, ctypes.addressof(kept)))) == 0

    return forbid


def lives(pid):
    try:
        return Path("/proc/%d/stat" % pid).read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def noted(scene, name):
    """A file in which a command notes its number, and what reads it."""
    file = scene.directory / ("pid-" + name)
    file.unlink(missing_ok=True)

    def pid():
        return wait_until("the command runs", lambda: file.exists() and file.read_text().strip() and int(file.read_text()))

    return file, pid


@row("command ends without pidfd_open")
def _(scene):
    for errno in (38, 1):
        for how in ("broken", "killed"):
            name = "old-kernel-%d-%s" % (errno, how)
            file, pid = noted(scene, name)
            script = "echo $$ > %s.new; mv %s.new %s; sleep 101; true" % (file, file, file)
            holder = scene.begin("lock", name, "--session-timeout", "4s", "--", "sh", "-c", script,
                                 preexec_fn=without_process_descriptors(errno), stderr=subprocess.DEVNULL)
            command = pid()
            if how == "broken":
                scene.z("break", name, "--yes")
            else:
                holder.kill()
            code, said = scene.z("lock", name, "--wait", "30s", "--", "sh", "-c", "test ! -d /proc/%d" % command)
            holder.wait()
            expect(code == 0, "errno %d, %s: the command runs beside the next holder: %s" % (errno, how, said))
    return "ENOSYS and EPERM, break and kill -9: it is gone before the next holder runs"


@row("break keeps data")
def _(scene):
    code, path = scene.z("create", "-p", "--sequential", "paid/task-", "pay 100")
    code, said = scene.z("break", "paid", "--yes")
    kept = scene.z("get", path.strip())
    return expect(code == 1 and kept == (0, "pay 100"), "%d %s" % (code, one_line(said)))


@row("terminal is the command's behind a pipe")
def _(scene):
    pid, terminal = pty.fork()
    if pid == 0:
        os.environ.update(scene.env, PATH="%s:%s" % (scene.program.parent, os.environ["PATH"]))
        os.execvp("sh", ["sh", "-c", "echo data | zlock lock tty -- sh -c 'read l </dev/tty; echo got $l'"])
    os.write(terminal, b"hello\n")
    heard, deadline = b"", time.monotonic() + 30
    while b"got hello" not in heard and time.monotonic() < deadline:
        if select.select([terminal], [], [], 1)[0]:
            try:
                heard += os.read(terminal, 4096)
            except OSError:
                break
    os.close(terminal)
    os.waitpid(pid, 0)
    return expect(b"got hello" in heard, one_line(heard.decode()))


@row("stopped command is ended")
def _(scene):
    file, pid = noted(scene, "stopped")
    holder = scene.begin("lock", "stopped", "--", "sh", "-c", "echo $$ > %s.new; mv %s.new %s; exec sleep 101" % (file, file, file))
    os.kill(pid(), signal.SIGSTOP)
    said = holder.stderr.readline()
    holder.terminate()
    code = holder.wait(30)
    return expect(code == 143 and "stopped" in said, "%d, and before: %s" % (code, said))


@row("watch from a future position")
def _(scene):
    later = int(scene.http("GET /v1/cluster").headers["zlock-zxid"]) + 10**6
    answers = [scene.http("GET /v1/znodes/?watch=%s&since=%d&wait=1s" % (kind, later)) for kind in ("data", "exists", "children", "subtree")]
    return expect(all(one.status == 410 and "events-gone" in one.body for one in answers), answers[0])


@row("nothing asked is cut in silence")
def _(scene):
    session = scene.session()
    over_http = scene.http("POST /v1/locks/cut?lock_delay=5m", session)
    said = [scene.z("lock", "cut", *wish, "--", "true") for wish in
            (("--lock-delay", "5m"), ("--grace", "9s"), ("--session-timeout", "10m"))]
    told = lambda code, text: code != 0 or bool(text.strip())
    return expect(over_http.status == 400 and all(told(*one) for one in said), "%s; %s" % (over_http, [one_line(text) for _, text in said]))


@row("replaced program runs its command")
def _(scene):
    program = scene.directory / "zlock-copy"
    shutil.copy(scene.program, program)
    holder = scene.begin("lock", "upgraded", "--", "sleep", "101")
    scene.until_held("upgraded")
    waits = scene.begin("lock", "upgraded", "--", "true", program=program)
    wait_until("it waits", lambda: "waits" in scene.z("locks", "upgraded")[1])
    shutil.copy("/bin/true", str(program) + ".new")
    os.replace(str(program) + ".new", program)
    holder.terminate()
    said = waits.communicate(timeout=30)[1]
    holder.wait()
    return expect(waits.returncode == 0, "%d %s" % (waits.returncode, one_line(said)))


@row("permits of a semaphore in use")
def _(scene):
    holder = scene.begin("semaphore", "pool", "--permits-max", "2", "--", "sleep", "101")
    scene.until_held("pool")
    code, said = scene.z("settings", "pool", "--permits-max", "5")
    still = bool(scene.holds("pool"))
    other, refused = scene.z("semaphore", "pool", "--permits-max", "2", "--wait", "0", "--", "true")
    holder.terminate()
    holder.wait()
    numbers = "2" in refused and "5" in refused
    return expect(code == 0 and still and other != 0 and numbers, "%d %s; another number: %d %s" % (code, one_line(said), other, one_line(refused)))


@row("clients that do not see each other")
def _(scene):
    curator, kazoo = scene.zookeeper(), scene.zookeeper()
    errors = [curator.create("/mixed"), curator.create("/mixed/_c_0a3a5b6c-0000-4000-8000-00000000000a-lock-", flags=EPHEMERAL_SEQUENTIAL),
              kazoo.create("/mixed/0123456789abcdef0123456789abcdef__lock__", flags=EPHEMERAL_SEQUENTIAL)]
    shown = scene.z("locks", "mixed")[1]
    line = logged(scene, "do not see each other", "/mixed")
    both = "curator does not see kazoo" in shown and "kazoo does not see curator" in shown
    return expect(errors == [0, 0, 0] and both, line)


@row("listing with a name of ten digits")
def _(scene):
    scene.z("create", "--sequential", "task-", "x")
    code, said = scene.z("locks")
    return expect(code == 0 and "the root is no lock" not in said, "%d %s" % (code, one_line(said)))


@row("request of a client that half-closes")
def _(scene):
    host = scene.cluster.http[0]
    request = "POST /v1/znodes/half-closed HTTP/1.1\r\nHost: %s\r\nContent-Length: 1\r\nConnection: close\r\n\r\nx" % host
    answer = Answer(scene.raw(request, half_close=True))
    return expect(answer.status == 201, answer)


@row("PUT with If-None-Match")
def _(scene):
    scene.http("POST /v1/znodes/precious", body="old")
    put = scene.http("PUT /v1/znodes/precious", "If-None-Match: *", body="new")
    kept = scene.z("get", "precious")[1]
    others = [scene.http("GET /v1/znodes/precious", "If-Match: \"7\""), scene.http("PUT /v1/znodes/precious", "If-Unmodified-Since: x", body="n"),
              scene.http("PUT /v1/znodes/precious", "Content-Range: bytes 0-1/2", body="n"),
              scene.http("PUT /v1/znodes/precious", "Content-Encoding: gzip", body="n")]
    return expect(put.status == 412 and kept == "old" and all(one.status == 400 for one in others), put)


@row("patterns of the OpenAPI document")
def _(scene):
    held = scene.http("POST /v1/locks/patterned", scene.session()).json()
    document = scene.http("GET /openapi.json").json()
    patterns = [one["schema"]["pattern"] for path in document["paths"].values() for operation in path.values()
                for one in operation.get("parameters", []) if one["name"] == "If-Lock"]
    guard = "/patterned;%d" % held["fencing_token"]
    return expect(patterns and all(re.fullmatch(one, guard) for one in patterns), "%s: %s" % (guard, patterns[:1]))


@row("answers are not stored")
def _(scene):
    answers = [scene.http("GET " + path) for path in ("/v1/znodes", "/v1/locks", "/v1/cluster", "/v1/none", "/readyz", "/metrics")]
    return expect(all(one.headers.get("cache-control") == "no-store" for one in answers), [one.headers.get("cache-control") for one in answers])


@row("weak ETag")
def _(scene):
    scene.http("POST /v1/znodes/weak", body="0")
    answer = scene.http("PUT /v1/znodes/weak", 'If-Match: W/"0"', body="1")
    return expect(answer.status == 200, answer)


@row("idempotency key of a ticket given back")
def _(scene):
    session = scene.session()
    held = scene.http("POST /v1/locks/again", session, "Idempotency-Key: first").json()
    scene.http("DELETE /v1/tickets" + held["ticket"], session)
    answer = scene.http("POST /v1/locks/again", session, "Idempotency-Key: first")
    return expect(answer.status == 410 and "key" in answer.body.lower(), answer)


@row("refusals say what to do")
def _(scene):
    session = scene.session()
    cases = [("DELETE /v1/tickets/e1", "/v1/locks"), ("GET /v1/tickets/e1/never-0000000009", "it never was"), ("POST /v1/locks/a?wiat=5s", "wait"),
             ("POST /v1/locks/%F0%9F%98%80", "U+1F600"), ("POST /v1/locks/a/", "slash")]
    answers = [(scene.http(line, session), words) for line, words in cases]
    label = scene.http("POST /v1/sessions", "Content-Type: application/json", body=json.dumps({"label": "x" * 300}))
    cli = scene.z("lock", "a/", "--", "true")[1]
    wrong = [str(answer) for answer, words in answers if words not in answer.body]
    return expect(not wrong and "label" in label.body and "slash" in cli, wrong or label)


@row("answers end with a newline")
def _(scene):
    bodies = [scene.http("GET " + path).body for path in ("/v1/znodes", "/v1/none", "/readyz")]
    return expect(all(body.endswith("\n") for body in bodies), [body[-10:] for body in bodies])


@row("pipelined, HTTP/1.0 and absolute-form requests")
def _(scene):
    host = scene.cluster.http[0]
    pipelined = "".join("GET /livez HTTP/1.1\r\nHost: %s\r\n%s\r\n" % (host, "Connection: close\r\n" if last else "") for last in (0, 0, 0, 0, 1))
    five = scene.raw(pipelined).count("HTTP/1.1 200")
    old = Answer(scene.raw("GET /livez HTTP/1.0\r\nHost: %s\r\n\r\n" % host))
    whole = Answer(scene.raw("GET http://%s/livez HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n" % (host, host)))
    return expect((five, old.status, whole.status) == (5, 200, 200), "%d %s %s" % (five, old.status, whole.status))


@row("label without the command line")
def _(scene):
    holder = scene.begin("lock", "labelled", "--", "sh", "-c", "sleep 101", "--password=p")
    scene.until_held("labelled")
    shown = scene.z("locks")[1] + scene.z("sessions")[1] + scene.http("GET /v1/locks/labelled").body
    holder.terminate()
    holder.wait()
    return expect("password" not in shown, one_line(shown))


@row("waiting is told without a terminal")
def _(scene):
    holder = scene.begin("lock", "busy", "--", "sleep", "101")
    scene.until_held("busy")
    told = scene.z("lock", "busy", "--wait", "2s", "--", "true")[1]
    quiet = scene.z("lock", "busy", "--wait", "2s", "--quiet", "--busy-exit", "0", "--", "true")
    holder.terminate()
    holder.wait()
    return expect("wait" in told and quiet == (0, ""), "%s; quiet: %s" % (one_line(told), quiet))


@row("job that is shorter than its lock")
def _(scene):
    first = scene.begin("lock", "cron", "--wait", "0", "--hold-at-least", "3s", "--", "true")
    scene.until_held("cron")
    second = scene.z("lock", "cron", "--wait", "0", "--quiet", "--busy-exit", "0", "--", "touch", scene.directory / "twice")
    first.wait(30)
    return expect(second[0] == 0 and not (scene.directory / "twice").exists() and first.returncode == 0, second)


@row("who is asked to give back, and who is silent")
def _(scene):
    holder = scene.begin("lock", "asked", "--", "sleep", "101")
    scene.until_held("asked")
    held = scene.z("locks", "--held", "asked")[0]
    free = scene.z("locks", "--held", "nobodys")[0]
    scene.z("revoke", "asked", "--within", "60s")
    shown = scene.z("locks")[1]
    holder.terminate()
    holder.wait()
    return expect(held == 0 and free == 5 and "asked" in shown.lower(), "held %d, free %d, %s" % (held, free, one_line(shown)))


@row("wrong command lines")
def _(scene):
    cases = [(("lock", "x", "--wait", "-5s", "--", "true"), 2, "negative"), (("ls", "--endpoints", "127.0.0.1"), 2, "host:port"),
             (("semaphore", "s", "--permits-max", "2", "--permits", "3", "--", "true"), 2, "3"), (("lock", "x", "--nosuch", "--", "true"), 2, "--nosuch"),
             (("--json", "get", "nope"), 1, '"type"'), (("ls", "--endpoints", scene.cluster.zookeeper[0], "--timeout", "2s"), 3, "other than HTTP")]
    came = [(scene.z(*args), code, words) for args, code, words in cases]
    wrong = [one for one in came if one[0][0] != one[1] or one[2] not in one[0][1]]
    nested = scene.z("lock", "nested", "--", scene.program, "lock", "nested", "--wait", "5s", "--", "true", timeout=30)
    return expect(not wrong and nested[0] != 0 and "runs this command" in nested[1], wrong or one_line(nested[1]))


@row("signals that end nothing")
def _(scene):
    file, pid = noted(scene, "signals")
    script = "trap 'echo winch' WINCH; trap 'echo real' 37; echo $$ > %s.new; mv %s.new %s; while :; do sleep 0.05; done" % (file, file, file)
    holder = scene.begin("lock", "signals", "--", "sh", "-c", script, stdout=subprocess.PIPE)
    pid()
    heard = []
    for number in (signal.SIGWINCH, 37):
        os.kill(holder.pid, number)
        heard.append(holder.stdout.readline().strip())
    holder.terminate()
    holder.wait()
    return expect(heard == ["winch", "real"], heard)


@row("settings in plain words")
def _(scene):
    said = scene.z("settings", "--help")[1]
    return expect(said.startswith("Shows the settings of a lock"), one_line(said))


@row("server line of ZooKeeper's configuration")
def _(scene):
    error, text = scene.zookeeper().get("/zookeeper/config")
    lines = [line.partition("=")[2] for line in text.splitlines() if line.startswith("server.")]
    ports = [line.split(":")[1:3] for line in lines]
    apart = all(first != second for first, second in ports)
    return expect(not error and lines and apart, one_line(text))


@row("ACL entries that permit nothing or too much")
def _(scene):
    client = scene.zookeeper()
    errors = [client.create("/acl%d" % at, perms=perms) for at, perms in enumerate((0, 0xFF, -1))]
    return expect(errors == [0, 0, 0], errors)


@row("exists on a path that is too long")
def _(scene):
    client, path = scene.zookeeper(), "/" + "x" * 1100
    errors = [client.exists(path, watch) for watch in (False, True)]
    return expect(errors == [-101, -101], errors)


def logged(scene, *words):
    """The first line of any node's log with all these words, once there is one."""
    def look():
        return [line for at in range(3) for line in open(scene.cluster.log(at)) if all(word in line for word in words)]

    return one_line(wait_until("a log tells of it", look)[0])


@row("watches that are more than a packet")
def _(scene):
    client = scene.zookeeper()
    paths = b"".join(client.text("/watched/%s/%d" % ("x" * 90, at)) for at in range(12000))
    client.send(struct.pack(">iiq", -8, 101, 0) + struct.pack(">i", 12000) + paths + struct.pack(">ii", 0, 0))
    closed = client.frame() == b""
    return expect(closed, logged(scene, "cut off, and will come back with the same"))


@row("multi of more operations than a transaction may have")
def _(scene):
    client = scene.zookeeper()
    check = struct.pack(">i?i", 13, False, -1) + client.text("/") + struct.pack(">i", -1)
    error, _ = client.ask(14, check * 129 + struct.pack(">i?i", -1, True, -1))
    return expect(error == -8, "%d; %s" % (error, logged(scene, "too many operations", "ops_max")))


@row("client that comes from a later cluster")
def _(scene):
    refused = ZooKeeper(scene.cluster.zookeeper[0], zxid=2**62).refused
    return expect(refused, logged(scene, "has seen a later zxid"))


@row("reads without a quorum")
def _(scene):
    for at in (1, 2):
        scene.cluster.kill(at)
    wait_until("no leader is heard", lambda: "no quorum" in scene.http("GET /v1/znodes").body)
    try:
        began = time.monotonic()
        answer = scene.http("GET /v1/znodes")
        took = time.monotonic() - began
        code, said = scene.z("get", "x", "--timeout", "3s")
        locks = scene.z("locks", "--timeout", "3s")
    finally:
        for at in (1, 2):
            scene.cluster.start(at)
        scene.cluster.wait_ready()
    fine = answer.status == 503 and took < 0.5 and code == locks[0] == 3 and "not known" not in said + locks[1]
    return expect(fine, "%s after %.1f s; %d %s" % (answer, took, code, one_line(said)))


@row("planned hand-over costs no session's timeout")
def _(scene):
    """A client dies, and three times before its session can expire the leader stops and comes back."""
    file, pid = noted(scene, "handed")
    holder = scene.begin("lock", "handed", "--session-timeout", "10s", "--", "sh", "-c",
                         "echo $$ > %s.new; mv %s.new %s; exec sleep 1001" % (file, file, file))
    pid()
    holder.kill()
    holder.wait()
    died = time.monotonic()
    for second in (3, 6, 9):
        wait_until("%d s have passed" % second, lambda: time.monotonic() - died > second)
        at = wait_until("there is a leader", scene.leader) - 1
        scene.cluster.stop(at)
        scene.cluster.start(at)
        scene.cluster.wait_ready()
    code, said = scene.z("lock", "handed", "--wait", "120s", "--", "true", timeout=150)
    took = time.monotonic() - died
    return expect(code == 0 and 8 < took < 15, "granted %.1f s after its client's death, three leaders later" % took)


def main():
    words = arguments(__doc__, "trials")
    words.add_argument("rows", nargs="*", metavar="ROW")
    args = words.parse_args()
    unknown = set(args.rows) - set(ROWS)
    if unknown:
        sys.exit("no row is called %s" % ", ".join(sorted(unknown)))
    program, failed = built(args.zlock), 0
    with tempfile.TemporaryDirectory() as directory:
        directory = Path(directory)
        os.symlink(program, directory / "zlock")
        program = directory / "zlock"
        with Cluster(program, directory, nodes=3, zookeeper=True) as cluster:
            cluster.wait_ready()
            scene = Scene(program, cluster, directory)
            for name, play in ROWS.items():
                if args.rows and name not in args.rows:
                    continue
                try:
                    verdict, line = "holds", play(scene)
                except (Wrong, AssertionError, OSError, ValueError, KeyError, subprocess.SubprocessError) as error:
                    verdict, line, failed = "FAILS", "%s: %s" % (type(error).__name__, error), failed + 1
                print("%-56s %s  %s" % (name, verdict, one_line(line)), flush=True)
            cluster.assert_all_lived()
    sys.exit(1 if failed else 0)


main()
