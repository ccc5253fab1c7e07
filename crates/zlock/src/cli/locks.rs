//! `zlock locks`.

use std::io::IsTerminal as _;
use std::time::Duration;

use clap::{Arg, ArgAction, ArgMatches, Command};
use tokio::time::MissedTickBehavior;
use zlock_client::{Actor, Contender, EndedTicket, Error, LockQueue, ProblemType, WatchKind, Watcher};

use super::context::{Context, path_of};
use super::failure::Failure;
use super::lock::say;
use super::options::number;
use super::output::{Output, Tone, client, plain, since, span, word};

/// With `--watch`: how far looks at the queues are apart, at least, and how often the times are
/// drawn anew.
const PACE: Duration = Duration::from_secs(1);
/// Clears a terminal.
const CLEAR: &[u8] = b"\x1b[H\x1b[2J";

pub(crate) fn command() -> Command {
    Command::new("locks")
        .about("Shows who holds which lock, who waits for it, and since when")
        .after_help(
            "Simple locks are not shown: such a lock is one ephemeral znode, which nothing tells from other ephemeral znodes. \
             `zlock get` and `zlock stat` of its path show who holds it.",
        )
        .arg(Arg::new("path").value_name("PATH").default_value("/").help("Locks at and below this path"))
        .arg(
            Arg::new("history")
                .long("history")
                .action(ArgAction::SetTrue)
                .help("Of the lock at this path: who held it and waited for it before, and how that ended"),
        )
        .arg(
            Arg::new("watch")
                .long("watch")
                .action(ArgAction::SetTrue)
                .conflicts_with("history")
                .help("Shows them again whenever they change, until it is interrupted"),
        )
        .arg(
            Arg::new("count")
                .long("count")
                .value_name("NUMBER")
                .value_parser(number::<u64>(1))
                .requires("watch")
                .help("Ends after it has shown them so often"),
        )
}

pub(crate) async fn run(context: &Context, matches: &ArgMatches) -> Result<u8, Failure> {
    let path = path_of(matches);
    if matches.get_flag("history") {
        if path == "/" {
            return Err(Failure::usage("--history is of one lock: name it, as in `zlock locks orders --history`"));
        }
        return history(context, &path).await;
    }
    if matches.get_flag("watch") {
        return watch(context, &path, matches.get_one::<u64>("count").copied()).await;
    }
    show(context.out, &path, &queues(context, &path).await?)?;
    Ok(0)
}

/// The queues at and below a path.
async fn queues(context: &Context, path: &str) -> Result<Vec<LockQueue>, Error> {
    let mut queues = Vec::new();
    for lock in context.client.locks(path).await? {
        queues.push(context.client.lock_queue(&lock.lock).await?);
    }
    // Free again by the time its queue was asked for.
    queues.retain(|queue: &LockQueue| queue.contenders > 0);
    Ok(queues)
}

fn show(out: Output, path: &str, queues: &[LockQueue]) -> Result<(), Failure> {
    if out.json {
        return out.document(&queues);
    }
    if queues.is_empty() {
        // Not on stdout: its lines are locks.
        let below = if path == "/" { String::new() } else { format!(" at {path} or below it") };
        say(&format!("zlock: no lock{below} is held or waited for; simple locks are not shown"));
    }
    let rows: Vec<Vec<String>> = queues.iter().flat_map(|queue| rows(out, queue)).collect();
    out.table(&["LOCK", "MODE", "SESSION", "TOKEN", "SINCE", "LABEL", "CLIENT", "STATE"], &rows)?;
    for queue in queues.iter().filter(|queue| queue.next.is_some()) {
        out.line(&format!("{} has {} contenders; the first are shown", queue.lock, queue.contenders))?;
    }
    Ok(())
}

/// Shows them whenever they change. On a terminal in place, and each second with the times of that
/// moment.
async fn watch(context: &Context, path: &str, count: Option<u64>) -> Result<u8, Failure> {
    let in_place = !context.out.json && std::io::stdout().is_terminal();
    let (mut shown, mut left) = (None, count.unwrap_or(u64::MAX));
    let mut paces = tokio::time::interval(PACE);
    paces.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        paces.tick().await;
        let mut watcher = context.client.watch(path, WatchKind::Subtree);
        match look(context, path, &mut watcher).await {
            Ok(queues) if shown.as_ref() != Some(&queues) => {
                // Where it is not in place, told from the one before.
                if shown.is_some() && !in_place && !context.out.json {
                    context.out.line("")?;
                }
                draw(context.out, path, in_place, &queues)?;
                shown = Some(queues);
                left -= 1;
            }
            Ok(_) => {}
            // What was shown may be true still.
            Err(error) if shown.is_some() && is_away(&error) => continue,
            Err(error) => return Err(error.into()),
        }
        if left == 0 {
            return Ok(0);
        }
        let mut change = Box::pin(changed(&mut watcher));
        loop {
            tokio::select! {
                changed = &mut change => break changed?,
                _ = paces.tick(), if in_place => draw(context.out, path, in_place, shown.as_deref().unwrap_or_default())?,
            }
        }
    }
}

