"""podman in namespaces of its own: its containers, networks, images and processes end with the script.

Needs root. podman and what it needs are installed with apt-get where they are missing, other tools
from PyPI below the cache.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from scene import ROOT, arguments, not_run, say

# What deploy/packages.sh and deploy/artefacts.sh need of crates.io.
TOOLS = {"cargo-auditable": "0.7.7", "cargo-cyclonedx": "0.5.9", "cargo-deb": "3.8.0", "cargo-generate-rpm": "0.21.1"}
PACKAGES = ["podman", "buildah", "runc", "netavark", "aardvark-dns", "iptables", "iproute2"]
# Set in the process that runs within the namespaces.
WITHIN = "ZLOCK_CONTAINERS_WITHIN"
IMAGE = "localhost/zlock"

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
    told = "%s: %d\n%s%s" % (" ".join(map(str, command)), done.returncode, done.stdout, done.stderr)
    assert not check or done.returncode == 0, told
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


def within(args, images, play):
    """Runs in the namespaces, which end with the process."""
    run("ip", "link", "set", "lo", "up")
    # podman notes here which addresses are taken, and which process answers for names. If other scripts
    # shared the directories, that process could be in another network namespace.
    for directory in ("/run/containers", "/run/libpod"):
        Path(directory).mkdir(exist_ok=True)
        run("mount", "-t", "tmpfs", "tmpfs", directory)
    with tempfile.TemporaryDirectory() as scratch:
        stored_in(scratch)
        os.environ["ENGINE"] = "podman"
        os.environ["ZLOCK"] = str(args.zlock)
        for image in images:
            run(ROOT / "deploy/image.sh", image)
        say("the image has %s" % podman("images", "--format", "{{.Size}}", IMAGE).stdout.split("\n")[0])
        try:
            play(args.cache.resolve() / "venv/bin", Path(scratch))
        finally:
            podman("rm", "--force", "--time", "0", "--all", check=False)
    return 0


def from_debian(programs):
    """Installs programs with apt-get, where they are missing. `programs` has the package of each."""
    missing = [package for program, package in programs.items() if shutil.which(program) is None]
    if missing:
        run("apt-get", "install", "--yes", "--quiet", "--no-install-recommends", *missing)


def from_crates(cache, names):
    """Installs tools of `TOOLS` below the cache, where they are missing, and puts them first in PATH."""
    os.environ["PATH"] = "%s:%s" % (cache / "tools/bin", os.environ["PATH"])
    for tool in names:
        if shutil.which(tool) is None:
            run("cargo", "install", "--locked", "--root", cache / "tools", "%s@%s" % (tool, TOOLS[tool]))


def from_pypi(venv, requirements):
    """Installs tools, which have exact versions, in a virtual environment, where they are missing."""
    if not (venv / "bin/python").exists():
        run(sys.executable, "-m", "venv", venv)
    run(venv / "bin/pip", "install", "--quiet", "--disable-pip-version-check", *requirements)


def script(about, requirements, images, play):
    """Runs `play(directory of the tools, scratch directory)`, and returns the exit code of the script. `requirements`
    are those of the tools of PyPI."""
    args = arguments(about, "../packages").parse_args()
    if os.environ.get(WITHIN):
        return within(args, images, play)
    venv = args.cache.resolve() / "venv"
    try:
        installed()
        from_pypi(venv, requirements)
    except (AssertionError, OSError) as error:
        return not_run("podman or a tool cannot be had: " + str(error).strip().splitlines()[-1])
    program = args.zlock
    if program is None:
        built = subprocess.run([ROOT / "deploy/binary.sh"], check=True, stdout=subprocess.PIPE, text=True)
        program = built.stdout.strip()
    inner = [venv / "bin/python", sys.argv[0], "--cache", args.cache.resolve(), "--zlock", program]
    command = ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", *inner]
    return subprocess.run(list(map(str, command)), env=dict(os.environ, **{WITHIN: "1"})).returncode
