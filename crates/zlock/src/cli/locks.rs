//! `zlock locks`: shows locks, their holders and their waiters.

use std::io::IsTerminal as _;
use std::time::Duration;

use clap::{Arg, ArgMatches, Command};
use serde::Serialize;
use tokio::time::MissedTickBehavior;
use zlock_client::{
    Actor, Contender, EndedTicket, Error, LockQueue, LockSummary, ProblemType, RevokeRequest, WatchKind, Watcher,
};

use super::context::{Context, path, path_of};
use super::failure::Failure;
use super::lock::say;
use super::options::{flag, number, option};
use super::output::{Output, Tone, client, since, span, until, word};
use super::seen::plain;

/// Shortest time between two reads of the queues with `--watch`. The displayed times are updated at
/// the same interval.
const PACE: Duration = Duration::from_secs(1);
/// Exit code of `--held` when the lock is free.
const FREE: u8 = 5;
const COLUMNS: [&str; 12] = [
    "LOCK",
    "MODE",
    "SESSION",
    "TOKEN",
    "SINCE",
    "HEARD",
    "EXPIRES IN",
    "ASKED",
    "LABEL",
    "SESSION LABEL",
    "CLIENT",
    "STATE",
];
/// Indexes in [`COLUMNS`] of the columns with times that each heartbeat of a session changes.
const HEARD: std::ops::Range<usize> = 5..7;
/// Escape sequence that clears a terminal.
const CLEAR: &[u8] = b"\x1b[H\x1b[2J";

pub(crate) fn command() -> Command {
    let watch = flag("watch", "Shows the locks again after each change, until the command is interrupted");
    let count = option("count", "NUMBER", "Number of times that the command shows the locks before it ends");
    let held = "Tells only by the exit code whether this lock is held: 0 if held, 5 if free";
    Command::new("locks")
        .about("Shows locks with their holders and waiters, and since when these hold or wait")
        .after_help(
            "Simple locks are not shown, because a simple lock looks like any other ephemeral znode. \
             `zlock get` and `zlock stat` of its path show its holder.",
        )
        .arg(Arg::new("path").value_name("PATH").default_value("/").help("Shows only locks at and below this path"))
        .arg(flag("history", "Shows past holders and waiters of the lock at this path, and how they ended"))
        .arg(watch.conflicts_with("history"))
        .arg(count.value_parser(number::<u64>(1)).requires("watch"))
        .arg(option("held", "NAME", held).conflicts_with_all(["path", "history", "watch"]))
}

pub(crate) async fn run(context: &Context, matches: &ArgMatches) -> Result<u8, Failure> {
    if let Some(name) = matches.get_one::<String>("held") {
        return held(context, &path(name)).await;
    }
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
    let locks = context.client.locks_with_queues(&path).await?;
    if locks.is_empty() && path != "/" {
        // The list leaves out locks that the client may not read. A direct request for such a lock
        // is refused, and its error is shown.
        context.client.lock_queue(&path).await?;
    }
    show(context.out, &path, &locks, true)?;
    Ok(0)
}

/// Runs `--held`: returns exit code 0 if the lock is held, else [`FREE`]. A lock counts as held
/// after its holder's session has expired, until its lock-delay is over.
async fn held(context: &Context, path: &str) -> Result<u8, Failure> {
    let queue = context.client.lock_queue(path).await?;
    let is_held = !queue.holders.is_empty() || !queue.lingering.is_empty() || {
        // The path may be a simple lock, which is held if the znode is ephemeral.
        let holder = context.client.simple_lock(path).holder().await?;
        holder.is_some_and(|holder| holder.session.is_some())
    };
    if context.out.json {
        context.out.document(&is_held)?;
    }
    Ok(if is_held { 0 } else { FREE })
}

