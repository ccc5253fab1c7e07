//! Questions of an operator, and the znodes that are the node's own.

pub(crate) mod four_letter_words;
pub(crate) mod monitor;
pub(crate) mod system_znodes;
