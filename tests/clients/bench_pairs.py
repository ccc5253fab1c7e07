#!/usr/bin/env python3
"""Builds of zlock beside each other, in interleaved rounds.

Usage: bench_pairs.py BEFORE... AFTER [--rounds 20] [--seconds 1] [--clients 1,16,64,256] [--workloads write,lock-cycle,hand-off]
                      [--system zlock-rest]

Each is a directory with a `zlock` and the same `bench`. A round measures each of them, and begins with another one each time.
Prints, for each BEFORE, workload and number of clients, the geometric mean of the ratio AFTER / BEFORE of operations a second, with
its 95 % interval, and both medians. Ends with 1 when an interval lies below 0.97 as a whole.
"""

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile

# Student's t for 95 %, by degrees of freedom; beyond, as of many.
STUDENT = [12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23, 2.20, 2.18, 2.16, 2.14, 2.13, 2.12, 2.11, 2.10, 2.09]
LEAST = 0.97


def measure(build, args):
    """Operations a second, by workload and clients."""
    with tempfile.TemporaryDirectory() as out:
        command = [
            os.path.join(build, "bench"), "compare", "--systems", args.system, "--workloads", args.workloads,
            "--clients", args.clients, "--rounds", "1", "--seconds", str(args.seconds), "--warm-up", "1", "--out", out,
        ]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if done.returncode != 0:
            sys.exit(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}")
        with open(os.path.join(out, "results.json"), encoding="utf-8") as file:
            results = json.load(file)
    # One system, one round.
    throughput = lambda line: line["rounds"][args.system][0]["per_second"]
    return {(line["workload"], line["clients"]): throughput(line) for line in results["lines"]}


def compare(build, before, after):
    """Prints the table of one build before. Answers whether an interval lies below `LEAST` as a whole."""
    slower = False
    print(f"before: {build}")
    print("| workload | clients | before, ops/s | after, ops/s | ratio | 95 % interval |\n|---|---|---|---|---|---|")
    for key in before[0]:
        logs = [math.log(now[key] / then[key]) for now, then in zip(after, before)]
        mean = statistics.mean(logs)
        student = STUDENT[len(logs) - 2] if len(logs) - 2 < len(STUDENT) else 1.96
        half = student * statistics.stdev(logs) / math.sqrt(len(logs))
        low, high = math.exp(mean - half), math.exp(mean + half)
        slower |= high < LEAST
        medians = " | ".join(f"{statistics.median(one[key] for one in figures):.0f}" for figures in (before, after))
        print(f"| {key[0]} | {key[1]} | {medians} | {math.exp(mean):.3f} | {low:.3f} to {high:.3f} |")
    return slower


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", nargs="+")
    parser.add_argument("after")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--system", default="zlock-rest", choices=["zlock-rest", "zlock-zk"])
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--clients", default="1,16,64,256")
    parser.add_argument("--workloads", default="write,lock-cycle,hand-off")
    args = parser.parse_args()
    builds = [*args.before, args.after]
    figures = {build: [] for build in builds}
    for number in range(args.rounds):
        first = number % len(builds)
        for build in builds[first:] + builds[:first]:
            figures[build].append(measure(build, args))
        print(f"round {number + 1} of {args.rounds}", file=sys.stderr)
    slower = [compare(build, figures[build], figures[args.after]) for build in args.before]
    sys.exit(1 if any(slower) else 0)


main()