/// JSON document for one lock: its queue as in the HTTP API, or a summary if the queue cannot be
/// shown.
#[derive(Serialize)]
#[serde(untagged)]
enum Shown<'a> {
    Queue(&'a LockQueue),
    Lock(&'a LockSummary),
}

fn show(out: Output, path: &str, locks: &[LockSummary], is_once: bool) -> Result<(), Failure> {
    if out.json {
        let shown = locks.iter().map(|lock| lock.queue.as_ref().map_or(Shown::Lock(lock), Shown::Queue));
        return out.document(&shown.collect::<Vec<_>>());
    }
    if locks.is_empty() {
        // Printed to stderr, because each line on stdout is a lock.
        let below = if path == "/" { String::new() } else { format!(" at {path} or below it") };
        say(&format!("zlock: no lock{below} is held or waited for; simple locks are not shown"));
    }
    let mut columns = COLUMNS.to_vec();
    let mut rows: Vec<Vec<String>> = locks.iter().flat_map(|lock| rows(out, lock)).collect();
    if !is_once {
        // Left out with `--watch`, as these times are outdated after a second.
        columns.drain(HEARD);
        rows.iter_mut().for_each(|row| drop(row.drain(HEARD)));
    }
    out.table(&columns, &rows)?;
    for queue in locks.iter().filter_map(|lock| lock.queue.as_ref()) {
        if queue.cursor.is_some() {
            out.line(&format!("{} has {} contenders; the first are shown", plain(&queue.path), queue.contenders))?;
        }
        if let Some(warning) = mixed_clients(queue) {
            say(&warning);
        }
    }
    Ok(())
}

/// Returns warnings about a queue with tickets (contenders' znodes) of different client libraries:
/// if one library does not recognize the znodes of another, two clients may hold the lock at once.
/// Also warns of another znode in the queue that blocks a library's clients.
fn mixed_clients(queue: &LockQueue) -> Option<String> {
    let lock = plain(&queue.path);
    let (data, mixed): (Vec<_>, Vec<_>) = queue.mixed_clients.iter().partition(|pair| pair.child.is_some());
    let told: Vec<String> = mixed.iter().map(|pair| format!("{} does not see {}", pair.clients, pair.unseen)).collect();
    let mixed = (!told.is_empty()).then(|| format!("zlock: two may hold {lock} at once: {}", told.join(", ")));
    let child = data.first().and_then(|pair| pair.child.as_deref());
    let data = child.map(|child| {
        let child = plain(child);
        format!("zlock: Curator's clients wait for the znode {child} in {lock}, which is no ticket: move it elsewhere")
    });
    let lines: Vec<String> = mixed.into_iter().chain(data).collect();
    (!lines.is_empty()).then(|| lines.join("\n"))
}

/// Prints the queues each time they change. On a terminal they are redrawn in place, also each
/// second for the displayed times.
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
                // An empty line separates the tables when they are not drawn in place.
                if shown.is_some() && !in_place && !context.out.json {
                    context.out.line("")?;
                }
                draw(context.out, path, in_place, &queues)?;
                shown = Some(queues);
                left -= 1;
            }
            Ok(_) => {}
            // Goes on showing the last table while the cluster is unavailable.
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

/// Starts the watch and then reads the queues of all locks, so that every later change causes an
/// event.
async fn look(context: &Context, path: &str, watcher: &mut Watcher) -> Result<Vec<LockSummary>, Error> {
    watcher.start().await?;
    let mut locks = context.client.locks_with_queues(path).await?;
    for queue in locks.iter_mut().filter_map(|lock| lock.queue.as_mut()) {
        // Removes the times that heartbeats change, so that a heartbeat does not count as a change.
        for one in queue.holders.iter_mut().chain(&mut queue.waiters) {
            (one.silent_for_ms, one.expires_in_ms) = (None, None);
        }
    }
    Ok(locks)
}

fn draw(out: Output, path: &str, in_place: bool, queues: &[LockSummary]) -> Result<(), Failure> {
    if in_place {
        out.bytes(CLEAR)?;
    }
    show(out, path, queues, false)
}

