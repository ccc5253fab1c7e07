//! `zlock locks`.

use clap::{Arg, ArgAction, ArgMatches, Command};
use zlock_client::{Actor, Contender, LockQueue, PastTicket};

use super::context::{Context, path_of};
use super::failure::Failure;
use super::output::{Output, Tone, client, plain, since, span, word};

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
}

pub(crate) async fn run(context: &Context, matches: &ArgMatches) -> Result<u8, Failure> {
    if matches.get_flag("history") {
        return history(context, &path_of(matches)).await;
    }
    let mut queues = Vec::new();
    for lock in context.client.locks(&path_of(matches)).await? {
        queues.push(context.client.lock_queue(&lock.lock).await?);
    }
    // Free again by the time its queue was asked for.
    queues.retain(|queue: &LockQueue| queue.contenders > 0);
    if context.out.json {
        context.out.document(&queues)?;
        return Ok(0);
    }
    let rows: Vec<Vec<String>> = queues.iter().flat_map(|queue| rows(context.out, queue)).collect();
    context.out.table(&["LOCK", "MODE", "SESSION", "TOKEN", "SINCE", "LABEL", "CLIENT", "STATE"], &rows)?;
    for queue in queues.iter().filter(|queue| queue.next.is_some()) {
        context.out.line(&format!("{} has {} contenders; the first are shown", queue.lock, queue.contenders))?;
    }
    Ok(0)
}

async fn history(context: &Context, path: &str) -> Result<u8, Failure> {
    let past = context.client.lock_history(path).await?;
    if context.out.json {
        context.out.document(&past)?;
        return Ok(0);
    }
    let rows: Vec<Vec<String>> = past.history.iter().map(past_row).collect();
    context.out.table(&["ENDED", "MODE", "SESSION", "TOKEN", "WAITED", "HELD", "LABEL", "CLIENT", "END"], &rows)?;
    Ok(0)
}

fn past_row(one: &PastTicket) -> Vec<String> {
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
    let session = actor.session.map(|session| format!("session {session}"));
    let identity = Some(plain(&actor.identity)).filter(|identity| !identity.is_empty());
    let client = actor.client.as_ref().map(|one| format!("({})", client(Some(one))));
    let words: Vec<String> = [session, identity, client].into_iter().flatten().collect();
    format!(" by {}", words.join(" "))
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
