#!/usr/bin/env python3
"""Test of the rules in deploy/prometheus and of the dashboard in deploy/grafana, with Debian's Prometheus and three nodes.

    tests/clients/prometheus.py [--cache target/clients/prometheus] [--zlock PATH]

promtool checks the rules, runs their tests, and checks the metrics of a node. Then Prometheus scrapes three nodes with the
rules loaded. Each expression of a rule is empty while the cluster is well, and has a row without its comparison. Each
expression of the dashboard has a row. Clients that invent names make no more time series than docs/operating.md says. Exit code: 0 when all passed, 1 when something failed, 75 when Prometheus cannot be
had here; the last line says why: "NOT RUN: ...".
"""

import sys

sys.dont_write_bytecode = True

import http.client
import json
import re
import socket
import struct
import subprocess
import tempfile
import time
import urllib.parse
from pathlib import Path

from scene import ROOT, Cluster, Debian, Missing, arguments, built, free_port, get, not_run, say, started, wait_until

PAGE = ROOT / "docs/operating.md"
RULES = ROOT / "deploy/prometheus/zlock.rules.yml"
RULES_TEST = ROOT / "deploy/prometheus/zlock.test.yml"
DASHBOARD = ROOT / "deploy/grafana/zlock.json"
# Values of the dashboard's variables.
VARIABLES = {"$job": "zlock", "$__rate_interval": "1m"}
# Alerts whose expressions have no row without the comparison while a cluster is well, with the reason.
TLS_ALERTS = ["ZlockCertificateExpires", "ZlockCertificateExpiresNow", "ZlockCertificateNotReloaded"]
WITHOUT_ROW = {"ZlockBackupOld": "no backup was made", **dict.fromkeys(TLS_ALERTS, "no port has TLS")}
# Metrics without samples in this test. Expressions of the dashboard with one of them need no row.
WITHOUT_SAMPLES = ["zlock_snapshot_seconds_bucket"]
# Requests that clients with invented names send to each operation of the HTTP API.
ROUNDS = 40
# Codes of all operations of ZooKeeper's protocol are among these; others are unknown to it.
ZOOKEEPER_OPERATIONS = range(-12, 120)
# The newest sample of each node, and the number of time series that it has had.
SCRAPED = 'min by (instance) (timestamp(zlock_ready))'
SERIES = 'count by (instance) (last_over_time({__name__=~"zlock_.*|process_.*"}[1h]))'
COMPARISON = re.compile(r" (?:==|!=|>=|<=|>|<|unless) ")


def without_comparison(expression):
    """The part of an expression before its first comparison, or `unless`, that is in no brackets."""
    for found in COMPARISON.finditer(expression):
        before = expression[: found.start()]
        if all(before.count(opening) == before.count(closing) for opening, closing in ("()", "[]", "{}")):
            return before
    raise AssertionError("%s compares nothing" % expression)


def inline(page):
    """Code in the text of a page that is more than the name of a metric with its labels."""
    text = re.sub(r"^```.*?^```$", "", page, flags=re.MULTILINE | re.DOTALL)
    spans = re.findall(r"`([^`\n]+)`", text)
    return [span for span in spans if "zlock_" in span and re.search(r"[(\[]|\s[-+*/<>=!]", span)]


def drawn(dashboard):
    """The expressions of a dashboard's panels, with values for its variables."""
    expressions = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", [])]
    for variable, value in VARIABLES.items():
        expressions = [expression.replace(variable, value) for expression in expressions]
    assert not any("$" in expression for expression in expressions), "a variable of the dashboard has no value here"
    return expressions


def api(prometheus, path):
    """The data of an answer of Prometheus."""
    status, body = get(prometheus, "/api/v1/" + path)
    answer = json.loads(body)
    assert status == 200 and answer["status"] == "success", "%s: %s" % (path, answer.get("error", body))
    return answer["data"]


def ask(prometheus, expression):
    """The rows of an instant query."""
    data = api(prometheus, "query?" + urllib.parse.urlencode({"query": expression}))
    assert data["resultType"] == "vector", "%s is no vector" % expression
    return data["result"]


