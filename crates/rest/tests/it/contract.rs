//! Checks the OpenAPI document against the routes, and against every answer of the other tests.

use std::collections::BTreeSet;

use axum::http::Method;
use serde_json::{Value, json};

use crate::node::{Answer, Node, text};

fn document() -> &'static Value {
    rest::openapi_document()
}

/// Returns every operation of the OpenAPI document: its method, path and description.
fn operations() -> impl Iterator<Item = (&'static str, &'static str, &'static Value)> {
    let paths = document()["paths"].as_object().unwrap();
    paths.iter().flat_map(|(path, item)| {
        let methods = item.as_object().unwrap();
        methods.iter().map(|(method, operation)| (method.as_str(), path.as_str(), operation))
    })
}

/// Finds the operation of the OpenAPI document for a method and the path of a URL.
fn operation(method: &Method, path: &str) -> Option<&'static Value> {
    let method = if matches!(*method, Method::HEAD | Method::OPTIONS) {
        "get".to_owned()
    } else {
        method.as_str().to_lowercase()
    };
    let path = match path {
        // The route of the root has no path parameter.
        "/v1/znodes" | "/v1/znodes/" => "/v1/znodes/root",
        "/v1/locks/" => "/v1/locks",
        path => path,
    };
    let fits = |template: &str| match template.split_once('{') {
        None => template == path,
        Some((start, rest)) => {
            let end = rest.split_once('}').unwrap().1;
            path.len() > start.len() + end.len() && path.starts_with(start) && path.ends_with(end)
        }
    };
    let found = operations().filter(|(known, template, _)| *known == method && fits(template));
    found.max_by_key(|(_, template, _)| template.len()).map(|(_, _, operation)| operation)
}

/// Fails if the document does not declare this answer for its operation.
#[track_caller]
pub(crate) fn check(method: &Method, path: &str, answer: &Answer) {
    assert_eq!(answer.header("cache-control"), "no-store", "{method} {path}");
    // Each answer ends with a newline, for terminals.
    assert!(answer.body.is_null() || answer.bytes.ends_with(b"\n") || is_raw(answer), "{method} {path}");
    if ["no-route", "method-not-allowed"].contains(&answer.problem()) {
        return;
    }
    // Behind `/v1/fence/`, path and method belong to another request.
    if path.starts_with("/v1/fence/") {
        return;
    }
    let operation = match operation(method, path) {
        // These refusals come before the routing, for any path and method.
        None if ["foreign-origin", "foreign-host"].contains(&answer.problem()) => return,
        found => found.unwrap_or_else(|| panic!("{method} {path} is not in the document")),
    };
    let id = &operation["operationId"];
    let declared = &operation["responses"][answer.status.to_string()];
    assert!(declared.is_object(), "{id} does not declare {} ({})", answer.status, answer.problem());
    let kind = answer.header("content-type").split(';').next().unwrap();
    // The answer to HEAD has no body to compare.
    if *method == Method::HEAD {
        return;
    }
    if answer.status == 204 {
        assert!(answer.bytes.is_empty() && declared.get("content").is_none(), "{id} 204 has a body");
        return;
    }
    // Answers for balancers may have a status and no body.
    if declared.get("content").is_none() || (declared["x-may-be-empty"] == true && kind.is_empty()) {
        assert!(answer.bytes.is_empty(), "{id} {} has a body", answer.status);
        return;
    }
    assert!(declared["content"].get(kind).is_some(), "{id} {}: {kind} is not declared", answer.status);
    if answer.status >= 400 && kind != "text/plain" {
        let types = declared["x-problem-types"].as_array().unwrap();
        assert!(types.contains(&answer.body["type"]), "{id} {}: {} is not declared", answer.status, answer.problem());
    }
}

/// Tells whether an answer is the raw data of a znode.
fn is_raw(answer: &Answer) -> bool {
    answer.header("content-type") == "application/octet-stream"
}

#[test]
fn every_operation_has_an_id_of_its_own() {
    let mut ids = BTreeSet::new();
    for (method, path, operation) in operations() {
        let id = operation["operationId"].as_str().unwrap();
        assert!(ids.insert(id), "{id} is given twice");
        let is_good = id.starts_with(|c: char| c.is_ascii_lowercase()) && id.contains(|c: char| c.is_ascii_uppercase());
        assert!(is_good && id.chars().all(|c| c.is_ascii_alphanumeric()), "{method} {path}: {id}");
    }
}

