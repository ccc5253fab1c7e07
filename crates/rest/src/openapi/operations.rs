//! What is the same for every operation, or follows from the names of its parameters: said here
//! once instead of at each handler.

use std::sync::LazyLock;

use serde_json::{Map, Value, json};
use zlock_client::api::headers;

use super::problems;
use crate::route::{IDEMPOTENCY_KEY, IF_LOCK, Route};

/// Schemas of parameters by their names, or by `operation.name` where a name means something else
/// there; and an example.
static PARAMETERS: LazyLock<Value> = LazyLock::new(|| read(include_str!("parameters.json")));
/// What each operation may be sent and answers, by its id: `request`, and statuses.
static EXAMPLES: LazyLock<Value> = LazyLock::new(|| read(include_str!("examples.json")));

fn read(text: &str) -> Value {
    serde_json::from_str(text).expect("it is a part of the program, which a test has read")
}

/// Completes an operation of a method. Parameters that may also stand in a body are a schema of
/// their own, with its name.
pub(super) fn complete(route: &Route, method: &str, operation: &mut Value) -> Option<(String, Value)> {
    let id = operation["operationId"].as_str().unwrap_or_default().to_owned();
    add_headers(route, method, operation);
    let parameters = operation.get_mut("parameters").and_then(Value::as_array_mut).map(std::mem::take);
    let parameters = parameters.unwrap_or_default();
    let parameters: Vec<Value> = parameters.into_iter().map(|parameter| completed(&id, parameter)).collect();
    let in_body = if matches!(method, "post" | "put") { add_parameter_body(&id, &parameters, operation) } else { None };
    show_request(&id, operation);
    if !parameters.is_empty() {
        operation["parameters"] = Value::Array(parameters);
    } else if let Some(operation) = operation.as_object_mut() {
        operation.remove("parameters");
    }
    add_responses(&id, route, method, operation);
    operation["security"] = security(route);
    in_body
}

fn add_headers(route: &Route, method: &str, operation: &mut Value) {
    let mut names = Vec::new();
    if route.reads {
        names.push(("query", "consistency", "linearizable, the default, or local: what this node has applied"));
        names.push(("header", "Zlock-Min-Zxid", "with consistency=local: not older than this"));
    }
    if method != "get" {
        let key = "marks retries of one write: a UUID, or any 1 to 128 printable ASCII characters; needs a session";
        names.push(("header", IDEMPOTENCY_KEY, key));
        names.push(("header", IF_LOCK, "`<lock path>;<token>`: refused unless the token holds the lock"));
    }
    names.retain(|(_, name, _)| !route.without.contains(name));
    let named = |(place, name, description)| {
        let schema = json!({"type": "string"});
        json!({"name": name, "in": place, "required": false, "description": description, "schema": schema})
    };
    match operation.get_mut("parameters").and_then(Value::as_array_mut) {
        Some(known) => known.extend(names.into_iter().map(named)),
        None => operation["parameters"] = names.into_iter().map(named).collect(),
    }
}

/// A parameter with its schema, and its example where every request has one.
fn completed(id: &str, mut parameter: Value) -> Value {
    let name = parameter["name"].as_str().unwrap_or_default();
    let known = PARAMETERS.get(format!("{id}.{name}")).or_else(|| PARAMETERS.get(name));
    let Some(known) = known else { return parameter };
    parameter["schema"] = known["schema"].clone();
    if parameter["required"] == true {
        parameter["example"] = known["example"].clone();
    }
    parameter
}