def loaded(prometheus):
    """The alerting rules that Prometheus has loaded."""
    return [rule for group in api(prometheus, "rules")["groups"] for rule in group["rules"]]


def state(prometheus, name):
    """The state of an alert, and the texts of its rows."""
    (rule,) = [rule for rule in loaded(prometheus) if rule["name"] == name]
    return rule["state"], [alert["annotations"] for alert in rule["alerts"]]


def with_rows(prometheus, expressions):
    """Waits until each expression has a row, and names all that never have one."""
    missing = list(expressions)

    def look():
        missing[:] = [expression for expression in missing if not ask(prometheus, expression)]
        return not missing

    try:
        wait_until("each expression has a row", look)
    except AssertionError as error:
        raise AssertionError("%s; without a row:\n%s" % (error, "\n".join(missing))) from None


def check(prometheus):
    rules, panels, written = loaded(prometheus), drawn(json.loads(DASHBOARD.read_text())), inline(PAGE.read_text())
    assert len(rules) > 20 and len(panels) > 20 and written, "expressions are lost: %s %s %s" % (rules, panels, written)
    rowless = [rule["name"] for rule in rules if rule["name"] in WITHOUT_ROW]
    assert sorted(rowless) == sorted(WITHOUT_ROW), "WITHOUT_ROW names alerts that do not exist"
    fired = [without_comparison(rule["query"]) for rule in rules if rule["name"] not in WITHOUT_ROW]
    shown = [panel for panel in panels if not any(metric in panel for metric in WITHOUT_SAMPLES)]
    # A query that Prometheus does not understand fails at once, also one that may have no row.
    for expression in panels:
        ask(prometheus, expression)
    with_rows(prometheus, fired + shown + written)
    for rule in rules:
        # Elections and starts of a moment ago may still count.
        wait_until("%s is quiet" % rule["name"], lambda: not ask(prometheus, rule["query"]))
    say("%d rules are quiet in health, and %d expressions have rows" % (len(rules), len(fired + shown + written)))


def fires(prometheus, cluster):
    """Real failures raise alerts: the loss of one node, and that of the quorum."""
    cluster.kill(2)
    wait_until("the lost node raises an alert", lambda: state(prometheus, "ZlockTargetMissing")[0] != "inactive")
    cluster.kill(1)
    wait_until("the lost quorum raises an alert", lambda: state(prometheus, "ZlockNoLeader")[0] == "firing")
    for name in ("ZlockTargetMissing", "ZlockNoLeader"):
        texts = state(prometheus, name)[1]
        assert texts and not any("error" in text for row in texts for text in row.values()), "%s: %s" % (name, texts)
        say("%s:" % name, texts[0]["description"])
    cluster.start(1)
    cluster.start(2)
    cluster.wait_ready()
    for name in ("ZlockTargetMissing", "ZlockNoLeader"):
        wait_until("%s is quiet again" % name, lambda: state(prometheus, name)[0] == "inactive")


def use(program, cluster):
    """Gives the histograms of requests and locks an observation each."""
    endpoints = ",".join(cluster.http)
    command = [program, "lock", "trial", "--endpoints", endpoints, "--", "true"]
    subprocess.run(command, check=True, timeout=30, stdin=subprocess.DEVNULL)


def invent_over_http(addr):
    """Sends requests to each operation of the API, and to routes and methods that do not exist, each with a name of its own. Returns
    the number of names."""
    document = json.loads(get(addr, "/openapi.json")[1])
    operations = [(method.upper(), path) for path, methods in document["paths"].items() for method in methods]
    assert len(operations) > 50, operations
    for number in range(ROUNDS):
        name = "invented-%d" % number
        body = json.dumps({"label": name, "padding": "x" * 100 * number})
        for method, path in [*operations, ("GET", "/{name}"), (name.upper(), "/v1/znodes/{name}")]:
            path = re.sub(r"\{[^}]*\}", name, path)
            # A connection of its own: the node closes some after a refusal.
            connection = http.client.HTTPConnection(addr, timeout=10)
            connection.request(method, path + "?label=" + name, body, {"content-type": "application/json", "user-agent": name})
            connection.getresponse().read()
            connection.close()
    return ROUNDS * (len(operations) + 2)


