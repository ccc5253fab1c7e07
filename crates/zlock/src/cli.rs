//! The client commands: one file each. They send requests to a cluster through `zlock-client`.
//!
//! | file | has |
//! |---|---|
//! | `options.rs`, `connection.rs`, `context.rs` | shared options, nodes and user, the client |
//! | `output.rs`, `failure.rs` | printing of results; errors and exit codes |
//! | `lock.rs`, `lock/` | `zlock lock`: runs a command under a lock, with a watchdog process |
//! | `backup.rs` | backups |
//! | `offline.rs`, `offline/` | commands that use crates of the server, and send no request |
//! | `new_file.rs`, `calendar.rs` | atomic creation of files; text form of times |
//! | `session.rs` | `zlock session exec`: runs a command with a session, with the same watchdog |
//! | `break_lock.rs` | `zlock break`; `break` is a keyword of Rust |
//! | each other file | the command with the name of the file |

mod acl;
mod backup;
mod break_lock;
mod calendar;
mod completions;
mod connection;
mod context;
mod create;
mod drain;
mod elect;
mod failure;
mod get;
mod lock;
mod locks;
mod ls;
mod man;
mod member;
mod new_file;
#[cfg(target_os = "linux")]
pub(crate) mod offline;
mod options;
mod output;
mod quota;
mod ready;
mod release;
mod revoke;
mod rm;
mod seen;
mod semaphore;
mod session;
mod sessions;
mod set;
mod settings;
mod stat;
mod status;
mod tree;
mod upgrade;
mod watch;

use std::ffi::OsString;
use std::time::Duration;

use clap::{ArgMatches, Command};
use context::Context;
use failure::Failure;
use output::Output;

pub(crate) use options::{before_commands, file, flag, option};

/// Longest time for closing the client's session when a command ends.
const GOODBYE: Duration = Duration::from_secs(1);

/// Returns all client commands, for clap.
pub(crate) fn commands() -> Vec<Command> {
    let shared = [
        lock::command(),
        semaphore::command(),
        elect::command(),
        session::command(),
        locks::command(),
        release::command(),
        break_lock::command(),
        revoke::command(),
        settings::command(),
        quota::command(),
        acl::command(),
        sessions::command(),
        status::command(),
        ready::command(),
        member::command(),
        member::leader_command(),
        upgrade::command(),
        drain::command(),
        ls::command(),
        tree::command(),
        get::command(),
        stat::command(),
        set::command(),
        create::command(),
        rm::command(),
        watch::command(),
        backup::command(),
    ];
    let mut commands: Vec<Command> = shared.into_iter().map(options::with_options).collect();
    #[cfg(target_os = "linux")]
    commands.extend(offline::commands());
    commands.extend([completions::command(), man::command()]);
    commands
}

/// Client commands that send no request to a node.
const OFFLINE: [&str; 6] = ["restore", "recover", "tls", "digest", "completions", "man"];

/// Returns the hidden commands `internal-watchdog` and `internal-exec`, with which `zlock lock`
/// starts this program again.
pub(crate) fn internal_commands() -> [Command; 2] {
    [lock::watchdog_command(), lock::exec_command()]
}

/// Runs a client command, and returns its exit code; `None` when the command is no client command.
/// `before` is the parsed command line. `whole` builds clap's description of all commands.
pub(crate) fn run(before: &ArgMatches, whole: impl Fn() -> Command) -> Option<u8> {
    let (name, matches) = before.subcommand()?;
    let takes_options = commands().iter().any(|command| command.get_name() == name);
    let is_stray = |option: &String| {
        let is_offline = !takes_options || OFFLINE.contains(&name);
        is_offline && !(option == "json" && takes_json(matches))
    };
    if let Some(option) = options::stray(before).filter(is_stray) {
        let line = format!("--{option} is only for client commands, and {name} is not one of them");
        return Some(Failure::usage(line).tell(is_json(before)));
    }
    let ended = match name {
        "completions" => completions::run(matches, whole()),
        "man" => man::run(matches, whole()),
        lock::WATCHDOG => return Some(lock::run_watchdog(matches)),
        lock::EXEC => return Some(lock::run_exec(matches)),
        "lock" | "semaphore" | "elect" | "session" => with_client(before).map_err(Failure::of_a_run),
        _ if takes_options && !OFFLINE.contains(&name) => with_client(before),
        _ => {
            cfg_select! { target_os = "linux" => offline::run(name, Output::new(is_json(before)), matches)?, _ => return None }
        }
    };
    Some(ended.unwrap_or_else(|failure| failure.tell(is_json(before))))
}

