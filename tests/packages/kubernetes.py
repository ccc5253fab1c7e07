#!/usr/bin/env python3
"""deploy/kubernetes, rendered by kubectl, validated by kubernetes-validate, and run by podman.

    tests/packages/kubernetes.py [--cache target/packages] [--zlock STATIC PROGRAM]

The containers have the environment, user, file systems and probes of the rendered StatefulSet, host
names below a search domain as in a cluster, and volumes that belong to the pod's group. A pod is
deleted and gets another address, a volume is lost, and three nodes become five and three again, by
the overlay of docs/kubernetes.md. The overlay for TLS is run, too. podman knows no services, network
policies, disruption budgets or rolling updates: only their names and selectors are compared.

Needs root, kubectl 1.21 or newer, and openssl. podman and what it needs are installed with apt-get
where they are missing, kubernetes-validate from PyPI below the cache.

Exit code: 0 when all passed, 1 when something failed, 75 when a program cannot be had here; the last
line says why: "NOT RUN: ...".
"""

import sys
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "clients"))

import http.client
import os
import re
import shutil
import ssl
import time

from containers import IMAGE, podman, run, script
from scene import ROOT, not_run, say, wait_until

VALIDATE = "kubernetes-validate==1.37.0"
SETS = ["base", "overlays/tls", "overlays/monitoring", "overlays/tls-monitoring"]
# Custom resources: kubernetes-validate knows the schemas of Kubernetes alone.
WITHOUT_SCHEMA = {"ServiceMonitor"}
DOMAIN = "shop.svc.cluster.local"
NETWORK = "pods"
# Fields of a pod and of its container that `Pod` carries out. Those of the second lists say where and when a pod runs.
POD_FIELDS = {"containers", "securityContext", "terminationGracePeriodSeconds", "volumes"}
POD_FIELDS_UNUSED = {"affinity", "automountServiceAccountToken", "enableServiceLinks"}
PROBES = ("startupProbe", "livenessProbe", "readinessProbe")
FIELDS = {"name", "image", "env", "ports", *PROBES, "securityContext", "volumeMounts"}
FIELDS_UNUSED = {"imagePullPolicy", "resources"}


class Rendered:
    """Objects of one set, given as YAML."""

    def __init__(self, tools, name, text, scratch):
        # PyYAML comes with kubernetes-validate.
        import yaml

        file = scratch / (name + ".yaml")
        file.write_text(text)
        told = run(tools / "kubernetes-validate", "--strict", file)
        unknown = set(re.findall(r"find schema for kind (\w+)", told.stdout + told.stderr))
        assert unknown <= WITHOUT_SCHEMA, unknown
        self.objects = list(yaml.safe_load_all(text))
        self.set = self.one("StatefulSet", "zlock")
        self.pod = self.set["spec"]["template"]["spec"]
        (self.container,) = self.pod["containers"]
        self.ports = {port["name"]: port["containerPort"] for port in self.container["ports"]}
        self.check_selectors()
        valid = [one for one in self.objects if one["kind"] not in unknown]
        exceptions = "".join("; not validated: " + kind for kind in unknown)
        say("%s: %d valid objects%s" % (name, len(valid), exceptions))

    def one(self, kind, name):
        (found,) = [one for one in self.objects if (one["kind"], one["metadata"]["name"]) == (kind, name)]
        return found

    def check_selectors(self):
        """Every object selects the pods of the set, or a service by its labels, and names ports that they have."""
        labels = self.set["spec"]["template"]["metadata"]["labels"]
        services = {one["metadata"]["name"]: one for one in self.objects if one["kind"] == "Service"}
        for one in self.objects:
            spec, what = one["spec"], "%s %s" % (one["kind"], one["metadata"]["name"])
            selector = spec.get("podSelector") or spec["selector"]
            selector = selector.get("matchLabels", selector)
            if one["kind"] == "ServiceMonitor":
                chooses = lambda service: selector.items() <= service["metadata"]["labels"].items()
                (chosen,) = filter(chooses, services.values())
                ports = {endpoint["port"] for endpoint in spec["endpoints"]}
                assert ports <= {port["name"] for port in chosen["spec"]["ports"]}, what
                continue
            assert selector and selector.items() <= labels.items(), what
            if one["kind"] == "Service":
                assert {port["targetPort"] for port in spec["ports"]} <= self.ports.keys(), what
            if one["kind"] == "NetworkPolicy":
                assert {port["port"] for rule in spec["ingress"] for port in rule["ports"]} <= self.ports.keys(), what
        assert self.set["spec"]["serviceName"] in services

    def endpoints(self, scheme):
        names = ["zlock-%d.zlock-peers" % ordinal for ordinal in range(self.set["spec"]["replicas"])]
        return ",".join("%s%s:%d" % (scheme, name, self.ports["http"]) for name in names)


