//! Opaque cursors of pages. A page of a list ends with a cursor, from which the next page begins.
//! It is encrypted if the request may not know the name at which the page ends.
//!
//! Each node makes the key for its first cursor, and keeps it only in memory, so a cursor is valid
//! at the node that made it, until that node restarts.

use std::sync::OnceLock;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use znode::ZPath;

use crate::problem::Problem;
use crate::request::paths;

/// First character of an encrypted cursor, which distinguishes it from a path.
const MARK: char = '~';
/// Block size in bytes. The path in a cursor is padded to whole blocks, so that the length of the
/// cursor hides the length of the path.
const BLOCK: usize = 256;

/// Encrypts and decrypts cursors, with a key that is made at the first use.
#[derive(Default)]
pub(crate) struct Cursors(OnceLock<LessSafeKey>);

impl Cursors {
    /// Makes the encrypted cursor of a path.
    ///
    /// # Errors
    /// 503 when the system has no randomness.
    pub(crate) fn seal(&self, path: &ZPath) -> Result<String, Problem> {
        let mut nonce = [0; NONCE_LEN];
        fill(&mut nonce)?;
        let mut name = path.as_str().as_bytes().to_vec();
        // Paths have no zero byte, so padding by zeros can be removed.
        name.resize(name.len().next_multiple_of(BLOCK), 0);
        let key = self.key()?;
        let tag = key.seal_in_place_separate_tag(Nonce::assume_unique_for_key(nonce), Aad::empty(), &mut name);
        let tag = tag.map_err(|_| Problem::internal("a cursor could not be made"))?;
        let sealed = [&nonce[..], &name, tag.as_ref()].concat();
        Ok(format!("{MARK}{}", URL_SAFE_NO_PAD.encode(sealed)))
    }

    /// Parses the parameter `after`, the path after which a page begins. It is a plain path or an
    /// encrypted cursor.
    ///
    /// # Errors
    /// 400 for any other text, such as a cursor of another node.
    pub(crate) fn open(&self, text: &str) -> Result<ZPath, Problem> {
        let Some(sealed) = text.strip_prefix(MARK) else {
            return paths::parse("after", text);
        };
        let path = URL_SAFE_NO_PAD.decode(sealed).ok().and_then(|sealed| self.opened(sealed));
        let why = "not a cursor of this node, or it has been started again since: ask from the beginning";
        path.ok_or_else(|| Problem::bad("after", why))
    }

    fn opened(&self, mut sealed: Vec<u8>) -> Option<ZPath> {
        let (nonce, name) = sealed.split_first_chunk_mut::<NONCE_LEN>()?;
        let nonce = Nonce::assume_unique_for_key(*nonce);
        let name = self.0.get()?.open_in_place(nonce, Aad::empty(), name).ok()?;
        ZPath::parse(std::str::from_utf8(name).ok()?.trim_end_matches('\0')).ok()
    }

    fn key(&self) -> Result<&LessSafeKey, Problem> {
        if let Some(key) = self.0.get() {
            return Ok(key);
        }
        let mut bytes = [0; 32];
        fill(&mut bytes)?;
        let key = UnboundKey::new(&CHACHA20_POLY1305, &bytes).expect("it has the length of such a key");
        // Another request may have set a key meanwhile.
        Ok(self.0.get_or_init(|| LessSafeKey::new(key)))
    }
}

fn fill(bytes: &mut [u8]) -> Result<(), Problem> {
    getrandom::fill(bytes).map_err(|error| Problem::unavailable(error.to_string(), 1_000))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_is_read_by_the_node_that_made_it_only_and_tells_nothing() {
        let (here, elsewhere) = (Cursors::default(), Cursors::default());
        let path = ZPath::parse("/vault/hidden").unwrap();
        let cursor = here.seal(&path).unwrap();
        assert_eq!(here.open(&cursor).unwrap(), path);
        assert_eq!(here.open("/vault").unwrap().as_str(), "/vault");
        assert_eq!(cursor.len(), here.seal(&ZPath::parse("/a").unwrap()).unwrap().len(), "nor how long the name is");
        assert_ne!(cursor, here.seal(&path).unwrap(), "nor that it is the same");
        elsewhere.seal(&path).unwrap();
        for bad in [&cursor[..cursor.len() - 2], "~", "~AAAA", "", "vault"] {
            assert!(here.open(bad).is_err(), "{bad}");
        }
        assert!(elsewhere.open(&cursor).is_err() && Cursors::default().open(&cursor).is_err());
    }
}
