//! Waits for a condition, by polling it.

use std::time::Duration;

use tokio::time::{Instant, Interval, MissedTickBehavior, interval};

/// Longest wait for a condition. Generous, as test machines can be slow.
const PATIENCE: Duration = Duration::from_secs(60);

/// Timer for polling a condition: 20 ms between two checks, and a panic after the longest wait.
pub struct Pace {
    what: String,
    began: Instant,
    ticks: Interval,
}

impl Pace {
    /// Begins to wait for the condition `what`, as in "waited in vain until `what`", the panic's
    /// message.
    pub fn new(what: &str) -> Pace {
        let mut ticks = interval(Duration::from_millis(20));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Pace { what: what.to_owned(), began: Instant::now(), ticks }
    }

    /// Waits until the next check is due. The first check is due at once. Panics after the longest
    /// wait.
    pub async fn next(&mut self) {
        self.ticks.tick().await;
        assert!(self.began.elapsed() < PATIENCE, "waited in vain until {}", self.what);
    }
}

/// Repeats `look` until it returns a value. `what` describes the condition for the panic's message,
/// "waited in vain until `what`".
pub async fn until<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let mut pace = Pace::new(what);
    loop {
        pace.next().await;
        if let Some(found) = look().await {
            return found;
        }
    }
}
