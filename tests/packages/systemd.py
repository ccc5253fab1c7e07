#!/usr/bin/env python3
"""The packages: lintian and rpm look at them, and each is installed in a container of podman with systemd as its first process.

    tests/packages/systemd.py [--cache target/packages]

deploy/packages.sh builds two revisions of both packages, with the program of deploy/binary.sh. In a container of its own each package
is installed; then a node is refused for its configuration, started, reloaded, killed, stopped by SIGSTOP, upgraded and removed. Both
containers run Debian: apt installs the .deb, and Debian's rpm the .rpm, whose scripts, users and configuration are so tested. Fedora,
dnf and SELinux are not: they cannot be had from a mirror of Debian. The script prints the distribution.

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
import re
import subprocess
import tempfile
import time
from typing import NamedTuple

from containers import from_crates, from_debian, installed, podman, run, stored_in
from scene import ROOT, not_run, say, wait_until

CRATES = ["cargo-deb", "cargo-generate-rpm"]
DEBIAN = {"lintian": "lintian", "rpm": "rpm", "mmdebstrap": "mmdebstrap"}
RELEASE, NAME = "bookworm", "zlock-systemd"
# Packages of the containers beside Debian's minimum.
INCLUDED = ["systemd", "systemd-sysv", "procps", "needrestart", "rpm"]
CONFIG, DATA = "/etc/zlock/zlock.toml", "/var/lib/zlock"
# Highest exposure that `systemd-analyze security` may give the unit: 0 is none, 10 is everything.
EXPOSURE_MAX = 2.0
ONE_NODE = """[node]
id = 1
data_dir = "/var/lib/zlock"
members = [{ id = 1, peer_addr = "127.0.0.1:7101", http_addr = "127.0.0.1:7001" }]
"""


class Manager(NamedTuple):
    """Commands of a package manager."""
    install: list
    version: list
    remove: list
    # What a removal says about the node, and what it leaves of the changed configuration.
    said: str
    kept: list


APT = Manager(
    install=["apt-get", "install", "--yes"],
    version=["dpkg-query", "--show", "--showformat", "${Version}", "zlock"],
    remove=["apt-get", "purge", "--yes", "zlock"],
    said="the data of this node stays in " + DATA,
    kept=[],
)
RPM = Manager(
    # Debian's rpm has no record of systemd, on which the package depends.
    install=["rpm", "--force-debian", "--upgrade", "--nodeps"],
    version=["rpm", "--query", "--queryformat", "%{VERSION}-%{RELEASE}", "zlock"],
    remove=["rpm", "--erase", "zlock"],
    said="%s saved as %s.rpmsave" % (CONFIG, CONFIG),
    kept=[CONFIG + ".rpmsave"],
)


def check_lintian(deb):
    done = run("lintian", "--allow-root", deb, check=False)
    found = done.stdout + done.stderr
    assert done.returncode == 0 and not re.search("^E:", found, re.MULTILINE), found
    say("lintian finds no error")


def check_rpm(rpm):
    files = run("rpm", "--query", "--package", "--list", rpm).stdout.split()
    for file in ("/usr/bin/zlock", CONFIG, "/usr/lib/systemd/system/zlock.service", "/usr/lib/sysusers.d/zlock.conf"):
        assert file in files, "%s is not in %s" % (file, files)
    flags = run("rpm", "--query", "--package", "--queryformat", "[%{FILENAMES} %{FILEFLAGS:fflags}\n]", rpm).stdout.splitlines()
    # A configuration file that an upgrade does not replace: `%config(noreplace)`.
    assert [line for line in flags if re.search(" .*c", line)] == [CONFIG + " cn"], flags
    scripts = run("rpm", "--query", "--package", "--scripts", rpm).stdout
    assert "Restart one node at a time" in scripts and "systemd-sysusers zlock.conf" in scripts, scripts
    for word in ("enable ", "start ", "try-restart"):
        assert not re.search(r"systemctl (--\S+ )*" + word, scripts), scripts
    say("the .rpm has the files and the scripts")


class Machine:
    """The container, with systemd as its first process."""

    def __init__(self, manager):
        self.manager = manager

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

    def install(self, package):
        podman("cp", package, "%s:/root/%s" % (NAME, package.name))
        return self.run(*self.manager.install, "/root/" + package.name)

    def wait_ready(self):
        wait_until("the status is `ready`", lambda: "ready; leader: node 1" in self.shows("StatusText"))


def check_installation(machine, package):
    """Returns the time that the installation took, in seconds."""
    begun = time.monotonic()
    machine.install(package)
    took = time.monotonic() - begun
    assert machine.run("systemctl", "is-enabled", "zlock", check=False).strip() == "disabled"
    assert machine.shows("ActiveState") == "inactive"
    assert machine.run("stat", "--format", "%a %U:%G", CONFIG).strip() == "640 root:zlock"
    exposure = machine.run("systemd-analyze", "security", "--no-pager", "zlock.service")
    exposure = float(re.search(r"exposure level for zlock.service: ([0-9.]+)", exposure).group(1))
    assert exposure < EXPOSURE_MAX, exposure
    say("installed, neither enabled nor started; exposure %.1f of 10" % exposure)
    return took


def check_refusal(machine):
    machine.run("systemctl", "start", "zlock", check=False)
    assert machine.shows("ExecMainStatus") == "1" and machine.shows("SubState") == "failed", machine.journal()
    assert "node.id is missing" in machine.journal()
    say("the configuration of the package is refused, and the node is not started again")


def check_start(machine, installation_s):
    begun = time.monotonic()
    machine.write_config(ONE_NODE)
    machine.run("systemctl", "start", "zlock")
    machine.wait_ready()
    assert 'Status: "leader, ready;' in machine.run("systemctl", "status", "--no-pager", "zlock")
    assert "commit" in machine.zlock("lock", "first", "--", "zlock", "version")
    took = installation_s + time.monotonic() - begun
    machine.zlock("create", "/kept", "by-all")
    journal = machine.journal()
    assert "]: INFO " in journal and "<6>" not in journal, journal
    assert machine.run("stat", "--format", "%a %U", DATA).strip() == "700 zlock"
    say("started, with a status and a lock: %.1f s from the package to the lock" % took)


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


def check_upgrade(machine, package):
    pid = machine.shows("MainPID")
    said = machine.install(package)
    assert "Restart one node at a time" in said, said
    assert machine.run(*machine.manager.version).endswith("-2")
    if machine.manager is APT:
        # What apt runs on Ubuntu after each upgrade: it restarts services whose program was replaced.
        found = machine.run("needrestart", "-r", "a", "-l")
        assert "zlock.service" in found, found
    assert machine.shows("MainPID") == pid and machine.shows("NeedDaemonReload") == "no"
    assert machine.run("cat", CONFIG) == ONE_NODE
    assert machine.run("stat", "--format", "%a %U:%G", CONFIG).strip() == "640 root:zlock"
    machine.run("systemctl", "restart", "zlock")
    machine.wait_ready()
    assert machine.zlock("get", "/kept").strip() == "by-all"
    say("upgraded, and not restarted by that; configuration and data are kept")


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


def check_removal(machine):
    machine.run("systemctl", "start", "zlock")
    said = machine.run(*machine.manager.remove)
    assert machine.manager.said in said, said
    left = machine.run("sh", "-c", "ls /etc/zlock/* /usr/bin/zlock 2>/dev/null", check=False).split()
    assert left == machine.manager.kept, left
    assert machine.run("ls", DATA) and machine.run("id", "zlock")
    assert machine.run("pgrep", "zlock", check=False) == ""
    say("removed while it ran: the data and the user stay, and of the configuration %s" % (left or "nothing"))


def play(machine, packages):
    installation_s = check_installation(machine, packages[0])
    check_refusal(machine)
    check_start(machine, installation_s)
    check_reload(machine)
    check_end(machine, "KILL", "killed")
    check_end(machine, "STOP", "ended by the watchdog")
    check_upgrade(machine, packages[1])
    check_long_stop(machine)
    check_removal(machine)


def in_container(manager, packages):
    """Returns the reason why there is no such container here, or `None` when all passed."""
    machine = Machine(manager)
    # The unit's hardening makes mounts, devices and filters of system calls. /proc/sys stays read-only, so that systemd sets
    # nothing on this machine. The container has no network but loopback.
    options = ["--detach", "--name", NAME, "--systemd", "always", "--network", "none"]
    options += ["--cap-add", "ALL", "--security-opt", "seccomp=unconfined", "--security-opt", "apparmor=unconfined"]
    try:
        begun = podman("run", *options, "localhost/" + NAME, "/sbin/init", check=False)
        is_up = lambda: machine.run("systemctl", "is-system-running", check=False).strip() in ("running", "degraded")
        try:
            assert begun.returncode == 0, begun.stderr
            wait_until("systemd has started", is_up)
        except AssertionError as error:
            return "systemd does not run in a container here: %s" % error
        system = machine.run("sed", "--quiet", 's/^PRETTY_NAME="\\(.*\\)"$/\\1/p', "/etc/os-release").strip()
        say("%s, installed with %s on %s" % (packages[0].name, manager.install[0], system))
        try:
            play(machine, packages)
        except BaseException:
            print(podman("exec", NAME, "journalctl", "--no-pager", "--lines", "50", check=False).stdout, file=sys.stderr)
            raise
    finally:
        podman("rm", "--force", "--all", check=False)
    return None


def in_containers(root, packages):
    """Plays with the two packages of each package manager, and returns the same as `in_container`."""
    with tempfile.TemporaryDirectory() as scratch:
        stored_in(scratch)
        podman("import", "--quiet", root, "localhost/" + NAME)
        try:
            for manager, two in packages:
                if reason := in_container(manager, two):
                    return reason
        finally:
            podman("rmi", "--force", "--all", check=False)
    return None


def fetched(cache):
    """Installs the tools, and returns the path of the container's root directory, an archive."""
    from_debian(DEBIAN)
    installed()
    from_crates(cache, CRATES)
    # The packages are part of the name: a root directory with others is not taken.
    root = cache / ("%s.tar" % "+".join([RELEASE, *INCLUDED]))
    if not root.exists():
        part = root.with_suffix(".part.tar")
        run("mmdebstrap", "--variant=minbase", "--include=" + ",".join(INCLUDED), RELEASE, part)
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
    debs, rpms = zip(built(1), built(2))
    check_lintian(debs[0])
    check_rpm(rpms[0])
    reason = in_containers(root, [(APT, debs), (RPM, rpms)])
    if reason:
        return not_run(reason)
    say("the packages do what docs/install.md says, both on Debian: the .rpm was not installed on Fedora")
    return 0


if __name__ == "__main__":
    sys.exit(main())