def kustomized(tools, directory, scratch):
    return Rendered(tools, directory.name, run("kubectl", "kustomize", directory).stdout, scratch)


def five_nodes(tools, scratch):
    """The overlay of docs/kubernetes.md."""
    page = (ROOT / "docs/kubernetes.md").read_text()
    overlay = scratch / "deploy/overlays/five"
    shutil.copytree(ROOT / "deploy/kubernetes", scratch / "deploy")
    overlay.mkdir()
    (overlay / "kustomization.yaml").write_text(re.search(r"```yaml\n(.*?)```", page, re.DOTALL).group(1))
    return kustomized(tools, overlay, scratch)


class Pod:
    """A pod of the StatefulSet as a container of podman, with a directory for its volume."""

    def __init__(self, rendered, ordinal, scratch, secrets=None):
        self.rendered, self.name = rendered, "zlock-%d" % ordinal
        self.volume, self.secrets = scratch / "volumes" / self.name, secrets

    def start(self):
        pod, container = self.rendered.pod, self.rendered.container
        assert pod.keys() <= POD_FIELDS | POD_FIELDS_UNUSED and container.keys() <= FIELDS | FIELDS_UNUSED
        outer, inner = pod["securityContext"], container["securityContext"]
        words = ["--detach", "--name", self.name, "--hostname", self.name, "--network", NETWORK]
        words += ["--network-alias", "%s.%s.%s" % (self.name, self.rendered.set["spec"]["serviceName"], DOMAIN)]
        words += ["--dns-search", DOMAIN, "--dns-opt", "ndots:5"]
        words += ["--user", "%d:%d" % (outer["runAsUser"], outer["runAsGroup"]), "--group-add", str(outer["fsGroup"])]
        if inner["readOnlyRootFilesystem"]:
            words += ["--read-only", "--read-only-tmpfs=false"]
        if not inner["allowPrivilegeEscalation"]:
            words += ["--security-opt", "no-new-privileges"]
        for capability in inner["capabilities"]["drop"]:
            words += ["--cap-drop", capability]
        for variable in container["env"]:
            words += ["--env", "%s=%s" % (variable["name"], variable["value"])]
        for mount in container["volumeMounts"]:
            words += self.mount(mount["name"], mount["mountPath"])
        podman("run", *words, container["image"])

    def mount(self, name, path):
        """The words for one volume, which belongs to the pod's group as the kubelet makes it."""
        group = self.rendered.pod["securityContext"]["fsGroup"]
        claims = [claim["metadata"]["name"] for claim in self.rendered.set["spec"]["volumeClaimTemplates"]]
        if name in claims:
            self.volume.mkdir(parents=True, exist_ok=True)
            os.chown(self.volume, 0, group)
            self.volume.chmod(0o2775)
            return ["--volume", "%s:%s" % (self.volume, path)]
        (volume,) = [volume for volume in self.rendered.pod["volumes"] if volume["name"] == name]
        if "emptyDir" in volume:
            return ["--tmpfs", path + ":rw,mode=0777"]
        directory = self.secrets / volume["secret"]["secretName"]
        for file in directory.iterdir():
            os.chown(file, 0, group)
            file.chmod(volume["secret"]["defaultMode"])
        return ["--volume", "%s:%s:ro" % (directory, path)]

    def address(self):
        addresses = "{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}"
        return podman("inspect", "--format", addresses, self.name).stdout.strip()

    def get(self, scheme, port, path, timeout):
        """Status and body of one answer; no status when none came. Like the kubelet, it checks no certificate."""
        if scheme == "HTTPS":
            context = ssl._create_unverified_context()
            connection = http.client.HTTPSConnection(self.address(), port, timeout=timeout, context=context)
        else:
            connection = http.client.HTTPConnection(self.address(), port, timeout=timeout)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        except OSError:
            return None, ""
        finally:
            connection.close()

    def passes(self, probe):
        """What the kubelet concludes from one probe."""
        probe = self.rendered.container[probe]
        get = probe["httpGet"]
        port = self.rendered.ports[get["port"]]
        status, _ = self.get(get.get("scheme", "HTTP"), port, get["path"], probe["timeoutSeconds"])
        return status is not None and 200 <= status < 400

    def wait_ready(self):
        for probe in PROBES:
            wait_until("%s passes its %s" % (self.name, probe), lambda: self.passes(probe))

    def zlock(self, *command, check=True):
        return podman("exec", self.name, "/zlock", *command, check=check)

    def delete(self, *, volume=False):
        podman("stop", "--time", str(self.rendered.pod["terminationGracePeriodSeconds"]), self.name)
        code = podman("inspect", "--format", "{{.State.ExitCode}}", self.name).stdout.strip()
        assert code == "0", "%s ended with %s" % (self.name, code)
        podman("rm", self.name)
        if volume:
            shutil.rmtree(self.volume)


