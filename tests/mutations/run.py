#!/usr/bin/env python3
"""Puts bugs back into the sources, one at a time, and sees that whatever is to find each does.

Usage: run.py [NAME...] [--lists znode,planted] [--by test,sim,jepsen] [--shard I/N] [--seed N] [--target DIR] [--store DIR] [--out FILE]

Each `*.toml` beside this script is a list of bugs. A bug is a text of a source and the one that takes its place, or several of them
(`edit`), and has one or more finders:

  test    arguments of `cargo test`, which fails then
  sim     a seed of the simulation, and what its failure must begin with: names of invariants
  jepsen  arguments of `jepsen test`, which must be INVALID within five minutes, and valid without the bug

The sources are a copy (`git worktree`) of what is committed. Without names all bugs are tried, with --shard I/N every Nth of them, with
the finders `test` and `sim` unless --by says others. Prints a table, and ends with 1 when a bug was not found, or a text is not in
its file any more. --seed is that of jepsen's first run.
"""

import argparse
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
# A test that hangs because of a bug has found it. Alone, each of the tests takes less than a minute.
LIMIT_S = 150
# Runs of jepsen follow each other for so long until one is INVALID.
WITHIN_S = 300
# Runs without the bug, until one of them can be judged.
CONTROLS_MAX = 3
# Where to look for another seed, and for how long.
SEARCHED = 500
SEARCH_S = 600


def bugs(args):
    """All that are asked for and have such a finder, with the list that they are in."""
    listed = []
    for file in sorted(HERE.glob("*.toml")):
        if args.lists and file.stem not in args.lists.split(","):
            continue
        with open(file, "rb") as source:
            listed += [(file.stem, bug) for bug in tomllib.load(source)["bug"]]
    unknown = set(args.names) - {bug["name"] for _, bug in listed}
    if unknown:
        sys.exit(f"no bug is called {', '.join(sorted(unknown))}")
    asked = [(name, bug) for name, bug in listed if not args.names or bug["name"] in args.names]
    first, step = map(int, args.shard.split("/"))
    return [(name, bug) for name, bug in asked if any(finder in bug for finder in args.by)][first % step :: step]


def run(words, limit_s=None, end=lambda pid: os.killpg(pid, signal.SIGKILL), **more):
    """Exit code and output of a program; no code where it took too long and was ended."""
    child = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True, **more)
    try:
        told, _ = child.communicate(timeout=limit_s)
        return child.returncode, told
    except BaseException as stopped:
        end(child.pid)
        child.wait()
        if isinstance(stopped, subprocess.TimeoutExpired):
            return None, ""
        raise


