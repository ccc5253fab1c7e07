//! Execution of writes and syncs.

use std::sync::atomic::Ordering;
use std::time::Duration;

use accept::Defer;
use jute::{PathOnly, Record, error};
use replica::{Consistency, Error};
use tokio::time::{Instant, sleep};
use znode::{Op, Request as Proposal, WriteTurn};

use crate::request::outcome::Outcome;
use crate::request::writes::{self, Shape};
use crate::session::connection::Connection;
use crate::session::door::Door;

/// Pause before a write is proposed again after this node's queues were full.
const PAUSE: Duration = Duration::from_millis(10);

/// Proposes the client's write with the number `turn`, again if needed, until its outcome is known
/// or the connection must end.
pub(crate) async fn propose(connection: &Connection, turn: u64, op: Op, shape: &Shape) -> Outcome {
    let (door, client) = (&connection.door, &connection.client);
    let in_turn = |identities, op| {
        let turn = Some(WriteTurn { connection: client.arrival.connection, number: turn });
        Proposal { identities, turn, ..Proposal::of(client.arrival.credential, op) }
    };
    let mut proposal = in_turn(client.identities().to_vec(), op);
    // The bounds admit most writes in the order of their numbers. Only the writes of an exempt
    // address may overtake a long write that waits for the window of long writes.
    let _pass = door.windows.enter(client.outbox.account().source(), proposal.bytes()).await;
    let mut too_long = false;
    loop {
        let Ok(place) = door.writes.acquire().await else {
            return Outcome::Cut("the door closes");
        };
        let deadline = door.propose_deadline();
        let applied = loop {
            match door.replica.propose(proposal.clone(), deadline).await {
                Ok(applied) => break applied,
                // The write was not proposed, so it may be proposed again. The log refuses later
                // writes of the connection until then.
                Err(Error::Unavailable { .. }) if Instant::now() + PAUSE < deadline => sleep(PAUSE).await,
                Err(Error::Unavailable { .. }) => return Outcome::Cut("a write was not taken"),
                Err(Error::Restoring { .. }) => return Outcome::Cut("the cluster was restored a short time ago"),
                Err(Error::Unknown { .. }) => return Outcome::Cut("the outcome of a write is not known"),
                // The write is too long for the log. An empty multi is proposed under its number,
                // because later writes wait for that number.
                Err(Error::Refused(_)) if !too_long => {
                    (proposal, too_long) = (in_turn(Vec::new(), Op::Multi(Vec::new())), true);
                }
                Err(Error::Refused(_)) => return Outcome::Cut("a write was refused unseen"),
            }
        };
        let too_early = applied.reply.as_ref().is_err_and(|refusal| refusal.error == znode::Error::OutOfTurn);
        if !too_early {
            connection.write_order.done(turn);
            let nothing = Shape::Multi(Vec::new());
            let state = door.replica.state();
            return match writes::answer(if too_long { &nothing } else { shape }, &applied, &state) {
                Ok(_) if too_long => Outcome::Answer(Some(applied.zxid), Err(error::BAD_ARGUMENTS)),
                Ok(body) => Outcome::Answer(Some(applied.zxid), Ok(body)),
                Err(Some(code)) => Outcome::Answer(Some(applied.zxid), Err(code)),
                Err(None) => Outcome::Cut("the session is gone, or at another connection"),
            };
        }
        // The write reached the log before the client's previous write, and was refused for that.
        // The previous write may need the place.
        drop(place);
        connection.write_order.wait_for(turn).await;
    }
}

/// Answers a sync. First waits until this node has applied all writes that any node had
/// acknowledged before the request.
pub(crate) async fn sync(door: &Door, path: &PathOnly) -> Outcome {
    door.syncs.fetch_add(1, Ordering::Relaxed);
    let _guard = Defer(|| _ = door.syncs.fetch_sub(1, Ordering::Relaxed));
    match door.replica.read(Consistency::Linearizable, door.propose_deadline()).await {
        Ok(_) => Outcome::Answer(Some(door.replica.state().last_zxid()), Ok(path.to_bytes())),
        Err(_) => Outcome::Cut("no leader confirmed a sync"),
    }
}
