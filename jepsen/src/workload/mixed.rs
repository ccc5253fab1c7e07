//! Clients of the workload `mixed`: readers, writers, upgrades, downgrades, permits of a semaphore
//! and multi-locks, all on the same few locks. Beside each lock is a znode with a list, which the
//! writers of the lock write.
//!
//! A reader may read the list, upgrade to a writer, and write the list back with one more element.

use zlock_client::api::{LockMode, LockWish};

use super::pool::Pool;
use super::waiter::{Place, Tickets, Waiter, look, owned};
use super::wishes::{LIMIT, PARTS_MAX, PERMITS_MAX, all_again, lease, one, several, told, wish};
use super::{Work, guarded};
use crate::answer::Answer;
use crate::client::{Client, Session};
use crate::http::Call;

/// The workload `mixed`: locks that clients ask for in every mode.
pub struct Mixed {
    pool: Pool,
}

/// A worker with its places in queues, as a reader and as a writer.
#[derive(Default)]
pub struct Mixer {
    waiter: Waiter,
    /// Place as a writer, beside the place as a reader of the same lock in `waiter`. A reader gets
    /// the writer's place by an upgrade; a writer keeps it after a downgrade.
    writer: Option<Place>,
    /// List that was read under the lock and not yet written back.
    list: Option<String>,
    /// True once the worker has written, or was refused an upgrade.
    done: bool,
}

impl Mixer {
    /// Moves the writer's place, which an operation has left in `waiter`, to `writer`. Puts the
    /// reader's place back into `waiter`, unless the session is over.
    fn writer_was_used(&mut self, reader: Place) {
        self.writer = self.waiter.place.take();
        self.waiter.place = self.waiter.owner.has_session().then_some(reader);
    }

    /// Downgrades a writer: it acquires the lock for reading, and releases its hold as a writer in
    /// a later step.
    async fn downgrade(&mut self, session: Session, place: Place, client: &mut Client) {
        let call = Call::post(format!("/v1/locks{}?mode=read&owner=worker", place.lock()));
        let asked = (Tickets::One, told(&wish(place.lock().to_owned(), LockMode::Read)), call);
        self.waiter.ask("downgrade", session, asked, client).await;
        if !self.waiter.owner.has_session() {
            self.writer = None;
        } else if self.waiter.place.is_some() {
            self.writer = Some(place);
        } else {
            self.waiter.place = Some(place);
        }
    }
}

impl Mixed {
    /// Returns the workload for this number of workers, with so few locks that all kinds of
    /// requests meet.
    pub fn new(concurrency: usize) -> Mixed {
        Mixed { pool: Pool::new("mixed", (concurrency / 3).max(PARTS_MAX)) }
    }

    /// Asks for a place in the queue of one lock or of several, in a random mode.
    async fn enqueue(&self, worker: &mut Mixer, session: Session, client: &mut Client) -> Result<(), String> {
        (worker.list, worker.done) = (None, false);
        let mut names = self.pool.take_all(client);
        let asked = if client.rng.u8(..10) < 4 {
            names.truncate(client.rng.usize(1..=PARTS_MAX));
            let locks = names.into_iter().map(|name| in_any_way(name, client)).collect();
            several(locks, "worker", client)
        } else {
            let wish = in_any_way(names.remove(0), client);
            self.pool.guard(client, &wish.path).await?;
            let (tickets, value, call) = one(&wish);
            (tickets, value, if wish.permits.is_none() { call.query("owner=worker") } else { call })
        };
        worker.waiter.enqueue(session, asked, client).await;
        Ok(())
    }

    /// Reads the list of the guarded znode under the read lock, and asks for an upgrade. If two
    /// readers of a lock ask for an upgrade, the second is refused.
    async fn upgrade(&self, worker: &mut Mixer, session: Session, place: Place, client: &mut Client) {
        let Ok(list) = guarded::read(place.lock(), client).await else {
            worker.waiter.place = Some(place);
            return worker.waiter.owner.keep(session);
        };
        worker.list = Some(list);
        let call = Call::post(format!("/v1/locks{}?upgrade={}", place.lock(), place.ticket));
        let mut value = told(&wish(place.lock().to_owned(), LockMode::Write));
        // The number identifies this upgrade in the history.
        value["upgrade"] = self.pool.fresh().into();
        let answer = worker.waiter.ask("upgrade", session, (Tickets::One, value, call), client).await;
        worker.writer_was_used(place);
        worker.done = answer.is_problem("upgrade-conflict");
    }