/// A null in the document shows a bug in the code that completes the document: writing to a missing
/// member with `value["name"]` creates the member as null.
#[test]
fn nothing_in_the_document_is_null() {
    fn check(at: &str, value: &Value) {
        match value {
            Value::Null => panic!("{at} is null"),
            Value::Object(members) => members.iter().for_each(|(name, value)| check(&format!("{at}/{name}"), value)),
            Value::Array(items) => items.iter().for_each(|item| check(at, item)),
            _ => {}
        }
    }
    check("", document());
}

/// Returns the schema itself, or the schema to which its `$ref` points.
fn schema(of: &'static Value) -> &'static Value {
    match of["$ref"].as_str() {
        Some(reference) => document().pointer(reference.trim_start_matches('#')).unwrap(),
        None => of,
    }
}

/// The server refuses unknown fields, so examples must have none.
#[test]
fn what_an_operation_shows_of_its_request_has_fields_of_its_schema_alone() {
    let mut shown = 0;
    for (_, _, operation) in operations() {
        let content = &operation["requestBody"]["content"]["application/json"];
        let Some(example) = content["example"].as_object() else { continue };
        let Some(known) = schema(&content["schema"])["properties"].as_object() else { continue };
        for field in example.keys() {
            assert!(known.contains_key(field), "{}: {field}", operation["operationId"]);
        }
        shown += 1;
    }
    assert!(shown >= 8, "{shown}");
}

#[test]
fn every_operation_shows_what_it_is_sent_and_what_it_answers() {
    for (_, _, operation) in operations() {
        let id = &operation["operationId"];
        for parameter in operation["parameters"].as_array().into_iter().flatten() {
            let required = parameter["required"] == true;
            assert!(!required || parameter.get("example").is_some(), "{id}: {}", parameter["name"]);
        }
        let mut contents = vec![("its request", &operation["requestBody"]["content"])];
        for (status, response) in operation["responses"].as_object().unwrap() {
            if status.starts_with('2') {
                contents.push((status, &response["content"]));
            }
        }
        for (what, content) in contents {
            let Some(content) = content.as_object() else { continue };
            let shown = content.values().any(|content| content.get("example").is_some());
            assert!(shown, "{id}: {what} has no example");
        }
    }
}

#[test]
fn every_operation_says_where_it_is_who_may_ask_and_how_it_fails() {
    assert_eq!(document()["servers"][0]["url"], "/");
    let schemes = document()["components"]["securitySchemes"].as_object().unwrap();
    for (_, _, operation) in operations() {
        let id = &operation["operationId"];
        let ways = operation["security"].as_array().unwrap();
        let named = ways.iter().flat_map(|way| way.as_object().unwrap().keys());
        assert!(!ways.is_empty() && named.into_iter().all(|name| schemes.contains_key(name)), "{id}: {ways:?}");
        for (status, response) in operation["responses"].as_object().unwrap() {
            if status.starts_with('2') {
                continue;
            }
            let schema = &response["content"]["application/problem+json"]["schema"]["$ref"];
            assert_eq!(schema, "#/components/schemas/Problem", "{id} {status}");
            assert!(!response["x-problem-types"].as_array().unwrap().is_empty(), "{id} {status}");
        }
        assert!(operation["responses"].get("default").is_none(), "{id} leaves something open");
    }
}

#[test]
fn every_parameter_has_bounds() {
    for (_, _, operation) in operations() {
        let id = &operation["operationId"];
        for parameter in operation["parameters"].as_array().into_iter().flatten() {
            let mut schema = &parameter["schema"];
            if let Some(name) = schema["$ref"].as_str() {
                schema = document().pointer(name.trim_start_matches('#')).unwrap();
            }
            let bounded = match schema["type"].as_str() {
                Some("boolean") => true,
                Some("integer") => schema.get("minimum").is_some() && schema.get("maximum").is_some(),
                Some("string") => schema.get("enum").is_some() || schema.get("maxLength").is_some(),
                _ => false,
            };
            assert!(bounded, "{id}: {} is {schema}", parameter["name"]);
        }
    }
}

/// Generated clients misread a choice (`oneOf`) if a value of one variant is valid for another,
/// too.
#[test]
fn no_choice_of_schemas_can_be_read_two_ways() {
    let schemas = document()["components"]["schemas"].as_object().unwrap();
    let resolved = |schema: &'static Value| match schema["$ref"].as_str() {
        Some(name) => document().pointer(name.trim_start_matches('#')).unwrap(),
        None => schema,
    };
    for (name, schema) in schemas {
        let variants: Vec<_> = schema["oneOf"].as_array().into_iter().flatten().map(resolved).collect();
        for (at, one) in variants.iter().enumerate() {
            for (_, other) in variants.iter().enumerate().filter(|(other, _)| *other != at) {
                // With such a field, no instance of one schema can be an instance of the other.
                let required = other["required"].as_array().unwrap().iter().map(|field| field.as_str().unwrap());
                let differs = |field: &str| match one["properties"].get(field) {
                    None => true,
                    Some(own) => own.get("enum").is_some() && own["enum"] != other["properties"][field]["enum"],
                };
                assert!({ required }.any(differs), "{name}: {one} may be {other}");
            }
        }
    }
}

