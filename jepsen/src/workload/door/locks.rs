//! Operations on sessions and locks.
//!
//! Over ZooKeeper's protocol a lock is the lock recipe of ZooKeeper's documentation, with the names
//! and the order of kazoo for some locks and of Curator for the others. A client creates an
//! ephemeral sequential child of the lock. It holds the lock when no other child with a name of its
//! library is before its own. Until then it watches the last such child before its own.

use std::time::Duration;

use jute::{Names, PathStat, PathWatch, Request, create_flags, error, event};
use testkit::zookeeper::{Failure, Reply, Zk};
use tokio::time::Instant;
use zlock_client::api::{Release, Ticket};

use super::{Door, Told, answer, any_version, at, create2, ensure, maybe_hop, told};
use crate::answer::{Answer, Effect};
use crate::client::{Client, Session};
use crate::http::Call;

/// Client library whose lock recipe a client follows: the names of its nodes, and their order in
/// the queue. The two libraries ignore each other's nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Recipe {
    /// kazoo's Lock: children with `__lock__` before the number, ordered by number.
    Kazoo,
    /// Curator's InterProcessMutex: all children, ordered by the text behind `lock-`, or by the
    /// whole name if it has no `lock-`.
    Curator,
}

impl Recipe {
    /// Returns the recipe that all clients of this lock use.
    fn of(lock: &str) -> Recipe {
        let sum = lock.bytes().fold(0, u8::wrapping_add);
        if sum.is_multiple_of(2) { Recipe::Kazoo } else { Recipe::Curator }
    }

    /// Returns the name of a client's node in the queue, without the sequence number at its end.
    fn name(self, id: u64) -> String {
        match self {
            Recipe::Kazoo => format!("{id:032x}__lock__"),
            Recipe::Curator => {
                format!(
                    "_c_{:08x}-{:04x}-4{:03x}-8000-{:012x}-lock-",
                    id >> 32,
                    id >> 16 & 0xffff,
                    id & 0xfff,
                    id >> 16
                )
            }
        }
    }

    /// Returns the key by which children are ordered; `None` for a child that the recipe ignores.
    fn key(self, name: &str) -> Option<&str> {
        match self {
            Recipe::Kazoo => {
                let (family, number) = name.split_at_checked(name.len().checked_sub(10)?)?;
                family.ends_with("__lock__").then_some(number)
            }
            Recipe::Curator => Some(name.rsplit_once("lock-").map_or(name, |(_, key)| key)),
        }
    }
}

/// Parameters of a request for a lock.
#[derive(Clone, Debug)]
pub(crate) struct Wish<'a> {
    /// Path of the lock.
    pub(crate) lock: &'a str,
    /// `exclusive`, `read` or `write`.
    pub(crate) mode: &'a str,
    /// Whether the owner may take the lock again.
    pub(crate) reentrant: bool,
    /// Longest time to wait in the queue.
    pub(crate) wait: Duration,
}

/// Result of a request that was granted the lock.
#[derive(Clone, Debug)]
pub(crate) struct Taken {
    /// Ticket over HTTP, or path of the client's node in the queue over ZooKeeper's protocol. A
    /// release of the lock names it.
    pub(crate) ticket: String,
    /// The fencing token.
    pub(crate) token: u64,
    /// Number of holds that the owner has now; 1 unless the lock is reentrant.
    pub(crate) holds: u64,
}

impl Door {
    /// Opens a session. Retries for up to a minute.
    pub(crate) async fn open(&self, client: &mut Client, timeout_ms: u64) -> Result<Session, String> {
        match self {
            Door::Http => client.open_session(timeout_ms).await,
            Door::ZooKeeper(door) => Ok(Session::over_zookeeper(door.connect(client).await?)),
        }
    }
}

impl Session {
    /// Sends one request to close the session.
    pub(crate) async fn close(&self, client: &mut Client) -> Answer {
        let Some(zk) = &self.zk else {
            return client.send(Call::delete(format!("/v1/sessions/{}", self.id)).session(&self.key)).await;
        };
        let closed = zk.ask(Request::CloseSession).await;
        answer(told(Effect::Write, closed.map(|reply| ((), reply, None))))
    }

    /// Sends one request for a lock, which waits up to `wish.wait`.
    pub(crate) async fn acquire(&mut self, wish: &Wish<'_>, client: &mut Client) -> Told<Taken> {
        if let Some(zk) = &mut self.zk {
            return acquire(zk, wish, client).await;
        }
        let owner = if wish.reentrant { "&owner=worker" } else { "" };
        let target = format!("/v1/locks{}?wait={}ms&mode={}{owner}", wish.lock, wish.wait.as_millis(), wish.mode);
        let mut answer = client.send(Call::post(target).session(&self.key).waiting(wish.wait)).await;
        match held(&mut answer) {
            Some((ticket, token, holds)) => Ok((Taken { ticket, token, holds }, answer)),
            None => Err(answer),
        }
    }

    /// Sends one request to release a lock. Returns the number of holds that the owner has left.
    pub(crate) async fn release(&mut self, ticket: &str, client: &mut Client) -> Told<u64> {
        if let Some(zk) = &mut self.zk {
            maybe_hop(zk, client);
            let deleted = zk.ask(Request::Delete(any_version(ticket))).await.map_err(vanished);
            return told(Effect::Write, deleted.map(|reply| (0, reply, None)));
        }
        let mut answer = client.send(Call::delete(format!("/v1/tickets{ticket}")).session(&self.key)).await;
        match answer.read::<Release>(Effect::Write) {
            Some(released) => Ok((released.holds.into(), answer)),
            None => Err(answer),
        }
    }
}

