//! `zlock break`: takes a lock away from its holders, or removes one ticket (a contender's znode in
//! the lock's queue).

use std::io::{IsTerminal as _, Write as _};

use clap::{Arg, ArgMatches, Command};
use zlock_client::Contender;

use super::context::{Context, path_of};
use super::failure::Failure;
use super::lock::{say, words_of_holder};
use super::options::flag;
use super::seen::plain;

/// Largest number of contenders that are listed before the question for confirmation.
const NAMED_MAX: usize = 10;

pub(crate) fn command() -> Command {
    Command::new("break")
        .about("Takes a lock away from its holders, or one ticket out of a queue")
        .long_about(
            "Takes a lock away from its holders, or one ticket out of a queue.\n\n\
             The lock node is deleted, and the next ticket in the queue is granted. The holder is not asked: it learns \
             of the loss with its next request (`zlock lock` ends its command), and its fencing token is invalid at \
             once. `zlock revoke` asks the holder to release, and `zlock release` releases a lock of the session in \
             ZLOCK_SESSION_KEY.",
        )
        .arg(Arg::new("path").value_name("LOCK|TICKET").required(true).help("Path, as in `zlock locks --json`"))
        .arg(flag("yes", "Breaks the lock without a question on the terminal; needed without a terminal"))
}

pub(crate) async fn run(context: &Context, matches: &ArgMatches) -> Result<u8, Failure> {
    let (path, is_sure) = (path_of(matches), matches.get_flag("yes"));
    let can_ask = || std::io::stdin().is_terminal() && std::io::stderr().is_terminal();
    if !is_sure && !can_ask() {
        let line = format!("there is no terminal to ask whether to take {path} away: --yes answers");
        return Err(Failure::refused(line));
    }
    let tickets = tickets(context, &path, is_sure).await?;
    for ticket in &tickets {
        match context.client.delete(ticket).await {
            // No error: the ticket was released meanwhile.
            Err(error) if error.is_no_node() => {}
            deleted => {
                deleted?;
            }
        }
    }
    let line = |ticket: &String| context.out.line(&format!("broke {}", plain(ticket)));
    context.out.answer(&serde_json::json!({ "tickets": tickets }), || tickets.iter().try_for_each(line))
}

/// Returns the paths of the tickets to delete. If `path` is a lock, these are the tickets of its
/// holders, and of former holders whose lock-delay is not over. If `path` is a ticket, only `path`
/// is returned. Asks for confirmation unless `is_sure`.
async fn tickets(context: &Context, path: &str, is_sure: bool) -> Result<Vec<String>, Failure> {
    let queue = context.client.whole_lock_queue(path).await?;
    let mut found: Vec<Contender> = queue.holders.into_iter().chain(queue.lingering).collect();
    if found.is_empty() {
        found = vec![ticket(context, path).await?];
    }
    let (of_sessions, others): (Vec<_>, Vec<_>) = found.into_iter().partition(|one| one.session.is_some());
    if let Some(other) = others.first().filter(|_| of_sessions.is_empty()) {
        return Err(no_ticket(&other.ticket));
    }
    if !is_sure && !is_confirmed(path, &of_sessions) {
        return Err(Failure::refused(format!("nothing was done: {path} stays as it is")));
    }
    Ok(of_sessions.into_iter().map(|one| one.ticket).collect())
}

/// Prints the contenders that would lose their tickets, and asks for confirmation.
fn is_confirmed(path: &str, found: &[Contender]) -> bool {
    for one in found.iter().take(NAMED_MAX) {
        let at_ms = one.granted_at_ms.unwrap_or(one.enqueued_at_ms);
        say(&format!("{}: {}", plain(path), words_of_holder(one.session, &one.label, one.client.as_ref(), at_ms)));
    }
    if found.len() > NAMED_MAX {
        say(&format!("and {} more", found.len() - NAMED_MAX));
    }
    let mut stderr = std::io::stderr();
    let _ = write!(
        stderr,
        "Take these tickets away? Their sessions are not asked, and fencing tokens are invalid at once. [y/N] "
    );
    let _ = stderr.flush();
    let mut answer = String::new();
    let is_read = std::io::stdin().read_line(&mut answer).is_ok();
    is_read && ["y", "yes"].contains(&answer.trim().to_lowercase().as_str())
}

/// Returns the contender whose ticket is at `path`, from the queue of the parent znode. Any other
/// znode is refused, because it may be a client's data.
async fn ticket(context: &Context, path: &str) -> Result<Contender, Failure> {
    // The root is no lock, so it has no queue.
    let lock = path.rsplit_once('/').map(|(lock, _)| lock).filter(|lock| !lock.is_empty());
    let queue = context.client.whole_lock_queue(lock.ok_or_else(|| nobody(path))?).await?;
    let mut contenders = queue.holders.into_iter().chain(queue.lingering).chain(queue.waiters);
    contenders.find(|one| one.ticket == path).ok_or_else(|| nobody(path))
}

/// Returns the failure for a path where no ticket is found.
pub(crate) fn nobody(path: &str) -> Failure {
    let path = plain(path);
    Failure::refused(format!("{path} has no holder; `zlock locks` shows all locks with their holders"))
}

/// Returns the failure for a persistent znode with the name of a ticket. Such a znode may be a
/// client's data.
pub(crate) fn no_ticket(path: &str) -> Failure {
    let path = plain(path);
    let line =
        format!("{path} is a persistent znode and no session's ticket; `zlock rm {path}` deletes it and its data");
    Failure::refused(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ticket_of_another_client_moves_no_cursor() {
        for failure in [no_ticket("/l/\u{202e}x"), nobody("/l/\u{202e}x")] {
            let line = failure.into_line();
            assert!(line.starts_with("/l/\\u{202e}x ") && !line.contains('\u{202e}'), "{line}");
        }
    }
}