class Bench:
    """The copy of the sources, and what is built of it. Finders answer whether they found the bug, how, and what was printed."""

    def __init__(self, tree, args):
        self.tree, self.target, self.store, self.seed = tree, pathlib.Path(args.target).resolve(), args.store, args.seed
        self.controls = {}
        if "jepsen" in args.by:
            for package in ("jepsen", "zlock"):
                code, told = self.cargo("build", "--release", "-p", package)
                if code != 0:
                    sys.exit(f"{told}\n{package} is not built")
                shutil.copy(self.target / "release" / package, self.without(package))

    def without(self, program):
        """A program without a bug."""
        return self.target / f"{program}-without"

    def cargo(self, command, *words, limit_s=None):
        env = dict(os.environ, CARGO_TARGET_DIR=str(self.target), CARGO_INCREMENTAL="1", RUST_BACKTRACE="0")
        return run(["cargo", command, "--locked", *words], limit_s, cwd=self.tree, env=env)

    def test(self, words):
        words = words.split()
        # By itself, as it is no hang that building takes long.
        code, told = self.cargo("test", "--no-run", *words)
        if code != 0:
            return False, "does not compile", told
        code, told = self.cargo("test", *words, limit_s=LIMIT_S)
        if code is None:
            return True, "hangs", told
        if code == 0:
            ran = re.search(r"\b[1-9][0-9]* passed", told)
            return False, "passes" if ran else "runs no test", told
        # Cargo itself fails when there is no such test target, for example.
        ran = "test result: FAILED" in told or "process didn't exit successfully" in told
        return ran, "fails" if ran else "does not run", told

    def sim(self, finder):
        code, told = self.cargo("build", "-p", "sim")
        if code != 0:
            return False, "does not compile", told
        code, told = self.seeds(finder["seed"], finder["seed"] + 1, LIMIT_S)
        failed = re.search(r"^seed \d+ FAILED at \d+ ms: (.*)$", told, re.MULTILINE)
        if failed:
            return failed[1].startswith(tuple(finder["says"])), failed[1][:100], told
        if code == 0:
            _, told = self.seeds(0, SEARCHED, SEARCH_S)
            found = re.search(r"^seed \d+ FAILED at .*$", told, re.MULTILINE)
            return False, f"seed {finder['seed']} passes; of others: {found[0][:100] if found else 'none fails in ten minutes'}", told
        return code is None, "hangs" if code is None else f"exit code {code}", told

    def seeds(self, first, end, limit_s):
        return run([self.target / "debug" / "sim", "--seeds", f"{first}..{end}"], limit_s)

    def jepsen(self, words):
        code, told = self.cargo("build", "--release", "-p", "zlock")
        if code != 0:
            return False, "does not compile", told
        if words not in self.controls:
            seeds = range(self.seed, self.seed + CONTROLS_MAX)
            judged = (self.jepsen_test(words, self.without("zlock"), seed) for seed in seeds)
            self.controls[words] = next((done for done in judged if done[0] != 2), (2, "no run without the bug can be judged"))
        code, told = self.controls[words]
        if code != 0:
            return False, "not valid without the bug", told
        began, seed = time.monotonic(), self.seed
        while (left := began + WITHIN_S - time.monotonic()) > 0:
            code, told = self.jepsen_test(words, self.target / "release" / "zlock", seed, left)
            if code == 1:
                kinds = self.kinds(words.split()[1])
                return True, f"seed {seed}, run {seed - self.seed + 1}, {time.monotonic() - began:.0f} s: {kinds}", told
            seed += 1
        return False, f"not found in {seed - self.seed} runs", told

    def jepsen_test(self, words, zlock, seed, limit_s=None):
        command = [self.without("jepsen"), "test", *words.split(), "--zlock", zlock, "--seed", str(seed), "--store", self.store]
        command += ["--calm", "3s", "--fault", "5s", "--time", "20s"]
        if "--snapshots" not in words:
            command += ["--snapshots", "large"]
        # It takes its nodes, mounts and namespaces with it.
        return run(command, limit_s, lambda pid: os.kill(pid, signal.SIGINT))

    def kinds(self, workload):
        """As what it was found."""
        results = json.loads((pathlib.Path(self.store) / workload / "latest" / "results.json").read_text(encoding="utf-8"))
        verdicts = [results.get("checker") or {}, results.get("convergence") or {}]
        kinds = {finding["kind"] for verdict in verdicts for finding in verdict.get("findings") or []}
        return ", ".join(sorted(kinds | ({"panic of a node"} if results.get("alarms") else set())))

    def tried(self, bug, by):
        """What came of one bug: the finder, whether it found it, how, and what was printed."""
        before = {}
        try:
            for edit in bug.get("edit", [bug]):
                file = self.tree / edit["file"]
                whole = file.read_text(encoding="utf-8")
                if whole.count(edit["from"]) != 1:
                    yield "-", False, f"its text is {whole.count(edit['from'])} times in {edit['file']}", ""
                    return
                before.setdefault(file, whole)
                file.write_text(whole.replace(edit["from"], edit["to"]), encoding="utf-8")
            for kind in by:
                finders = bug.get(kind, [])
                for finder in finders if isinstance(finders, list) else [finders]:
                    words = f"--seed {finder['seed']}" if kind == "sim" else finder
                    yield f"{kind} {words}", *getattr(self, kind)(finder)
        finally:
            for file, whole in before.items():
                file.write_text(whole, encoding="utf-8")


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--lists")
    parser.add_argument("--by", default="test,sim", type=lambda by: by.split(","))
    parser.add_argument("--shard", default="0/1")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--target", default=str(ROOT / "target" / "mutations"))
    parser.add_argument("--store", default="store")
    parser.add_argument("--out")
    args = parser.parse_args()
    # As with an interrupt, the copy and the program that runs do not stay.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    rows, missed = ["| bug | list | found by | |", "|---|---|---|---|"], []
    with tempfile.TemporaryDirectory() as directory:
        tree = pathlib.Path(directory) / "tree"
        subprocess.run(["git", "worktree", "add", "--quiet", "--detach", str(tree), "HEAD"], cwd=ROOT, check=True)
        try:
            bench = Bench(tree, args)
            for name, bug in bugs(args):
                began = time.monotonic()
                for finder, found, how, told in bench.tried(bug, args.by):
                    print(f"{name}: {bug['name']}: {finder}: {how} ({time.monotonic() - began:.0f} s)", flush=True)
                    if not found:
                        missed.append(bug["name"])
                        print("\n".join(told.splitlines()[-25:]), flush=True)
                    rows.append(f"| {bug['name']} | {name} | `{finder}` | {how} |")
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", str(tree)], cwd=ROOT, check=True)
    table = "\n".join(rows)
    print(f"\n{table}\n\n{len(rows) - 2} finders, {len(missed)} did not find: {', '.join(missed) or 'none'}")
    if args.out:
        pathlib.Path(args.out).write_text(table + "\n", encoding="utf-8")
    sys.exit(1 if missed else 0)


main()
