//! Signals that `zlock lock` passes on to the command.

use std::future::poll_fn;
use std::ops::Range;
use std::task::Poll;

use rustix::process::Signal;
use tokio::signal::unix::{Signal as Listener, SignalKind, signal};

/// Numbers of the real-time signals, except those that the C library reserves. Empty on macOS,
/// which has none.
const REAL_TIME: Range<i32> = cfg_select! {
    target_env = "musl" => 35..65,
    target_os = "linux" => 34..65,
    _ => 34..34,
};

/// Listeners for the signals with which users and service managers control a program. Other signals
/// keep their default action.
pub(super) struct Signals(Vec<(i32, Listener)>);

impl Signals {
    pub(super) fn listen() -> std::io::Result<Signals> {
        let named = [
            Signal::INT,
            Signal::TERM,
            Signal::HUP,
            Signal::QUIT,
            Signal::USR1,
            Signal::USR2,
            Signal::CONT,
            Signal::WINCH,
        ];
        let ignored = ignored();
        let numbers = named.map(Signal::as_raw).into_iter().chain(REAL_TIME);
        let heeded = numbers.filter(|number| ignored & (1 << (number - 1)) == 0);
        let listen = |number| Ok((number, signal(SignalKind::from_raw(number))?));
        heeded.map(listen).collect::<std::io::Result<_>>().map(Signals)
    }

    /// Waits for the next signal and returns its number. Never returns when all signals are
    /// ignored. Cancel-safe.
    pub(super) async fn next(&mut self) -> i32 {
        poll_fn(|context| {
            let came = self
                .0
                .iter_mut()
                .find_map(|(number, listener)| listener.poll_recv(context).is_ready().then_some(*number));
            came.map_or(Poll::Pending, Poll::Ready)
        })
        .await
    }

    /// Waits for the next signal that asks a program to end.
    pub(super) async fn end(&mut self) {
        while !of_number(self.next().await).is_some_and(is_to_end) {}
    }

    /// Waits for the next signal whose default action ends a program, and returns its number.
    pub(super) async fn next_that_ends(&mut self) -> i32 {
        loop {
            let number = self.next().await;
            if ![Signal::CONT, Signal::WINCH].iter().any(|harmless| harmless.as_raw() == number) {
                return number;
            }
        }
    }
}

/// Returns the signal with this number; `None` for a number without a signal.
pub(super) fn of_number(number: i32) -> Option<Signal> {
    #[expect(unsafe_code, reason = "rustix names no real-time signals")]
    let real_time = || {
        // SAFETY: the C library keeps none of these for itself.
        REAL_TIME.contains(&number).then(|| unsafe { Signal::from_raw_unchecked(number) })
    };
    Signal::from_named_raw(number).or_else(real_time)
}

/// Tells whether a signal asks a program to end. The caller sends SIGCONT after such a signal,
/// because a suspended program cannot handle it before SIGCONT.
pub(super) fn is_to_end(signal: Signal) -> bool {
    [Signal::INT, Signal::TERM, Signal::HUP, Signal::QUIT].contains(&signal)
}

/// Returns the signals that were ignored when this program was started, as a bit set. They stay
/// ignored for this program and the command, so that `nohup` works. Empty on systems without the
/// file in `/proc`.
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let set = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    set.and_then(|set| u64::from_str_radix(set.trim(), 16).ok()).unwrap_or(0)
}
