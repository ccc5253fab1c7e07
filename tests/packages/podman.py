"""Podman for the tests of artefacts: its installation, and its storage in a directory that a test removes."""

import os
import shutil
import subprocess
from pathlib import Path

PACKAGES = ["podman", "buildah", "runc", "netavark", "aardvark-dns", "iptables", "iproute2"]

CONTAINERS_CONF = """
[containers]
# A machine without CAP_SYS_RESOURCE cannot give containers more than these.
default_ulimits = ["nofile=1024:4096", "nproc=1000:2000"]
[engine]
runtime = "runc"
[network]
network_backend = "netavark"
network_config_dir = "%(scratch)s/networks"
"""
STORAGE_CONF = """
[storage]
driver = "vfs"
graphroot = "%(scratch)s/images"
runroot = "%(scratch)s/run"
"""


def run(*command, check=True):
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    assert not check or done.returncode == 0, "%s: %d\n%s%s" % (" ".join(map(str, command)), done.returncode, done.stdout, done.stderr)
    return done


def podman(*command, check=True):
    return run("podman", *command, check=check)


def installed():
    """Installs podman and what it needs with apt-get, where they are missing."""
    if not all(map(shutil.which, ("podman", "runc", "iptables", "ip"))):
        run("apt-get", "install", "--yes", "--quiet", "--no-install-recommends", *PACKAGES)


def stored_in(scratch):
    """Keeps the images, containers and networks of this process's podman in a directory."""
    for name, text in (("containers", CONTAINERS_CONF), ("storage", STORAGE_CONF)):
        (Path(scratch) / (name + ".conf")).write_text(text % {"scratch": scratch})
    (Path(scratch) / "networks").mkdir()
    os.environ["CONTAINERS_CONF"] = scratch + "/containers.conf"
    os.environ["CONTAINERS_STORAGE_CONF"] = scratch + "/storage.conf"
