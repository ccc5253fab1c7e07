#!/usr/bin/env python3
"""The first commands of README.md, the blocks of docs/jobs.md and docs/tutorial.md, and the backup drill of docs/operating.md, taken
from the pages as they stand and run against `zlock dev`; the drill against three nodes of its own.

    tests/clients/jobs.py [--zlock PATH] [--cache DIR]

Each job is checked for what its heading says, and each output is compared with the output on the page. A stand-in for `cargo run`
starts the program under test, and builds nothing. `tests/run`, which README.md names, is a step of .ci/run. The object store is moto's
S3, which the cache has from PyPI. Needs root, ip, curl and pgrep: the ports of `zlock dev` are free in a network namespace. Exit code: 0
when all passed, 1 when something failed, 75 when the namespace or a program cannot be had; the last line then says why: "NOT RUN: ...".
"""

import sys

sys.dont_write_bytecode = True

import contextlib
import os
import re
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path

from scene import PATIENCE_S, ROOT, Fetched, arguments, built, free_port, free_ports, get, not_run, say, started, wait_until

# Set in the process that runs within the namespaces.
WITHIN = "ZLOCK_JOBS_WITHIN"
# Python with an S3 server and its client, where it could be fetched.
WITH_S3 = "ZLOCK_JOBS_WITH_S3"
S3 = ["moto[server,s3]==5.2.5", "boto3==1.44.8"]
NAMESPACES = ["unshare", "--net", "--pid", "--fork", "--kill-child", "--mount-proc"]
LINES_MAX = 15
MARK = "~~~ end of block ~~~"
CARGO = """#!/bin/sh
[ "$1 $2 $3" = "run --release --" ] || { echo "this stands for cargo run --release -- only, not for: $*" >&2; exit 1; }
shift 3
exec target/release/zlock "$@"
"""


class Job:
    """A section of a page: its heading, the blocks that run, and the output behind each of them."""

    BLOCK = re.compile(r"^```(sh|python)\n(.*?)^```\n(?:```text\n(.*?)^```$)?", re.M | re.S)

    def __init__(self, section):
        self.heading = section.split("\n", 1)[0]
        self.blocks = self.BLOCK.findall(section)

    @staticmethod
    def all(page):
        found = [Job(section) for section in (ROOT / page).read_text().split("\n## ")[1:]]
        return [job for job in found if job.blocks]

    def only(self, python=sys.executable):
        ((kind, code, shown),) = self.blocks
        assert len(code.splitlines()) <= LINES_MAX, "%s: %d lines" % (self.heading, len(code.splitlines()))
        return ["bash", "-euc", code] if kind == "sh" else [python, "-c", code], shown


def bare(page):
    """Fenced blocks of a page without a language."""
    fences = re.findall(r"^```(\w*)\n(.*?)^```$", (ROOT / page).read_text(), re.M | re.S)
    return [block for language, block in fences if not language]


def with_values(block, **values):
    """A block with other values for its variables."""
    for name, value in values.items():
        block, count = re.subn(r"^((?:export )?%s)=.*$" % name, r"\1='%s'" % value, block, flags=re.M)
        assert count == 1, "%d variables %s in\n%s" % (count, name, block)
    return block


def run(*command):
    return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PATIENCE_S)


def masked(text):
    """Lines in which numbers, durations and the machine are masked."""
    text = re.sub(r"\S+, pid \d+", "HOST, pid N", text)
    text = re.sub(r"(\b\d+(ms|s)\b|-)( ago)?(?=\s)", "TIME", text)
    return [re.sub(r"[0-9a-f]*\d[0-9a-f]*", "N", " ".join(line.split())) for line in text.splitlines()]


def most_at_once(printed):
    """Largest number of names that have begun and not ended, in lines such as `web-1 begins`."""
    inside, most = set(), 0
    for name, word in (line.split()[:2] for line in printed.splitlines()):
        (inside.discard if word == "ends" else inside.add)(name)
        most = max(most, len(inside))
    assert not inside, printed
    return most


def cron(printed):
    assert printed == "report\n", "two jobs at once, and the command ran %d times" % printed.count("report")


def alone(printed):
    assert most_at_once(printed) == 1, printed


def at_most_two(printed):
    assert most_at_once(printed) == 2, printed


def readers_and_writer(printed):
    assert most_at_once(printed) == 2, printed
    others = printed.replace("writer begins\nwriter ends\n", "")
    assert others != printed and most_at_once(others) == 2, printed


def stuck(printed):
    holder, waiter, last, first = [line for line in printed.splitlines() if re.search(r"import|export", line)]
    assert "import" in holder and holder.endswith("holds"), printed
    assert "export" in waiter and waiter.endswith("waits, 1 before it"), printed
    assert "export" in last and "import" in first and first.endswith("released"), printed


def stale_is_refused(printed):
    assert "new holder: True" in printed and "old holder: False" in printed, printed


