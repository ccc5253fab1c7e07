//! Progress of the scrub: entries that hash all records of the state, one page after the other, in
//! rounds. Each node knows the progress, so that any node can go on as the next leader.

use std::time::Duration;

use accept::Mutex;
use tokio::time::Instant;
use znode::{Op, RecordKey};

/// Progress of the scrub, as this node knows it from the entries that it has applied.
#[derive(Debug)]
pub(crate) struct Scrub(Mutex<Progress>);

#[derive(Debug)]
struct Progress {
    /// The record that was hashed last; `None` if the next entry begins a round.
    last: Option<RecordKey>,
    /// Time at which this node applied the last entry of the scrub. If it has applied none, the
    /// time at which it started.
    since: Instant,
    /// Time of the entry that ended the last round, in milliseconds since 1970; 0 for none.
    ended_ms: u64,
}

impl Scrub {
    pub(crate) fn new() -> Scrub {
        Scrub(Mutex::new(Progress { last: None, since: Instant::now(), ended_ms: 0 }))
    }

    /// Notes an entry of the scrub that was applied at `time_ms`, in milliseconds since 1970.
    /// `last` is the last record that it hashed; `None` for the last record of the state.
    pub(crate) fn note(&self, last: Option<RecordKey>, time_ms: u64) {
        let mut progress = self.0.lock();
        progress.since = Instant::now();
        if last.is_none() {
            progress.ended_ms = time_ms;
        }
        progress.last = last;
    }

    /// Forgets the record that was hashed last, because a snapshot has taken the place of entries.
    pub(crate) fn begin_anew(&self) {
        self.0.lock().last = None;
    }

    /// Tells whether this node has applied no entry of the scrub for `pause`.
    pub(crate) fn is_due(&self, now: Instant, pause: Duration) -> bool {
        now.saturating_duration_since(self.0.lock().since) >= pause
    }

    /// The operation of the next entry.
    pub(crate) fn next(&self) -> Op {
        Op::Scrub { after: self.0.lock().last.clone() }
    }

    /// Time at which the last round ended, in milliseconds since 1970; 0 for no round that this
    /// node knows.
    pub(crate) fn ended_ms(&self) -> u64 {
        self.0.lock().ended_ms
    }
}

#[cfg(test)]
mod tests {
    use znode::SessionId;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_round_goes_on_where_the_last_entry_ended() {
        let (scrub, pause) = (Scrub::new(), Duration::from_secs(1));
        let due = || scrub.is_due(Instant::now(), pause);
        assert!(!due());
        tokio::time::advance(pause).await;
        assert!(due());
        assert_eq!(scrub.next(), Op::Scrub { after: None });
        let last = Some(RecordKey::Session(SessionId(7), None));
        scrub.note(last.clone(), 5);
        assert!(!due());
        assert_eq!((scrub.next(), scrub.ended_ms()), (Op::Scrub { after: last.clone() }, 0));
        scrub.note(None, 6);
        assert_eq!((scrub.next(), scrub.ended_ms()), (Op::Scrub { after: None }, 6));
        scrub.note(last, 7);
        scrub.begin_anew();
        assert_eq!((scrub.next(), scrub.ended_ms()), (Op::Scrub { after: None }, 6));
    }
}