/// The queues, with a watch that was begun before: what happens after the look is an event.
async fn look(context: &Context, path: &str, watcher: &mut Watcher) -> Result<Vec<LockQueue>, Error> {
    watcher.start().await?;
    queues(context, path).await
}

fn draw(out: Output, path: &str, in_place: bool, queues: &[LockQueue]) -> Result<(), Failure> {
    if in_place {
        out.bytes(CLEAR)?;
    }
    show(out, path, queues)
}

/// Returns when something has happened at or below the path, or may have.
async fn changed(watcher: &mut Watcher) -> Result<(), Failure> {
    loop {
        match watcher.next_batch().await {
            Ok(events) if events.is_empty() => {}
            Ok(_) => return Ok(()),
            // The nodes no longer know what happened since: something has.
            Err(error) if is_away(&error) || error.code() == Some(ProblemType::EventsGone) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
    }
}

/// Whether the cluster is away for a moment, which a watch outlives.
fn is_away(error: &Error) -> bool {
    matches!(error, Error::Unavailable { .. } | Error::Unknown { .. })
}

async fn history(context: &Context, path: &str) -> Result<u8, Failure> {
    let past = context.client.lock_history(path).await?;
    if context.out.json {
        context.out.document(&past)?;
        return Ok(0);
    }
    if past.history.is_empty() {
        say(&format!("zlock: {path} has no past that is remembered; `zlock locks {path}` shows who has it now"));
    }
    let rows: Vec<Vec<String>> = past.history.iter().map(past_row).collect();
    context.out.table(&["ENDED", "MODE", "SESSION", "TOKEN", "WAITED", "HELD", "LABEL", "CLIENT", "END"], &rows)?;
    Ok(0)
}

fn past_row(one: &EndedTicket) -> Vec<String> {
    let waited = one.granted_ms.unwrap_or(one.ended_ms).saturating_sub(one.enqueued_ms);
    vec![
        format!("{} ago", since(one.ended_ms)),
        word(&one.mode),
        one.session.to_string(),
        one.fencing_token.map_or("-".into(), |token| token.to_string()),
        span(waited),
        one.granted_ms.map_or("-".into(), |granted_ms| span(one.ended_ms.saturating_sub(granted_ms))),
        label(&one.label, &one.session_label),
        client(one.client.as_ref()),
        format!("{}{}", word(&one.end), one.by.as_ref().map(by).unwrap_or_default()),
    ]
}

/// That of the ticket, or else that of its session.
fn label(ticket: &str, session: &str) -> String {
    plain(if ticket.is_empty() { session } else { ticket })
}

/// ` by session 7 (web-1, pid 71)`: who took a ticket away.
fn by(actor: &Actor) -> String {
    let actor = plain(&actor.to_string());
    if actor.is_empty() { actor } else { format!(" by {actor}") }
}

fn rows(out: Output, queue: &LockQueue) -> Vec<Vec<String>> {
    // The last column has the colours: they would count as width.
    let held = out.paint(Tone::Good, "holds");
    let rows = queue.holders.iter().map(|one| row(&queue.lock, one, held.clone()));
    let rows = rows.chain(queue.lingering.iter().map(|one| row(&queue.lock, one, "expired, lock-delay".into())));
    let waiting = |one: &Contender| match one.priority {
        0 => row(&queue.lock, one, format!("waits, {} before it", one.position)),
        priority => row(&queue.lock, one, format!("waits with priority {priority}")),
    };
    rows.chain(queue.waiters.iter().map(waiting)).collect()
}

fn row(lock: &str, one: &Contender, state: String) -> Vec<String> {
    vec![
        plain(lock),
        word(&one.mode),
        one.session.map_or("-".into(), |session| session.to_string()),
        one.fencing_token.to_string(),
        since(one.since_ms),
        label(&one.label, &one.session_label),
        client(one.client.as_ref()),
        state,
    ]
}