def check_founding(pods):
    pods[0].start()
    wait_until("a pod alone passes its startup probe", lambda: pods[0].passes("startupProbe"))
    assert pods[0].passes("livenessProbe") and not pods[0].passes("readinessProbe")
    for pod in pods[1:]:
        pod.start()
    for pod in pods:
        pod.wait_ready()
    say("one pod alone is alive and not ready; all of them are ready")


def check_lock(pods, scheme="", *more):
    """A lock from another container in the namespace."""
    words = ["run", "--rm", "--network", NETWORK, "--dns-search", DOMAIN, "--dns-opt", "ndots:5"]
    endpoints = pods[0].rendered.endpoints(scheme)
    done = podman(*words, *more, IMAGE, "lock", "first", "--endpoints", endpoints, "--", "/zlock", "version")
    assert "commit" in done.stdout, done.stdout + done.stderr
    say("a lock of a client at " + endpoints)


def check_voters(pods, count):
    told = pods[0].zlock("member", "list").stdout
    assert len(re.findall(r"^\d+ +voter ", told, re.MULTILINE)) == count, told


def check_data(pod):
    told = pod.zlock("get", "/kept").stdout
    assert "before" in told, told


def check_other_address(pods):
    pod, before = pods[1], pods[1].address()
    pod.delete()
    podman("run", "--detach", "--name", "takes-the-address", "--network", NETWORK, "--ip", before, IMAGE,
           "serve", "--node-id", "1", "--node-members", "1=127.0.0.1:7101/127.0.0.1:7001")
    pod.start()
    pod.wait_ready()
    assert pod.address() != before, before
    podman("rm", "--force", "takes-the-address")
    check_data(pod)
    say("a pod came back with the address %s instead of %s" % (pod.address(), before))


def check_lost_volume(pods):
    pods[2].delete(volume=True)
    pods[2].start()
    pods[2].wait_ready()
    check_data(pods[2])
    check_voters(pods, 3)
    say("a pod that lost its volume is ready again under its id")


def check_scaling(pods, tools, scratch):
    """By the overlay and the commands of docs/kubernetes.md."""
    page = (ROOT / "docs/kubernetes.md").read_text()
    five = five_nodes(tools, scratch)
    joining = [Pod(five, ordinal, scratch) for ordinal in range(3, five.set["spec"]["replicas"])]
    for pod in joining:
        pod.start()
    adds = re.findall(r"kubectl exec zlock-0 -- /zlock (member add \S+)", page)
    for pod, add in zip(joining, adds, strict=True):
        wait_until("%s is up" % pod.name, lambda: pod.passes("startupProbe"))
        assert not pod.passes("readinessProbe")
        pods[0].zlock(*add.split())
        pod.wait_ready()
        check_data(pod)
    for pod in reversed(pods):
        pod.delete()
        pod.rendered = five
        pod.start()
        pod.wait_ready()
    check_voters(pods, 5)
    for remove in re.findall(r"kubectl exec zlock-0 -- /zlock (member remove \S+)", page):
        pods[0].zlock(*remove.split())
    check_voters(pods, 3)
    for pod in joining:
        podman("rm", "--force", pod.name)
    say("three nodes became five, and three again")


