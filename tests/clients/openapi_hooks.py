"""What tests/clients/openapi.py adds to schemathesis: a session, short waits, and what counts as a fault."""

import json
import os
import re
import threading
import urllib.request

import schemathesis

NODES = os.environ["ZLOCK_NODES"].split(",")
LOCK = threading.Lock()
KNOWN = {}


def open_session():
    body = json.dumps({"timeout_ms": 300_000, "label": "schemathesis"}).encode()
    with urllib.request.urlopen("http://%s/v1/sessions" % NODES[1], data=body, timeout=30) as answer:
        return json.load(answer)


def session():
    """The session of all requests, opened anew when one of them has closed it."""
    with LOCK:
        if "session" not in KNOWN:
            KNOWN["session"] = open_session()
        return KNOWN["session"]


def short(text):
    """A wait that a test can wait for. What is no duration stays what it is."""
    return "20ms" if isinstance(text, str) and re.fullmatch(r"[0-9]*[1-9][0-9]*(?:ms|s|m|h)", text) else text


@schemathesis.hook
def map_case(context, case):
    own = session()
    case.headers["Zlock-Session"] = own["session"]
    # Half of what goes to one session goes to its own: others are refused.
    if case.path_parameters and "id" in case.path_parameters and case.path_parameters["id"] % 2:
        case.path_parameters["id"] = own["id"]
    if isinstance(case.query, dict) and "wait" in case.query:
        case.query["wait"] = short(case.query["wait"])
    if isinstance(case.body, dict) and "wait" in case.body:
        case.body["wait"] = short(case.body["wait"])
    return case


@schemathesis.hook
def after_call(context, case, response):
    if response.status_code == 410 or (response.status_code == 200 and case.operation.definition.raw["operationId"] == "sessionsClose"):
        with LOCK:
            KNOWN.pop("session", None)


@schemathesis.check
def refusals_are_documented(context, response, case):
    """A refusal is of a kind that the operation declares. One that says that a rule is broken names a rule of the document, because
    the request is one that the schemas permit."""
    if response.status_code < 400 or response.status_code == 405:
        return
    problem = json.loads(response.content)
    declared = case.operation.definition.raw["responses"].get(str(response.status_code), {})
    kind = problem["type"]
    assert kind in declared.get("x-problem-types", []), "%s is not declared for %d" % (kind, response.status_code)
    assert not kind.endswith(":internal"), problem
    if response.status_code >= 500:
        assert problem["outcome"] in ("unavailable", "unknown", "refused"), problem
    if kind.endswith(":bad-request"):
        rules = declared.get("x-rules", [])
        assert any(re.search(rule, problem["detail"]) for rule in rules), "no rule is documented for: " + problem["detail"]
