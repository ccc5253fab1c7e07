#!/usr/bin/env python3
"""Puts bugs back into the sources, one at a time, and sees that the test that is to find each does.

Usage: run.py [NAME...] [--crates znode,replica] [--target DIR] [--out FILE]

Each `*.toml` beside this script lists the bugs of one crate: a text of a source that is to be replaced, and the test that fails
then. The sources are a copy (`git worktree`) of what is committed. Without names all bugs are tried. Prints a table, and ends with
1 when a bug was found by no test, or a text is not in its file any more.
"""

import argparse
import pathlib
import subprocess
import sys
import tempfile
import time
import tomllib

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
# A test that hangs because of a bug has found it.
LIMIT_S = 600


def bugs(args):
    """All that are asked for, with the crate whose list they are in."""
    listed = []
    for file in sorted(HERE.glob("*.toml")):
        if args.crates and file.stem not in args.crates.split(","):
            continue
        with open(file, "rb") as source:
            listed += [(file.stem, bug) for bug in tomllib.load(source)["bug"]]
    unknown = set(args.names) - {bug["name"] for _, bug in listed}
    if unknown:
        sys.exit(f"no bug is called {', '.join(sorted(unknown))}")
    return [(crate, bug) for crate, bug in listed if not args.names or bug["name"] in args.names]


def run(tree, target, bug):
    """Whether the bug's test passes, fails, hangs, or does not compile; and the end of what cargo printed."""
    command = ["cargo", "test", "--locked", *bug["test"].split()]
    env = dict(__import__("os").environ, CARGO_TARGET_DIR=str(target), CARGO_INCREMENTAL="0", RUST_BACKTRACE="0")
    try:
        done = subprocess.run(command, cwd=tree, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=LIMIT_S)
    except subprocess.TimeoutExpired:
        return "hangs", ""
    if "could not compile" in done.stdout:
        return "does not compile", done.stdout
    if "0 passed; 0 failed" in done.stdout and " 1 passed" not in done.stdout and "FAILED" not in done.stdout and done.returncode == 0:
        return "runs no test", done.stdout
    if done.returncode == 0:
        return "passes", done.stdout
    # Cargo itself fails when there is no such test target, for example.
    ran = "test result: FAILED" in done.stdout or "process didn't exit successfully" in done.stdout
    return ("fails" if ran else "does not run"), done.stdout


def tried(tree, target, bug):
    """What came of one bug."""
    file = tree / bug["file"]
    whole = file.read_text(encoding="utf-8")
    if whole.count(bug["from"]) != 1:
        return f"its text is {whole.count(bug['from'])} times in {bug['file']}", ""
    file.write_text(whole.replace(bug["from"], bug["to"]), encoding="utf-8")
    try:
        return run(tree, target, bug)
    finally:
        file.write_text(whole, encoding="utf-8")


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--crates")
    parser.add_argument("--target", default=str(ROOT / "target" / "mutations"))
    parser.add_argument("--out")
    args = parser.parse_args()
    rows, missed = ["| bug | crate | test | |", "|---|---|---|---|"], []
    with tempfile.TemporaryDirectory() as directory:
        tree = pathlib.Path(directory) / "tree"
        subprocess.run(["git", "worktree", "add", "--quiet", "--detach", str(tree), "HEAD"], cwd=ROOT, check=True)
        try:
            for crate, bug in bugs(args):
                began = time.monotonic()
                came, told = tried(tree, args.target, bug)
                print(f"{crate}: {bug['name']}: {came} ({time.monotonic() - began:.0f} s)", flush=True)
                if came not in ("fails", "hangs"):
                    missed.append(bug["name"])
                    print("\n".join(told.splitlines()[-25:]), flush=True)
                rows.append(f"| {bug['name']} | {crate} | `{bug['test']}` | {came} |")
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", str(tree)], cwd=ROOT, check=True)
    table = "\n".join(rows)
    print(f"\n{table}\n\n{len(rows) - 2} bugs, {len(missed)} not found: {', '.join(missed) or 'none'}")
    if args.out:
        pathlib.Path(args.out).write_text(table + "\n", encoding="utf-8")
    sys.exit(1 if missed else 0)


main()
