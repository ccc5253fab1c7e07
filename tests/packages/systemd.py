#!/usr/bin/env python3
"""The packages: lintian and rpm look at them, and the .deb is installed in a container of podman with systemd as its first process.

    tests/packages/systemd.py [--cache target/packages]

deploy/packages.sh builds two revisions of both packages, with the program of deploy/binary.sh. In the container a node is installed,
refused for its configuration, started, reloaded, killed, stopped by SIGSTOP, upgraded and purged. The .rpm is not installed: Fedora
cannot be had from a mirror of Debian.

Needs root. podman, lintian, rpm and mmdebstrap are installed with apt-get where they are missing, cargo-deb and cargo-generate-rpm from
crates.io below the cache. The container's root directory comes from the Debian mirror of this machine.

Exit code: 0 when all passed, 1 when something failed, 75 when a tool or such a container cannot be had here; the last line says why:
"NOT RUN: ...".
"""

import sys
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "clients"))

import argparse
import os
import re
import shutil
import subprocess
import tempfile
import time

from containers import installed, podman, run, stored_in
from scene import ROOT, not_run, say, wait_until

TOOLS = {"cargo-deb": "3.8.0", "cargo-generate-rpm": "0.21.1"}
DEBIAN = {"lintian": "lintian", "rpm": "rpm", "mmdebstrap": "mmdebstrap"}
RELEASE, NAME = "bookworm", "zlock-systemd"
CONFIG, DATA = "/etc/zlock/zlock.toml", "/var/lib/zlock"
# Highest exposure that `systemd-analyze security` may give the unit: 0 is none, 10 is everything.
EXPOSURE_MAX = 2.0
ONE_NODE = """[node]
id = 1
data_dir = "/var/lib/zlock"
members = [{ id = 1, peer_addr = "127.0.0.1:7101", http_addr = "127.0.0.1:7001" }]
"""


def check_lintian(deb):
    done = run("lintian", "--allow-root", deb, check=False)
    found = done.stdout + done.stderr
    assert done.returncode == 0 and not re.search("^E:", found, re.MULTILINE), found
    say("lintian finds no error")


def check_rpm(rpm):
    files = run("rpm", "--query", "--package", "--list", rpm).stdout.split()
    for file in ("/usr/bin/zlock", CONFIG, "/usr/lib/systemd/system/zlock.service", "/usr/lib/sysusers.d/zlock.conf"):
        assert file in files, "%s is not in %s" % (file, files)
    config = run("rpm", "--query", "--package", "--configfiles", rpm).stdout.split()
    assert config == [CONFIG], config
    scripts = run("rpm", "--query", "--package", "--scripts", rpm).stdout
    assert "Restart one node at a time" in scripts and "systemd-sysusers zlock.conf" in scripts, scripts
    for word in ("enable ", "start ", "try-restart"):
        assert not re.search(r"systemctl (--\S+ )*" + word, scripts), scripts
    say("the .rpm has the files and the scripts; it was not installed")


class Machine:
    """The container, with systemd as its first process."""

    def run(self, *command, check=True):
        done = podman("exec", NAME, *command, check=check)
        return done.stdout + done.stderr

    def shows(self, value):
        return self.run("systemctl", "show", "--property", value, "--value", "zlock").strip()

    def zlock(self, *command):
        return self.run("zlock", "--endpoints", "127.0.0.1:7001", *command)

    def write_config(self, text):
        # Into the same file, which keeps its owner and mode.
        self.run("sh", "-c", 'printf %s "$1" >"$2"', "sh", text, CONFIG)

    def journal(self):
        return self.run("journalctl", "--unit", "zlock", "--no-pager")

    def install(self, deb):
        podman("cp", deb, NAME + ":/root/zlock.deb")
        return self.run("apt-get", "install", "--yes", "/root/zlock.deb")

    def wait_ready(self):
        wait_until("the status is `ready`", lambda: "ready; leader: node 1" in self.shows("StatusText"))


