//! Paths that follow ZooKeeper's rules.

use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;

use bincode::de::Decoder;
use bincode::de::read::Reader;
use bincode::enc::Encoder;
use bincode::enc::write::Writer;
use bincode::error::{DecodeError, EncodeError};
use bincode::{Decode, Encode};

use crate::words::ticket_name::{Shape, TicketName};
use crate::{Error, RequestKey};

/// The path of a znode: absolute, without `.`, `..`, empty names, a slash at the end or forbidden
/// characters.
///
/// The rules are those of ZooKeeper's `PathUtils.validatePath`. Length and depth are bounded by
/// [`crate::Limits`] when a node is created, not here, so that a path from the log always reads
/// back.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ZPath(Arc<str>);

impl ZPath {
    /// The root, `/`.
    pub fn root() -> ZPath {
        ZPath("/".into())
    }

    /// Reads a path as a client wrote it.
    ///
    /// # Errors
    /// `BadArguments` when a rule is broken.
    pub fn parse(path: &str) -> Result<ZPath, Error> {
        if path == "/" {
            return Ok(ZPath::root());
        }
        let names = path.strip_prefix('/').ok_or(Error::BadArguments)?;
        names.split('/').try_for_each(check_name)?;
        Ok(ZPath(path.into()))
    }

    /// The path as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Tells whether this is `/`.
    pub fn is_root(&self) -> bool {
        &*self.0 == "/"
    }

    /// The last name; empty for the root.
    pub fn name(&self) -> &str {
        self.last_slash().map_or(&*self.0, |slash| &self.0[slash + 1..])
    }

    fn last_slash(&self) -> Option<usize> {
        self.0.as_bytes().iter().rposition(|byte| *byte == b'/')
    }

    /// The path without its last name; `None` for the root.
    pub fn parent(&self) -> Option<ZPath> {
        self.parent_str().map(|parent| ZPath(parent.into()))
    }

    /// The parent's path as text, without an allocation.
    pub(crate) fn parent_str(&self) -> Option<&str> {
        if self.is_root() {
            return None;
        }
        match self.last_slash() {
            Some(0) | None => Some("/"),
            Some(slash) => Some(&self.0[..slash]),
        }
    }

    /// The child of this path with the given name.
    ///
    /// # Errors
    /// `BadArguments` when the name breaks a rule.
    pub fn child(&self, name: &str) -> Result<ZPath, Error> {
        check_name(name)?;
        let parent = if self.is_root() { "" } else { self.as_str() };
        Ok(ZPath([parent, "/", name].concat().into()))
    }

    /// The number of names in the path; 0 for the root.
    pub fn depth(&self) -> usize {
        if self.is_root() { 0 } else { self.0.bytes().filter(|byte| *byte == b'/').count() }
    }

    /// Tells whether `self` is `ancestor` or below it.
    pub fn is_under(&self, ancestor: &ZPath) -> bool {
        ancestor.is_root()
            || self.0.strip_prefix(&*ancestor.0).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }
}

/// Checks one name between two slashes.
pub(crate) fn check_name(name: &str) -> Result<(), Error> {
    // Nearly all names are plain ASCII, so bytes are tried before characters. Speed matters: every
    // node checks every path in the log.
    let plain = |byte: &u8| matches!(byte, b' '..=b'.' | b'0'..=b'~');
    let good = name.as_bytes().iter().all(plain) || !name.chars().any(is_forbidden);
    if good && !matches!(name, "" | "." | "..") { Ok(()) } else { Err(Error::BadArguments) }
}

/// Tells whether ZooKeeper refuses the character in a path: controls, the private use area, the
/// specials, and everything from U+10000 on, which Java writes as surrogates.
fn is_forbidden(c: char) -> bool {
    matches!(c, '/' | '\u{0}'..='\u{1f}' | '\u{7f}'..='\u{9f}' | '\u{e000}'..='\u{f8ff}' | '\u{fff0}'..)
}

