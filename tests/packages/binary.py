#!/usr/bin/env python3
"""The released program, in an empty root directory: it needs no library of the system, and resolves names.

    tests/packages/binary.py [--zlock PATH]

Builds the program with deploy/binary.sh when none is given. Needs root, and namespaces (unshare of util-linux).

Exit code: 0 when all passed, 1 when something failed, 75 when namespaces cannot be had here; the last line says why: "NOT RUN: ...".
"""

import sys
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "clients"))

import os
import re
import shutil
import signal
import stat
import subprocess
import tempfile
import time

from scene import ROOT, arguments, not_run, say, started, wait_until

# Set in the process that runs in a network namespace of its own, where all ports are free.
WITHIN = "ZLOCK_BINARY_WITHIN"
BASE_PORT = 7001
# Time from the start of the program until a lock was taken and released, in seconds.
FIRST_LOCK_S = 10


def check_static(program):
    headers = subprocess.run(["readelf", "--wide", "--program-headers", program], check=True, capture_output=True, text=True).stdout
    assert "INTERP" not in headers, "the program asks for a dynamic loader"
    symbols = subprocess.run(["readelf", "--wide", "--symbols", program], check=True, capture_output=True, text=True).stdout
    assert ".symtab" not in symbols, "the program has symbols"
    say("static and stripped, %.1f MB" % (program.stat().st_size / 1e6))


def check_version(program):
    text = subprocess.run([program, "--version"], check=True, capture_output=True, text=True).stdout.strip()
    assert re.fullmatch(r"zlock \S+ \(commit [0-9a-f]{12}(-dirty)?, levels? .+\)", text), text
    say(text)


def within(root, *command):
    """The command line that runs a command with this root directory and a /proc, as in a container."""
    return ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--root", root, "--mount-proc", *command]


def check_empty_root(root, log):
    begun = time.monotonic()
    # SIGTERM would wait in vain: unshare does not pass it on, but its end kills the program.
    with started(within(root, "/zlock", "dev", "--data", "/data", "--base-port", str(BASE_PORT)), log, end=signal.SIGKILL):
        wait_until("the nodes are ready", lambda: "curl" in Path(log).read_text())
        command = within(root, "/zlock", "--endpoints", "localhost:%d" % BASE_PORT, "lock", "first", "--", "/zlock", "--version")
        lock = subprocess.run(command, capture_output=True, text=True)
        took = time.monotonic() - begun
        assert lock.returncode == 0 and "zlock" in lock.stdout, "%d\n%s\n%s" % (lock.returncode, lock.stdout, lock.stderr)
    assert took < FIRST_LOCK_S, "the first lock took %.1f s" % took
    say("three nodes and a lock in an empty root directory after %.1f s; the name in /etc/hosts was resolved" % took)


def main():
    args = arguments(__doc__).parse_args()
    if not os.environ.get(WITHIN):
        probe = subprocess.run(["unshare", "--net", "true"], capture_output=True, text=True)
        if probe.returncode != 0:
            return not_run(probe.stderr.strip())
        command = ["unshare", "--net", "sh", "-c", 'ip link set lo up && exec "$@"', "sh", sys.executable, *sys.argv]
        return subprocess.run(command, env=dict(os.environ, **{WITHIN: "1"})).returncode
    program = args.zlock
    if program is None:
        built = subprocess.run([ROOT / "deploy/binary.sh"], check=True, stdout=subprocess.PIPE, text=True)
        program = Path(built.stdout.strip())
    check_static(program)
    check_version(program)
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch) / "root"
        for folder in ("proc", "etc", "data", "dev"):
            (root / folder).mkdir(parents=True)
        # The devices that every container has, and that the program uses.
        for device, minor in (("null", 3), ("random", 8), ("urandom", 9)):
            os.mknod(root / "dev" / device, 0o666 | stat.S_IFCHR, os.makedev(1, minor))
        shutil.copy(program, root / "zlock")
        (root / "etc/hosts").write_text("127.0.0.1 localhost\n")
        probe = subprocess.run(within(root, "/zlock", "version"), capture_output=True, text=True)
        if probe.returncode != 0 and "unshare" in probe.stderr:
            return not_run(probe.stderr.strip())
        assert probe.returncode == 0, probe.stderr
        check_empty_root(root, Path(scratch) / "log")
    say("the program runs from an empty root directory")
    return 0


if __name__ == "__main__":
    sys.exit(main())