    /// Writes the list of the lock's guarded znode back with one more element, and stays a writer.
    async fn write(&self, worker: &mut Mixer, session: Session, writer: Place, client: &mut Client) {
        let lock = writer.lock().to_owned();
        let mut value = owned(&writer.value, &session);
        value["element"] = self.pool.fresh().into();
        client.invoke("append", value.clone());
        let list = match worker.list.take() {
            Some(list) => Ok(list),
            None => guarded::read(&lock, client).await,
        };
        let token = value["token"].as_u64();
        let answer: Answer = match list {
            Ok(list) => guarded::write(&lock, token, list, &mut value, client).await,
            Err(answer) => answer,
        };
        client.end_as(&answer, "append", value);
        worker.done = true;
        worker.waiter.after(session, &answer, client);
        worker.waiter.place = worker.waiter.owner.has_session().then_some(writer);
    }

    /// Makes the next operation of a worker that has a writer's place in a queue: waits for the
    /// grant, writes the list, or releases the place.
    async fn use_writer(&self, worker: &mut Mixer, session: Session, writer: Place, client: &mut Client) {
        let reader = worker.waiter.place.take();
        let leaves = client.rng.u8(..20) == 0;
        if !writer.held && !leaves {
            worker.waiter.wait(session, writer, client).await;
        } else if writer.held && !worker.done {
            self.write(worker, session, writer, client).await;
        } else {
            worker.waiter.release(session, writer, client).await;
        }
        if let Some(reader) = reader {
            worker.writer_was_used(reader);
        }
    }

    /// Makes the next operation of a worker that holds a lock: an upgrade, a write, a downgrade or
    /// a release.
    async fn use_place(&self, worker: &mut Mixer, session: Session, place: Place, client: &mut Client) {
        let goes_on = client.rng.u8(..20) < 12;
        match (place.value["mode"].as_str(), worker.done) {
            (Some("read"), false) if goes_on => self.upgrade(worker, session, place, client).await,
            (Some("write"), false) => self.write(worker, session, place, client).await,
            (Some("write"), true) if goes_on => worker.downgrade(session, place, client).await,
            _ => worker.waiter.release(session, place, client).await,
        }
    }
}

/// Returns a random request for a lock: to read, to write, or for some of its permits.
fn in_any_way(path: String, client: &mut Client) -> LockWish {
    match client.rng.u8(..6) {
        0 | 1 => wish(path, LockMode::Read),
        2 | 3 => wish(path, LockMode::Write),
        _ => lease(path, client.rng.u32(1..=PERMITS_MAX), LIMIT),
    }
}

impl Work for Mixed {
    type Worker = Mixer;

    async fn step(&self, worker: &mut Mixer, client: &mut Client) -> Result<(), String> {
        let Some(session) = worker.waiter.owner.session(client).await? else { return Ok(()) };
        if let Some(writer) = worker.writer.take() {
            self.use_writer(worker, session, writer, client).await;
            return Ok(());
        }
        let die = client.rng.u8(..20);
        match worker.waiter.place.take() {
            None => self.enqueue(worker, session, client).await?,
            Some(place) if die < 3 => {
                look(place.lock(), client).await;
                worker.waiter.place = Some(place);
                worker.waiter.owner.keep(session);
            }
            Some(place) if place.held => self.use_place(worker, session, place, client).await,
            Some(place) if die == 3 => worker.waiter.release(session, place, client).await,
            Some(place) => worker.waiter.wait(session, place, client).await,
        }
        Ok(())
    }

    async fn settle(&self, worker: Mixer, client: &mut Client) -> Result<(), String> {
        worker.waiter.owner.settle(client).await
    }

    async fn finish(&self, client: &mut Client) -> Result<(), String> {
        self.pool.read_at_the_end(client).await?;
        all_again(&self.pool, client).await
    }
}
