//! Things in words, for people who read a trace.

use crate::call::Reply;

const CHARS_MAX: usize = 240;

/// A reply in one line.
pub(crate) fn reply(reply: &Reply) -> String {
    match reply {
        Reply::State(Ok(state)) => format!("the state at {}", state.last_zxid()),
        other => short(&format!("{other:?}")).to_string(),
    }
}

/// The beginning of a line that may be long.
pub(crate) fn short(line: &str) -> &str {
    let end = line.char_indices().nth(CHARS_MAX).map_or(line.len(), |(at, _)| at);
    &line[..end]
}
