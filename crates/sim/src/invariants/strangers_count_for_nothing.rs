//! A heartbeat with another secret than the session's is refused.
//!
//! Source: docs/http-api.md: a client that knows only a session's id can neither keep the session
//! alive nor end it.

use super::Invariant;
use crate::history::History;
use crate::observation::Observation;

pub(super) struct StrangersCountForNothing;

impl Invariant for StrangersCountForNothing {
    fn name(&self) -> &'static str {
        "strangers count for nothing"
    }

    fn client(&mut self, seen: &Observation, _: &History, _: u64) -> Result<(), String> {
        match seen {
            Observation::StrangerTouched { session } => {
                Err(format!("a heartbeat without the secret of session {session} was acknowledged"))
            }
            _ => Ok(()),
        }
    }
}