impl fmt::Display for ZPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for ZPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Borrow<str> for ZPath {
    fn borrow(&self) -> &str {
        &self.0
    }
}

/// Bytes: twice the length of the path, then its text. For a lock node that an acquire made: twice
/// the length of the lock's path plus 1, the text of that path, and the short form of the node's
/// name.
impl Encode for ZPath {
    fn encode<E: Encoder>(&self, encoder: &mut E) -> Result<(), EncodeError> {
        let ticket = self.parent_str().zip(TicketName::parse(self.name()));
        let (text, name) = ticket.map_or((self.as_str(), None), |(lock, name)| (lock, Some(name)));
        (text.len() * 2 + usize::from(name.is_some())).encode(encoder)?;
        encoder.writer().write(text.as_bytes())?;
        match name {
            Some(TicketName { shape, key, number }) => (shape.code(), key, number).encode(encoder),
            None => Ok(()),
        }
    }
}

impl<C> Decode<C> for ZPath {
    fn decode<D: Decoder<Context = C>>(decoder: &mut D) -> Result<Self, DecodeError> {
        let bad = || DecodeError::Other("not a znode path");
        let head = usize::decode(decoder)?;
        decoder.claim_container_read::<u8>(head / 2)?;
        let mut bytes = vec![0; head / 2];
        decoder.reader().read(&mut bytes)?;
        let path = String::from_utf8(bytes).ok().and_then(|text| ZPath::parse(&text).ok()).ok_or_else(bad)?;
        let is_ticket = head % 2 == 1;
        if !is_ticket {
            // Each path has one encoding, so that equal states have equal bytes.
            return if TicketName::parse(path.name()).is_none() { Ok(path) } else { Err(bad()) };
        }
        let (code, key, number) = <(u8, RequestKey, u64)>::decode(decoder)?;
        let shape = Shape::from_code(code).filter(|_| number <= TicketName::NUMBER_MAX).ok_or_else(bad)?;
        path.child(&TicketName { shape, key, number }.text()).map_err(|_| bad())
    }
}

bincode::impl_borrow_decode!(ZPath);

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(path: &str, expected: Result<(), Error>) {
        assert_eq!(ZPath::parse(path).map(drop), expected, "{path:?}");
    }

    #[test]
    fn paths_follow_zookeepers_rules() {
        check("/", Ok(()));
        check("/a", Ok(()));
        check("/a/b.c/d e", Ok(()));
        check("/...", Ok(()));
        check("/ünïcode/漢字", Ok(()));
        for bad in ["", "a", "a/b", "//", "/a/", "/a//b", "/.", "/..", "/a/./b", "/a/../b"] {
            check(bad, Err(Error::BadArguments));
        }
        for c in ['\u{0}', '\u{1}', '\u{1f}', '\u{7f}', '\u{9f}', '\u{e000}', '\u{f8ff}', '\u{fff0}', '\u{ffff}', '😀']
        {
            check(&format!("/a{c}b"), Err(Error::BadArguments));
        }
    }

    #[test]
    fn a_path_knows_its_parent_name_and_depth() {
        let path = ZPath::parse("/a/b").unwrap();
        assert_eq!(path.parent(), Some(ZPath::parse("/a").unwrap()));
        assert_eq!(path.parent().unwrap().parent(), Some(ZPath::root()));
        assert_eq!(ZPath::root().parent(), None);
        assert_eq!((path.name(), path.depth()), ("b", 2));
        assert_eq!(ZPath::root().child("x").unwrap().as_str(), "/x");
        assert_eq!(path.child("c").unwrap().as_str(), "/a/b/c");
        assert!(path.is_under(&ZPath::parse("/a").unwrap()) && path.is_under(&path));
        assert!(!ZPath::parse("/ab").unwrap().is_under(&ZPath::parse("/a").unwrap()));
    }
}
