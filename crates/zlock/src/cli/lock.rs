//! `zlock lock`: runs a command while it holds a lock.
//!
//! Three processes take part. This process (the *supervisor*) holds the session and starts a
//! *watchdog* process, which starts the command. The watchdog knows the time up to which the lock
//! cannot be lost, and kills the command before that time unless the supervisor reports a later
//! one. So the command ends in time even when the supervisor is suspended, killed or cut off from
//! the cluster. The kernel kills the command when the watchdog is killed (`PR_SET_PDEATHSIG`), and
//! the supervisor kills it when the watchdog is suspended.
//!
//! | file | has |
//! |---|---|
//! | `waiting.rs` | the wait for the lock |
//! | `supervisor.rs` | this process while the command runs |
//! | `held.rs` | the lock or session that must not be lost meanwhile |
//! | `watchdog.rs`, `deadline.rs` | the watchdog, and the moments at which it acts |
//! | `exec.rs` | the process that the watchdog starts, which becomes the command |
//! | `control.rs` | messages between this process and the watchdog |
//! | `process_tree.rs` | the command's processes |
//! | `signals.rs`, `terminal.rs` | signals that are passed on, and the effect of a terminal |

mod control;
mod deadline;
mod exec;
mod held;
mod process_tree;
mod signals;
mod supervisor;
mod terminal;
mod waiting;
mod watchdog;

use std::ffi::OsString;
use std::io::Write as _;
use std::path::Path;
use std::time::Duration;

use clap::builder::PossibleValuesParser;
use clap::{Arg, ArgMatches, Command};
use serde::Serialize;
use tokio::time::Instant;
use zlock_client::{Client, Error, Guard, Lock, Loss, OpenedSession};

use super::context::{Context, path};
use super::failure::Failure;
use super::options::{flag, number, option, time};
use super::seen::plain;
use signals::Signals;
use waiting::{acquire, words_of};

pub(crate) use exec::{EXEC, command as exec_command, run as run_exec};
pub(crate) use held::Environment;
use held::Held;
use supervisor::Outcome;
pub(crate) use waiting::words_of_holder;
pub(crate) use watchdog::{WATCHDOG, command as watchdog_command, run as run_watchdog};

/// Exit code when the lock or session was lost before the command had ended.
const LOST: u8 = 121;
/// Longest time for a last request to the cluster: releasing a lost lock, or asking who holds a
/// busy one.
const GOODBYE: Duration = Duration::from_secs(1);

pub(crate) fn command() -> Command {
    let command = Command::new("lock").about("Runs a command while it holds a lock").long_about(
        "Runs a command while it holds a lock. The command finds the fencing token in ZLOCK_FENCING_TOKEN, its ticket \
         in ZLOCK_TICKET and the lock in ZLOCK_LOCK. zlock passes signals on to the command, and ends with the \
         command's exit code; with 121 if the lock was lost, 124 if it was not free in time, 125 if zlock failed, 126 or 127 if \
         the command could not be started.",
    );
    let simple = "Takes a simple lock: one znode without a queue. For few contenders, all with this option";
    let priority = "Waiters with a higher priority are granted first. Only for managed locks (`zlock settings`)";
    let hand_over = "Hands the lock over at the end to the first waiter with this label. Only for managed locks";
    with_command(command)
        .arg(flag("shared", "Takes a read lock, which other clients with --shared may hold at the same time"))
        .arg(flag("simple", simple).conflicts_with_all(["shared", "priority", "hand-over", "lock-delay"]))
        .arg(option("priority", "NUMBER", priority).value_parser(number::<u32>(0)))
        .arg(option("hand-over", "LABEL", hand_over))
}

/// Returns the argument for the command to run and its own arguments, behind `--`.
fn words() -> Arg {
    Arg::new("command")
        .value_name("COMMAND")
        .required(true)
        .num_args(1..)
        .last(true)
        .value_parser(clap::value_parser!(OsString))
        .help("The command and its arguments, after `--`")
}

/// Adds the arguments for the lock's name, for acquiring the lock, and for running the command
/// while it is held.
pub(crate) fn with_command(command: Command) -> Command {
    let name = Arg::new("name").value_name("NAME").required(true).value_parser(name);
    let busy_exit = option("busy-exit", "CODE", "Exit code if the lock is not free in time [default: 124]");
    let command = command
        .arg(name.help("Path; the first slash is optional"))
        .arg(time("wait", "Longest time to wait for the lock; 0: no wait [default: without end]"))
        .arg(busy_exit.value_parser(clap::value_parser!(u8)).requires("wait"))
        .arg(time("lock-delay", "Time for which no other client gets the lock after its holder's session has expired"));
    with_run(command)
        .mut_arg("session-timeout", |arg| {
            arg.help("Time after which the lock is lost if this process is killed or gets no answer from a node")
        })
        .mut_arg("hold-at-least", |arg| arg.help("Shortest time of the hold, even if the command ends earlier"))
        .mut_arg("quiet", |arg| {
            arg.help("Prints no messages about the wait, a changed session timeout, or a suspended command")
        })
}

