//! Additions to the schemas that are derived from Rust types: patterns by field name, and
//! parameters whose value is one of several words.

use serde_json::{Map, Value, json};

/// Defines the schema of a parameter whose value must be one of the given words.
macro_rules! words {
    ($name:ident, $words:expr) => {
        struct $name;

        impl utoipa::PartialSchema for $name {
            fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::Schema> {
                let words = utoipa::openapi::ObjectBuilder::new().enum_values(Some($words));
                words.schema_type(utoipa::openapi::Type::String).into()
            }
        }

        impl utoipa::ToSchema for $name {}
    };
}
pub(crate) use words;

/// Adds patterns to the fields of all bodies' schemas, and titles to the variants of choices
/// (`oneOf`).
pub(super) fn complete(schemas: &mut Map<String, Value>) {
    for (name, schema) in schemas.iter_mut() {
        complete_schema(name, schema);
    }
}

fn complete_schema(name: &str, schema: &mut Value) {
    for variant in schema.get_mut("oneOf").and_then(Value::as_array_mut).into_iter().flatten() {
        // Client generators name the variants of a choice by their titles.
        let tag = ["state", "op"].iter().find_map(|tag| variant["properties"][tag]["enum"][0].as_str());
        if let Some(title) = tag.map(|tag| format!("{name}{}{}", tag[..1].to_uppercase(), &tag[1..])) {
            variant["title"] = title.into();
        }
        // Operations of a transaction may have no unknown fields. The derive declares this for
        // structs only.
        if name == "TxnOp" {
            variant["additionalProperties"] = false.into();
        }
        complete_schema(name, variant);
    }
    for (field, schema) in schema.get_mut("properties").and_then(Value::as_object_mut).into_iter().flatten() {
        for (key, value) in rules(field, schema) {
            schema[key] = value;
        }
    }
}

/// Returns the schema keywords (`pattern`, `contentEncoding`) of a text field, by the field's name.
fn rules(field: &str, is: &Value) -> Vec<(&'static str, Value)> {
    if is["type"] != "string" && is["type"][0] != "string" {
        return Vec::new();
    }
    match field {
        "data_base64" => vec![("contentEncoding", json!("base64")), ("pattern", json!("^[A-Za-z0-9+/]*={0,2}$"))],
        "path" | "ticket" => vec![("pattern", json!("^/"))],
        _ => Vec::new(),
    }
}
