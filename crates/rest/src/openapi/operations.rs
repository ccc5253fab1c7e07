//! Parts of the OpenAPI description that all operations have, or that follow from an operation's
//! [`Route`].

use serde_json::{Map, Value, json};
use zlock_client::api::headers;

use super::problems;
use crate::route::{IDEMPOTENCY_KEY, IF_LOCK, Route};

/// Largest integer that every JSON reader keeps exact: 2^53 - 1.
const WHOLE_MAX: u64 = (1 << 53) - 1;

/// Completes an operation's description in the OpenAPI document. If its query parameters may also
/// be sent as a JSON body, returns the name and the schema of that body.
pub(super) fn complete(route: &Route, method: &str, operation: &mut Value) -> Option<(String, Value)> {
    let id = operation["operationId"].as_str().unwrap_or_default().to_owned();
    add_headers(route, method, operation);
    let parameters = operation.get_mut("parameters").and_then(Value::as_array_mut).map(std::mem::take);
    let mut parameters = parameters.unwrap_or_default();
    parameters.iter_mut().for_each(bound);
    let in_body = if matches!(method, "post" | "put") { add_parameter_body(&id, &parameters, operation) } else { None };
    // An optional parameter has its example in the body only: clients that send the examples would
    // give it twice.
    for parameter in parameters.iter_mut().filter(|parameter| parameter["required"] == false) {
        parameter.as_object_mut().and_then(|parameter| parameter.remove("example"));
    }
    if let Some(contents) = operation.pointer_mut("/requestBody/content").and_then(Value::as_object_mut) {
        let is_optional = contents.values_mut().any(|content| strip_null(&mut content["schema"]));
        // An empty body is valid data.
        if as_bytes(contents) || is_optional {
            operation["requestBody"]["required"] = false.into();
        }
    }
    if !parameters.is_empty() {
        operation["parameters"] = Value::Array(parameters);
    } else if let Some(operation) = operation.as_object_mut() {
        operation.remove("parameters");
    }
    add_responses(route, method, operation);
    operation["security"] = security(route);
    in_body
}

fn add_headers(route: &Route, method: &str, operation: &mut Value) {
    let mut names = Vec::new();
    if route.reads {
        let words = json!({"type": "string", "enum": ["linearizable", "local"]});
        let zxid = json!({"type": "integer", "format": "int64", "minimum": 0});
        let said = "`linearizable`, the default, or `local`: the state that this node has applied";
        names.push(("query", "consistency", said, words));
        let said = "with consistency=local: smallest zxid of the state from which the node may answer";
        names.push(("header", "Zlock-Min-Zxid", said, zxid));
    }
    if method != "get" && !route.is_for_operators() {
        let said = "name of one write, equal in all its retries: a UUID, or any 1 to 128 printable ASCII characters; \
                    needs a session";
        let pattern = "^[!#-~](?:[ -~]*[!#-~])?$";
        let key = json!({"type": "string", "minLength": 1, "maxLength": 128, "pattern": pattern});
        names.push(("header", IDEMPOTENCY_KEY, said, key));
        let guard = json!({"type": "string", "maxLength": 2048, "pattern": "^/[!-:<-~]*;[0-9]{1,19}$"});
        let said = "`<lock path>;<token>`: the write is refused unless the fencing token holds the lock";
        names.push(("header", IF_LOCK, said, guard));
    }
    names.retain(|(_, name, ..)| !route.without.contains(name));
    let named = |(place, name, said, schema)| -> Value {
        json!({"name": name, "in": place, "required": false, "description": said, "schema": schema})
    };
    match operation.get_mut("parameters").and_then(Value::as_array_mut) {
        Some(known) => known.extend(names.into_iter().map(named)),
        None => operation["parameters"] = names.into_iter().map(named).collect(),
    }
}

/// Completes the schema of a query parameter: it is never null, and an integer is at most
/// [`WHOLE_MAX`].
fn bound(parameter: &mut Value) {
    let Some(schema) = parameter.get_mut("schema") else { return };
    strip_null(schema);
    if let Some(schema) = schema.as_object_mut().filter(|schema| schema.get("type") == Some(&json!("integer"))) {
        schema.entry("maximum").or_insert_with(|| WHOLE_MAX.into());
    }
}

/// Removes null from the types of a schema, because an optional parameter is left out and never
/// null. Returns whether null was there.
fn strip_null(schema: &mut Value) -> bool {
    if let [kind, Value::String(null)] = schema["type"].as_array().map_or(&[][..], Vec::as_slice)
        && null == "null"
    {
        schema["type"] = kind.clone();
        return true;
    }
    if let [known, null] = schema["oneOf"].as_array().map_or(&[][..], Vec::as_slice)
        && null["type"] == "null"
    {
        *schema = known.clone();
        return true;
    }
    false
}

/// Declares `application/octet-stream` contents as bytes. Returns whether there are such contents.
fn as_bytes(contents: &mut Map<String, Value>) -> bool {
    let data = contents.get_mut("application/octet-stream");
    data.map(|content| content["schema"] = json!({"type": "string", "format": "binary"})).is_some()
}

/// Adds a JSON body with the parameters of the query, if the operation has no other body. Bodies of
/// GET and DELETE are left out, because OpenAPI advises against them.
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
    let example = |shown: &&Value| Some((shown["name"].as_str()?.to_owned(), shown.get("example")?.clone()));
    let example: Map<String, Value> = in_query.iter().filter_map(example).collect();
    let name = format!("{}{}Parameters", id[..1].to_uppercase(), &id[1..]);
    let schema = json!({"$ref": format!("#/components/schemas/{name}")});
    operation["requestBody"] = json!({
        "required": false,
        "description": "The parameters of the query. A parameter may be in the query or in this body, but not in both.",
        "content": {"application/json": {"schema": schema, "example": example}},
    });
    Some((name, json!({"type": "object", "properties": properties, "additionalProperties": false})))
}

fn add_responses(route: &Route, method: &str, operation: &mut Value) {
    let Some(responses) = operation.get_mut("responses").and_then(Value::as_object_mut) else { return };
    for response in responses.values_mut() {
        response.get_mut("content").and_then(Value::as_object_mut).map(as_bytes);
    }
    for (status, mut problem) in problems::responses(route, method) {
        // The annotation's own description of the status comes first.
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

/// Returns the ways to authenticate at a route. Each entry is one way; a request needs all
/// credentials that the entry names.
fn security(route: &Route) -> Value {
    if route.in_session {
        return json!([{"session_key": []}, {"session_key": [], "digest": []}, {"session_key": [], "certificate": []}]);
    }
    if route.is_for_operators() {
        // A third way, the admin socket, needs nothing in the request.
        return json!([{"digest": []}, {"certificate": []}]);
    }
    json!([{}, {"session_key": []}, {"digest": []}, {"certificate": []}])
}