/// Waits until a znode at or below the path has changed, or may have changed.
async fn changed(watcher: &mut Watcher) -> Result<(), Failure> {
    loop {
        match watcher.next_batch().await {
            Ok(events) if events.is_empty() => {}
            Ok(_) => return Ok(()),
            // Events since the last one are no longer available, so there may have been changes.
            Err(error) if is_away(&error) || error.code() == Some(ProblemType::EventsGone) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
    }
}

/// Tells whether the error means that the cluster is temporarily unavailable. A watch goes on after
/// such an error.
fn is_away(error: &Error) -> bool {
    matches!(error, Error::Unavailable { .. } | Error::Unknown { .. })
}

async fn history(context: &Context, path: &str) -> Result<u8, Failure> {
    let past = context.client.lock_history(path).await?;
    context.out.answer(&past, || {
        if past.history.is_empty() {
            say(&format!("zlock: {path} has no past that is remembered; `zlock locks {path}` shows who has it now"));
        }
        let rows: Vec<Vec<String>> = past.history.iter().map(past_row).collect();
        context.out.table(
            &["ENDED", "MODE", "SESSION", "TOKEN", "WAITED", "HELD", "LABEL", "SESSION LABEL", "CLIENT", "END"],
            &rows,
        )
    })
}

fn past_row(one: &EndedTicket) -> Vec<String> {
    let waited = one.granted_at_ms.unwrap_or(one.ended.at_ms).saturating_sub(one.enqueued_at_ms);
    vec![
        format!("{} ago", since(one.ended.at_ms)),
        word(&one.mode),
        one.session.to_string(),
        one.fencing_token.map_or("-".into(), |token| token.to_string()),
        span(waited),
        one.granted_at_ms.map_or("-".into(), |at_ms| span(one.ended.at_ms.saturating_sub(at_ms))),
        text(&one.label),
        text(&one.session_label),
        client(one.client.as_ref()),
        format!("{}{}", word(&one.ended.how), one.ended.by.as_ref().map(by).unwrap_or_default()),
    ]
}

/// Describes the client that removed a ticket, as in ` by session 7 (web-1, pid 71)`; empty if the
/// client is unknown.
fn by(actor: &Actor) -> String {
    let actor = plain(&actor.to_string());
    if actor.is_empty() { actor } else { format!(" by {actor}") }
}

fn rows(out: Output, lock: &LockSummary) -> Vec<Vec<String>> {
    let Some(queue) = &lock.queue else {
        let mut row = vec!["-".to_owned(); COLUMNS.len()];
        row[0] = plain(&lock.path);
        row[COLUMNS.len() - 1] = format!("cannot be shown; {} contenders", lock.contenders);
        return vec![row];
    };
    // Only the last column has colours, because escape sequences would count as width in others.
    let held = out.paint(Tone::Good, "holds");
    let rows = queue.holders.iter().map(|one| row(&queue.path, one, held.clone()));
    let rows = rows.chain(queue.lingering.iter().map(|one| row(&queue.path, one, "expired, lock-delay".into())));
    let waiting = |one: &Contender| match one.priority {
        0 => row(&queue.path, one, format!("waits, {} before it", one.position)),
        priority => row(&queue.path, one, format!("waits with priority {priority}")),
    };
    rows.chain(queue.waiters.iter().map(waiting)).collect()
}

fn row(lock: &str, one: &Contender, state: String) -> Vec<String> {
    let or_none = |ms: Option<u64>, more: &str| ms.map_or("-".to_owned(), |ms| format!("{}{more}", span(ms)));
    vec![
        plain(lock),
        word(&one.mode),
        one.session.map_or("-".into(), |session| session.to_string()),
        one.fencing_token.map_or("-".into(), |token| token.to_string()),
        since(one.enqueued_at_ms),
        or_none(one.silent_for_ms, " ago"),
        or_none(one.expires_in_ms, ""),
        one.revoke.as_ref().map_or("-".into(), asked),
        text(&one.label),
        text(&one.session_label),
        client(one.client.as_ref()),
        state,
    ]
}

/// Formats the age of a request to release a lock, and its deadline: `5s ago, due in 25s`.
fn asked(request: &RevokeRequest) -> String {
    let due = request.due_at_ms.map(|at_ms| match until(at_ms) {
        0 => ", is due".to_owned(),
        ms => format!(", due in {}", span(ms)),
    });
    format!("{} ago{}", since(request.asked_at_ms), due.unwrap_or_default())
}

fn text(text: &str) -> String {
    if text.is_empty() { "-".to_owned() } else { plain(text) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_that_do_not_see_each_other_are_told_of() {
        let told = |pairs: &str| {
            let queue =
                format!(r#"{{"path":"/l","contenders":0,"holders":[],"waiters":[],"mixed_clients":[{pairs}]}}"#);
            mixed_clients(&serde_json::from_str(&queue).unwrap())
        };
        assert_eq!(told(""), None);
        let kazoo = told(r#"{"clients":"kazoo","unseen":"curator"}"#).unwrap();
        assert_eq!(kazoo, "zlock: two may hold /l at once: kazoo does not see curator");
        let recipe = told(r#"{"clients":"zookeeper-recipe","unseen":"kazoo"}"#).unwrap();
        assert_eq!(recipe, "zlock: two may hold /l at once: zookeeper-recipe does not see kazoo");
        let data = told(r#"{"clients":"zlock","unseen":"data","child":"0000000001"}"#).unwrap();
        assert!(data.contains("wait for the znode 0000000001 in /l"), "{data}");
    }

    #[test]
    fn a_lock_that_cannot_be_shown_has_a_line_beside_those_that_can() {
        let first = r#"{"ticket":"/l/x-0000000000","position":0,"mode":"exclusive","session":7,"label":"me",
            "enqueued_at_ms":1,"fencing_token":1,"holds":1,"silent_for_ms":3500,"expires_in_ms":6500,"session_label":"nightly",
            "revoke":{"zxid":9,"asked_at_ms":1,"due_at_ms":2}}"#;
        let queue = format!(r#"{{"path":"/l","contenders":1,"holders":[{first}],"waiters":[]}}"#);
        let lock = |more: &str| {
            let text = format!(r#"{{"path":"/l","contenders":3,"first":{first}{more}}}"#);
            rows(Output::new(true), &serde_json::from_str(&text).unwrap())
        };
        let unseen = lock("").remove(0);
        assert_eq!((&*unseen[0], &*unseen[1], unseen[11].as_str()), ("/l", "-", "cannot be shown; 3 contenders"));
        let seen = lock(&format!(r#","queue":{queue}"#)).remove(0);
        assert_eq!(seen.len(), COLUMNS.len());
        assert_eq!(&seen[5..7], ["3s ago", "6s"]);
        assert!(seen[7].ends_with(" ago, is due"), "{}", seen[7]);
        assert_eq!(&seen[8..], ["me", "nightly", "-", "holds"]);
    }
}
