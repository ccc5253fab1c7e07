#!/usr/bin/env python3
"""The files of a release, as deploy/artefacts.sh makes them for this machine's architecture.

    tests/packages/artefacts.py [--cache target/packages] [--artefacts DIRECTORY]

Runs deploy/artefacts.sh, unless a directory that it made is given, and compares the names of the files with the
table in docs/dev/releasing.md. Then each file is read by a program of others: the sums by sha256sum, the
list of dependencies by the schema of CycloneDX 1.5, the image by podman, the packages by dpkg and rpm. The
program of the archive runs. Its own list of dependencies, for scanners of vulnerabilities, must be part of the
list in CycloneDX.

Needs root. podman and rpm are installed with apt-get where they are missing, the tools of deploy/artefacts.sh from
crates.io and the schema from PyPI below the cache.

Exit code: 0 when all passed, 1 when something failed, 75 when a tool cannot be had here; the last line says why:
"NOT RUN: ...".
"""

import sys
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "clients"))

import argparse
import json
import os
import platform
import re
import subprocess
import tempfile
import time
import zlib

from containers import TOOLS, from_crates, from_debian, from_pypi, installed, podman, run, stored_in
from scene import ROOT, not_run, say

SCHEMA = "cyclonedx-python-lib[json-validation]==11.12.0"
# What Debian calls the architecture.
DEBIAN_MACHINE = {"x86_64": "amd64", "aarch64": "arm64"}[platform.machine()]
# Files that the workflow of a release makes from those of both architectures.
OF_THE_WORKFLOW = {"SHA256SUMS", "zlock-0.2.0.sigstore.json"}


class Release:
    """The directory of the files, and the directory for what is unpacked."""

    def __init__(self, directory, scratch):
        self.directory, self.scratch = directory, scratch
        self.files = {file.name for file in directory.iterdir()}
        (archive,) = [name for name in self.files if re.fullmatch(r"zlock-[0-9.]+-\w+\.tar\.gz", name)]
        self.name = archive.removesuffix(".tar.gz")
        self.version = self.name.split("-")[1]
        run("tar", "--extract", "--directory", scratch, "--file", directory / archive)
        self.program = scratch / self.name / "zlock"

    def file(self, name):
        return self.directory / name


def check_names(release):
    """The names are those of docs/dev/releasing.md, with this version and this architecture."""
    page = (ROOT / "docs/dev/releasing.md").read_text()
    rows = re.findall(r"^\| (`.*?`) \|", page, re.MULTILINE)
    listed = {name for row in rows for name in re.findall("`([^`]*)`", row)} - OF_THE_WORKFLOW
    mine = {name for name in listed if not re.search("x86_64|aarch64|amd64|arm64", name)}
    mine |= {name for name in listed if re.search("%s|%s" % (platform.machine(), DEBIAN_MACHINE), name)}
    mine = {name.replace("0.2.0", release.version) for name in mine}
    mine.add("SHA256SUMS-" + platform.machine())
    assert release.files == mine, "%s\nin the page: %s" % (sorted(release.files), sorted(mine))
    for name in sorted(release.files):
        say("%9.3f MB  %s" % (release.file(name).stat().st_size / 1e6, name))