/// Checks the name of a lock and returns it unchanged. The root is refused.
fn name(text: &str) -> Result<String, String> {
    match path(text).as_str() {
        "/" => Err("the root is no lock: give it a name, for example orders".to_owned()),
        _ => Ok(text.to_owned()),
    }
}

/// Adds the arguments for the command to run, and for ending it before its lock or session is lost.
pub(crate) fn with_run(command: Command) -> Command {
    let on_loss = "Action before a possible loss: SIGTERM and, after --grace, SIGKILL; SIGKILL; or only a message";
    let ways = PossibleValuesParser::new(deadline::OnLoss::NAMES);
    command
        .arg(option("on-loss", "HOW", on_loss).value_parser(ways).default_value("term"))
        .arg(time(
            "grace",
            "Time from SIGTERM to SIGKILL, at most a quarter of --session-timeout [default: 2s, or that quarter]",
        ))
        .arg(
            time("session-timeout", "Time after which the session is lost if this process is killed or gets no answer")
                .default_value("10s"),
        )
        .arg(time("hold-at-least", "Shortest time for which the session stays open, even if the command ends earlier"))
        .arg(flag("quiet", "Prints no messages about a changed session timeout or a suspended command"))
        .arg(option("label", "TEXT", "Note for people [default: the command's name]"))
        .arg(words())
}

/// JSON document that `--json` prints when the lock is acquired. It goes to stderr, because stdout
/// belongs to the command.
#[derive(Serialize)]
struct Granted<'a> {
    lock: &'a str,
    ticket: &'a str,
    fencing_token: u64,
}

pub(crate) async fn run(context: &Context, matches: &ArgMatches) -> Result<u8, Failure> {
    let path = path_of(matches);
    if matches.get_flag("simple") {
        // A simple lock has no label, so its owner gets the label's text.
        let lock = context.client.simple_lock(path).owner(label(matches));
        let acquired = async {
            match matches.get_one::<Duration>("wait") {
                Some(wait) => lock.acquire_within(*wait).await,
                None => lock.acquire().await.map(Some),
            }
        };
        return run_under(context, matches, acquired).await;
    }
    if matches.contains_id("hand-over") {
        let settings = context.client.lock_queue(&path).await?.settings;
        if !settings.is_some_and(|settings| settings.managed) {
            let line = format!("--hand-over: {path} is not managed; `zlock settings {path} --managed` makes it so");
            return Err(Failure::refused(line));
        }
    }
    let lock = match matches.get_flag("shared") {
        true => context.client.rw_lock(path).read(),
        false => context.client.lock(path),
    };
    let lock = match matches.get_one::<u32>("priority") {
        Some(priority) => lock.priority(*priority),
        None => lock,
    };
    run_under(context, matches, acquired(lock, matches)).await
}

/// Releases the lock. With `--hand-over LABEL`, passes it to a waiter with this label instead, if
/// there is one.
async fn give_back(client: &Client, mut guard: Guard, matches: &ArgMatches) -> Result<(), Error> {
    if let Ok(Some(label)) = matches.try_get_one::<String>("hand-over") {
        let queue = client.whole_lock_queue(guard.lock()).await?;
        for waiter in queue.waiters.iter().filter(|waiter| waiter.label == *label) {
            match guard.hand_over(&waiter.ticket).await {
                // Refused because the waiter has left the queue, or for another reason, which the
                // release below will report.
                Err(Error::Refused { .. }) => {}
                ended => return ended,
            }
        }
    }
    guard.release().await.map(drop)
}

/// Returns the path of the lock in the argument `name`.
pub(crate) fn path_of(matches: &ArgMatches) -> String {
    path(matches.get_one::<String>("name").expect("it is required"))
}

