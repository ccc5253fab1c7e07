//! Znode paths in URLs and headers.

use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};

/// What a path segment must not hold as it is (RFC 3986, `pchar`), and the percent sign.
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

/// A znode path as a URL or a header can hold it.
pub fn encode_path(path: &str) -> String {
    utf8_percent_encode(path, ESCAPED).to_string()
}

/// A name between two slashes. At most 255 bytes (`name_max`).
#[cfg(feature = "schema")]
#[derive(utoipa::ToSchema)]
#[schema(value_type = String, min_length = 1, max_length = 255,
    pattern = r"^(?!\.{1,2}$)[ -.0-~\u00a0-\ud7ff\uf900-\uffef]+$")]
pub struct ZnodeName(pub String);

/// The path of a znode: names behind slashes. At most 1,024 bytes and 64 names.
#[cfg(feature = "schema")]
#[derive(utoipa::ToSchema)]
#[schema(value_type = String, min_length = 1, max_length = 1024,
    pattern = r"^/(?!.*/{2})(?!(?:.*/)?\.{1,2}(?:/|$))(?:[ -~\u00a0-\ud7ff\uf900-\uffef]*[ -.0-~\u00a0-\ud7ff\uf900-\uffef])?$")]
pub struct ZnodePath(pub String);

/// The path of a znode behind a route, with its first slash or without. Slashes may be encoded
/// (`%2F`): they separate names as plain ones do. It is decoded once.
#[cfg(feature = "schema")]
#[derive(utoipa::ToSchema)]
#[schema(value_type = String, min_length = 1, max_length = 1024,
    pattern = r"^/?(?!/)(?!.*/{2})(?!(?:.*/)?\.{1,2}(?:/|$))(?:[ -~\u00a0-\ud7ff\uf900-\uffef]*[ -.0-~\u00a0-\ud7ff\uf900-\uffef])?$")]
pub struct PathInUrl(pub String);
