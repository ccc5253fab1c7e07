#!/usr/bin/env python3
"""Fences for what cannot check a token: nginx, PostgreSQL and SQLite with the configuration and the statements of docs/fencing.md, taken
from the page as they stand. A holder is overtaken; its token must be refused, and that of the next one pass.

    tests/clients/fencing.py [--cache target/clients] [--zlock PATH]

Needs sqlite3 of Python; nginx from the PATH, or from Debian's archive by `apt-get download`, unpacked into the cache; PostgreSQL as Debian
installs it. PostgreSQL runs in a temporary directory, as the user postgres or nobody when this runs as root. Everything listens on
loopback. Exit code: 0 when all passed, 1 when something failed, 75 when all that could be run passed and something is missing. The last
line says which: "NOT RUN: ...".
"""

import sys

sys.dont_write_bytecode = True

import http.server
import json
import os
import pwd
import re
import shutil
import signal
import sqlite3
import subprocess
import tempfile
import threading
import urllib.error
import urllib.request
from pathlib import Path

from scene import ROOT, Cluster, Debian, Missing, arguments, built, free_port, not_run, say, started, wait_until

PAGE = ROOT / "docs/fencing.md"
PACKAGES = ["nginx", "nginx-common"]
LOCK = "/team/invoices"


def blocks(heading, kind):
    """The code of a kind in one section of the page."""
    section = PAGE.read_text().split("\n## %s\n" % heading, 1)[1].split("\n## ", 1)[0]
    found = re.findall(r"^```%s\n(.*?)^```$" % kind, section, re.M | re.S)
    assert found, "no %s in %s" % (kind, heading)
    return found


def ask(method, url, headers=None, body=None):
    """The status and the JSON of an answer."""
    request = urllib.request.Request(url, method=method, headers=headers or {}, data=body)
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            status, text = answer.status, answer.read()
    except urllib.error.HTTPError as error:
        status, text = error.code, error.read()
    except OSError:
        return 0, None
    try:
        return status, json.loads(text)
    except ValueError:
        return status, None


class Node:
    """One node of zlock, and two sessions that pass a lock on."""

    def __init__(self, http):
        self.url = "http://" + http

    def session(self):
        status, opened = ask("POST", self.url + "/v1/sessions", body=b'{"timeout":"60s"}')
        assert status == 201, (status, opened)
        return {"Zlock-Session-Key": opened["session_key"]}

    def acquire(self, session):
        status, held = ask("POST", "%s/v1/locks%s?wait=10s&owner=me" % (self.url, LOCK), session)
        assert status == 200, (status, held)
        return held["fencing_token"]

    def take_away(self):
        """The holder is not asked, as when its session expires."""
        status, _ = ask("POST", "%s/v1/revocations%s?deadline=0" % (self.url, LOCK))
        assert status == 200


class Resource(http.server.BaseHTTPRequestHandler):
    """What cannot check: it writes down what it is asked."""

    heard = []

    def do_PUT(self):
        self.heard.append((self.path, self.rfile.read(int(self.headers.get("Content-Length", 0)))))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


def find_nginx(cache):
    """The program, its environment and its version."""
    program, env = shutil.which("nginx"), None
    if program is None:
        debian = Debian(cache / "nginx", PACKAGES)
        program, env = debian.program("usr/sbin/nginx", "-v"), debian.env
    done = subprocess.run([program, "-v"], env=env, capture_output=True, text=True, check=True)
    return program, env, done.stderr.strip()


