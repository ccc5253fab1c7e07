//! `zlock lock`: a command under a lock.
//!
//! Three processes. This one holds the session. It starts a *watchdog*, which starts the command. The watchdog knows until
//! when the lock cannot be lost, and ends the command by then unless it is told of a later moment: it does so too when
//! this process is stopped, killed or cut off from the cluster. The kernel ends the command when the watchdog is killed
//! (`PR_SET_PDEATHSIG`), and this process ends it when the watchdog is stopped.
//!
//! | file | has |
//! |---|---|
//! | `supervisor.rs` | this process while the command runs |
//! | `watchdog.rs`, `deadline.rs` | the watchdog, and when it does what |
//! | `exec.rs` | what the watchdog starts: it becomes the command |
//! | `control.rs` | what the two say to each other |
//! | `process_tree.rs` | the command's processes |

mod control;
mod deadline;
mod exec;
mod process_tree;
mod signals;
mod supervisor;
mod watchdog;

use std::ffi::OsString;
use std::io::{IsTerminal as _, Write as _};
use std::time::Duration;

use clap::builder::PossibleValuesParser;
use clap::{Arg, ArgAction, ArgMatches, Command};
use serde::Serialize;
use zlock_client::{Client, Error, Guard, Lock};

use super::context::{Context, duration, path};
use super::failure::Failure;
use super::output::{plain, since};
use signals::Signals;

pub(crate) use exec::{EXEC, command as exec_command, run as run_exec};
pub(crate) use watchdog::{WATCHDOG, command as watchdog_command, run as run_watchdog};

/// The lock was lost before the command had ended.
const LOST: u8 = 121;
/// The lock was not free in time.
const NOT_ACQUIRED: u8 = 124;

/// How long to try to tell the cluster of a lock that is lost.
const GOODBYE: Duration = Duration::from_secs(1);
/// After waiting this long it says what it waits for.
const QUIET: Duration = Duration::from_secs(1);

pub(crate) fn command() -> Command {
    let command = Command::new("lock").about("Runs a command while it holds a lock").long_about(
        "Runs a command while it holds a lock. The command finds the fencing token in ZLOCK_FENCING_TOKEN, its ticket in \
         ZLOCK_TICKET and the lock in ZLOCK_LOCK. Signals are passed on. Ends as the command ends; with 121 when the lock \
         was lost, 124 when it was not free in time, 125 when zlock failed, 126 and 127 when the command could not be \
         started.",
    );
    with_command(command)
        .arg(
            Arg::new("shared")
                .long("shared")
                .action(ArgAction::SetTrue)
                .help("Holds the lock together with others that share it"),
        )
        .arg(
            Arg::new("simple")
                .long("simple")
                .action(ArgAction::SetTrue)
                .conflicts_with_all(["shared", "priority", "hand-over", "lock-delay"])
                .help("A simple lock: one znode, and nobody queues. For few contenders, all with this option"),
        )
        .arg(
            Arg::new("priority")
                .long("priority")
                .value_name("NUMBER")
                .value_parser(clap::value_parser!(u32))
                .help("Who waits with a higher one is sooner. For closed locks (`zlock settings`)"),
        )
        .arg(
            Arg::new("hand-over")
                .long("hand-over")
                .value_name("LABEL")
                .help("Afterwards gives the lock to the first waiter with this label, if one waits. For closed locks"),
        )
}

/// What is to be run: the command and its arguments.
fn words() -> Arg {
    Arg::new("command")
        .value_name("COMMAND")
        .required(true)
        .num_args(1..)
        .last(true)
        .value_parser(clap::value_parser!(OsString))
        .help("The command and its arguments, behind `--`")
}

/// Adds the name, the command to run, and what is to be known for that.
pub(crate) fn with_command(command: Command) -> Command {
    let time = |name: &'static str, help: &'static str| {
        Arg::new(name).long(name).value_name("TIME").value_parser(duration).help(help)
    };
    let on_loss = Arg::new("on-loss")
        .long("on-loss")
        .value_name("HOW")
        .value_parser(PossibleValuesParser::new(deadline::OnLoss::NAMES))
        .default_value("term")
        .help("What to do before the lock may be lost: SIGTERM and, after --grace, SIGKILL; SIGKILL; or only say so");
    command
        .arg(Arg::new("name").value_name("NAME").required(true).help("The path; the first slash may be left out"))
        .arg(time("wait", "How long to wait; 0 is a try [default: without end]"))
        .arg(on_loss)
        .arg(time("grace", "Between SIGTERM and SIGKILL; at most a quarter of --session-timeout").default_value("2s"))
        .arg(
            time("session-timeout", "How long the lock outlives this process, and is safe without an answer")
                .default_value("10s"),
        )
        .arg(time("lock-delay", "Keeps others out for so much longer if the session expires"))
        .arg(Arg::new("label").long("label").value_name("TEXT").help("For people [default: the command]"))
        .arg(words())
}

/// With `--json`, on stderr: stdout is the command's.
#[derive(Serialize)]
struct Held<'a> {
    lock: &'a str,
    ticket: &'a str,
    fencing_token: u64,
}

