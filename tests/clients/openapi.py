#!/usr/bin/env python3
"""The OpenAPI document in the hands of others: openapi-spec-validator reads it, clients that are generated from it for Python and
TypeScript take a lock of three nodes, and schemathesis sends these nodes whatever the document permits.

    tests/clients/openapi.py [--seconds 120] [--seed N] [--cache target/clients] [--zlock PATH]

Needs python3 with venv and PyPI, and node with npm; nothing is installed outside of the cache. Exit code: 0 when all passed, 1 when
something failed, 75 when all that could be run passed and a tool could not be fetched. The last line says which: "NOT RUN: ...".
"""

import sys

sys.dont_write_bytecode = True

import json
import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

from scene import FETCH_S, HERE, Cluster, Fetched, arguments, built, get, say

PYTHON = ["openapi-spec-validator==0.9.0", "openapi-python-client==0.29.1"]
SCHEMATHESIS = ["schemathesis==4.32.5"]
NODE = ["openapi-typescript@7.13.0", "openapi-fetch@0.17.0", "typescript@5.9.3", "@types/node@20.19.43"]
EXAMPLES = """
import json, sys
from openapi_schema_validator import OAS31Validator
document = json.load(open(sys.argv[1]))
count = 0
def check(where, schema, example):
    global count
    count += 1
    OAS31Validator({**schema, "components": document["components"]}).validate(example)
for path, item in document["paths"].items():
    for method, operation in item.items():
        for parameter in operation.get("parameters", []):
            if "example" in parameter:
                check(path, parameter["schema"], parameter["example"])
        bodies = [operation.get("requestBody", {}), *operation["responses"].values()]
        for content in [content for body in bodies for content in body.get("content", {}).values()]:
            if "example" in content and content["schema"].get("format") != "binary":
                check(path, content["schema"], content["example"])
print("== %d examples are what their schemas say" % count)
schemas = document["components"]["schemas"]
def permits(name, path):
    return OAS31Validator(schemas[name]).is_valid(path)
for path in ["/", "/a", "/a b/c", "/.a/...", "/a..", "/\u00fc"]:
    assert permits("ZnodePath", path) and permits("PathInUrl", path) and permits("PathInUrl", path[1:] or path), path
for path in ["//", "//a", "/a//b", "/a/", "/.", "/..", "/a/.", "/../a", "/a/./b", "/a\u0001", ""]:
    assert not permits("ZnodePath", path) and not permits("PathInUrl", path), path
"""


def run(command, **more):
    subprocess.run(list(map(str, command)), check=True, **more)


class Tools(Fetched):
    def __init__(self, cache):
        self.cache = cache
        super().__init__(cache, {
            "openapi-python-client": lambda: self.make_venv("openapi", PYTHON),
            "schemathesis": lambda: self.make_venv("schemathesis", SCHEMATHESIS),
            "openapi-typescript": self.make_node,
        })

    def make_node(self):
        node = self.cache / "openapi-node"
        done = node / ("done " + " ".join(NODE).replace("/", "+"))
        if not done.exists():
            shutil.rmtree(node, ignore_errors=True)
            node.mkdir(parents=True)
            (node / "package.json").write_text('{"type": "module", "private": true}')
            run(["npm", "install", "--silent", "--no-audit", "--no-fund", "--prefix", node, *NODE], timeout=FETCH_S)
            done.touch()


def validate(tools, document):
    if not tools.has("openapi-python-client"):
        return
    run([tools.program("openapi", "openapi-spec-validator"), "--schema", "3.1.0", document])
    run([tools.program("openapi", "python"), "-c", EXAMPLES, document])


def python_client(tools, document, work, cluster):
    if not tools.has("openapi-python-client"):
        return
    config = work / "python.json"
    # Its own formatter is one more thing to fetch, and the client is not for readers.
    config.write_text(json.dumps({"package_name_override": "zlock_client", "post_hooks": []}))
    generate = [tools.program("openapi", "openapi-python-client"), "generate", "--path", document, "--config", config]
    # A part of the document that it cannot use is a warning: here it is a fault.
    run([*generate, "--meta", "none", "--output-path", work / "zlock_client", "--fail-on-warning"])
    run([tools.program("openapi", "python"), HERE / "openapi_check.py", *cluster.http], env={**os.environ, "PYTHONPATH": str(work)}, timeout=120)


def typescript_client(tools, document, cluster):
    if not tools.has("openapi-typescript"):
        return
    node = tools.cache / "openapi-node"
    shutil.copy(HERE / "openapi_check.ts", node)
    run([node / "node_modules/.bin/openapi-typescript", document, "-o", node / "zlock.d.ts"], stdout=subprocess.DEVNULL)
    options = ["--strict", "--target", "es2022", "--module", "nodenext", "--skipLibCheck"]
    run([node / "node_modules/.bin/tsc", *options, "openapi_check.ts"], cwd=node)
    run(["node", node / "openapi_check.js", *cluster.http], timeout=120)


def schemathesis(tools, document, cluster, seconds, seed):
    if not tools.has("schemathesis"):
        return
    environment = {**os.environ, "SCHEMATHESIS_HOOKS": "openapi_hooks", "PYTHONPATH": str(HERE), "ZLOCK_NODES": ",".join(cluster.http)}
    command = [tools.program("schemathesis", "st"), "--config-file", HERE / "openapi.toml", "run", document]
    flags = ["--url", "http://" + cluster.http[0], "--max-time", seconds, "--seed", seed, "--no-color"]
    # It leaves files where it runs.
    run([*command, *flags], env=environment, cwd=document.parent, timeout=seconds * 3 + 120)


def main():
    words = arguments(__doc__)
    words.add_argument("--seconds", type=int, default=120, help="of schemathesis")
    words.add_argument("--seed", type=int, default=int(time.time()) % 1_000_000, help="of schemathesis")
    words = words.parse_args()
    tools = Tools(words.cache.resolve())
    with tempfile.TemporaryDirectory() as work:
        work = Path(work)
        with Cluster(built(words.zlock), work) as cluster:
            cluster.wait_ready()
            document = work / "openapi.json"
            status, text = get(cluster.http[0], "/openapi.json")
            assert status == 200, text
            document.write_bytes(text)
            say("the document")
            validate(tools, document)
            say("a client for Python")
            python_client(tools, document, work, cluster)
            say("a client for TypeScript")
            typescript_client(tools, document, cluster)
            say("schemathesis for %d s, seed %d" % (words.seconds, words.seed))
            schemathesis(tools, document, cluster, words.seconds, words.seed)
            cluster.assert_all_lived()
    if tools.missing:
        return tools.not_run()
    say("the document holds")
    return 0


sys.exit(main())
