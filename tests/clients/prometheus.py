#!/usr/bin/env python3
"""Every Prometheus expression of docs/operating.md, asked of Debian's Prometheus that scrapes three nodes.

    tests/clients/prometheus.py [--cache target/clients/prometheus] [--zlock PATH]

Lines of the blocks marked `promql` are alerts: each must be understood, be empty while the cluster is well, and have a row before its
comparison. Expressions in the text (`changes(zlock_term[10m])`) must be understood and have a row. Exit code: 0 when all passed, 1 when
something failed, 75 when Prometheus cannot be had here; the last line says why: "NOT RUN: ...".
"""

import sys

sys.dont_write_bytecode = True

import json
import re
import tempfile
import time
import urllib.parse
from pathlib import Path

from scene import ROOT, Cluster, Debian, Missing, arguments, built, free_port, get, not_run, say, started, wait_until

PAGE = ROOT / "docs/operating.md"
# The last comparison of an alert, outside of brackets.
COMPARISON = re.compile(r"\s(==|!=|>=|<=|>|<)\s[^()\[\]{}]*$")


def alerts(page):
    """The lines of blocks marked promql, without comments."""
    blocks = re.findall(r"^```promql\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    lines = [line.strip() for block in blocks for line in block.splitlines()]
    return [line for line in lines if line and not line.startswith("#")]


def inline(page):
    """Code in the text that is more than the name of a metric with its labels."""
    text = re.sub(r"^```.*?^```$", "", page, flags=re.MULTILINE | re.DOTALL)
    spans = re.findall(r"`([^`\n]+)`", text)
    return [span for span in spans if "zlock_" in span and re.search(r"[(\[]|\s[-+*/<>=!]", span)]


def ask(prometheus, expression):
    """The rows of an instant query."""
    status, body = get(prometheus, "/api/v1/query?" + urllib.parse.urlencode({"query": expression}))
    answer = json.loads(body)
    assert status == 200 and answer["status"] == "success", "%s: %s" % (expression, answer.get("error", body))
    assert answer["data"]["resultType"] == "vector", "%s is no vector" % expression
    return answer["data"]["result"]


def check(prometheus, page):
    told, found = alerts(page), inline(page)
    assert len(told) > 10 and found, "the page has lost its expressions: %s %s" % (told, found)
    for expression in told:
        comparison = COMPARISON.search(expression)
        assert comparison, "%s compares nothing" % expression
        before = expression[: comparison.start()]
        assert ask(prometheus, before), "%s has no row, so the alert never fires" % before
        # Elections and starts of a moment ago may still count.
        wait_until("%s is empty" % expression, lambda: not ask(prometheus, expression))
        say("empty in health, and it could fire:", expression)
    for expression in found:
        assert ask(prometheus, expression), "%s has no row" % expression
        say("has a row:", expression)
    return len(told) + len(found)


def fires(prometheus, cluster):
    """Not only in theory: a node that is gone is told, and so is the lag of one that is frozen."""
    cluster.kill(2)
    wait_until("the lost node is told", lambda: ask(prometheus, 'up{job="zlock"} == 0'))
    cluster.start(2)
    cluster.wait_ready()
    wait_until("it is told no more", lambda: not ask(prometheus, 'up{job="zlock"} == 0'))


def run(program, prometheus, env):
    with tempfile.TemporaryDirectory() as data:
        data = Path(data)
        with Cluster(program, data) as cluster:
            cluster.wait_ready()
            targets = json.dumps(cluster.http)
            jobs = '[{"job_name": "zlock", "static_configs": [{"targets": %s}]}]' % targets
            (data / "prometheus.yml").write_text('{"global": {"scrape_interval": "1s"}, "scrape_configs": %s}' % jobs)
            addr = "127.0.0.1:%d" % free_port()
            flags = ["--config.file=%s" % (data / "prometheus.yml"), "--storage.tsdb.path=%s" % (data / "tsdb")]
            command = [prometheus, *flags, "--web.listen-address=" + addr]
            with started(command, data / "prometheus.log", env=env) as server:
                wait_until("prometheus is ready", lambda: (get(addr, "/-/ready") or (0,))[0] == 200, server)
                wait_until("all nodes are scraped", lambda: len(ask(addr, 'up{job="zlock"} == 1')) == 3)
                # Rates need two samples.
                wait_until("there are rates", lambda: len(ask(addr, "rate(zlock_sessions_expired_total[5m])")) == 3)
                count = check(addr, PAGE.read_text())
                fires(addr, cluster)
    say("%d expressions of docs/operating.md passed" % count)


def main():
    words = arguments(__doc__, "prometheus").parse_args()
    began = time.monotonic()
    try:
        debian = Debian(words.cache.resolve(), ["prometheus"])
        prometheus = debian.program("usr/bin/prometheus", "--version")
    except Missing as missing:
        return not_run(missing)
    run(built(words.zlock), prometheus, debian.env)
    say("took %.0f s" % (time.monotonic() - began))
    return 0


sys.exit(main())
