//! Four-letter words for operators, and the znodes that the node itself keeps.

pub(crate) mod four_letter_words;
pub(crate) mod monitor;
pub(crate) mod system_znodes;
