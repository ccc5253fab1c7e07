//! One who operates the cluster: raises its level when the members let it happen, and then leaves a
//! note, which came with that level.

use znode::{LEVEL_MAX, Op, Request};

use crate::call::{Call, Reply};
use crate::client::Client;

/// Asks now and then, of any node, from some time on.
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
                // Before the level is raised it is refused: the invariants see that it is.
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
