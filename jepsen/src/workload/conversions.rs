//! A reader that becomes a writer, and a writer that becomes a reader: two places of one worker in
//! one lock.

use serde_json::{Value, json};

use super::waiter::{Place, Tickets, Waiter};
use crate::answer::Answer;
use crate::client::{Client, Session};
use crate::http::Call;

/// A worker, the place that it asked for, and the writer that its reader became.
#[derive(Default)]
pub(super) struct Convertible {
    pub(super) waiter: Waiter,
    /// The upgraded writer, or the one that was downgraded.
    pub(super) writer: Option<Place>,
}

impl Convertible {
    /// Asks to write as well. `upgrade` tells this upgrade from all others.
    pub(super) async fn upgrade(
        &mut self,
        session: Session,
        place: Place,
        upgrade: u64,
        client: &mut Client,
    ) -> Answer {
        let call = Call::post(format!("/v1/locks{}?upgrade={}&keep=true", place.lock(), place.ticket));
        let value = json!({"lock": place.lock(), "mode": "write", "upgrade": upgrade});
        let answer = self.waiter.ask("upgrade", session, Tickets::One, value, call, client).await;
        self.writer_was_used(place);
        answer
    }

    /// The writer reads on, and then lets go of the write lock.
    pub(super) async fn downgrade(&mut self, session: Session, place: Place, client: &mut Client) {
        let call = Call::post(format!("/v1/locks{}?mode=read&owner=worker&keep=true", place.lock()));
        let value: Value = json!({"lock": place.lock(), "mode": "read"});
        self.waiter.ask("downgrade", session, Tickets::One, value, call, client).await;
        if !self.waiter.owner.has_session() {
            self.writer = None;
        } else if self.waiter.place.is_some() {
            self.writer = Some(place);
        } else {
            self.waiter.place = Some(place);
        }
    }

    /// What the waiter has now is the writer; the reader stays beside it, unless the session has
    /// gone.
    pub(super) fn writer_was_used(&mut self, reader: Place) {
        self.writer = self.waiter.place.take();
        self.waiter.place = self.waiter.owner.has_session().then_some(reader);
    }
}
