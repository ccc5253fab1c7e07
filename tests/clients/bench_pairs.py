#!/usr/bin/env python3
"""Two builds of zlock beside each other, in interleaved pairs.

Usage: bench_pairs.py BEFORE AFTER [--pairs 20] [--seconds 1] [--clients 1,16,64,256] [--workloads write,lock-cycle,hand-off]

BEFORE and AFTER are directories, each with a `zlock` and the same `bench`. Each pair measures both, in turns which one is first.
Prints, for each workload and number of clients, the geometric mean of the ratio AFTER / BEFORE of operations a second, with its
95 % interval, and both medians. Ends with 1 when an interval lies below 0.97 as a whole.
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
            os.path.join(build, "bench"), "compare", "--systems", "zlock-rest", "--workloads", args.workloads,
            "--clients", args.clients, "--rounds", "1", "--seconds", str(args.seconds), "--warm-up", "1", "--out", out,
        ]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if done.returncode != 0:
            sys.exit(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}")
        with open(os.path.join(out, "results.json"), encoding="utf-8") as file:
            results = json.load(file)
    # One system, one round.
    throughput = lambda line: line["rounds"]["zlock-rest"][0]["per_second"]
    return {(line["workload"], line["clients"]): throughput(line) for line in results["lines"]}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before")
    parser.add_argument("after")
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--clients", default="1,16,64,256")
    parser.add_argument("--workloads", default="write,lock-cycle,hand-off")
    args = parser.parse_args()
    figures = {"before": [], "after": []}
    for pair in range(args.pairs):
        order = ["before", "after"] if pair % 2 == 0 else ["after", "before"]
        for which in order:
            figures[which].append(measure(getattr(args, which), args))
        print(f"pair {pair + 1} of {args.pairs}", file=sys.stderr)
    failed = False
    print("| workload | clients | before, ops/s | after, ops/s | ratio | 95 % interval |\n|---|---|---|---|---|---|")
    for key in figures["before"][0]:
        before, after = ([one[key] for one in figures[which]] for which in ("before", "after"))
        logs = [math.log(a / b) for a, b in zip(after, before)]
        mean = statistics.mean(logs)
        student = STUDENT[len(logs) - 2] if len(logs) - 2 < len(STUDENT) else 1.96
        half = student * statistics.stdev(logs) / math.sqrt(len(logs))
        low, high = math.exp(mean - half), math.exp(mean + half)
        failed |= high < LEAST
        medians = f"{statistics.median(before):.0f} | {statistics.median(after):.0f}"
        print(f"| {key[0]} | {key[1]} | {medians} | {math.exp(mean):.3f} | {low:.3f} to {high:.3f} |")
    sys.exit(1 if failed else 0)


main()