def check_installation(machine, deb):
    machine.install(deb)
    assert machine.run("systemctl", "is-enabled", "zlock", check=False).strip() == "disabled"
    assert machine.shows("ActiveState") == "inactive"
    assert machine.run("stat", "--format", "%a %U:%G", CONFIG).strip() == "640 root:zlock"
    exposure = machine.run("systemd-analyze", "security", "--no-pager", "zlock.service")
    exposure = float(re.search(r"exposure level for zlock.service: ([0-9.]+)", exposure).group(1))
    assert exposure < EXPOSURE_MAX, exposure
    say("installed, neither enabled nor started; exposure %.1f of 10" % exposure)


def check_refusal(machine):
    machine.run("systemctl", "start", "zlock", check=False)
    assert machine.shows("ExecMainStatus") == "1" and machine.shows("SubState") == "failed", machine.journal()
    assert "node.id is missing" in machine.journal()
    say("the configuration of the package is refused, and the node is not started again")


def check_start(machine):
    machine.write_config(ONE_NODE)
    machine.run("systemctl", "start", "zlock")
    machine.wait_ready()
    assert 'Status: "leader, ready;' in machine.run("systemctl", "status", "--no-pager", "zlock")
    assert "commit" in machine.zlock("lock", "first", "--", "zlock", "version")
    machine.zlock("create", "/kept", "by-all")
    journal = machine.journal()
    assert "]: INFO " in journal and "<6>" not in journal, journal
    assert machine.run("stat", "--format", "%a %U", DATA).strip() == "700 zlock"
    say("started, with a status and a lock")


def check_reload(machine):
    pid = machine.shows("MainPID")
    machine.write_config(ONE_NODE + '[log]\nlevel = "debug"\n')
    machine.run("systemctl", "reload", "zlock")
    wait_until("the configuration is reloaded", lambda: 'the configuration was reloaded log="debug"' in machine.journal())
    machine.write_config(ONE_NODE)
    machine.run("systemctl", "reload", "zlock")
    assert machine.shows("MainPID") == pid
    say("reloaded")


def check_end(machine, signal, why):
    before, pid = int(machine.shows("NRestarts")), machine.shows("MainPID")
    machine.run("kill", "-" + signal, pid)
    wait_until("systemd starts the node again", lambda: int(machine.shows("NRestarts")) == before + 1)
    machine.wait_ready()
    assert machine.shows("MainPID") != pid and machine.zlock("get", "/kept").strip() == "by-all"
    say("%s, and started again" % why)


def check_upgrade(machine, deb):
    pid = machine.shows("MainPID")
    said = machine.install(deb)
    assert "Restart one node at a time" in said, said
    assert machine.run("dpkg-query", "--show", "--showformat", "${Version}", "zlock").endswith("-2")
    # What apt runs on Ubuntu after each upgrade: it restarts services whose program was replaced.
    found = machine.run("needrestart", "-r", "a", "-l")
    assert "zlock.service" in found, found
    assert machine.shows("MainPID") == pid and machine.shows("NeedDaemonReload") == "no"
    assert machine.run("cat", CONFIG) == ONE_NODE
    machine.run("systemctl", "restart", "zlock")
    machine.wait_ready()
    assert machine.zlock("get", "/kept").strip() == "by-all"
    say("upgraded, and restarted neither by that nor by needrestart; configuration and data are kept")


def check_long_stop(machine):
    machine.run("mkdir", "-p", "/run/systemd/system/zlock.service.d")
    drop_in = 'printf "[Service]\\nTimeoutStopSec=1\\n" >/run/systemd/system/zlock.service.d/short.conf'
    machine.run("sh", "-c", drop_in)
    machine.run("systemctl", "daemon-reload")
    machine.write_config(ONE_NODE + 'drain_time = "4s"\n')
    machine.run("systemctl", "restart", "zlock")
    machine.wait_ready()
    begun = time.monotonic()
    machine.run("systemctl", "stop", "zlock")
    assert machine.shows("Result") == "success" and machine.shows("ExecMainStatus") == "0", machine.journal()
    took = time.monotonic() - begun
    assert took > 4, took
    say("stopped cleanly in %.1f s, with a TimeoutStopSec of 1 s" % took)


