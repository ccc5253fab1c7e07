//! The TOML file, read into one text for each key.

use std::path::Path;

use toml::{Table, Value};

use super::{ConfigError, KEYS};

/// The texts of the file, in its order of keys.
pub(super) fn read(file: &Path) -> Result<Vec<(String, String)>, ConfigError> {
    let name = file.display().to_string();
    let text = std::fs::read_to_string(file).map_err(|source| ConfigError::Read { file: name.clone(), source })?;
    let table: Table = text.parse().map_err(|error: toml::de::Error| ConfigError::Syntax {
        file: name.clone(),
        message: error.to_string().trim_end().to_owned(),
    })?;
    table.into_iter().map(|(key, value)| one(&name, key, value)).collect()
}

fn one(file: &str, key: String, value: Value) -> Result<(String, String), ConfigError> {
    if !KEYS.iter().any(|known| known.name == key) {
        let nearest = nearest(&key, KEYS.iter().map(|known| known.name));
        return Err(ConfigError::UnknownKey { file: file.to_owned(), key, nearest });
    }
    match plain(&value).or_else(|| list(&key, &value)) {
        Some(Ok(text)) => Ok((key, text)),
        Some(Err(unknown)) => {
            let nearest = nearest(&unknown, MEMBER_KEYS).map(|near| format!("{key}.{near}"));
            Err(ConfigError::UnknownKey { file: file.to_owned(), key: format!("{key}.{unknown}"), nearest })
        }
        None => Err(ConfigError::Value {
            key,
            origin: file.to_owned(),
            message: format!("a value of type {} does not fit here", value.type_str()),
        }),
    }
}

fn plain(value: &Value) -> Option<Result<String, String>> {
    match value {
        Value::String(text) => Some(Ok(text.clone())),
        Value::Integer(number) => Some(Ok(number.to_string())),
        Value::Boolean(flag) => Some(Ok(flag.to_string())),
        _ => None,
    }
}

/// Keys that may be lists.
const LISTS: [&str; 6] =
    ["members", "exempt_addresses", "proxy_protocol_from", "http_hosts", "http_origins", "operators"];
const MEMBER_KEYS: [&str; 3] = ["id", "peer_addr", "http_addr"];

/// [`LISTS`] may be lists of texts, and `members` of tables with [`MEMBER_KEYS`], too. `Err` is an
/// unknown key of such a table.
fn list(key: &str, value: &Value) -> Option<Result<String, String>> {
    let Value::Array(items) = value else {
        return None;
    };
    if !LISTS.contains(&key) {
        return None;
    }
    let mut texts = Vec::with_capacity(items.len());
    for item in items {
        match item {
            Value::String(text) => texts.push(text.clone()),
            Value::Table(table) if key == "members" => {
                if let Some(unknown) = table.keys().find(|key| !MEMBER_KEYS.contains(&key.as_str())) {
                    return Some(Err(unknown.clone()));
                }
                let [id, peer, http] = MEMBER_KEYS.map(|key| table.get(key).and_then(plain)?.ok());
                // A part that is missing leaves a text that the parser of members refuses with what
                // it wants.
                texts.push(format!(
                    "{}={}/{}",
                    id.unwrap_or_default(),
                    peer.unwrap_or_default(),
                    http.unwrap_or_default()
                ));
            }
            _ => return None,
        }
    }
    // A subject has commas.
    Some(Ok(texts.join(if key == "operators" { ";" } else { "," })))
}

/// The known name that looks most like an unknown one, when one does.
pub(super) fn nearest(unknown: &str, known: impl IntoIterator<Item = &'static str>) -> Option<String> {
    let unknown = unknown.to_ascii_lowercase().replace('-', "_");
    let scored = known.into_iter().map(|name| (strsim::jaro_winkler(&unknown, name), name));
    let best = scored.max_by(|left, right| left.0.total_cmp(&right.0))?;
    (best.0 > 0.7).then(|| best.1.to_owned())
}
