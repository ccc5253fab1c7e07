//! Waits for a condition: the only place in the tests that lets time pass.

use std::time::Duration;

use tokio::time::{Instant, Interval, MissedTickBehavior, interval};

/// Longest wait for a condition. Generous, as machines that run tests are slow at times.
const PATIENCE: Duration = Duration::from_secs(60);

/// Paces the looks at a condition, and panics when the longest wait is over.
pub struct Pace {
    what: String,
    began: Instant,
    ticks: Interval,
}

impl Pace {
    /// Begins a wait. `what` completes "waited in vain until ...".
    pub fn new(what: &str) -> Pace {
        let mut ticks = interval(Duration::from_millis(20));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Pace { what: what.to_owned(), began: Instant::now(), ticks }
    }

    /// Waits until the next look is due. The first look is due at once.
    pub async fn next(&mut self) {
        self.ticks.tick().await;
        assert!(self.began.elapsed() < PATIENCE, "waited in vain until {}", self.what);
    }
}

/// Repeats `look` until it returns a value. `what` completes "waited in vain until ...".
pub async fn until<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let mut pace = Pace::new(what);
    loop {
        pace.next().await;
        if let Some(found) = look().await {
            return found;
        }
    }
}
