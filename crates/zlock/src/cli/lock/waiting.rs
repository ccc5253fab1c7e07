//! Waiting for the lock: messages to the user, and the failure when the lock is not free in time.

use std::time::Duration;

use clap::ArgMatches;
use zlock_client::api::Millis;
use zlock_client::{Client, ClientInfo, Error, Guard};

use super::super::context::Context;
use super::super::failure::Failure;
use super::super::output::since;
use super::super::seen::plain;
use super::signals::Signals;
use super::{GOODBYE, path_of, say};

/// Exit code when the lock was not free in time.
const NOT_ACQUIRED: u8 = 124;
/// Pause before each request for the lock's holder while the holder is unknown. A waiting command
/// prints the holder.
const PATIENCE: Duration = Duration::from_secs(1);

/// Waits until the lock is acquired.
///
/// # Errors
/// A failure when the lock is not free in time; its exit code is that of `--busy-exit`, else 124. A
/// failure when a signal ends the wait; its exit code is 128 plus the signal's number.
pub(super) async fn acquire(
    context: &Context,
    matches: &ArgMatches,
    acquired: impl Future<Output = Result<Option<Guard>, Error>>,
    signals: &mut Signals,
) -> Result<Guard, Failure> {
    let path = path_of(matches);
    let is_quiet = matches.get_flag("quiet");
    let simple = matches.try_get_one::<bool>("simple").ok().flatten().is_some_and(|simple| *simple);
    let acquired = tokio::select! {
        biased;
        acquired = acquired => acquired,
        () = say_what_it_waits_for(&context.client, &path, simple), if !is_quiet => unreachable!("it never returns"),
        signal = signals.next_that_ends() => {
            return Err(Failure::silent(128 + u8::try_from(signal).unwrap_or(0)));
        }
    };
    if let Some(guard) = acquired? {
        return Ok(guard);
    }
    let code = matches.get_one::<u8>("busy-exit").copied().unwrap_or(NOT_ACQUIRED);
    if is_quiet {
        return Err(Failure::silent(code));
    }
    let when = match matches.get_one::<Duration>("wait") {
        Some(wait) if !wait.is_zero() => format!("was not free within {}", words_of(*wait)),
        _ => "is not free".to_owned(),
    };
    let obstacle = tokio::time::timeout(GOODBYE, obstacle(&context.client, &path, simple)).await.ok().flatten();
    let shown = if obstacle.as_deref() == Some(NO_SIMPLE_LOCK) { "the znode" } else { "who has it" };
    let obstacle = obstacle.map(|obstacle| format!(": {obstacle}")).unwrap_or_default();
    let look = if simple { "get" } else { "locks" };
    let line = format!("{path} {when}{obstacle}; `zlock {look} {path}` shows {shown}");
    Err(Failure::refused(line).with_code(code))
}

/// Formats a duration like the value of an option: `30s`, `100ms`.
pub(super) fn words_of(time: Duration) -> String {
    Millis::from(time).to_string()
}

/// Words for a znode without a session at the path of a simple lock.
const NO_SIMPLE_LOCK: &str = "a znode is in the way that is no simple lock, for example the directory of a lock with a \
     queue: either all clients of a lock use --simple, or none does";

/// Describes the other client that holds the lock, with the time since its grant, or a znode that
/// is no simple lock. `None` when the holder is unknown, or the lock is free by now.
async fn obstacle(client: &Client, path: &str, simple: bool) -> Option<String> {
    // This client itself may hold the lock already, while the answer to its acquire is under way.
    let own = client.session_id().await.ok()?;
    let is_other = |session: Option<u64>| session != Some(own);
    let (ticket, words) = if simple {
        let holder = client.simple_lock(path).holder().await.ok()?.filter(|holder| is_other(holder.session))?;
        if holder.session.is_none() {
            return Some(NO_SIMPLE_LOCK.to_owned());
        }
        let words = words_of_holder(holder.session, &holder.owner, holder.client.as_ref(), holder.granted_at_ms);
        (path.to_owned(), words)
    } else {
        let queue = client.lock_queue(path).await.ok()?;
        let holder = queue.holders.into_iter().chain(queue.lingering).find(|holder| is_other(holder.session))?;
        let at_ms = holder.granted_at_ms.unwrap_or(holder.enqueued_at_ms);
        let words = words_of_holder(holder.session, &holder.label, holder.client.as_ref(), at_ms);
        (holder.ticket, words)
    };
    // `ZLOCK_TICKET` is set if this process itself runs under another `zlock lock`. If that process
    // holds the lock, this is a deadlock.
    let is_own = std::env::var("ZLOCK_TICKET").is_ok_and(|own| own == ticket);
    Some(format!("held by {words}") + if is_own { ", which runs this command and waits for its end" } else { "" })
}

/// Describes a holder, as in `session 7 (backup; web-1, pid 71, zlock) for 3s`. Unknown parts are
/// left out.
pub(crate) fn words_of_holder(session: Option<u64>, label: &str, client: Option<&ClientInfo>, at_ms: u64) -> String {
    let session = session.map_or("a persistent znode".into(), |id| format!("session {id}"));
    let known = [label.to_owned(), client.map(ToString::to_string).unwrap_or_default()];
    let known = known.into_iter().filter(|text| !text.is_empty()).collect::<Vec<_>>().join("; ");
    let known = if known.is_empty() { known } else { format!(" ({})", plain(&known)) };
    format!("{session}{known} for {}", since(at_ms))
}

/// Prints the obstacle once, as soon as it is known.
async fn say_what_it_waits_for(client: &Client, path: &str, simple: bool) {
    loop {
        tokio::time::sleep(PATIENCE).await;
        if let Some(obstacle) = obstacle(client, path, simple).await {
            say(&format!("zlock: waiting for {}, {obstacle}", plain(path)));
            std::future::pending::<()>().await;
        }
    }
}