def nginx_config(directory, ports):
    """The page's own, with other ports, in what an nginx without privileges needs."""
    (own,) = blocks("nginx", "nginx")
    for port, there in ports.items():
        assert "127.0.0.1:%d" % port in own
        own = own.replace("127.0.0.1:%d" % port, "127.0.0.1:%d" % there)
    temps = "".join("    %s_temp_path %s/%s;\n" % (kind, directory, kind) for kind in ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"])
    config = directory / "nginx.conf"
    config.write_text(
        "daemon off;\npid %s/pid;\nerror_log stderr;\nevents {}\nhttp {\n    access_log off;\n%s%s}\n" % (directory, temps, own)
    )
    return config


def behind_nginx(cache, node, http, directory):
    program, env, version = find_nginx(cache)
    resource = http_server()
    ports = {7001: int(http.rsplit(":", 1)[1]), 8080: free_port(), 9000: resource.server_port}
    config = nginx_config(directory, ports)
    front = "http://127.0.0.1:%d/invoices/7" % ports[8080]

    def put(token, path=""):
        # Headers of the client's that would change the question, if they came through.
        headers = {"Origin": "http://evil.example", "Authorization": "Basic !", "Zlock-Lock": "/mine", "If-Lock": "/mine;1", "Consistency": "local"}
        headers.update({} if token is None else {"Zlock-Fencing-Token": token})
        return ask("PUT", front + path, headers, b"paid")[0]

    with started([program, "-e", "stderr", "-p", directory, "-c", config], directory / "log", env=env) as process:
        wait_until("nginx serves", lambda: put("0") == 403, process)
        first, second = node.session(), node.session()
        old = node.acquire(first)
        assert put(str(old)) == 200, "the holder passes"
        assert Resource.heard == [("/invoices/7", b"paid")], Resource.heard
        node.take_away()
        assert put(str(old)) == 403, "a lost token passes while the lock is free"
        new = node.acquire(second)
        assert new > old and put(str(old)) == 403, "a stale token passes"
        # What else a client may send in place of a token.
        mine = "path=/mine&fencing_token=1"
        for odd in [None, "", "x", "%d x" % new, "%d, %d" % (new, new), "1&fencing_token=%d" % new, "%d&%s" % (new, mine), "%%3%d" % new, "+%d" % new]:
            assert put(odd) == 403, "a token %r passes" % odd
        assert put(str(old), "?fencing_token=%d&path=%s" % (new, LOCK)) == 403, "the query of the request is that of the question"
        assert put(str(new)) == 200, "the next holder passes"
        assert len(Resource.heard) == 2, Resource.heard
    resource.shutdown()
    say(version, "lets the holder pass and refuses the one before it")


def http_server():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Resource)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


def with_token(statements, token):
    """The page's transaction with another token."""
    assert "15" in statements
    return statements.replace("15", str(token))


def in_sqlite(tokens, directory):
    old, new = tokens
    define, write = blocks("SQLite", "sql")
    database = sqlite3.connect(directory / "db", isolation_level=None)
    database.executescript(define)
    database.executescript("CREATE TABLE invoices (number INTEGER PRIMARY KEY, paid INTEGER); INSERT INTO invoices VALUES (7, 0);")

    def paid():
        return database.execute("SELECT paid FROM invoices").fetchone()[0]

    def transact(token):
        for statement in with_token(write, token).split(";\n"):
            if statement.strip():
                database.execute(statement)

    def refused(token):
        database.execute("UPDATE invoices SET paid = 0")
        try:
            transact(token)
        except sqlite3.IntegrityError as error:
            database.execute("ROLLBACK")
            return "stale fencing token" in str(error) and paid() == 0
        return False

    transact(old)
    assert paid() == 1 and not refused(old), "the same holder writes again"
    transact(new)
    assert paid() == 1 and refused(old), "a stale token writes"
    transact(new)
    assert paid() == 1, "the next holder writes again"
    say("SQLite", sqlite3.sqlite_version, "takes the newest token and refuses the one before it")


def find_postgres():
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"), key=lambda path: int(path.parts[4]))
    on_path = shutil.which("postgres")
    programs = found or ([Path(on_path).resolve()] if on_path else [])
    if not programs:
        raise Missing("PostgreSQL is not installed (apt-get install postgresql)")
    return programs[-1].parent


class Postgres:
    """A server of its own, as a user that is not root."""

    def __init__(self, directory):
        self.bin, self.directory, self.port = find_postgres(), directory, free_port()
        self.more = {}
        if os.geteuid() == 0:
            names = {user.pw_name: user for user in pwd.getpwall()}
            user = names.get("postgres") or names.get("nobody")
            if user is None:
                raise Missing("PostgreSQL does not run as root, and there is no other user")
            os.chown(directory, user.pw_uid, user.pw_gid)
            self.more = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": [], "env": {"PATH": os.environ["PATH"], "LC_ALL": "C"}}
        data = directory / "data"
        command = [self.bin / "initdb", "-D", data, "-U", "tester", "--auth=trust", "--no-sync", "-E", "UTF8"]
        done = subprocess.run(command, capture_output=True, text=True, cwd=directory, **self.more)
        assert done.returncode == 0, done.stdout + done.stderr
        self.command = [self.bin / "postgres", "-D", data, "-p", self.port, "-h", "127.0.0.1", "-k", directory, "-F"]

    def psql(self, statements, stop=True):
        """One session. With `stop` it ends at the first error, else it passes over errors."""
        command = [self.bin / "psql", "-X", "-q", "-t", "-A", "-h", "127.0.0.1", "-p", self.port, "-U", "tester", "-d", "postgres"]
        command += ["-v", "ON_ERROR_STOP=%d" % stop, "-v", "VERBOSITY=verbose"]
        return subprocess.run([str(word) for word in command], input=statements, capture_output=True, text=True, timeout=60)

    def is_up(self):
        return self.psql("SELECT 1;").returncode == 0