CHECKS = {
    "Run a cron job on one machine": cron,
    "Keep one leader, in a shell": alone,
    "Run at most N at once": at_most_two,
    "Let many read and one write": readers_and_writer,
    "Refuse a stale holder in SQL": stale_is_refused,
    "Find out why a job is stuck": stuck,
}
IN_PYTHON = "Keep one leader, in Python"
IN_S3 = "Refuse a stale holder in an object store"


def leader_in_python(job, scratch):
    """Two candidates: the second leads when the leadership was taken from the first, which stops, and leads on while a node hangs."""
    command, shown = job.only()
    logs = [scratch / "first.log", scratch / "second.log"]
    with started(command, logs[0]) as first:
        wait_until("the first leads", logs[0].read_text, first)
        with started(command, logs[1]) as second:
            queue = lambda: "waits" in run("zlock", "locks", "jobs/python").stdout
            wait_until("the second waits", queue, second)
            assert run("zlock", "break", "jobs/python", "--yes").returncode == 0
            assert first.wait(PATIENCE_S) == 1
            wait_until("the second leads", logs[1].read_text, second)
            node = int(run("pgrep", "--full", "zlock-data/node1.toml").stdout)
            os.kill(node, signal.SIGSTOP)
            try:
                steps = len(logs[1].read_text().splitlines())
                wait_until("a step begins without node 1", lambda: len(logs[1].read_text().splitlines()) > steps + 1, second)
            finally:
                os.kill(node, signal.SIGCONT)
    tokens = [int(re.search(r"\d+", log.read_text())[0]) for log in logs]
    assert tokens[0] < tokens[1], tokens
    assert len(set(logs[1].read_text().splitlines())) == 1, logs[1].read_text()
    assert set(masked(logs[0].read_text())) == set(masked(shown)), logs[0].read_text()


def played(job, check, *python):
    command, shown = job.only(*python)
    done = run(*command)
    assert done.returncode == 0, (job.heading, done)
    check(done.stdout)
    check(shown)
    assert sorted(masked(done.stdout)) == sorted(masked(shown)), "%s: the page shows another output than\n%s" % (job.heading, done.stdout)
    say(job.heading)


def fenced_in_s3(job, scratch, python):
    endpoint = "http://127.0.0.1:%d" % free_port()
    own = {"ENDPOINT_URL": endpoint, "ACCESS_KEY_ID": "any", "SECRET_ACCESS_KEY": "any", "DEFAULT_REGION": "us-east-1"}
    os.environ.update({"AWS_" + name: value for name, value in own.items()})
    with started([python, "-m", "moto.server", "--port", endpoint.split(":")[-1]], scratch / "s3.log") as server:
        wait_until("the object store answers", lambda: get(endpoint.removeprefix("http://"), "/"), server)
        run(python, "-c", "import boto3; boto3.client('s3').create_bucket(Bucket='reports')").check_returncode()
        played(job, stale_is_refused, python)


def jobs(scratch):
    found = {job.heading: job for job in Job.all("docs/jobs.md")}
    assert set(found) == {*CHECKS, IN_PYTHON, IN_S3}, found.keys()
    leader_in_python(found[IN_PYTHON], scratch)
    for heading, check in CHECKS.items():
        played(found[heading], check)
    if WITH_S3 in os.environ:
        fenced_in_s3(found[IN_S3], scratch, os.environ[WITH_S3])


def tutorial():
    """One shell runs all blocks, as a reader pastes them."""
    blocks = [block for job in Job.all("docs/tutorial.md") for block in job.blocks]
    code = "".join("%secho '%s'\n" % (code, MARK) for _, code, _ in blocks)
    done = run("bash", "-euc", code)
    assert done.returncode == 0, done
    printed = done.stdout.split(MARK + "\n")[:-1]
    for (_, code, shown), real in zip(blocks, printed, strict=True):
        assert sorted(masked(real)) == sorted(masked(shown)), "the page shows another output of\n%sthan\n%s" % (code, real)
    queues = [re.findall(r"^/tutorial .* (?:holds|waits, 1 before it)$", real, re.M) for real in printed]
    before, after = [[line.split()[2:4] for line in queue] for queue in queues if queue]
    assert before == after and len(before) == 2, "the leader's end changes the queue: %s" % queues
    say("the tutorial")


@contextlib.contextmanager
def dev(line, log):
    """`zlock dev`, started by a line of a page."""
    with started(["bash", "-euc", "exec " + line], log) as process:
        wait_until("zlock dev serves", lambda: "Ctrl-C stops" in log.read_text(), process)
        yield


def first_lock(block):
    """The first lock of README.md."""
    done = run("bash", "-euc", block)
    assert done.returncode == 0 and done.stdout.startswith("I hold the lock\n"), done
    say("the first commands of README.md")


class Tools(Fetched):
    def __init__(self, cache):
        super().__init__(cache, {"s3": lambda: self.make_venv("s3", S3)})


