//! An operator that raises the cluster's format level, which is refused until all members know the
//! new level. Then the operator writes a note, an operation that came with the new level.

use znode::{LEVEL_MAX, Op, Request};

use crate::call::{Call, Reply};
use crate::client::Client;

/// Asks a random node to raise the format level, again and again after an initial pause.
pub(crate) async fn upgrade(mut client: Client) {
    client.pause(12_000).await;
    while !client.is_closing() {
        client.move_on();
        let raised = matches!(client.call(Call::Finalize).await, Some(Reply::Finalized(Ok(_))));
        if let Some(op) = note(client.random.u64(..)) {
            let request = Request::new(op);
            if raised {
                drop(client.write(request).await);
            } else {
                // Before the level is raised, the note is refused; an invariant checks that.
                drop(client.call(Call::Propose(request)).await);
            }
        }
        client.pause(1_000).await;
    }
}

#[cfg(feature = "next-level")]
fn note(number: u64) -> Option<Op> {
    debug_assert_eq!(LEVEL_MAX, 2, "the operation came with this level");
    Some(Op::SetNote { text: format!("note {number}") })
}

#[cfg(not(feature = "next-level"))]
fn note(_: u64) -> Option<Op> {
    debug_assert_eq!(LEVEL_MAX, 1);
    None
}
