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