pub(crate) async fn run(context: &Context, matches: &ArgMatches) -> Result<u8, Failure> {
    let path = path_of(matches);
    if matches.get_flag("simple") {
        // There is no other place for the label.
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
        if !settings.is_some_and(|settings| settings.closed) {
            let line = format!("--hand-over: {path} is not closed; `zlock settings {path} --closed` makes it so");
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

/// Gives the lock back: to the waiter whom `--hand-over` names, if that one waits.
async fn give_back(client: &Client, mut guard: Guard, matches: &ArgMatches) -> Result<(), Error> {
    if let Ok(Some(label)) = matches.try_get_one::<String>("hand-over") {
        let queue = client.lock_queue(guard.lock()).await?;
        for waiter in queue.waiters.iter().filter(|waiter| waiter.label == *label) {
            match guard.hand_over(&waiter.ticket).await {
                // It has left the queue meanwhile; or there is something wrong that the release will tell.
                Err(Error::Refused { .. }) => {}
                ended => return ended,
            }
        }
    }
    guard.release().await.map(drop)
}

/// The lock's path.
pub(crate) fn path_of(matches: &ArgMatches) -> String {
    path(matches.get_one::<String>("name").expect("it is required"))
}

/// Acquires a lock as the options say.
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

/// Whether others are to be kept out for a while after a loss.
fn has_delay(matches: &ArgMatches) -> bool {
    let delay = matches.get_one::<Duration>("lock-delay");
    delay.is_some_and(|delay| !delay.is_zero())
}

/// What others see of the one who waits: the command, when nothing else is said.
pub(crate) fn label(matches: &ArgMatches) -> String {
    if let Some(label) = matches.get_one::<String>("label") {
        return label.clone();
    }
    let words = matches.get_many::<OsString>("command").expect("it is required");
    let words: Vec<String> = words.map(|word| word.to_string_lossy().into_owned()).collect();
    // 256 bytes are the most that a node takes.
    words.join(" ").chars().take(60).collect()
}

/// Runs the command as soon as there is a guard.
pub(crate) async fn run_under(
    context: &Context,
    matches: &ArgMatches,
    acquired: impl Future<Output = Result<Option<Guard>, Error>>,
) -> Result<u8, Failure> {
    let listens = Signals::listen();
    let mut signals = listens.map_err(|error| Failure::refused(format!("cannot listen for signals: {error}")))?;
    let path = path_of(matches);
    let guard = acquire(context, matches, acquired, &mut signals).await?;
    if context.out.json {
        let held = Held { lock: guard.lock(), ticket: guard.ticket(), fencing_token: guard.fencing_token() };
        say(&serde_json::to_string(&held).unwrap_or_default());
    }
    let timeout = context.client.session_timeout().await?;
    let plan = deadline::Plan::new(
        deadline::OnLoss::parse(matches.get_one::<String>("on-loss").expect("it has a default")),
        *matches.get_one::<Duration>("grace").expect("it has a default"),
        timeout,
    );
    let command: Vec<&OsString> = matches.get_many("command").expect("it is required").collect();
    let ended = supervisor::supervise(&guard, plan, &command, &mut signals).await;
    let ended = ended?;
    if ended.lost {
        if has_delay(matches) {
            // The delay begins when the session expires. A release, or the session's close, would let others in at once.
            guard.leak();
            context.leaves_session.set(true);
        } else {
            // Nobody may be left waiting for what no longer runs. Where the cluster cannot be reached, the session ends by
            // itself.
            let _ = tokio::time::timeout(GOODBYE, give_back(&context.client, guard, matches)).await;
        }
        say(&match plan.on_loss {
            deadline::OnLoss::Warn => {
                format!(
                    "zlock: the watchdog has ended, and the command goes on without the lock {path}, as --on-loss warn says"
                )
            }
            _ => format!("zlock: the lock {path} was lost, and the command was ended"),
        });
        return Ok(LOST);
    }
    match give_back(&context.client, guard, matches).await {
        Ok(()) => Ok(ended.code),
        Err(error @ Error::Refused { .. }) => {
            say(&format!("zlock: the lock {path} was lost before the command had ended: {error}"));
            // With `warn` it went on, and how it ended is what counts.
            Ok(if plan.on_loss == deadline::OnLoss::Warn { ended.code } else { LOST })
        }
        Err(error) => {
            say(&format!("zlock: the command has ended, but not the lock: {error}; it ends with its session"));
            Ok(ended.code)
        }
    }
}

async fn acquire(
    context: &Context,
    matches: &ArgMatches,
    acquired: impl Future<Output = Result<Option<Guard>, Error>>,
    signals: &mut Signals,
) -> Result<Guard, Failure> {
    let path = path_of(matches);
    let acquired = tokio::select! {
        acquired = acquired => acquired,
        () = say_what_it_waits_for(&context.client, &path) => unreachable!("it never returns"),
        signal = signals.next() => {
            return Err(Failure::silent(128 + u8::try_from(signal).unwrap_or(0)));
        }
    };
    let simple = matches.try_get_one::<bool>("simple").ok().flatten().is_some_and(|simple| *simple);
    let look = if simple { "get" } else { "locks" };
    let free = || format!("{path} was not free in time; `zlock {look} {path}` shows who holds it");
    acquired?.ok_or_else(|| Failure::refused(free()).with_code(NOT_ACQUIRED))
}

/// Tells a person, once.
async fn say_what_it_waits_for(client: &Client, path: &str) {
    if std::io::stderr().is_terminal() {
        tokio::time::sleep(QUIET).await;
        if let Ok(queue) = client.lock_queue(path).await
            && let Some(holder) = queue.holders.first()
        {
            let label = if holder.label.is_empty() { String::new() } else { format!(" ({})", plain(&holder.label)) };
            let session = holder.session.map_or("nobody's session".into(), |id| format!("session {id}"));
            say(&format!("zlock: waiting for {path}, held by {session}{label} for {}", since(holder.since_ms)));
        }
    }
    std::future::pending().await
}

/// A line on stderr.
fn say(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}
