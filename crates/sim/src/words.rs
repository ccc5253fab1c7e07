//! Texts that describe replies and memberships in a trace.

use storage::Membership;

use crate::call::Reply;

const CHARS_MAX: usize = 240;

/// Returns a reply in one line.
pub(crate) fn reply(reply: &Reply) -> String {
    match reply {
        Reply::State(Ok(state)) => format!("the state at {}", state.last_zxid()),
        other => short(&format!("{other:?}")).to_string(),
    }
}

/// Returns a membership in one line: the sets of voters, and the members with their properties.
pub(crate) fn membership(membership: &Membership) -> String {
    let said = |(id, member): (&u64, &storage::Member)| {
        let marks: Vec<String> =
            member.extra.iter().map(|(name, value)| format!("{name}={}", String::from_utf8_lossy(value))).collect();
        if marks.is_empty() { id.to_string() } else { format!("{id} ({})", marks.join(", ")) }
    };
    let members: Vec<String> = membership.nodes().map(said).collect();
    format!("voters {:?} of the members {}", membership.get_joint_config(), members.join(", "))
}

/// Returns the first characters of a line that may be long.
pub(crate) fn short(line: &str) -> &str {
    let end = line.char_indices().nth(CHARS_MAX).map_or(line.len(), |(at, _)| at);
    &line[..end]
}
