#!/usr/bin/env python3
"""deploy/helm/zlock, rendered by the SDK of Helm, validated, and compared with deploy/kubernetes.

    tests/packages/chart.py [--cache target/packages]

For the values that belong to a set of deploy/kubernetes, the chart must have the objects of this set, so
that what tests/packages/kubernetes.py sees in podman holds for the chart. Only the labels of Helm differ.
Other values change one place each, and wrong values are refused.

Needs kubectl 1.21 or newer. The SDK and kubernetes-validate are installed from PyPI below the cache.

Exit code: 0 when all passed, 1 when something failed, 75 when a program cannot be had here; the last
line says why: "NOT RUN: ...".
"""

import sys
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "clients"))

import argparse
import os
import shutil
import tempfile

from containers import from_pypi, run
from kubernetes import SETS, VALIDATE, Rendered, five_nodes, kustomized
from scene import ROOT, not_run, say

SDK = "helm-python-sdk==0.2.2"
CHART = ROOT / "deploy/helm/zlock"
LABELS_OF_HELM = {"app.kubernetes.io/instance", "app.kubernetes.io/managed-by", "helm.sh/chart"}
# Values for each set. The sets have another default for the tag than the chart.
TAG = {"image": {"tag": "latest"}}
TLS = {"tls": {"client": {"enabled": True}, "quorum": {"enabled": True}}}
MONITORING = {"metrics": {"enabled": True, "serviceMonitor": {"enabled": True}}}
VALUES = {
    "base": {},
    "tls": TLS,
    "monitoring": MONITORING,
    "tls-monitoring": TLS | MONITORING,
    "five": {"replicaCount": 5},
}
# The refused values, with a part of the error.
REFUSED = [
    ({"tikTime": 2000}, "additional properties 'tikTime' not allowed"),
    ({"persistence": {"enabled": False}}, "additional properties 'enabled' not allowed"),
    ({"extraEnvVars": None}, "missing property 'extraEnvVars'"),
    ({"replicaCount": 0}, "minimum: got 0, want 1"),
    ({"tls": {"client": {"auth": "need"}}}, "must be one of 'none', 'want'"),
    ({"metrics": {"serviceMonitor": {"enabled": True}}}, "needs metrics.enabled"),
]


class Chart:
    """The chart as a release has it, loaded by the SDK."""

    def __init__(self, helm, tools, scratch):
        self.helm, self.tools, self.scratch = helm, tools, scratch
        self.chart = helm.Chart.load(run(ROOT / "deploy/chart.sh", scratch).stdout.strip())

    def files(self, values, release="zlock"):
        """Text of each rendered template by its file name."""
        rendered = self.chart.render(values, name=release, namespace="shop")
        return {Path(path).name: text for path, text in rendered.items()}

    def objects(self, name, values):
        texts = [text for file, text in self.files(values).items() if file.endswith(".yaml") and text.strip()]
        return Rendered(self.tools, name, "\n---\n".join(texts), self.scratch)


def plain(value):
    """A value without the labels of Helm, and with lists of named things in the order of their names."""
    if isinstance(value, dict):
        return {key: plain(inner) for key, inner in value.items() if key not in LABELS_OF_HELM}
    if isinstance(value, list):
        inner = [plain(one) for one in value]
        named = all(isinstance(one, dict) and "name" in one for one in inner)
        return sorted(inner, key=lambda one: one["name"]) if named else inner
    return value


def check_same(chart, kustomization, name):
    def by_name(rendered):
        return {(one["kind"], one["metadata"]["name"]): plain(one) for one in rendered.objects}

    ours, theirs = by_name(chart), by_name(kustomization)
    assert ours.keys() == theirs.keys(), (name, ours.keys() ^ theirs.keys())
    for key in ours:
        assert ours[key] == theirs[key], "%s: %s\nchart: %s\nkustomization: %s" % (name, key, ours[key], theirs[key])
    say("%s: the chart has the %d objects of the kustomization" % (name, len(ours)))