/// Returns ticket, token and holds if the answer says that the lock is held.
pub(crate) fn held(answer: &mut Answer) -> Option<(String, u64, u64)> {
    match answer.read(Effect::Write)? {
        Ticket::Held { ticket, fencing_token, holds, .. } => Some((ticket, fencing_token, u64::from(holds))),
        Ticket::Waiting { .. } => None,
    }
}

async fn acquire(zk: &mut Zk, wish: &Wish<'_>, client: &mut Client) -> Told<Taken> {
    maybe_hop(zk, client);
    let created = match enqueue(zk, wish.lock, client.rng.u64(..)).await {
        Ok((_, created)) => created,
        Err(failure) => return told(Effect::Write, Err(failure)),
    };
    let failure = match wait(zk, wish.lock, &created, wish.wait).await {
        Ok(reply) => {
            let token = u64::try_from(created.stat.czxid).unwrap_or(0);
            return told(Effect::Write, Ok((Taken { ticket: created.path, token, holds: 1 }, reply, None)));
        }
        Err(failure) => failure,
    };
    // After a failure the client's node must not stay in the queue.
    match give_up(zk, &created.path, failure).await {
        Ok(failure) => told(Effect::Read, Err(failure)),
        Err(failure) => told(Effect::Write, Err(failure)),
    }
}

/// Turns the error that a lock node is missing into a violation of the protocol. A node of a living
/// session cannot be missing: only its owner deletes it. For an ended session the server would
/// report that the session has expired, because it checks the session first.
fn vanished(failure: Failure) -> Failure {
    match failure {
        Failure::Refused(error::NO_NODE) => Failure::Wrong("a lock node is gone while its session lives".into()),
        other => other,
    }
}

/// Creates the client's node in the queue, and the lock itself if it is missing.
async fn enqueue(zk: &Zk, lock: &str, id: u64) -> Result<(Reply, PathStat), Failure> {
    let node = format!("{lock}/{}", Recipe::of(lock).name(id));
    match create2(zk, &node, create_flags::EPHEMERAL_SEQUENTIAL).await {
        Err(Failure::Refused(error::NO_NODE)) => {
            // A failure here counts as a request that was not sent: an empty lock has no effect.
            ensure(zk, lock)
                .await
                .map_err(|failure| Failure::NotSent(format!("the lock was not made: {failure:?}")))?;
            create2(zk, &node, create_flags::EPHEMERAL_SEQUENTIAL).await
        }
        other => other,
    }
}

/// Waits until no child of the lock that the recipe counts is before `created`, the client's own
/// node. Returns the answer that showed this.
async fn wait(zk: &mut Zk, lock: &str, created: &PathStat, time: Duration) -> Result<Reply, Failure> {
    let (deadline, recipe) = (Instant::now() + time, Recipe::of(lock));
    let own = created.path.rsplit('/').next().unwrap_or_default();
    loop {
        let reply = zk.ask(Request::GetChildren(at(lock))).await?;
        let mut names: Vec<String> = reply.read::<Names>()?.names;
        names.retain(|name| recipe.key(name).is_some());
        names.sort_by(|one, other| recipe.key(one).cmp(&recipe.key(other)));
        let Some(place) = names.iter().position(|name| name == own) else {
            return Err(still_there(zk, &created.path).await);
        };
        let Some(before) = place.checked_sub(1).map(|before| format!("{lock}/{}", names[before])) else {
            return Ok(reply);
        };
        zk.take_events();
        match zk.ask(Request::GetData(PathWatch { path: before.clone(), watch: true })).await {
            Ok(_) => {}
            Err(Failure::Refused(error::NO_NODE)) => continue,
            Err(failure) => return Err(failure),
        }
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match zk.event(left).await {
                Some(told) if told.path == before && told.kind == event::NODE_DELETED => break,
                Some(_) => {}
                None => return Err(Failure::NotSent("another client has it".into())),
            }
        }
    }
}

/// Finds out why the client's own node is not among the lock's children, and returns the reason. It
/// tries to delete the node: a success shows that the list of children was wrong.
async fn still_there(zk: &Zk, node: &str) -> Failure {
    match zk.ask(Request::Delete(any_version(node))).await {
        Ok(_) => Failure::Wrong("a client does not see its own lock node".into()),
        Err(failure) => vanished(failure),
    }
}

/// Deletes the client's node from the queue. Returns `Ok` with the reason for giving up when the
/// node is certainly gone, and `Err` when the node may still be there.
async fn give_up(zk: &Zk, node: &str, why: Failure) -> Result<Failure, Failure> {
    if matches!(why, Failure::Expired) {
        return Ok(why);
    }
    if matches!(why, Failure::Wrong(_)) {
        return Err(why);
    }
    match zk.ask(Request::Delete(any_version(node))).await.map_err(vanished) {
        Ok(_) => Ok(why),
        Err(Failure::Expired) => Ok(Failure::Expired),
        // A delete that was not sent leaves the node there, so the acquire has an unknown outcome.
        Err(Failure::NotSent(why)) => Err(Failure::Broken(why)),
        Err(failure) => Err(failure),
    }
}

#[cfg(test)]
mod tests {
    use super::Recipe;

    #[test]
    fn both_recipes_put_a_ticket_of_an_acquire_in_its_place() {
        let ticket = "0000000002_00112233445566778899aabbccddeeff__WRIT__0000000002__lock__0000000002";
        for recipe in [Recipe::Kazoo, Recipe::Curator] {
            let [before, behind] = [1, 3].map(|number| format!("{}{number:010}", recipe.name(77)));
            let [before, own, behind] = [&*before, ticket, &*behind].map(|name| recipe.key(name).unwrap());
            assert!(before < own && own < behind, "{recipe:?}: {before} {own} {behind}");
        }
    }
}
