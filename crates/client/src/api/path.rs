//! Znode paths in URLs and headers.

use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};

/// Bytes that a path segment must not contain unescaped (RFC 3986, `pchar`), and the percent sign.
const ESCAPED: &AsciiSet = &CONTROLS
    .add(b' ')
    .add(b'"')
    .add(b'#')
    .add(b'%')
    .add(b'<')
    .add(b'>')
    .add(b'?')
    .add(b'[')
    .add(b'\\')
    .add(b']')
    .add(b'^')
    .add(b'`')
    .add(b'{')
    .add(b'|')
    .add(b'}');

/// Escapes a znode path for a URL or a header.
pub fn encode_path(path: &str) -> String {
    utf8_percent_encode(path, ESCAPED).to_string()
}

/// A name between two slashes of a znode path, at most 255 bytes long (`limits.name_bytes_max`).
#[cfg(feature = "schema")]
#[derive(utoipa::ToSchema)]
#[schema(value_type = String, min_length = 1, max_length = 255,
    pattern = r"^(?!\.{1,2}$)[ -.0-~\u00a0-\ud7ff\uf900-\uffef]+$")]
pub struct ZnodeName(pub String);

/// The path of a znode: names behind slashes. At most 1,024 bytes and 64 names.
#[cfg(feature = "schema")]
#[derive(utoipa::ToSchema)]
#[schema(value_type = String, min_length = 1, max_length = 1024,
    pattern = r"^(?!.*/{2})/(?!(?:.*/)?\.{1,2}(?:/|$))(?:[ -~\u00a0-\ud7ff\uf900-\uffef]*[ -.0-~\u00a0-\ud7ff\uf900-\uffef])?$")]
pub struct ZnodePath(pub String);

/// The path of a znode after the route in a URL, with or without the first slash of the path. An
/// encoded slash (`%2F`) separates names like a plain slash. The path is decoded once.
#[cfg(feature = "schema")]
#[derive(utoipa::ToSchema)]
#[schema(value_type = String, min_length = 1, max_length = 1024,
    pattern = r"^(?!.*/{2})/?(?!(?:.*/)?\.{1,2}(?:/|$))(?:[ -~\u00a0-\ud7ff\uf900-\uffef]*[ -.0-~\u00a0-\ud7ff\uf900-\uffef])?$")]
pub struct PathInUrl(pub String);