class Drill:
    """Three nodes with configuration files, which are restored from a backup."""

    def __init__(self, scratch):
        self.scratch, self.backups, self.seed = scratch, scratch / "backups", scratch / "seed"
        self.backups.mkdir()
        addrs = ["127.0.0.1:%d" % port for port in free_ports(6)]
        self.members = ",".join("%d=%s/%s" % (at + 1, addrs[at], addrs[at + 3]) for at in range(3))
        self.http = addrs[3:]
        for node in (1, 2, 3):
            # The restored cluster grants no lock for the longest session timeout.
            text = 'node.id = %d\nnode.data_dir = "%s"\nnode.members = "%s"\nadmin.socket = "%s"\n' % (
                node, self.data(node), self.members, self.socket(node))
            self.config(node).write_text(text + 'limits.session_timeout_max = "4s"\ndisk.free_bytes_min = 1\n')
        (ask, *_), self.blocks = self.http, [code for _, code, _ in self.section().blocks]
        self.ask = ["--endpoints", ask]

    def section(self):
        (found,) = re.findall(r"^### The backup drill\n.*?(?=^### )", (ROOT / "docs/operating.md").read_text(), re.M | re.S)
        return Job(found)

    def config(self, node):
        return self.scratch / ("drill%d.toml" % node)

    def data(self, node):
        return self.scratch / ("drill%d" % node)

    def socket(self, node):
        return self.scratch / ("drill%d.sock" % node)

    @contextlib.contextmanager
    def serving(self, commands):
        with contextlib.ExitStack() as nodes:
            for node, command in enumerate(commands, 1):
                nodes.enter_context(started(command, self.scratch / ("drill%d.log" % node)))
            for addr in self.http:
                wait_until("%s is ready" % addr, lambda: (get(addr, "/readyz") or (0,))[0] == 200)
            yield

    def token(self):
        done = run("zlock", "lock", "drill", *self.ask, "--quiet", "--", "printenv", "ZLOCK_FENCING_TOKEN")
        return int(done.stdout) if done.returncode == 0 else None

    def play(self):
        save, prepare, apply = self.blocks
        with self.serving(["zlock", "serve", "--config", self.config(node)] for node in (1, 2, 3)):
            before = self.token()
            assert run("zlock", "create", "/kept", "data", *self.ask).returncode == 0
            self.paste(with_values(save, ZLOCK_ADMIN_SOCKET=self.socket(1), BACKUPS=self.backups))
        self.paste(with_values(prepare, BACKUPS=self.backups, SEED=self.seed, MEMBERS=self.members))
        there = lambda node: dict(ID=node, SEED=self.seed, DATA=self.data(node), CONFIG=self.config(node))
        nodes = [with_values(apply, **there(node)).replace("\nzlock serve", "\nexec zlock serve") for node in (1, 2, 3)]
        with self.serving(["bash", "-euc", node] for node in nodes):
            assert run("zlock", "get", "/kept", *self.ask).stdout.strip() == "data"
            after = wait_until("a lock is granted", self.token)
            assert after > before, (before, after)
        say("the backup drill")

    def paste(self, block):
        done = run("bash", "-euc", block)
        assert done.returncode == 0, (block, done)


def within(program):
    run("ip", "link", "set", "lo", "up").check_returncode()
    _, start, lock = bare("README.md")
    start_again, path = bare("docs/tutorial.md")
    with tempfile.TemporaryDirectory() as scratch:
        scratch = Path(scratch)
        (scratch / "target/release").mkdir(parents=True)
        (scratch / "target/release/zlock").symlink_to(program)
        (scratch / "bin").mkdir()
        (scratch / "bin/cargo").write_text(CARGO)
        (scratch / "bin/cargo").chmod(0o755)
        os.environ.update(PATH="%s:%s" % (scratch / "bin", os.environ["PATH"]), HOME=str(scratch))
        os.chdir(scratch)
        with dev(start.splitlines()[0], scratch / "readme.log"):
            first_lock(lock)
        with dev(start_again, scratch / "tutorial.log"):
            os.environ["PATH"] = run("bash", "-euc", path + 'printf %s "$PATH"').stdout
            jobs(scratch)
            tutorial()
        Drill(scratch).play()
    say("every job passed")


def main():
    words = arguments(__doc__).parse_args()
    if os.environ.get(WITHIN):
        return within(words.zlock)
    absent = [name for name in ("ip", "curl", "pgrep", "unshare") if shutil.which(name) is None]
    if absent:
        return not_run(*["%s is not installed" % name for name in absent])
    probe = run(*NAMESPACES, "true")
    if probe.returncode != 0:
        return not_run("no namespace: " + probe.stderr.strip())
    tools = Tools(words.cache)
    more = {WITHIN: "1", **({WITH_S3: str(tools.program("s3", "python").absolute())} if tools.has("s3") else {})}
    inner = [sys.executable, __file__, "--zlock", built(words.zlock)]
    code = subprocess.run(list(map(str, [*NAMESPACES, *inner])), env=dict(os.environ, **more)).returncode
    return tools.not_run() if tools.missing and code == 0 else code


sys.exit(main())
