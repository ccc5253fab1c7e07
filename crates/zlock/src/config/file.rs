//! Reading of the TOML file into one text value for each key.

use std::path::Path;

use toml::{Table, Value};

use super::{ConfigError, KEYS, Key};

/// Reads the TOML file. Returns the path of each key in it, such as `node.id`, and the key's value
/// as text.
pub(super) fn read(file: &Path) -> Result<Vec<(String, String)>, ConfigError> {
    let name = file.display().to_string();
    let text = std::fs::read_to_string(file).map_err(|source| ConfigError::Read { file: name.clone(), source })?;
    let whole: Table = text.parse().map_err(|error: toml::de::Error| {
        // The error's own text shows the line, which may have a secret.
        let line = error.span().map_or(1, |span| text[..span.start].matches('\n').count() + 1);
        ConfigError::Syntax { file: name.clone(), message: format!("line {line}: {}", error.message()) }
    })?;
    let mut texts = Vec::new();
    for (table, value) in whole {
        let known = KEYS.iter().any(|key| key.table == table);
        match value {
            Value::Table(keys) if known => {
                for (key, value) in keys {
                    texts.push(one(&name, &table, &key, value)?);
                }
            }
            Value::Table(_) => return Err(unknown_table(&name, &table)),
            _ if known => return Err(no_table(table, name)),
            _ => return Err(unknown_key(&name, "", &table)),
        }
    }
    Ok(texts)
}

fn one(file: &str, table: &str, name: &str, value: Value) -> Result<(String, String), ConfigError> {
    let Some(key) = KEYS.iter().find(|key| key.table == table && key.name == name) else {
        return Err(unknown_key(file, table, name));
    };
    let path = key.path.to_owned();
    match plain(&value).map(Ok).or_else(|| list(key, &value)) {
        Some(Ok(text)) => Ok((path, text)),
        Some(Err(unknown)) => {
            let near = nearest(MEMBER_KEYS.map(|known| (alike(&unknown, known), known)));
            let hint = near.map(|near| format!("did you mean `{path}.{near}`?"));
            Err(ConfigError::Unknown { file: file.to_owned(), what: format!("key `{path}.{unknown}`"), hint })
        }
        None => Err(unfit(path, file, &value)),
    }
}

fn no_table(table: String, origin: String) -> ConfigError {
    let keys: Vec<&str> = KEYS.iter().filter(|key| key.table == table).map(|key| key.name).collect();
    ConfigError::Value { key: table, origin, message: format!("this is a table; its keys are {}", keys.join(", ")) }
}

fn unfit(key: String, file: &str, value: &Value) -> ConfigError {
    let message = format!("a value of type {} does not fit here", value.type_str());
    ConfigError::Value { key, origin: file.to_owned(), message }
}

fn plain(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Integer(number) => Some(number.to_string()),
        Value::Boolean(flag) => Some(flag.to_string()),
        _ => None,
    }
}

const MEMBER_KEYS: [&str; 3] = ["id", "peer_addr", "http_addr"];

/// Joins a TOML array of strings to one text, in the form in which a flag takes it. An element of
/// `node.members` may also be a table with [`MEMBER_KEYS`]; the inner `Err` is an unknown key of
/// such a table. Returns `None` when the value is not such an array, or the key takes no list.
fn list(key: &Key, value: &Value) -> Option<Result<String, String>> {
    // The name of a kind of list ends with its separator and `...`.
    let separator = key.kind.strip_suffix("...").and_then(|name| name.get(name.len() - 1..))?;
    let Value::Array(items) = value else {
        return None;
    };
    let mut texts = Vec::with_capacity(items.len());
    for item in items {
        match item {
            Value::String(text) => texts.push(text.clone()),
            Value::Table(table) if key.path == "node.members" => {
                if let Some(unknown) = table.keys().find(|key| !MEMBER_KEYS.contains(&key.as_str())) {
                    return Some(Err(unknown.clone()));
                }
                // A missing key becomes an empty part of the text, which the parser of members
                // refuses with a message.
                let [id, peer, http] = MEMBER_KEYS.map(|key| table.get(key).and_then(plain).unwrap_or_default());
                texts.push(format!("{id}={peer}/{http}"));
            }
            _ => return None,
        }
    }
    Some(Ok(texts.join(separator)))
}

fn unknown_table(file: &str, table: &str) -> ConfigError {
    let near = nearest(KEYS.iter().map(|key| (alike(table, key.table), key.table)));
    let hint = near.map(|near| format!("did you mean `[{near}]`?"));
    ConfigError::Unknown { file: file.to_owned(), what: format!("table `[{table}]`"), hint }
}

/// Returns the error for an unknown key; `table` is empty for a key outside of tables. The hint
/// names the table that has a key of this name, or else the key with the most similar name.
fn unknown_key(file: &str, table: &str, name: &str) -> ConfigError {
    let path = format!("{table}.{name}").trim_start_matches('.').to_owned();
    let same = KEYS.iter().filter(|key| key.name == name || key.flag() == name.replace('_', "-"));
    let homes: Vec<String> = same.map(|key| format!("`{}` in the table `[{}]`", key.name, key.table)).collect();
    let hint = match homes.is_empty() {
        true => nearest(KEYS.iter().map(|key| (alike(name, key.name).max(alike(&path, key.path)), key.path)))
            .map(|near| format!("did you mean `{near}`?")),
        false => Some(format!("there is {}", homes.join(", and "))),
    };
    ConfigError::Unknown { file: file.to_owned(), what: format!("key `{path}`"), hint }
}

/// Returns the similarity of two names, from 0 to 1.
fn alike(unknown: &str, known: &str) -> f64 {
    strsim::jaro_winkler(&unknown.to_ascii_lowercase().replace('-', "_"), known)
}

/// Returns the name with the highest similarity; `None` if no similarity is above 0.7.
fn nearest(scored: impl IntoIterator<Item = (f64, &'static str)>) -> Option<&'static str> {
    let best = scored.into_iter().max_by(|left, right| left.0.total_cmp(&right.0))?;
    (best.0 > 0.7).then_some(best.1)
}