/// A body with the names of the query, where the operation has no other. Bodies of GET and DELETE
/// are not described, because OpenAPI says that they should be avoided.
fn add_parameter_body(id: &str, parameters: &[Value], operation: &mut Value) -> Option<(String, Value)> {
    let in_query: Vec<&Value> = parameters.iter().filter(|parameter| parameter["in"] == "query").collect();
    if operation.get("requestBody").is_some() || in_query.is_empty() {
        return None;
    }
    let member = |parameter: &&Value| {
        let mut schema = parameter["schema"].clone();
        schema["description"] = parameter["description"].clone();
        if schema["description"].is_null() {
            schema["description"] = "as in the query".into();
        }
        (parameter["name"].as_str().unwrap_or_default().to_owned(), schema)
    };
    let properties: Map<String, Value> = in_query.iter().map(member).collect();
    let name = format!("{}{}Parameters", id[..1].to_uppercase(), &id[1..]);
    operation["requestBody"] = json!({
        "required": false,
        "description": "The parameters of the query. A name stands in one of the two.",
        "content": {"application/json": {"schema": {"$ref": format!("#/components/schemas/{name}")}}},
    });
    Some((name, json!({"type": "object", "properties": properties, "additionalProperties": false})))
}

/// What a request is sent with: an example, and data as bytes.
fn show_request(id: &str, operation: &mut Value) {
    let example = EXAMPLES.get(id).and_then(|example| example.get("request"));
    let Some(contents) = operation.pointer_mut("/requestBody/content").and_then(Value::as_object_mut) else { return };
    for (kind, content) in contents.iter_mut() {
        if kind == "application/octet-stream" {
            content["schema"] = json!({"type": "string", "format": "binary"});
        }
        if let Some(example) = example {
            content["example"] = example.clone();
        }
    }
    let is_data = contents.contains_key("application/octet-stream");
    if id == "znodesSet" {
        let list = json!({"type": "array", "items": {"$ref": "#/components/schemas/AclEntry"}});
        let example = json!([{"perms": "cdrwa", "scheme": "world", "id": "anyone"}]);
        contents.insert("application/json".into(), json!({"schema": list, "example": example}));
    }
    // No data is data, too; and a session is opened with an empty body.
    if is_data || id == "sessionsOpen" {
        operation["requestBody"]["required"] = false.into();
    }
}

fn add_responses(id: &str, route: &Route, method: &str, operation: &mut Value) {
    let Some(responses) = operation.get_mut("responses").and_then(Value::as_object_mut) else { return };
    for (status, response) in responses.iter_mut() {
        let Some(contents) = response.get_mut("content").and_then(Value::as_object_mut) else { continue };
        // Bytes beside JSON are shown by that.
        let alone = contents.len() == 1;
        for (kind, content) in contents.iter_mut() {
            let is_data = kind == "application/octet-stream";
            if is_data {
                content["schema"] = json!({"type": "string", "format": "binary"});
            }
            if let Some(example) =
                EXAMPLES.get(id).and_then(|example| example.get(status)).filter(|_| alone || !is_data)
            {
                content["example"] = example.clone();
            }
        }
    }
    for (status, mut problem) in problems::responses(route, method) {
        // What the annotation says of it comes first.
        if let Some(Value::Object(said)) = responses.remove(&status.to_string()) {
            let words = [&said["description"], &problem["description"]].map(|words| words.as_str().unwrap_or_default());
            problem["description"] = words.join(" ").into();
            for (name, value) in said.into_iter().filter(|(name, _)| name != "description") {
                match (&mut problem[name], value) {
                    (Value::Object(known), Value::Object(more)) => known.extend(more),
                    (member, value) => *member = value,
                }
            }
        }
        responses.insert(status.to_string(), problem);
    }
    let number = json!({"schema": {"type": "integer", "format": "int64", "minimum": 0}});
    let leader = json!({"schema": {"type": "string", "pattern": "^(?:[0-9]+|none)$"}});
    for response in responses.values_mut() {
        for (name, header) in [(headers::ZXID, &number), (headers::NODE, &number), (headers::LEADER, &leader)] {
            response["headers"][name] = header.clone();
        }
    }
}

/// Each entry is one way to be let in; the parts of one go together.
fn security(route: &Route) -> Value {
    if route.in_session {
        return json!([{"session": []}, {"session": [], "digest": []}, {"session": [], "certificate": []}]);
    }
    if route.is_for_operators() {
        // Or by the admin socket, which is no part of the request.
        return json!([{"digest": []}, {"certificate": []}]);
    }
    json!([{}, {"session": []}, {"digest": []}, {"certificate": []}])
}