#[test]
fn fields_have_formats_and_patterns() {
    let schema = |name: &str| &document()["components"]["schemas"][name];
    let field = |name: &str, field: &str| &schema(name)["properties"][field];
    assert_eq!(field("ZnodeInfo", "data_base64"), &Value::Null, "it is not in the document");
    assert_eq!(field("BytesZnode", "data_base64")["contentEncoding"], "base64");
    assert_eq!(field("NewSession", "session_key")["pattern"], "^[0-9]+\\.[0-9a-f]{32}$");
    assert_eq!(field("Stat", "czxid")["format"], "int64");
    assert_eq!(field("Problem", "type")["pattern"], "^urn:zlock:problem:[a-z-]+$");
    assert_eq!(field("LockQueue", "path")["pattern"], "^/");
    assert_eq!(schema("OpenSession")["additionalProperties"], false);
    let ops = schema("TxnOp")["oneOf"].clone();
    assert!(ops.as_array().unwrap().iter().all(|op| op["additionalProperties"] == false), "{ops}");
    assert!(schema("Millis")["pattern"].is_string());
}

/// Generated clients encode every slash of a path, also the first slash of a ticket.
#[tokio::test]
async fn an_encoded_slash_separates_names_in_every_route_with_a_path() {
    let node = Node::start().await;
    let session = node.session().await;
    let held = node.acquire(&session, "/team%2Fx").await.expect(200);
    assert_eq!(held.body["path"], "/team/x");
    let ticket = held.body["ticket"].as_str().unwrap();
    let encoded = ticket.replace('/', "%2F");
    let seen = node.in_session(&session, Method::GET, &format!("/v1/tickets/{encoded}")).await.expect(200);
    assert_eq!(seen.body["ticket"], ticket);
    assert_eq!(node.get("/v1/locks/%2Fteam%2fx").await.expect(200).body["contenders"], 1);
    let data = node.get(&format!("/v1/znodes/{encoded}")).await.expect(200);
    assert_eq!(data.body["path"], ticket);
    let asked = node.post(&format!("/v1/revocations/{encoded}"), "").await.expect(200);
    assert_eq!(asked.body["tickets"], json!([ticket]));
    node.in_session(&session, Method::DELETE, &format!("/v1/tickets/{encoded}")).await.expect(200);
    // A path is decoded once: a name that was encoded twice has a percent sign.
    assert_eq!(node.post("/v1/znodes/a%252Fb", "").await.expect(201).body["path"], "/a%2Fb");
    for (method, uri) in [
        (Method::POST, "/v1/simple-locks/s%2Fx?owner=o"),
        (Method::POST, "/v1/elections/e%2Fx"),
        (Method::POST, "/v1/groups/g%2Fx?member=m"),
    ] {
        let answer = node.in_session(&session, method, uri).await;
        assert!(answer.status < 300, "{uri}: {}", answer.body);
    }
    for path in ["/s/x", "/e/x", "/g/x/m"] {
        node.get(&format!("/v1/znodes{path}")).await.expect(200);
    }
    for bad in ["/%2F%2Fa", "/a%2F%2Fb", "/a%2F..%2Fb", "/%2F..", "/a%2F", "//a"] {
        node.get(&format!("/v1/tickets{bad}")).await.expect_problem(400, "bad-request");
        node.acquire(&session, bad).await.expect_problem(400, "bad-request");
    }
}