def check_purge(machine):
    machine.run("systemctl", "start", "zlock")
    said = machine.run("apt-get", "purge", "--yes", "zlock")
    assert "the data of this node stays in " + DATA in said, said
    left = machine.run("ls", "--directory", "/etc/zlock", "/usr/bin/zlock", DATA, check=False).splitlines()
    assert len(left) == 3 and left[0] == DATA, left
    assert machine.run("pgrep", "zlock", check=False) == ""
    say("purged while it ran: the configuration is gone, the data stays")


def play(machine, debs):
    check_installation(machine, debs[0])
    check_refusal(machine)
    check_start(machine)
    check_reload(machine)
    check_end(machine, "KILL", "killed")
    check_end(machine, "STOP", "ended by the watchdog")
    check_upgrade(machine, debs[1])
    check_long_stop(machine)
    check_purge(machine)


def in_container(root, debs):
    """Returns the reason why there is no such container here, or `None` when all passed."""
    with tempfile.TemporaryDirectory() as scratch:
        stored_in(scratch)
        podman("import", "--quiet", root, "localhost/" + NAME)
        try:
            machine = Machine()
            # The unit's hardening makes mounts, devices and filters of system calls. /proc/sys stays read-only, so that systemd sets
            # nothing on this machine. The container has no network but loopback.
            options = ["--detach", "--name", NAME, "--systemd", "always", "--network", "none"]
            options += ["--cap-add", "ALL", "--security-opt", "seccomp=unconfined", "--security-opt", "apparmor=unconfined"]
            begun = podman("run", *options, "localhost/" + NAME, "/sbin/init", check=False)
            is_up = lambda: machine.run("systemctl", "is-system-running", check=False).strip() in ("running", "degraded")
            try:
                assert begun.returncode == 0, begun.stderr
                wait_until("systemd has started", is_up)
            except AssertionError as error:
                return "systemd does not run in a container here: %s" % error
            try:
                play(machine, debs)
            except BaseException:
                print(podman("exec", NAME, "journalctl", "--no-pager", "--lines", "50", check=False).stdout, file=sys.stderr)
                raise
        finally:
            podman("rm", "--force", "--all", check=False)
            podman("rmi", "--force", "--all", check=False)
    return None


def fetched(cache):
    """Installs the tools, and returns the path of the container's root directory, an archive."""
    missing = [package for program, package in DEBIAN.items() if shutil.which(program) is None]
    if missing:
        run("apt-get", "install", "--yes", "--quiet", "--no-install-recommends", *missing)
    installed()
    os.environ["PATH"] = "%s:%s" % (cache / "tools/bin", os.environ["PATH"])
    for tool, version in TOOLS.items():
        if shutil.which(tool) is None:
            run("cargo", "install", "--locked", "--root", cache / "tools", "%s@%s" % (tool, version))
    root = cache / ("%s.tar" % RELEASE)
    if not root.exists():
        part = root.with_suffix(".part.tar")
        run("mmdebstrap", "--variant=minbase", "--include=systemd,systemd-sysv,procps,needrestart", RELEASE, part)
        part.rename(root)
    return root


def built(revision):
    done = subprocess.run([ROOT / "deploy/packages.sh", str(revision)], check=True, stdout=subprocess.PIPE, text=True)
    deb, rpm = map(Path, done.stdout.split())
    return deb, rpm


def main():
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--cache", type=Path, default=Path("target/packages"))
    cache = words.parse_args().cache.resolve()
    cache.mkdir(parents=True, exist_ok=True)
    try:
        root = fetched(cache)
    except (AssertionError, OSError) as error:
        return not_run("a tool cannot be had: " + str(error).strip().splitlines()[-1])
    (first, rpm), (second, _) = built(1), built(2)
    check_lintian(first)
    check_rpm(rpm)
    reason = in_container(root, [first, second])
    if reason:
        return not_run(reason)
    say("the packages do what docs/install.md says; the .rpm was looked at only")
    return 0


if __name__ == "__main__":
    sys.exit(main())