/// Tells whether a command has the option `--json`.
fn takes_json(matches: &ArgMatches) -> bool {
    match matches.subcommand() {
        Some((_, deeper)) => takes_json(deeper),
        None => matches.try_get_one::<bool>("json").is_ok(),
    }
}

/// Tells whether `--json` is given, before or after the command's name.
pub(crate) fn is_json(matches: &ArgMatches) -> bool {
    matches.try_get_one::<bool>("json").is_ok_and(|json| json == Some(&true))
        || matches.subcommand().is_some_and(|(_, deeper)| is_json(deeper))
}

/// Prints clap's error about the command line as JSON if `--json` is given, and returns the exit
/// code. Returns `None` without `--json`.
pub(crate) fn refuse_in_json(error: &clap::Error, args: &[OsString]) -> Option<u8> {
    let own = args.iter().take_while(|arg| *arg != "--");
    if !own.into_iter().any(|arg| arg == "--json") {
        return None;
    }
    let whole = error.render().to_string();
    let said = whole.split("\n\nUsage:").next().unwrap_or_default();
    let words: Vec<&str> = said.trim_start_matches("error:").split_whitespace().collect();
    Some(Failure::usage(words.join(" ")).tell(true))
}

/// Runs a command that needs a client for a cluster, in a new runtime.
fn with_client(before: &ArgMatches) -> Result<u8, Failure> {
    let (name, mut matches) = before.subcommand().ok_or_else(|| Failure::usage("which command?"))?;
    let mut words = vec![name];
    // Descends into groups of commands, such as `member add`.
    while let Some((word, deeper)) = matches.subcommand() {
        words.push(word);
        matches = deeper;
    }
    block_on(async {
        let context = Context::read(&words.join(" "), before, matches)?;
        let ended = run_with(&context, &words, matches).await.map_err(|failure| failure.hinting(name));
        if context.leaves_session.get() {
            // Not dropped, as the drop of the client would close the session.
            std::mem::forget(context);
        } else {
            // An error is ignored: a session that is not closed expires by its timeout.
            let _ = tokio::time::timeout(GOODBYE, context.client.close()).await;
        }
        ended
    })?
}

/// Runs a future in a new runtime, on this thread.
fn block_on<T>(work: impl Future<Output = T>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::refused(format!("cannot start: {error}")))?;
    Ok(runtime.block_on(work))
}

async fn run_with(context: &Context, words: &[&str], matches: &ArgMatches) -> Result<u8, Failure> {
    match words {
        ["lock"] => lock::run(context, matches).await,
        ["semaphore"] => semaphore::run(context, matches).await,
        ["elect"] => elect::run(context, matches).await,
        ["session", "exec"] => session::exec(context, matches).await,
        ["locks"] => locks::run(context, matches).await,
        ["release"] => release::run(context, matches).await,
        ["break"] => break_lock::run(context, matches).await,
        ["revoke"] => revoke::run(context, matches).await,
        ["settings"] => settings::run(context, matches).await,
        ["quota", "get"] => quota::get(context, matches).await,
        ["quota", "set"] => quota::set(context, matches).await,
        ["quota", "rm"] => quota::rm(context, matches).await,
        ["acl", "get"] => acl::get(context, matches).await,
        ["acl", "set"] => acl::set(context, matches).await,
        ["sessions"] => sessions::run(context).await,
        ["status"] => status::run(context).await,
        ["ready"] => ready::run(context).await,
        ["member", "list"] => member::list(context).await,
        ["member", "add"] => member::add(context, matches).await,
        ["member", "promote"] => member::promote(context, matches).await,
        ["member", "replace"] => member::replace(context, matches).await,
        ["member", "remove"] => member::remove(context, matches).await,
        ["member", "update"] => member::update(context, matches).await,
        ["leader", "transfer"] => member::transfer(context, matches).await,
        ["upgrade", "status"] => upgrade::status(context).await,
        ["upgrade", "finalize"] => upgrade::finalize(context, matches).await,
        ["drain"] => drain::run(context, matches).await,
        ["ls"] => ls::run(context, matches).await,
        ["tree"] => tree::run(context, matches).await,
        ["get"] => get::run(context, matches).await,
        ["stat"] => stat::run(context, matches).await,
        ["set"] => set::run(context, matches).await,
        ["create"] => create::run(context, matches).await,
        ["rm"] => rm::run(context, matches).await,
        ["watch"] => watch::run(context, matches).await,
        ["backup", "save"] => backup::save(context, matches).await,
        ["backup", "inspect"] => backup::inspect(context.out, matches),
        ["backup", "verify"] => backup::verify(context.out, matches),
        other => Err(Failure::refused(format!("{} has no code", other.join(" ")))),
    }
}
