"""What tests/clients/openapi.py adds to schemathesis: a session, short waits, and what counts as a fault."""

import json
import os
import re
import threading
import urllib.parse
import urllib.request

import jsonschema_rs
import schemathesis

NODES = os.environ["ZLOCK_NODES"].split(",")
LOCK = threading.Lock()
KNOWN = {}


def open_session():
    body = json.dumps({"timeout": "5m", "label": "schemathesis"}).encode()
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


def is_valid(case, schema, value):
    """Whether the document permits a value."""
    if schema.get("type") == "integer" and isinstance(value, str) and re.fullmatch("[0-9]+", value):
        value = int(value)
    whole = {**schema, "components": case.operation.schema.raw_schema["components"]}
    return jsonschema_rs.validator_for(whole).is_valid(value)


def drop_what_is_not_permitted(case):
    """At the bounds of lengths schemathesis takes no notice of patterns, and sends a third of its requests with such a header."""
    given = {"query": case.query, "header": case.headers}
    for parameter in case.operation.definition.raw.get("parameters", []):
        values = given.get(parameter["in"]) or {}
        for name in [name for name in values if name.lower() == parameter["name"].lower()]:
            if not is_valid(case, parameter["schema"], values[name]):
                del values[name]


def is_permitted(case):
    """Whether the document permits a request: its path and its body, behind that."""
    raw = case.operation.definition.raw
    for parameter in raw.get("parameters", []):
        value = (case.path_parameters or {}).get(parameter["name"]) if parameter["in"] == "path" else None
        if value is not None and not is_valid(case, parameter["schema"], urllib.parse.unquote(str(value))):
            return False
        needed = parameter.get("required") and parameter["in"] == "query"
        if needed and parameter["name"] not in (case.query or {}):
            return False
    body = raw.get("requestBody", {})
    content = body.get("content", {}).get(case.media_type, {})
    if isinstance(case.body, schemathesis.core.NotSet):
        return not body.get("required")
    if case.media_type != "application/json":
        return True
    # Bytes are sent as they are.
    return not isinstance(case.body, bytes) and is_valid(case, content["schema"], case.body)


@schemathesis.hook
def before_call(context, case, kwargs):
    drop_what_is_not_permitted(case)
    # Hardly any lock is held with a token that is made up: one request in eight is enough.
    if not str(case.headers.get("If-Lock", "0")).endswith("0"):
        del case.headers["If-Lock"]
    # A key belongs to one request; every fourth is used for several.
    with LOCK:
        KNOWN["calls"] = calls = KNOWN.get("calls", 0) + 1
    if "Idempotency-Key" in case.headers and calls % 4:
        case.headers["Idempotency-Key"] = "%s-%d" % (case.headers["Idempotency-Key"][:100], calls)
    own = session()
    case.headers["Zlock-Session-Key"] = own["session_key"]
    # Half of what goes to one session goes to its own: others are refused.
    if case.path_parameters and str(case.path_parameters.get("session", "")).endswith(("1", "3", "5", "7", "9")):
        case.path_parameters["session"] = own["session"]
    query = case.query if isinstance(case.query, dict) else {}
    body = case.body if isinstance(case.body, dict) else {}
    for parameters in [query, body]:
        if "wait" in parameters:
            parameters["wait"] = short(parameters["wait"])
    # A name stands in one of the two: else nearly all requests would be refused for this one rule, which has tests of its own.
    for name in set(query) & set(body):
        del body[name]


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
    declared = case.operation.definition.raw["responses"].get(str(response.status_code), {})
    if declared.get("x-may-be-empty") and not response.content:
        return
    problem = json.loads(response.content)
    kind = problem["type"]
    assert kind in declared.get("x-problem-types", []), "%s is not declared for %d" % (kind, response.status_code)
    assert not kind.endswith(":internal"), problem
    if response.status_code >= 500:
        assert problem["outcome"] in ("unavailable", "unknown", "refused"), problem
    if kind.endswith(":bad-request") and is_permitted(case):
        rules = declared.get("x-rules", [])
        assert any(rule in problem["detail"] for rule in rules), "no rule is documented for: " + problem["detail"]