def invent_over_zookeeper(addr):
    """Sends a request with a path of its own for each code of an operation. The node closes the connection of a wrong request."""
    for code in ZOOKEEPER_OPERATIONS:
        host, port = addr.split(":")
        with socket.create_connection((host, int(port)), timeout=10) as connection:
            path = b"/invented-%d" % code
            # A session without a password, and a path with what may follow one.
            for frame in (struct.pack(">iqiqi16x", 0, 0, 10_000, 0, 16), struct.pack(">iii", 1, code, len(path)) + path + bytes(16)):
                connection.sendall(struct.pack(">i", len(frame)) + frame)
                connection.recv(1_000)


def check_series(prometheus, cluster):
    """Checks the number of time series that each node has had since it was scraped first."""
    most = int(re.search(r"at most ([0-9,]+) time series", PAGE.read_text()).group(1).replace(",", ""))
    for http_addr, zookeeper_addr in zip(cluster.http, cluster.zookeeper):
        names = invent_over_http(http_addr)
        assert names > most, "too few names: %d" % names
        invent_over_zookeeper(zookeeper_addr)
    scraped = time.time()
    wait_until("all nodes are scraped again", lambda: min(float(row["value"][1]) for row in ask(prometheus, SCRAPED)) > scraped)
    series = {row["metric"]["instance"]: int(row["value"][1]) for row in ask(prometheus, SERIES)}
    assert len(series) == 3 and all(most / 2 < count <= most for count in series.values()), "%s, and at most %d" % (series, most)
    say("%d invented names at each node; time series: %s, and at most %d" % (names, sorted(series.values()), most))


def run(program, prometheus, promtool, env):
    for words in (["check", "rules", RULES], ["test", "rules", RULES_TEST]):
        subprocess.run([promtool, *words], check=True, env=env)
    with tempfile.TemporaryDirectory() as data:
        data = Path(data)
        with Cluster(program, data, zookeeper=True) as cluster:
            cluster.wait_ready()
            metrics = get(cluster.http[0], "/metrics")[1]
            subprocess.run([promtool, "check", "metrics"], input=metrics, check=True, env=env)
            jobs = [{"job_name": "zlock", "static_configs": [{"targets": cluster.http}]}]
            config = {"global": {"scrape_interval": "1s", "evaluation_interval": "1s"}, "rule_files": [str(RULES)]}
            (data / "prometheus.yml").write_text(json.dumps({**config, "scrape_configs": jobs}))
            addr = "127.0.0.1:%d" % free_port()
            flags = ["--config.file=%s" % (data / "prometheus.yml"), "--storage.tsdb.path=%s" % (data / "tsdb")]
            command = [prometheus, *flags, "--web.listen-address=" + addr]
            with started(command, data / "prometheus.log", env=env) as server:
                wait_until("prometheus is ready", lambda: (get(addr, "/-/ready") or (0,))[0] == 200, server)
                wait_until("all nodes are scraped", lambda: len(ask(addr, 'up{job="zlock"} == 1')) == 3)
                # Rates need a sample from before the use.
                use(program, cluster)
                check(addr)
                check_series(addr, cluster)
                fires(addr, cluster)


def main():
    words = arguments(__doc__, "prometheus").parse_args()
    began = time.monotonic()
    try:
        debian = Debian(words.cache.resolve(), ["prometheus"])
        prometheus = debian.program("usr/bin/prometheus", "--version")
        promtool = debian.program("usr/bin/promtool", "--version")
    except Missing as missing:
        return not_run(missing)
    run(built(words.zlock), prometheus, promtool, debian.env)
    say("took %.0f s" % (time.monotonic() - began))
    return 0


sys.exit(main())
