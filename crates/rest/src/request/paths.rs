//! Znode paths in URLs.

use percent_encoding::percent_decode_str;
use znode::{Create, CreateMode, ZPath};

use crate::problem::Problem;

/// Decodes the znode path behind a route: `/a%20b/c` is `/a b/c`. The path is decoded once, as one
/// text, and then checked. An encoded slash separates names like a plain slash, because generated
/// clients encode all slashes.
pub(crate) fn decode(raw: &str) -> Result<ZPath, Problem> {
    decode_in("path", raw)
}

/// Decodes the znode path in the header `name`.
pub(crate) fn decode_in(name: &str, raw: &str) -> Result<ZPath, Problem> {
    parse(name, &decode_text(name, raw)?)
}

/// Decodes the path of a create to the parent and the name. The name may be empty if `mode` is
/// sequential.
pub(crate) fn decode_new(raw: &str, mode: CreateMode) -> Result<(ZPath, String), Problem> {
    parse_new(&decode_text("path", raw)?, mode)
}

/// Splits the path of a create, as a body has it, into the parent and the name. The name may be
/// empty if `mode` is sequential.
pub(crate) fn parse_new(text: &str, mode: CreateMode) -> Result<(ZPath, String), Problem> {
    if let Some(parent) = text.strip_suffix('/').filter(|_| mode.is_sequential()) {
        let parent = if parent.is_empty() { "/" } else { parent };
        return Ok((parse("path", parent)?, String::new()));
    }
    split_new(&parse("path", text)?)
}

/// Makes the operation that creates `name` under `parent`.
pub(crate) fn create((parent, name): (ZPath, String), data: Vec<u8>, mode: CreateMode, acl: Vec<znode::Acl>) -> Create {
    Create { data, mode, acl, ..Create::new(parent, name) }
}

/// Encodes a znode path as a part of a URL.
pub(crate) fn encode(path: &ZPath) -> String {
    zlock_client::api::encode_path(path.as_str())
}

/// Parses the znode path in the parameter, field or header `name`.
pub(crate) fn parse(name: &str, text: &str) -> Result<ZPath, Problem> {
    ZPath::parse(text).map_err(|_| Problem::bad(name, format!("not a znode path: {}", broken_rule(text))))
}

/// Describes the first rule for paths that `text` breaks.
fn broken_rule(text: &str) -> String {
    let Some(names) = text.strip_prefix('/') else { return "it begins with no slash".into() };
    if names.ends_with('/') && !names.ends_with("//") {
        return "it ends with a slash: leave that out".into();
    }
    for name in names.split('/') {
        if name.is_empty() {
            return "there is no name between two slashes".into();
        }
        if matches!(name, "." | "..") {
            return format!("`{name}` is no name of a znode");
        }
        if let Some(c) = name.chars().find(|c| ZPath::parse(&format!("/a{c}")).is_err()) {
            return format!(
                "a name has the character U+{:04X}; as in ZooKeeper none is a control character, for private use, or beyond \
                 U+FFFF",
                u32::from(c)
            );
        }
    }
    "it breaks a rule".into()
}

/// Checks that the path of a lock is not the root.
pub(crate) fn not_the_root(name: &str, lock: ZPath) -> Result<ZPath, Problem> {
    if lock.is_root() { Err(Problem::bad(name, "the root is no lock")) } else { Ok(lock) }
}

fn split_new(path: &ZPath) -> Result<(ZPath, String), Problem> {
    let parent = path.parent().ok_or_else(|| Problem::bad("path", "the root is there already"))?;
    Ok((parent, path.name().to_owned()))
}

/// Decodes the part of a URL behind a route. A path that was copied from an answer and encoded
/// begins with a second slash, `%2F`, which is dropped.
fn decode_text(name: &str, raw: &str) -> Result<String, Problem> {
    let names = raw.strip_prefix('/').unwrap_or(raw);
    let starts_with_slash = names.get(..3).is_some_and(|start| start.eq_ignore_ascii_case("%2f"));
    let names = if starts_with_slash { &names[3..] } else { names };
    let names = percent_decode_str(names).decode_utf8().map_err(|_| Problem::bad(name, "not UTF-8"))?;
    Ok(format!("/{names}"))
}

/// Path of the fence check, whose query has a lock and a fencing token.
pub(crate) const FENCE: &str = "/v1/fence";

/// Prefix of the fence checks that a proxy sends before it passes on a client's request. The prefix
/// is followed by the path and query of that request, whose method and most headers the proxy
/// copies.
pub(crate) const BEHIND_FENCE: &str = "/v1/fence/";

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(raw: &str, expected: Option<&str>) {
        let path = decode(raw).ok();
        assert_eq!(path.as_ref().map(ZPath::as_str), expected, "{raw:?}");
        if let Some(path) = path {
            assert_eq!(decode(&encode(&path)).unwrap(), path);
        }
    }

    #[test]
    fn a_path_in_a_url_is_decoded_once_and_checked() {
        check("", Some("/"));
        check("/", Some("/"));
        check("/a/b", Some("/a/b"));
        check("/a%20b/%C3%BC", Some("/a b/ü"));
        check("/a%252fb", Some("/a%2fb"));
        check("/%2541", Some("/%41"));
        for bad in ["//", "/a/", "/a//b", "/a/../b", "/%2e%2e", "/a%00b", "/%ff", "/%c0%af", "/%7f", "/./a"] {
            check(bad, None);
        }
    }

    #[test]
    fn an_encoded_slash_separates_names_and_is_decoded_once() {
        check("/team%2Fx", Some("/team/x"));
        check("/team%2fx/y", Some("/team/x/y"));
        // This is a ticket as the API shows it, encoded as a whole.
        check("/%2Fteam%2Fx", Some("/team/x"));
        check("/%2F", Some("/"));
        check("/a%252Fb", Some("/a%2Fb"));
        check("/%252Fa", Some("/%2Fa"));
        for bad in [
            "/%2F%2Fa",
            "//a",
            "/%2F/a",
            "/a%2F",
            "/a%2F%2Fb",
            "/a/%2Fb",
            "/a%2F..%2Fb",
            "/..%2Fb",
            "/%2F..",
            "/%2e%2e%2fb",
            "/a%2F.",
            "/%2F%00",
        ] {
            check(bad, None);
        }
    }

    #[test]
    fn only_a_sequential_name_may_be_empty() {
        let name = |raw, mode| decode_new(raw, mode).ok().map(|(parent, name)| format!("{parent} {name}"));
        assert_eq!(name("/a/b", CreateMode::Persistent).as_deref(), Some("/a b"));
        assert_eq!(name("/a/", CreateMode::Persistent), None);
        assert_eq!(name("/a/", CreateMode::PersistentSequential).as_deref(), Some("/a "));
        assert_eq!(name("/", CreateMode::PersistentSequential).as_deref(), Some("/ "));
        assert_eq!(name("/", CreateMode::Persistent), None);
        assert_eq!(name("/%2Fa%2Fb", CreateMode::Persistent).as_deref(), Some("/a b"));
        assert_eq!(name("/a%2F", CreateMode::PersistentSequential).as_deref(), Some("/a "));
        assert_eq!(name("/a%2F%2F", CreateMode::PersistentSequential), None);
        assert_eq!(parse_new("/", CreateMode::EphemeralSequential).unwrap(), (ZPath::root(), String::new()));
    }
}