/// Acquires the lock as the options say: `--label`, `--lock-delay` (time for which no other client
/// gets the lock after its holder's session has expired) and `--wait`. Returns `None` when the lock
/// was not free within `--wait`.
pub(crate) async fn acquired(lock: Lock, matches: &ArgMatches) -> Result<Option<Guard>, Error> {
    let lock = lock.label(label(matches));
    let lock = match matches.get_one::<Duration>("lock-delay") {
        Some(delay) => lock.lock_delay(*delay),
        None => lock,
    };
    match matches.get_one::<Duration>("wait") {
        Some(wait) => lock.acquire_within(*wait).await,
        None => lock.acquire().await.map(Some),
    }
}

/// Tells whether `--lock-delay` is given and not 0. No other client then gets the lock for this
/// time after its holder's session has expired.
fn has_delay(matches: &ArgMatches) -> bool {
    let delay = matches.get_one::<Duration>("lock-delay");
    delay.is_some_and(|delay| !delay.is_zero())
}

/// Returns the label, a description of the lock's holder for other clients: that of `--label`, or
/// else the command's name without its arguments, which may be secret.
pub(crate) fn label(matches: &ArgMatches) -> String {
    if let Some(label) = matches.get_one::<String>("label") {
        return label.clone();
    }
    let program = Path::new(matches.get_one::<OsString>("command").expect("it is required"));
    program.file_name().unwrap_or(program.as_os_str()).to_string_lossy().into_owned()
}

/// Waits for `acquired`, which acquires the lock. Then runs the command while the lock is held, and
/// releases the lock. Returns the exit code.
pub(crate) async fn run_under(
    context: &Context,
    matches: &ArgMatches,
    acquired: impl Future<Output = Result<Option<Guard>, Error>>,
) -> Result<u8, Failure> {
    check_grace(matches)?;
    let mut signals = listen()?;
    let path = path_of(matches);
    let acquired = async {
        tell_what_is_granted(matches, context.client.session_timeout().await?);
        acquired.await
    };
    let guard = acquire(context, matches, acquired, &mut signals).await?;
    if context.out.json {
        let held = Granted { lock: guard.lock(), ticket: guard.ticket(), fencing_token: guard.fencing_token() };
        say(&serde_json::to_string(&held).unwrap_or_default());
    }
    let plan = plan(matches, context.client.session_timeout().await?);
    let outcome = run_held(&Held::Lock(&guard), plan, matches, &mut signals).await?;
    if outcome.lost {
        if has_delay(matches) {
            // Not released: the lock-delay begins when the session expires, and a release or the
            // session's close would free the lock at once.
            guard.leak();
            context.leaves_session.set(true);
        } else {
            // Released, so that waiters need not wait for the session to expire. If the cluster
            // cannot be reached, the session expires by itself.
            let _ = tokio::time::timeout(GOODBYE, give_back(&context.client, guard, matches)).await;
        }
        return Ok(LOST);
    }
    let given_back = give_back(&context.client, guard, matches).await;
    Ok(ended(&format!("the lock {path}"), plan, outcome, given_back).0)
}

/// Runs the command while the lock or session is held. Then goes on holding it until
/// `--hold-at-least` is over. Prints a message if the command was ended because of a loss.
async fn run_held(
    held: &Held<'_>,
    plan: deadline::Plan,
    matches: &ArgMatches,
    signals: &mut Signals,
) -> Result<Outcome, Failure> {
    let since = Instant::now();
    let command: Vec<&OsString> = matches.get_many("command").expect("it is required").collect();
    let mut outcome = supervisor::supervise(held, plan, &command, signals, matches.get_flag("quiet")).await?;
    if outcome.lost {
        say(&after_loss(plan, &held.to_string(), outcome.loss.as_ref()));
    } else if !outcome.interrupted {
        outcome.is_kept = keep(held, since, matches, signals).await;
    }
    Ok(outcome)
}

/// Returns the exit code for a command that has ended by itself, and whether its lock or session
/// (`what`) was lost before the release. `given_back` is the result of the release.
fn ended(what: &str, plan: deadline::Plan, outcome: Outcome, given_back: Result<(), Error>) -> (u8, bool) {
    match given_back {
        Ok(()) => (outcome.code, false),
        Err(error @ Error::Refused { .. }) => {
            let why = outcome.loss.map_or_else(|| error.to_string(), |loss| loss.to_string());
            let when = if outcome.is_kept { "--hold-at-least was over" } else { "the command had ended" };
            say(&format!("zlock: {what} was lost before {when}: {}", plain(&why)));
            // With `--on-loss warn` a loss does not end the command, so its own exit code is
            // returned.
            (if plan.on_loss == deadline::OnLoss::Warn { outcome.code } else { LOST }, true)
        }
        Err(error) => {
            let why = plain(&error.to_string());
            say(&format!("zlock: the command has ended, but not {what}: {why}; it ends by the session's timeout"));
            (outcome.code, false)
        }
    }
}

