//! Eviction: closing clients that do not read their answers, when other clients wait for memory.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;
use tracing::debug;

use crate::client::Client;
use crate::client::shared_bytes::{SharedBytes, UNCOUNTED_BYTES_MAX};
use crate::watch::hub::Hub;

/// Time without progress in a queue of clients that wait for memory. After it, clients that have
/// read no byte in that time are closed.
const PATIENCE: Duration = Duration::from_secs(1);
/// Number of periods of [`PATIENCE`] without progress after which the client that has read the
/// least is closed. Otherwise a client that reads a byte now and then could block the waiting
/// clients.
const ROUNDS_MAX: usize = 10;

/// Closes clients with unread answers while clients that wait for memory make no progress. Runs
/// until the future is dropped. If clients wait for room under the bound on all connections, any
/// client may be closed. If they wait for room under the bound of their address, only clients of
/// that address may be closed.
pub(crate) async fn evict(unread: &SharedBytes, hub: &Hub) {
    let mut stuck: HashMap<Option<IpAddr>, usize> = HashMap::new();
    loop {
        unread.pressed().await;
        loop {
            let queues = unread.queues();
            stuck.retain(|source, _| queues.contains_key(source));
            if queues.is_empty() {
                break;
            }
            let before: HashMap<u64, u64> = hub.clients().iter().filter(keeps).map(taken).collect();
            sleep(PATIENCE).await;
            let (now, clients) = (unread.queues(), hub.clients());
            for (source, served) in queues {
                if now.get(&source) != Some(&served) {
                    stuck.remove(&source);
                    continue;
                }
                let rounds = stuck.entry(source).or_default();
                *rounds += 1;
                let all = clients.iter().filter(|client| source.is_none() || client.outbox.source() == source);
                give_up(all, &before, rounds.is_multiple_of(ROUNDS_MAX));
            }
        }
    }
}

/// Tells whether the client has unread bytes that count against the bounds, and is not closed.
/// Events that are held back until an answer do not count, because the client cannot read them yet.
fn keeps(client: &&Arc<Client>) -> bool {
    client.outbox.offered() > UNCOUNTED_BYTES_MAX && !client.outbox.is_aborted()
}

fn taken(client: &Arc<Client>) -> (u64, u64) {
    (client.arrival.number, client.outbox.taken())
}

/// Closes those of `clients` that have read nothing since `before`, which has the number of bytes
/// read by each client with unread bytes. If all have read something and `for_long` is true, closes
/// the client that has read the least.
fn give_up<'a>(clients: impl Iterator<Item = &'a Arc<Client>>, before: &HashMap<u64, u64>, for_long: bool) {
    let since = |client: &Arc<Client>| client.outbox.taken().checked_sub(*before.get(&client.arrival.number)?);
    let mut slow: Vec<_> = clients.filter(keeps).filter_map(|client| Some((since(client)?, client))).collect();
    slow.sort_by_key(|(taken, client)| (*taken, Reverse(client.outbox.offered())));
    let nothing = slow.iter().take_while(|(taken, _)| *taken == 0).count();
    for (_, client) in slow.into_iter().take(nothing.max(usize::from(for_long))) {
        debug!(session = %client.session(), addr = %client.arrival.addr, "a client that takes too little is given up");
        client.outbox.abort();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    /// Adds bytes to a client's outbox, and lets the client's writer take them.
    fn offer(client: &Client, bytes: usize) {
        client.outbox.push(vec![1; bytes]);
        assert!(client.outbox.next().now_or_never().flatten().is_some());
    }

    #[test]
    fn a_client_that_takes_something_is_kept_and_what_is_held_back_for_it_is_no_fault_of_its_own() {
        let clients = [1, 2, 3, 4, 5].map(Client::alone);
        let [silent, slow, slower, held, late] = &clients;
        [silent, slow, slower].iter().for_each(|client| offer(client, 100_000));
        held.outbox.hold();
        held.outbox.push_event(&[1; 100_000]);
        let before: HashMap<u64, u64> = clients.iter().filter(keeps).map(taken).collect();
        // This client had no bytes to read before.
        offer(late, 100_000);
        assert!(slow.outbox.wrote(1_000) && slower.outbox.wrote(10));
        let closed = || clients.each_ref().map(|client| client.is_closed());
        give_up(clients.iter(), &before, false);
        assert_eq!(closed(), [true, false, false, false, false]);
        give_up(clients.iter(), &before, false);
        assert_eq!(closed(), [true, false, false, false, false], "all who are left take what they are sent");
        give_up(clients.iter(), &before, true);
        assert_eq!(closed(), [true, false, true, false, false], "not for ever while others wait");
    }
}