#[tokio::test]
async fn parameters_are_taken_from_a_body_as_from_the_query() {
    let node = Node::start().await;
    let (first, second) = (node.session().await, node.session().await);
    let ask = async |session: &str, method: Method, uri: &str, body: Value| {
        node.call(method, uri, &[("zlock-session-key", session)], body.to_string().as_bytes()).await
    };
    let held = ask(&first, Method::POST, "/v1/locks/l", json!({"mode": "read", "label": "a"})).await.expect(200);
    assert!(held.body["ticket"].as_str().unwrap().contains("__rlock__"), "{}", held.body);
    let kept = json!({"keep": true, "mode": "write", "wait": "10ms"});
    let waiting = ask(&second, Method::POST, "/v1/locks/l", kept).await.expect(202);
    // The body's `deadline` must not be ignored.
    let asked = ask(&second, Method::POST, "/v1/revocations/l", json!({"deadline": "0"})).await.expect(200);
    assert_eq!(asked.body["tickets"], json!([held.body["ticket"]]));
    let uri = format!("/v1/tickets{}?wait=20s", waiting.body["ticket"].as_str().unwrap());
    node.in_session(&second, Method::GET, &uri).await.expect(200);
    ask(&first, Method::POST, "/v1/simple-locks/s", json!({"owner": "m", "wait": "1s"})).await.expect(200);
    ask(&first, Method::DELETE, "/v1/simple-locks/s", json!({"owner": "m"})).await.expect(200);
    ask(&first, Method::POST, "/v1/elections/e", json!({"label": "a", "wait": "1s"})).await.expect(200);
    let both = json!({"locks": [{"path": "/m"}], "wait": "1s", "keep": false});
    ask(&first, Method::POST, "/v1/multilocks", both.clone()).await.expect(200);
    for (query, name) in [("wait=1s", "wait"), ("keep", "keep")] {
        let uri = format!("/v1/multilocks?{query}");
        let twice = ask(&second, Method::POST, &uri, both.clone()).await.expect_problem(400, "bad-request");
        assert!(twice.body["detail"].as_str().unwrap().starts_with(&format!("{name}: given twice")), "{}", twice.body);
    }
}

