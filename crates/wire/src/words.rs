//! Four-letter words: what monitoring tools ask.

use crate::door::Door;

/// Whether the first four bytes of a connection are a word, and not the length of a packet.
pub(crate) fn is_one(word: [u8; 4]) -> bool {
    word.iter().all(u8::is_ascii_lowercase)
}

/// The answer to a word.
pub(crate) fn answer(_door: &Door, word: [u8; 4]) -> String {
    if &word == b"ruok" { "imok".to_owned() } else { String::new() }
}
