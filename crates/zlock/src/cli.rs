//! The commands of a client: one file each. They speak with a cluster through `zlock-client` and decide nothing themselves.
//!
//! | file | has |
//! |---|---|
//! | `context.rs` | the options that all commands share: endpoints, timeout, output |
//! | `output.rs`, `failure.rs` | what is printed; errors in one line, exit codes |
//! | `lock.rs`, `lock/` | `zlock lock`: a command under a lock, with a watchdog of its own |
//! | the others | the command of that name |

mod completions;
mod context;
mod create;
mod elect;
mod failure;
mod get;
mod lock;
mod locks;
mod ls;
mod man;
mod output;
mod release;
mod revoke;
mod rm;
mod semaphore;
mod sessions;
mod set;
mod settings;
mod stat;
mod status;
mod tree;
mod watch;

use std::time::Duration;

use clap::{ArgMatches, Command};
use context::Context;
use failure::Failure;

/// How long to try to close the session at the end.
const GOODBYE: Duration = Duration::from_secs(1);

/// Every command of a client, as the command line knows it.
pub(crate) fn commands() -> Vec<Command> {
    let shared = [
        lock::command(),
        semaphore::command(),
        elect::command(),
        locks::command(),
        release::command(),
        revoke::command(),
        settings::command(),
        sessions::command(),
        status::command(),
        ls::command(),
        tree::command(),
        get::command(),
        stat::command(),
        set::command(),
        create::command(),
        rm::command(),
        watch::command(),
    ];
    let mut commands: Vec<Command> = shared.into_iter().map(context::with_options).collect();
    commands.extend([completions::command(), man::command()]);
    commands
}

/// Commands that the program calls itself by.
pub(crate) fn internal_commands() -> [Command; 2] {
    [lock::watchdog_command(), lock::exec_command()]
}

/// Runs a command. `None` when it is none of these. Answers the exit code.
pub(crate) fn run(name: &str, matches: &ArgMatches, whole: impl Fn() -> Command) -> Option<u8> {
    let ended = match name {
        "completions" => completions::run(matches, whole()),
        "man" => man::run(matches, whole()),
        lock::WATCHDOG => return Some(lock::run_watchdog(matches)),
        lock::EXEC => return Some(lock::run_exec(matches)),
        "lock" | "semaphore" | "elect" => with_client(name, matches).map_err(Failure::of_a_run),
        _ if commands().iter().any(|command| command.get_name() == name) => with_client(name, matches),
        _ => return None,
    };
    Some(ended.unwrap_or_else(Failure::tell))
}

/// Runs a command that needs a client, in a runtime of its own.
fn with_client(name: &str, matches: &ArgMatches) -> Result<u8, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::refused(format!("cannot start: {error}")))?;
    runtime.block_on(async {
        let context = Context::read(name, matches)?;
        let ended = match name {
            "lock" => lock::run(&context, matches).await,
            "semaphore" => semaphore::run(&context, matches).await,
            "elect" => elect::run(&context, matches).await,
            "locks" => locks::run(&context, matches).await,
            "release" => release::run(&context, matches).await,
            "revoke" => revoke::run(&context, matches).await,
            "settings" => settings::run(&context, matches).await,
            "sessions" => sessions::run(&context).await,
            "status" => status::run(&context).await,
            "ls" => ls::run(&context, matches).await,
            "tree" => tree::run(&context, matches).await,
            "get" => get::run(&context, matches).await,
            "stat" => stat::run(&context, matches).await,
            "set" => set::run(&context, matches).await,
            "create" => create::run(&context, matches).await,
            "rm" => rm::run(&context, matches).await,
            "watch" => watch::run(&context, matches).await,
            other => Err(Failure::refused(format!("{other} has no code"))),
        };
        if context.leaves_session.get() {
            // Dropped, the client would close it.
            std::mem::forget(context);
        } else {
            // Best effort: what cannot be closed ends by its timeout.
            let _ = tokio::time::timeout(GOODBYE, context.client.close()).await;
        }
        ended
    })
}
