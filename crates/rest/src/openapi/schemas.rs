//! Schemas that say more than the types do: formats and patterns by the names of fields.

use serde_json::{Map, Value, json};

/// Schemas of texts that have rules of their own.
const TEXTS: &str = include_str!("schemas.json");

/// Completes the schemas of all bodies.
pub(super) fn complete(schemas: &mut Map<String, Value>) {
    for (name, schema) in schemas.iter_mut() {
        complete_schema(name, schema);
    }
    let texts: Map<String, Value> =
        serde_json::from_str(TEXTS).expect("it is a part of the program, which a test has read");
    schemas.extend(texts);
}

fn complete_schema(name: &str, schema: &mut Value) {
    for variant in schema.get_mut("oneOf").and_then(Value::as_array_mut).into_iter().flatten() {
        // Generators name the parts of a choice by their titles.
        let tag = ["state", "op"].iter().find_map(|tag| variant["properties"][tag]["enum"][0].as_str());
        if let Some(title) = tag.map(|tag| format!("{name}{}{}", tag[..1].to_uppercase(), &tag[1..])) {
            variant["title"] = title.into();
        }
        // What is sent has no other fields. The derive says so of structs alone.
        if name == "TxnOp" {
            variant["additionalProperties"] = false.into();
        }
        complete_schema(name, variant);
    }
    for (field, schema) in schema.get_mut("properties").and_then(Value::as_object_mut).into_iter().flatten() {
        // A path that is sent keeps more rules than one that is answered.
        if matches!((name, field.as_str()), ("LockWish" | "TxnOp", "path")) {
            *schema = json!({"$ref": "#/components/schemas/ZnodePath", "description": schema["description"]});
        }
        for (key, value) in rules(name, field, schema) {
            schema[key] = value;
        }
    }
}

/// What is to be said of a field beyond its type.
fn rules(schema: &str, field: &str, is: &Value) -> Vec<(&'static str, Value)> {
    let pattern = |pattern: &str| vec![("pattern", json!(pattern))];
    let is_text = is["type"] == "string" || is["type"][0] == "string";
    match (schema, field) {
        // ZooKeeper's marks do not fit into a signed number.
        (_, "ephemeral_owner") => vec![("format", json!("uint64")), ("maximum", json!(u64::MAX))],
        ("OpenSession", "timeout_ms") => vec![("maximum", json!((1_u64 << 53) - 1))],
        ("LockSettings" | "LockWish", "limit" | "permits") => vec![("minimum", json!(1)), ("maximum", json!(u32::MAX))],
        ("LockSettings", "waiters_max") => vec![("maximum", json!(u32::MAX))],
        ("OpenSession" | "AcquireAll", "label" | "owner") => vec![("maxLength", json!(256))],
        ("AcquireAll", "locks") => vec![("minItems", json!(1)), ("maxItems", json!(64))],
        ("AclEntry", "perms") => pattern("^[cdrwa]*$"),
        ("AclEntry", "id") => vec![("maxLength", json!(255))],
        ("Problem", "type") => pattern("^urn:zlock:problem:[a-z-]+$"),
        ("Problem", "status") => vec![("minimum", json!(400)), ("maximum", json!(599))],
        ("SessionOpened", "secret") => pattern("^[0-9a-f]{32}$"),
        ("SessionOpened", "session") => pattern("^[0-9]+\\.[0-9a-f]{32}$"),
        ("StateDigest", "digest") => pattern("^[0-9a-f]{64}$"),
        ("Election", "cursor") => pattern("^[0-9]+\\.[0-9]+$"),
        _ if !is_text => Vec::new(),
        (_, "data_base64") => vec![("contentEncoding", json!("base64")), ("pattern", json!("^[A-Za-z0-9+/]*={0,2}$"))],
        (_, "path" | "lock" | "ticket" | "election" | "group") => pattern("^/"),
        _ => Vec::new(),
    }
}