/// Goes on holding the lock or session after the command's end, until `--hold-at-least` is over. A
/// loss or a terminating signal ends this wait. Returns false if `--hold-at-least` was already
/// over.
async fn keep(held: &Held<'_>, since: Instant, matches: &ArgMatches, signals: &mut Signals) -> bool {
    let least = matches.get_one::<Duration>("hold-at-least").copied().unwrap_or_default();
    if since.elapsed() >= least {
        return false;
    }
    tokio::select! {
        () = tokio::time::sleep_until(since + least) => {}
        () = held.gone() => {}
        () = signals.end() => {}
    }
    true
}

/// Returns the message for a command that lost its lock or session (`what`) while it ran.
fn after_loss(plan: deadline::Plan, what: &str, loss: Option<&Loss>) -> String {
    match (plan.on_loss, loss) {
        (deadline::OnLoss::Warn, _) => {
            format!("zlock: the watchdog has ended, and the command goes on without {what}, as --on-loss warn says")
        }
        (_, Some(loss)) => {
            format!("zlock: {what} was lost, and the command was ended: {}", plain(&loss.to_string()))
        }
        // Without a reported loss, the command was ended a little before its lock could be lost.
        (_, None) => format!("zlock: {what} was lost, or was about to be, and the command was ended"),
    }
}

/// Runs a command in the environment of a session, which is kept alive meanwhile, and then closes
/// the session. Returns the exit code, and whether the session was lost.
pub(crate) async fn run_in(
    session: &OpenedSession,
    environment: Environment,
    matches: &ArgMatches,
) -> Result<(u8, bool), Failure> {
    let mut signals = listen()?;
    tell_what_is_granted(matches, session.timeout());
    let plan = plan(matches, session.timeout());
    let held = Held::Session { session, environment };
    let outcome = run_held(&held, plan, matches, &mut signals).await?;
    if outcome.lost {
        return Ok((LOST, true));
    }
    // The close can still report a loss, as the command may end before a heartbeat detects it.
    Ok(ended(&held.to_string(), plan, outcome, session.close().await))
}

fn listen() -> Result<Signals, Failure> {
    Signals::listen().map_err(|error| Failure::refused(format!("cannot listen for signals: {error}")))
}

fn plan(matches: &ArgMatches, timeout: Duration) -> deadline::Plan {
    let on_loss = deadline::OnLoss::parse(matches.get_one::<String>("on-loss").expect("it has a default"));
    deadline::Plan::new(on_loss, matches.get_one::<Duration>("grace").copied(), timeout)
}

/// Returns the session timeout of `--session-timeout`.
fn timeout_asked(matches: &ArgMatches) -> Duration {
    *matches.get_one::<Duration>("session-timeout").expect("it has a default")
}

/// Checks `--grace`, the grace period between SIGTERM and SIGKILL, against `--on-loss` and
/// `--session-timeout`.
///
/// # Errors
/// A usage error when the grace period is above a quarter of the session timeout, or `--on-loss`
/// sends no SIGTERM.
pub(crate) fn check_grace(matches: &ArgMatches) -> Result<(), Failure> {
    let Some(grace) = matches.get_one::<Duration>("grace").copied() else { return Ok(()) };
    let on_loss = matches.get_one::<String>("on-loss").expect("it has a default");
    if deadline::OnLoss::parse(on_loss) != deadline::OnLoss::Term {
        return Err(Failure::usage(format!("--grace is for --on-loss term: {on_loss} sends no SIGTERM")));
    }
    let max = deadline::Plan::grace_max(timeout_asked(matches));
    if grace > max {
        let (grace, max) = (words_of(grace), words_of(max));
        return Err(Failure::usage(format!("--grace {grace} is more than {max}, a quarter of --session-timeout")));
    }
    Ok(())
}

/// Prints the granted session timeout, if it differs from `--session-timeout`.
fn tell_what_is_granted(matches: &ArgMatches, granted: Duration) {
    let asked = timeout_asked(matches);
    if granted != asked && !matches.get_flag("quiet") {
        let plan = plan(matches, granted);
        let (asked, granted, grace) = (words_of(asked), words_of(granted), words_of(plan.grace));
        let grace = if plan.on_loss == deadline::OnLoss::Term { format!(", the grace {grace}") } else { String::new() };
        say(&format!("zlock: the cluster does not grant --session-timeout {asked}: it is {granted}{grace}"));
    }
}

/// Prints a line to stderr.
pub(crate) fn say(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}