def check_monitoring(pods, rendered):
    (endpoint,) = rendered.one("ServiceMonitor", "zlock")["spec"]["endpoints"]
    for pod in pods:
        status, text = pod.get("HTTP", rendered.ports[endpoint["port"]], endpoint["path"], 5)
        assert status == 200 and "zlock_ready 1" in text, text
    say("every pod has metrics where the ServiceMonitor says")


def certificates(directory, names):
    """A directory as cert-manager fills a secret: tls.crt, tls.key, ca.crt."""
    directory.mkdir(parents=True)
    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    authority, request, extensions = (directory.parent / name for name in ("ca.key", "tls.csr", "tls.ext"))
    run("openssl", "req", "-x509", *key, "-days", "2", "-subj", "/CN=authority", "-keyout", authority,
        "-out", directory / "ca.crt")
    run("openssl", "req", *key, "-subj", "/CN=zlock", "-keyout", directory / "tls.key", "-out", request)
    extensions.write_text("subjectAltName=%s\n" % ",".join("DNS:" + name for name in names))
    run("openssl", "x509", "-req", "-in", request, "-CA", directory / "ca.crt", "-CAkey", authority,
        "-CAcreateserial", "-days", "2", "-extfile", extensions, "-out", directory / "tls.crt")
    return directory


def play_plain(sets, tools, scratch):
    pods = [Pod(sets["base"], ordinal, scratch) for ordinal in range(sets["base"].set["spec"]["replicas"])]
    begun = time.monotonic()
    check_founding(pods)
    check_lock(pods)
    say("%.1f s after the first start" % (time.monotonic() - begun))
    pods[0].zlock("create", "/kept", "before")
    check_other_address(pods)
    check_lost_volume(pods)
    check_monitoring(pods, sets["monitoring"])
    check_scaling(pods, tools, scratch)
    for pod in pods:
        pod.delete(volume=True)


def play_tls(rendered, scratch):
    ordinals = range(rendered.set["spec"]["replicas"])
    names = ["zlock", *("zlock-%d.zlock-peers" % ordinal for ordinal in ordinals)]
    secrets = certificates(scratch / "secrets/zlock-tls", names)
    certificates(scratch / "secrets/zlock-peers-tls", names)
    pods = [Pod(rendered, ordinal, scratch, scratch / "secrets") for ordinal in ordinals]
    check_founding(pods)
    check_lock(pods, "https://", "--volume", "%s:/ca:ro" % secrets, "--env", "ZLOCK_CA=/ca/ca.crt")
    for pod in pods:
        door = "%s:%d" % (pod.address(), rendered.ports["zookeeper"])
        told = run("openssl", "s_client", "-connect", door, "-CAfile", secrets / "ca.crt", "-verify_hostname", "zlock",
                   "-verify_return_error", "-brief", "-no_ign_eof", check=False)
        assert "Verification: OK" in told.stdout + told.stderr, told.stdout + told.stderr
        for port in (7001, 2181):
            assert pod.get("HTTP", port, "/livez", 5)[0] is None, port
        assert "leads" in pod.zlock("member", "list").stdout
        told = pod.zlock("status").stdout
        assert re.search(r"connections between members: [1-9]\d* with TLS, 0 without", told), told
    say("both doors and members have TLS, and nothing answers outside of the pod without it")


def play(tools, scratch):
    sets = {Path(name).name: kustomized(tools, ROOT / "deploy/kubernetes" / name, scratch) for name in SETS}
    podman("network", "create", NETWORK)
    try:
        play_plain(sets, tools, scratch)
        play_tls(sets["tls"], scratch)
    except BaseException:
        for name in podman("ps", "--all", "--format", "{{.Names}}").stdout.split():
            done = podman("logs", "--tail", "20", name, check=False)
            print("-- %s\n%s%s" % (name, done.stdout, done.stderr), file=sys.stderr)
        raise
    say("the sets of deploy/kubernetes do in podman what docs/kubernetes.md says")


def main():
    missing = [program for program in ("kubectl", "openssl") if not shutil.which(program)]
    if missing:
        return not_run("not installed: " + ", ".join(missing))
    return script(__doc__, [VALIDATE], [IMAGE], play)


if __name__ == "__main__":
    sys.exit(main())