def check_sums(release):
    sums = "SHA256SUMS-" + platform.machine()
    done = subprocess.run(["sha256sum", "--check", "--strict", sums], cwd=release.directory, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    summed = {line.split("  ")[1] for line in release.file(sums).read_text().splitlines()}
    assert summed == release.files - {sums}, summed
    say("the sums are right, of %d files" % len(summed))


def check_archive(release):
    folder = release.program.parent
    assert {file.name for file in folder.iterdir()} == {"zlock", "LICENSE", "NOTICE"}, folder
    told = run(release.program, "--version").stdout
    assert told.startswith("zlock %s (commit " % release.version), told
    say("the program of the archive: " + told.strip())


def audited(release):
    """Name and version of each package that the program's own list has for the running program."""
    section = release.scratch / "dependencies"
    run("objcopy", "--dump-section", ".dep-v0=%s" % section, release.program, release.scratch / "copied")
    packages = json.loads(zlib.decompress(section.read_bytes()))["packages"]
    return {(package["name"], package["version"]) for package in packages if package.get("kind", "runtime") == "runtime"}


def check_dependencies(release):
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator

    text = release.file(release.name + ".cdx.json").read_text()
    fault = JsonStrictValidator(SchemaVersion.V1_5).validate_str(text)
    assert fault is None, fault
    bom = json.loads(text)
    assert (bom["bomFormat"], bom["specVersion"]) == ("CycloneDX", "1.5"), bom["specVersion"]
    subject = bom["metadata"]["component"]
    assert (subject["name"], subject["version"]) == ("zlock", release.version), subject
    listed = {(one["name"], one["version"]) for one in [subject, *bom["components"]]}
    known = audited(release)
    assert ("zlock", release.version) in known and known <= listed, known - listed
    assert str(ROOT) not in text, "the list of dependencies has paths of this machine"
    say("valid CycloneDX 1.5 with %d components, which include the %d of the program" % (len(bom["components"]), len(known)))


def check_api(release):
    document = json.loads(release.file("openapi.json").read_text())
    assert document["openapi"].startswith("3."), document["openapi"]
    assert document["info"]["version"] == release.version, document["info"]
    say("openapi.json describes %d paths" % len(document["paths"]))


def check_image(release):
    tag = "localhost/zlock:%s" % release.name.removeprefix("zlock-")
    # The image that deploy/artefacts.sh built is in the same store.
    podman("rmi", "--force", "--all")
    # podman 4.3 reads no archive that gzip compressed (https://github.com/containers/podman/issues/15944).
    archive = release.scratch / "image.tar"
    run("sh", "-c", 'gunzip --stdout "$1" >"$2"', "sh", release.file(release.name + "-image.tar.gz"), archive)
    loaded = podman("load", "--quiet", "--input", archive).stdout
    assert tag in loaded, loaded
    (image,) = json.loads(podman("image", "inspect", tag).stdout)
    assert image["Config"]["Labels"]["org.opencontainers.image.version"] == release.version, image["Config"]
    assert image["Config"]["Entrypoint"] == ["/zlock"], image["Config"]
    say("podman loads the image %s" % tag)


def check_packages(release):
    (deb,) = release.directory.glob("*.deb")
    (rpm,) = release.directory.glob("*.rpm")
    fields = run("dpkg-deb", "--field", deb, "Package", "Version", "Architecture").stdout.split("\n")
    assert fields[:3] == ["Package: zlock", "Version: %s-1" % release.version, "Architecture: " + DEBIAN_MACHINE], fields
    told = run("rpm", "--query", "--package", "--queryformat", "%{NAME} %{VERSION}-%{RELEASE} %{ARCH}", rpm).stdout
    assert told == "zlock %s-1 %s" % (release.version, platform.machine()), told
    # Both have the program of the archive.
    unpacked = release.scratch / "deb"
    run("dpkg-deb", "--extract", deb, unpacked)
    for program in (unpacked / "usr/bin/zlock", from_rpm(release, rpm)):
        assert program.read_bytes() == release.program.read_bytes(), "%s is another program" % program
    say("both packages have the program of the archive")


def from_rpm(release, rpm):
    unpacked = release.scratch / "rpm"
    unpacked.mkdir()
    run("sh", "-c", 'cd "$1" && rpm2archive - <"$2" | tar --extract --gzip', "sh", unpacked, rpm)
    return unpacked / "usr/bin/zlock"


def check_chart(release):
    chart = run("tar", "--extract", "--to-stdout", "--file", release.file("zlock-%s.tgz" % release.version), "zlock/Chart.yaml").stdout
    assert "\nversion: %s\n" % release.version in chart, chart
    say("the chart has the version")


def play(directory, scratch):
    release = Release(directory, scratch)
    for check in (check_names, check_sums, check_archive, check_dependencies, check_api, check_image, check_packages, check_chart):
        check(release)
    say("the files are those of docs/dev/releasing.md")


def made(directory):
    begun = time.monotonic()
    subprocess.run([ROOT / "deploy/artefacts.sh", directory], check=True, stdout=subprocess.DEVNULL)
    say("deploy/artefacts.sh took %.0f s" % (time.monotonic() - begun))
    left = run("git", "-C", ROOT, "status", "--porcelain", "--untracked-files=all").stdout
    assert "sbom" not in left, left
    return directory


def fetched(cache):
    """Installs the tools, and returns the path of the Python that has the schema."""
    from_debian({"rpm": "rpm"})
    installed()
    from_crates(cache, TOOLS)
    venv = cache / "venv"
    from_pypi(venv, [SCHEMA])
    return venv


def main():
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--cache", type=Path, default=Path("target/packages"))
    words.add_argument("--artefacts", type=Path, help="what deploy/artefacts.sh made; made when not given")
    args = words.parse_args()
    cache = args.cache.resolve()
    cache.mkdir(parents=True, exist_ok=True)
    if Path(sys.prefix) != cache / "venv":
        try:
            venv = fetched(cache)
        except (AssertionError, OSError) as error:
            return not_run("a tool cannot be had: " + str(error).strip().splitlines()[-1])
        os.execv(venv / "bin/python", [venv / "bin/python", *sys.argv])
    with tempfile.TemporaryDirectory() as scratch:
        stored_in(scratch)
        os.environ["ENGINE"] = "podman"
        play(args.artefacts.resolve() if args.artefacts else made(Path(scratch) / "made"), Path(scratch))
    return 0


if __name__ == "__main__":
    sys.exit(main())