def in_postgres(tokens, directory):
    old, new = tokens
    postgres = Postgres(directory)
    define, write = blocks("PostgreSQL", "sql")
    with started(postgres.command, directory / "log", end=signal.SIGINT, cwd=directory, **postgres.more) as process:
        wait_until("PostgreSQL serves", postgres.is_up, process)
        made = postgres.psql(define + "CREATE TABLE invoices (number int PRIMARY KEY, paid boolean); INSERT INTO invoices VALUES (7, false);")
        assert made.returncode == 0, made.stderr

        def paid():
            return postgres.psql("SELECT paid FROM invoices;").stdout.strip() == "t"

        def writes(token, stop=True):
            assert postgres.psql("UPDATE invoices SET paid = false;").returncode == 0
            done = postgres.psql(with_token(write, token), stop)
            is_refused = "ZL001" in done.stderr and "stale fencing token" in done.stderr
            assert is_refused != paid(), (done.stdout, done.stderr)
            return paid()

        assert writes(old) and writes(old), "the first holder"
        assert writes(new), "the next holder"
        assert not writes(old), "a stale token writes"
        # Also from a client that passes over errors.
        assert not writes(old, stop=False), "a stale token writes past an error"
        assert writes(new), "the next holder writes again"
        overtaken(postgres, write, new, paid)
        version = subprocess.run([postgres.bin / "postgres", "--version"], capture_output=True, text=True).stdout.strip()
    say(version, "takes the newest token and refuses the one before it")


def overtaken(postgres, write, newest, paid):
    """A holder that shows its token while the transaction of a newer one is open waits for that, and is refused."""
    older, newer = newest + 1, newest + 2
    begin, rest = with_token(write, newer).split(";\n", 1)
    fence, rest = rest.split(";\n", 1)
    assert postgres.psql("UPDATE invoices SET paid = false;").returncode == 0
    command = [postgres.bin / "psql", "-X", "-q", "-t", "-A", "-h", "127.0.0.1", "-p", postgres.port, "-U", "tester", "-d", "postgres"]
    open_one = subprocess.Popen([str(word) for word in command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    with open_one:
        open_one.stdin.write("%s;\n%s;\nSELECT 'shown';\n" % (begin, fence))
        open_one.stdin.flush()
        while open_one.stdout.readline().strip() != "shown":
            assert open_one.poll() is None, "the newer transaction has ended"
        late = {}
        waiting = threading.Thread(target=lambda: late.update(done=postgres.psql(with_token(write, older))))
        waiting.start()
        blocked = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock';"
        wait_until("the older holder waits", lambda: postgres.psql(blocked).stdout.strip() == "1", open_one)
        open_one.stdin.write("%s" % rest)
        open_one.stdin.close()
        waiting.join(60)
    assert "ZL001" in late["done"].stderr, late
    assert paid(), "the newer holder has written"


def main():
    words = arguments(__doc__).parse_args()
    missing = []
    with tempfile.TemporaryDirectory() as parent:
        # The user that PostgreSQL runs as must get through.
        os.chmod(parent, 0o755)
        of = {name: Path(parent) / name for name in ["zlock", "nginx", "sqlite", "postgres"]}
        for directory in of.values():
            directory.mkdir()
        with Cluster(built(words.zlock), of["zlock"], nodes=1) as cluster:
            cluster.wait_ready()
            node = Node(cluster.http[0])
            first, second = node.session(), node.session()
            old = node.acquire(first)
            node.take_away()
            tokens = (old, node.acquire(second))
            node.take_away()
            checks = [
                lambda: behind_nginx(words.cache.resolve(), node, cluster.http[0], of["nginx"]),
                lambda: in_sqlite(tokens, of["sqlite"]),
                lambda: in_postgres(tokens, of["postgres"]),
            ]
            for check in checks:
                try:
                    check()
                except Missing as reason:
                    say("NOT RUN:", reason)
                    missing.append(str(reason))
    if missing:
        return not_run(*missing)
    say("every fence passed")
    return 0


sys.exit(main())
