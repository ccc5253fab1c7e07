//! `upgrade`: read a list under a read lock, upgrade, write it back with one element more; write
//! and downgrade.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde_json::json;

use super::again::{Used, again};
use super::conversions::Convertible;
use super::owner::SESSION_TIMEOUT_MS;
use super::waiter::{Place, Tickets, look, owned};
use super::{Made, Work, epoch, guarded, make_root};
use crate::client::{Client, Session};
use crate::http::Call;

const EPOCH: Duration = Duration::from_secs(15);

/// Read/write locks with a list beside each.
pub struct Upgrades {
    count: u64,
    next_element: AtomicU64,
    next_upgrade: AtomicU64,
    used: Used,
    made: Made,
}

/// A worker with its places.
#[derive(Default)]
pub struct Reader {
    places: Convertible,
    /// What was read under the lock and not yet written back.
    list: Option<String>,
    /// It has done what it came for.
    done: bool,
}

impl Upgrades {
    /// Locks for so many workers: few enough that several read at once.
    pub fn new(concurrency: usize) -> Upgrades {
        Upgrades {
            count: (concurrency as u64 / 4).max(1),
            next_element: AtomicU64::new(0),
            next_upgrade: AtomicU64::new(0),
            used: Used::default(),
            made: Made::default(),
        }
    }

    async fn enqueue(&self, reader: &mut Reader, session: Session, client: &mut Client) -> Result<(), String> {
        let lock = format!("{}/upgrade/{}-{}", super::ROOT, epoch(client, EPOCH), client.rng.u64(..self.count));
        self.made.ensure(client, &guarded::path(&lock), "").await?;
        self.used.note(&lock);
        (reader.list, reader.done) = (None, false);
        let mode = if client.rng.u8(..4) == 0 { "write" } else { "read" };
        let call = Call::post(format!("/v1/locks{lock}?mode={mode}&owner=worker&keep=true"));
        reader.places.waiter.enqueue(session, Tickets::One, json!({"lock": lock, "mode": mode}), call, client).await;
        Ok(())
    }

    /// Reads under the read lock; then asks to write as well.
    async fn upgrade(&self, reader: &mut Reader, session: Session, place: Place, client: &mut Client) {
        let lock = place.lock().to_owned();
        let Ok(list) = guarded::read(&lock, client).await else {
            reader.places.waiter.place = Some(place);
            return reader.places.waiter.keep(session);
        };
        reader.list = Some(list);
        let upgrade = self.next_upgrade.fetch_add(1, Ordering::Relaxed);
        let answer = reader.places.upgrade(session, place, upgrade, client).await;
        // One of two that want to write has to stop reading.
        reader.done = answer.is_problem("upgrade-conflict");
    }

    /// Writes back what was read, with one element more.
    async fn write(&self, reader: &mut Reader, session: Session, writer: &Place, client: &mut Client) {
        let lock = writer.lock().to_owned();
        let mut value = owned(&writer.value, &session);
        value["element"] = self.next_element.fetch_add(1, Ordering::Relaxed).into();
        let token = value["token"].as_u64();
        client.invoke("append", value.clone());
        let list = match reader.list.take() {
            Some(list) => Ok(list),
            None => guarded::read(&lock, client).await,
        };
        let answer = match list {
            Ok(list) => guarded::write(&lock, token, list, &mut value, client).await,
            Err(answer) => answer,
        };
        client.end_as(&answer, "append", value);
        reader.done = true;
        reader.places.waiter.after(session, &answer, client);
    }

    /// A step of one whose reader became a writer, or the other way round.
    async fn use_writer(&self, reader: &mut Reader, session: Session, writer: Place, client: &mut Client) {
        let read_place = reader.places.waiter.place.take();
        let leaves = client.rng.u8(..20) == 0;
        if !writer.held && !leaves {
            reader.places.waiter.wait(session, writer, client).await;
        } else if writer.held && !reader.done {
            self.write(reader, session, &writer, client).await;
            if reader.places.waiter.owner.has_session() {
                reader.places.waiter.place = Some(writer);
            }
        } else {
            reader.places.waiter.release(session, writer, client).await;
        }
        if let Some(place) = read_place {
            reader.places.writer_was_used(place);
        }
    }
}

impl Work for Upgrades {
    type Worker = Reader;

    async fn prepare(&self, client: &mut Client) -> Result<(), String> {
        make_root(client, "upgrade").await.map(|_| ())
    }

    fn worker(&self, _index: usize) -> Reader {
        Reader::default()
    }

    async fn step(&self, reader: &mut Reader, client: &mut Client) -> Result<(), String> {
        let Some(session) = reader.places.waiter.owner.session(client).await? else { return Ok(()) };
        if let Some(writer) = reader.places.writer.take() {
            self.use_writer(reader, session, writer, client).await;
            return Ok(());
        }
        let dice = client.rng.u8(..20);
        let Some(place) = reader.places.waiter.place.take() else {
            return self.enqueue(reader, session, client).await;
        };
        let writes = place.value["mode"] == "write";
        if dice < 2 {
            look(place.lock(), client).await;
            reader.places.waiter.place = Some(place);
            reader.places.waiter.keep(session);
        } else if !place.held && dice > 2 {
            reader.places.waiter.wait(session, place, client).await;
        } else if !place.held || reader.done && !(writes && dice < 12) {
            reader.places.waiter.release(session, place, client).await;
        } else if writes && reader.done {
            reader.places.downgrade(session, place, client).await;
        } else if writes {
            self.write(reader, session, &place, client).await;
            if reader.places.waiter.owner.has_session() {
                reader.places.waiter.place = Some(place);
            }
        } else if dice < 6 {
            // Only read.
            reader.done = true;
            reader.places.waiter.place = Some(place);
            reader.places.waiter.keep(session);
        } else {
            self.upgrade(reader, session, place, client).await;
        }
        Ok(())
    }

    async fn settle(&self, reader: Reader, client: &mut Client) -> Result<(), String> {
        reader.places.waiter.owner.settle(client).await
    }

    async fn finish(&self, client: &mut Client) -> Result<(), String> {
        let session = client.open_session(SESSION_TIMEOUT_MS).await?;
        for lock in self.used.all() {
            guarded::read_at_the_end(&lock, client).await?;
            let call = Call::post(format!("/v1/locks{lock}?mode=write"));
            again(&session, Tickets::One, json!({"lock": lock, "mode": "write"}), &call, client).await;
        }
        Ok(())
    }
}
