//! The signals that are passed on.

use futures_util::future::select_all;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// What people and service managers send to tell a program something. The others end or stop it as
/// ever.
pub(super) struct Signals(Vec<(i32, Signal)>);

impl Signals {
    pub(super) fn listen() -> std::io::Result<Signals> {
        let kinds = [
            SignalKind::interrupt(),
            SignalKind::terminate(),
            SignalKind::hangup(),
            SignalKind::quit(),
            SignalKind::user_defined1(),
            SignalKind::user_defined2(),
        ];
        let ignored = ignored();
        let kinds = kinds.into_iter().filter(|kind| ignored & (1 << (kind.as_raw_value() - 1)) == 0);
        let listen = |kind: SignalKind| Ok((kind.as_raw_value(), signal(kind)?));
        kinds.map(listen).collect::<std::io::Result<_>>().map(Signals)
    }

    /// The number of the next signal; never, when all are ignored. Dropping the future loses none.
    pub(super) async fn next(&mut self) -> i32 {
        let next = self.0.iter_mut().map(|(number, signal)| {
            let number = *number;
            Box::pin(async move {
                signal.recv().await;
                number
            })
        });
        let next: Vec<_> = next.collect();
        if next.is_empty() { std::future::pending().await } else { select_all(next).await.0 }
    }
}

/// The signals that were ignored before this program began, as a set of bits: `nohup` stays in
/// force, for the command too.
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let set = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    set.and_then(|set| u64::from_str_radix(set.trim(), 16).ok()).unwrap_or(0)
}