#[tokio::test]
async fn a_body_is_never_ignored() {
    let node = Node::start().await;
    let session = node.session().await;
    let (id, _) = session.split_once('.').unwrap();
    let keepalive = format!("/v1/sessions/{id}/keepalive");
    for (method, uri, body, detail) in [
        (Method::POST, "/v1/locks/l?wait=1s", r#"{"wait":"1s"}"#, "wait: given twice"),
        (Method::POST, "/v1/locks/l", r#"{"wiat":"1s"}"#, "wiat: unknown parameter"),
        (Method::POST, "/v1/locks/l", r#"{"wait":30}"#, "wait: 30 has no unit: write 30ms or 30s"),
        (Method::POST, "/v1/locks/l", r#"{"keep":"true"}"#, "keep: a JSON true or false"),
        (Method::POST, "/v1/locks/l", r#"{"label":1}"#, "label: a JSON string"),
        (Method::POST, "/v1/locks/l", r#"{"priority":"1"}"#, "priority: a JSON number"),
        (Method::POST, "/v1/locks/l", r#"["wait"]"#, "body: "),
        (Method::POST, "/v1/locks/l", "wait=1s", "body: "),
        (Method::POST, &keepalive, r#"{"a":1}"#, "a: unknown parameter"),
        (Method::DELETE, "/v1/tickets/l/t-0000000000", r#"{"too":"/l"}"#, "too: unknown parameter"),
        (Method::DELETE, "/v1/znodes/a", r#"{"version":1}"#, "version: unknown parameter"),
        (Method::GET, "/v1/locks/l", r#"{"history":true}"#, "body: a GET has none"),
        (Method::GET, "/livez", "x", "body: a GET has none"),
    ] {
        let answer = node.call(method, uri, &[("zlock-session-key", &session)], body.as_bytes()).await;
        let refused = answer.expect_problem(400, "bad-request");
        assert!(refused.body["detail"].as_str().unwrap().contains(detail), "{uri} {body}: {}", refused.body);
    }
    let long = format!(r#"{{"label":"{}"}}"#, "x".repeat(9_000));
    let refused = node.call(Method::POST, "/v1/locks/l", &[("zlock-session-key", &session)], long.as_bytes()).await;
    refused.expect_problem(413, "body-too-large");
    let plain = [("zlock-session-key", &*session), ("content-type", "text/plain")];
    let refused = node.call(Method::POST, "/v1/locks/l", &plain, b"{}").await;
    refused.expect_problem(415, "unsupported-media-type");
    // An empty object has no unknown member.
    node.call(Method::POST, &keepalive, &[("zlock-session-key", &session)], b"{}").await.expect(200);
    assert_eq!(node.get("/v1/locks/l").await.expect(200).body["contenders"], 0);
}

#[tokio::test]
async fn a_duration_without_a_unit_is_refused_with_both_readings() {
    let node = Node::start().await;
    let session = node.session().await;
    for (method, uri, name) in [
        (Method::POST, "/v1/locks/l?wait=30", "wait"),
        (Method::POST, "/v1/locks/l?lock_delay=30", "lock_delay"),
        (Method::POST, "/v1/revocations/l?deadline=30", "deadline"),
        (Method::POST, "/v1/znodes/t?mode=persistent-ttl&ttl=30", "ttl"),
        (Method::GET, "/v1/znodes?watch=data&wait=30", "wait"),
    ] {
        let refused = node.in_session(&session, method, uri).await.expect_problem(400, "bad-request");
        assert_eq!(refused.body["detail"], format!("{name}: 30 has no unit: write 30ms or 30s"), "{uri}");
    }
    for bare in [r#"{"timeout":"30"}"#, r#"{"timeout":30}"#] {
        let refused = node.post("/v1/sessions", bare).await.expect_problem(400, "bad-request");
        assert_eq!(refused.body["detail"], "timeout: 30 has no unit: write 30ms or 30s");
    }
    let misplaced = node.post("/v1/sessions?timeout=30s", "").await.expect_problem(400, "bad-request");
    assert!(text(&misplaced, "detail").starts_with("timeout: it is a field of the body"), "{}", misplaced.body);
    let txn = r#"{"ops":[{"op":"create","path":"/t","mode":"persistent-ttl","ttl":30}]}"#;
    let refused = node.post("/v1/txn", txn).await.expect_problem(400, "bad-request");
    assert!(refused.body["detail"].as_str().unwrap().contains("30ms or 30s"), "{}", refused.body);
}

#[tokio::test]
async fn a_timeout_that_was_moved_into_its_bounds_says_so() {
    let node = Node::start().await;
    for (asked, agreed) in [(60, 2_000), (3_600_000, 300_000)] {
        let opened = node.post("/v1/sessions", &format!("{{\"timeout\":\"{asked}ms\"}}")).await.expect(201);
        let said = (&opened.body["timeout_ms"], &opened.body["timeout_asked_ms"]);
        assert_eq!(said, (&json!(agreed), &json!(asked)));
    }
    let opened = node.post("/v1/sessions", r#"{"timeout":"30s"}"#).await.expect(201);
    assert_eq!(opened.body.get("timeout_asked_ms"), None);
}

/// A client sets a znode's data, another client sets it again, and the first client retries its set
/// with the same idempotency key. The retry gets the stored first answer, with the version after
/// the first set.
#[tokio::test]
async fn a_set_that_is_tried_again_behind_another_has_its_first_etag() {
    let node = Node::start().await;
    let (one, two) = (node.session().await, node.session().await);
    node.post("/v1/znodes/a", "").await.expect(201);
    let set = async |session: &str, key: &str, data: &[u8]| {
        let headers = [("zlock-session-key", session), ("idempotency-key", key)];
        node.call(Method::PUT, "/v1/znodes/a", &headers, data).await.expect(200)
    };
    let first = set(&one, "first", b"1").await;
    assert_eq!(set(&two, "other", b"2").await.header("etag"), "\"2\"");
    let again = set(&one, "first", b"1").await;
    assert_eq!((first.header("etag"), again.header("etag")), ("\"1\"", "\"1\""));
    assert_eq!((again.zxid(), &again.body), (first.zxid(), &first.body));
    assert_eq!(node.get("/v1/znodes/a").await.expect(200).body["data"], "2");
}

#[tokio::test]
async fn a_key_need_not_be_a_uuid_and_lock_nodes_are_named_by_one() {
    let node = Node::start().await;
    let session = node.session().await;
    let acquire = async |key: &str| {
        let headers = [("zlock-session-key", &*session), ("idempotency-key", key)];
        node.call(Method::POST, "/v1/locks/l?owner=o", &headers, b"").await
    };
    let (first, again) = (acquire("deploy 42").await.expect(200), acquire("deploy 42").await.expect(200));
    assert_eq!((&first.body["ticket"], &again.body["holds"]), (&again.body["ticket"], &json!(1)));
    let name = first.body["ticket"].as_str().unwrap().strip_prefix("/l/0000000000_").unwrap();
    let (uuid, rest) = name.split_at(32);
    assert!(rest == "__WRIT__0000000000__lock__0000000000" && uuid::Uuid::try_parse(uuid).is_ok(), "{name}");
    assert_eq!(acquire("deploy 43").await.expect(200).body["holds"], 2);
    acquire(&"x".repeat(129)).await.expect_problem(400, "bad-request");
}

/// Describes a schema's type in a few words, for the golden file.
fn type_of(schema: &Value) -> String {
    if let Some(name) = schema["$ref"].as_str() {
        return name.rsplit('/').next().unwrap().to_owned();
    }
    if let Some(words) = schema["enum"].as_array() {
        return words.iter().map(|word| word.as_str().unwrap_or_default()).collect::<Vec<_>>().join("|");
    }
    for several in ["oneOf", "anyOf", "allOf"] {
        if let Some(all) = schema[several].as_array() {
            return all.iter().map(type_of).collect::<Vec<_>>().join("|");
        }
    }
    match (&schema["type"], &schema["items"], &schema["properties"]) {
        (_, items @ Value::Object(_), _) => format!("[{}]", type_of(items)),
        (_, _, Value::Object(fields)) => {
            let field = |(name, schema): (&String, &Value)| format!("{name}:{}", type_of(schema));
            format!("{{{}}}", fields.iter().map(field).collect::<Vec<_>>().join(" "))
        }
        (Value::Array(types), ..) => types.iter().filter_map(Value::as_str).collect::<Vec<_>>().join("|"),
        (one, ..) => one.as_str().unwrap_or("any").to_owned(),
    }
}

/// Describes an operation in one line of the golden file: its parameters, its body, and its
/// successful answers.
fn line_of(method: &str, path: &str, operation: &Value) -> String {
    let mut words = vec![format!("{} {path} {}", method.to_uppercase(), operation["operationId"].as_str().unwrap())];
    for parameter in operation["parameters"].as_array().into_iter().flatten() {
        let mark = if parameter["required"] == true { "!" } else { "" };
        words.push(format!("{}{mark}:{}", parameter["name"].as_str().unwrap(), type_of(&parameter["schema"])));
    }
    for content in operation["requestBody"]["content"].as_object().into_iter().flatten() {
        words.push(format!("body={}", type_of(&content.1["schema"])));
    }
    for (status, response) in
        operation["responses"].as_object().unwrap().iter().filter(|(status, _)| status.as_str() < "300")
    {
        let bodies = response["content"].as_object().into_iter().flatten();
        let bodies: Vec<String> = bodies.map(|(_, content)| type_of(&content["schema"])).collect();
        words.push(format!("-> {status} {}", bodies.join("|")).trim_end().to_owned());
    }
    words.join(" ")
}

/// Names of the API are stable: a change of `golden/api.txt` needs a line in the changelog.
#[test]
fn a_change_of_a_name_is_a_change_of_the_golden_file() {
    let mut lines: Vec<String> =
        operations().map(|(method, path, operation)| line_of(method, path, operation)).collect();
    let schemas = document()["components"]["schemas"].as_object().unwrap();
    lines.extend(schemas.iter().map(|(name, schema)| format!("{name} = {}", type_of(schema))));
    let table = lines.join("\n") + "\n";
    let file = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/api.txt");
    if std::env::var_os("UPDATE_GOLDENFILES").is_some() {
        std::fs::write(&file, &table).unwrap();
    }
    let golden = std::fs::read_to_string(file).unwrap_or_default();
    let (made, kept): (BTreeSet<&str>, BTreeSet<&str>) = (table.lines().collect(), golden.lines().collect());
    let changed: Vec<_> = made.symmetric_difference(&kept).collect();
    assert!(changed.is_empty(), "UPDATE_GOLDENFILES=1 writes the table: {changed:#?}");
}