def check_values(chart):
    """Values that no set has, each visible in its place."""
    changed = chart.objects("values", {
        "image": {"registry": "registry.example", "tag": "1.2.3", "pullSecrets": ["pull"]},
        "extraEnvVars": [{"name": "ZLOCK_LOG_LEVEL", "value": "debug"}, {"name": "ZLOCK_NODE_DRAIN_DELAY", "value": "9s"}],
        "resources": {"limits": {"memory": "6Gi"}},
        "persistence": {"size": "20Gi", "storageClass": "fast"},
        "podAntiAffinityPreset": "hard",
        "nodeSelector": {"disk": "ssd"},
        "tolerations": [{"key": "locks", "operator": "Exists"}],
        "topologySpreadConstraints": [{
            "maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "ScheduleAnyway",
        }],
        "priorityClassName": "high",
        "podAnnotations": {"team": "shop"},
        "service": {"type": "LoadBalancer", "annotations": {"internal": "true"}, "ports": {"http": 80, "client": 3181}},
        "networkPolicy": {"enabled": False},
        "pdb": {"create": False},
        "metrics": {"enabled": True},
    })
    assert {one["kind"] for one in changed.objects} == {"Service", "StatefulSet"}
    pod, container, service = changed.pod, changed.container, changed.one("Service", "zlock")
    env = {one["name"]: one["value"] for one in container["env"]}
    assert len(env) == len(container["env"]), container["env"]
    (claim,) = changed.set["spec"]["volumeClaimTemplates"]
    for seen, wanted in [
        (container["image"], "registry.example/zlock:1.2.3"),
        (pod["imagePullSecrets"], [{"name": "pull"}]),
        ((env["ZLOCK_LOG_LEVEL"], env["ZLOCK_NODE_DRAIN_DELAY"], env["ZLOCK_NODE_DRAIN_TIME"]), ("debug", "9s", "5s")),
        (container["resources"], {"requests": {"cpu": "500m", "memory": "5Gi"}, "limits": {"memory": "6Gi"}}),
        (claim["spec"]["resources"]["requests"]["storage"], "20Gi"),
        (claim["spec"]["storageClassName"], "fast"),
        (len(pod["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]), 1),
        (pod["nodeSelector"], {"disk": "ssd"}),
        (pod["tolerations"][0]["key"], "locks"),
        (pod["topologySpreadConstraints"][0]["maxSkew"], 1),
        (pod["priorityClassName"], "high"),
        (changed.set["spec"]["template"]["metadata"]["annotations"], {"team": "shop"}),
        (service["spec"]["type"], "LoadBalancer"),
        (service["metadata"]["annotations"], {"internal": "true"}),
        ([port["port"] for port in service["spec"]["ports"]], [80, 3181]),
    ]:
        assert seen == wanted, (seen, wanted)
    say("every other value is visible in its place")


def check_tls(chart):
    """TLS of clients alone with metrics, and TLS of members alone."""
    values = {"tls": {"client": {"enabled": True, "auth": "none", "existingSecret": "mine"}}, **VALUES["monitoring"]}
    clients = chart.objects("tls-clients", values)
    env = {one["name"] for one in clients.container["env"]}
    assert "ZLOCK_TLS_KEY" in env and not env & {"ZLOCK_TLS_CLIENT_CA", "ZLOCK_PEERS_TLS"}, env
    (endpoint,) = clients.one("ServiceMonitor", "zlock")["spec"]["endpoints"]
    assert endpoint["scheme"] == "https" and endpoint["tlsConfig"]["ca"]["secret"]["name"] == "mine", endpoint
    assert clients.pod["volumes"][1]["secret"]["secretName"] == "mine"
    members = chart.objects("tls-members", {"tls": {"quorum": {"enabled": True}}})
    env = {one["name"]: one["value"] for one in members.container["env"]}
    assert env["ZLOCK_PEERS_TLS"] == "require" and env["ZLOCK_ZOOKEEPER_LISTEN"] == "0.0.0.0:2181", env
    assert members.ports["http"] == 7001
    say("clients can have TLS without members, and members without clients")


def check_release(chart):
    """Another release in the same namespace, by its name and by the value for it."""
    for release, values, name in [("shop", {}, "shop-zlock"), ("7", {"fullnameOverride": "locks"}, "locks")]:
        files = chart.files(values, release)
        assert "value: %s-{0..2}.%s-peers:7101/" % (name, name) in files["statefulset.yaml"], files["statefulset.yaml"]
        assert 'instance: "%s"' % release in files["services.yaml"]
        assert "http://%s:7001" % name in files["NOTES.txt"], files["NOTES.txt"]
    say("the objects have the name of the release")


def check_refused(chart):
    for values, wanted in REFUSED:
        try:
            chart.files(values)
        except chart.helm.HelmError as error:
            assert wanted in str(error), (values, error)
        else:
            raise AssertionError("not refused: %s" % values)
    say("%d wrong values are refused" % len(REFUSED))


def play(tools, scratch):
    import helm_python as helm

    report = helm.lint(CHART, strict=True)
    assert not report["errors"], report
    chart = Chart(helm, tools, scratch)
    sets = {Path(name).name: kustomized(tools, ROOT / "deploy/kubernetes" / name, scratch) for name in SETS}
    sets["five"] = five_nodes(tools, scratch)
    for name, kustomization in sets.items():
        check_same(chart.objects("chart-" + name, TAG | VALUES[name]), kustomization, name)
    assert chart.objects("defaults", {}).container["image"].endswith(":" + chart.chart.version)
    check_values(chart)
    check_tls(chart)
    check_release(chart)
    check_refused(chart)


def main():
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--cache", type=Path, default=Path("target/packages"))
    venv = words.parse_args().cache.resolve() / "venv"
    if not shutil.which("kubectl"):
        return not_run("not installed: kubectl")
    if Path(sys.prefix) != venv:
        try:
            from_pypi(venv, [VALIDATE, SDK])
        except (AssertionError, OSError) as error:
            return not_run("a tool cannot be had: " + str(error).strip().splitlines()[-1])
        os.execv(venv / "bin/python", [venv / "bin/python", *sys.argv])
    with tempfile.TemporaryDirectory() as scratch:
        play(venv / "bin", Path(scratch))
    return 0


if __name__ == "__main__":
    sys.exit(main())
