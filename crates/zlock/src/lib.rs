//! The program `zlock`: `zlock serve` runs a node, `zlock dev` runs a whole ensemble on this
//! machine, and the other commands are clients. This crate only connects other crates: `replica` is
//! the node, `rest` its HTTP server, `wire` its ZooKeeper server, and `zlock-client` the client
//! library.
//!
//! | file | has |
//! |---|---|
//! | `cli.rs` | the commands of a client |
//! | `config.rs` | the table of keys; flags, variables and file become [`config::Settings`] |
//! | `serve.rs` | one node, from its settings to its exit code; its messages to systemd |
//! | `admin_socket.rs` | the Unix socket of a node for its operators |
//! | `logging.rs`, `reload.rs` | the log of a node, and the reload on SIGHUP |
//! | `own_program.rs` | the program itself, started again: watchdogs, and the nodes of `dev` |
//! | `usage.rs` | messages about a wrong command line |
//! | `dev.rs` | an ensemble of child processes that run `serve` |
//!
//! On systems other than Linux the program is a client: it has neither `serve` and `dev` nor the
//! commands in `cli/offline.rs`, and is built without the crates of the server.
//!
//! The program is a library with a small `main`, so that the integration tests can build their own
//! binary from it.

#![cfg_attr(
    not(target_os = "linux"),
    allow(dead_code, unused_imports, reason = "the commands that only Linux has use more")
)]

#[cfg(target_os = "linux")]
mod admin_socket;
mod cli;
#[cfg(target_os = "linux")]
pub mod config;
#[cfg(target_os = "linux")]
mod descriptors;
#[cfg(target_os = "linux")]
mod dev;
#[cfg(target_os = "linux")]
mod logging;
mod own_program;
#[cfg(target_os = "linux")]
mod reload;
#[cfg(target_os = "linux")]
mod serve;
#[cfg(test)]
mod tests;
mod usage;

use std::ffi::OsString;
use std::io::Write as _;
use std::process::ExitCode;
use std::sync::LazyLock;

use clap::{ArgMatches, Command};
use serde_json::json;
use znode::Program;

use crate::cli::flag;

/// Allocator of every binary that is built from this library. A node constantly allocates and frees
/// small objects on several threads; with glibc's allocator, that takes a fifth of the node's CPU
/// time.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Upper bound for the setting `limits.data_bytes_max`, the data size of one znode.
const DATA_BYTES_MAX: u32 = 8 << 20;

/// Commit that the program was built from, if `ZLOCK_COMMIT` named it to the compiler.
const COMMIT: Option<&str> = option_env!("ZLOCK_COMMIT");

/// Version, commit and format levels of the program, as `zlock --version` prints them.
static VERSION: LazyLock<String> = LazyLock::new(|| {
    let Program { version, levels } = Program::default();
    let commit = COMMIT.unwrap_or("unknown");
    if levels.min == levels.max {
        format!("{version} (commit {commit}, level {})", levels.max)
    } else {
        format!("{version} (commit {commit}, levels {levels})")
    }
});

/// Returns the program's version, commit and format levels as JSON.
fn version_json() -> String {
    let Program { version, levels } = Program::default();
    let levels = json!({"min": levels.min, "max": levels.max});
    json!({"name": "zlock", "version": version, "commit": COMMIT, "levels": levels}).to_string()
}

/// Reasons for the end of the program, with their exit codes. docs/operating.md documents the
/// numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Exit {
    /// The program was asked to stop, and stopped.
    Clean = 0,
    /// The program did not start: the configuration, an address or the data directory is refused.
    /// Or a node ended because it does not support the cluster's format level (the version of its
    /// log entries and snapshots). Another start would fail in the same way.
    Refused = 1,
    /// The command line is wrong.
    Usage = 2,
    /// The node ran and failed: the disk failed, or a clean stop took too long.
    Failed = 3,
    /// This node was removed from the cluster, and must not start again.
    Removed = 4,
    /// The node ran, and its log contradicts its leader's log: the disk of one of the two was
    /// replaced by an older copy.
    Contradiction = 5,
    /// The requested text could not be written to stdout. The exit code is 4, as for client
    /// commands; `Removed` has the same code, but only a running node ends with it.
    Unwritten = 6,
}

impl Exit {
    /// Returns the exit code.
    fn code(self) -> u8 {
        if self == Exit::Unwritten { Exit::Removed as u8 } else { self as u8 }
    }
}

/// Runs the program with its arguments, the program's name first.
pub fn run(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    own_program::take_name();
    let args: Vec<OsString> = args.into_iter().collect();
    let whole = command().subcommands(cli::internal_commands());
    let exit = match whole.clone().try_get_matches_from(&args) {
        Ok(matches) => {
            if let Some(code) = cli::run(&matches, command) {
                return ExitCode::from(code);
            }
            dispatch(&matches)
        }
        Err(error) => {
            if let Some(command) = usage::command_of_linux(&error) {
                return ExitCode::from(refuse(&format!("zlock {command} runs on Linux only")).code());
            }
            let error = usage::explained(error, whole, &args);
            if error.use_stderr()
                && let Some(code) = cli::refuse_in_json(&error, &args)
            {
                return ExitCode::from(code);
            }
            // clap returns help and version as errors.
            let printed = error.print();
            if error.use_stderr() { Exit::Usage } else { after_writing(printed) }
        }
    };
    ExitCode::from(exit.code())
}

fn dispatch(matches: &ArgMatches) -> Exit {
    match matches.subcommand() {
        #[cfg(target_os = "linux")]
        Some(("serve", matches)) => serve::run(matches),
        #[cfg(target_os = "linux")]
        Some(("dev", matches)) => dev::run(matches),
        Some(("version", _)) if cli::is_json(matches) => print(&version_json()),
        _ => print(&format!("zlock {}", *VERSION)),
    }
}

/// Returns the commands that run nodes. Only Linux has them.
fn server_commands() -> Vec<Command> {
    cfg_select! {
        target_os = "linux" => { vec![serve::command(), dev::command()] }
        _ => { Vec::new() }
    }
}

fn command() -> Command {
    Command::new("zlock")
        .about("A lock service: a quorum of nodes replicates ZooKeeper's znode model and serves locks over HTTP")
        .version(VERSION.as_str())
        .subcommand_required(true)
        .arg_required_else_help(true)
        .args(cli::before_commands())
        .subcommands(server_commands())
        .subcommands(cli::commands())
        .subcommand(
            Command::new("version")
                .about("Prints the version, the commit and the format levels")
                .arg(flag("json", "Prints JSON")),
        )
}

/// Prints a message to stdout. An error is ignored, as it means that stdout has no reader.
fn say(line: &str) {
    let _ = write_line(line);
}

/// Prints the requested text to stdout, and returns the reason for the end of the program.
fn print(line: &str) -> Exit {
    after_writing(write_line(line))
}

fn write_line(line: &str) -> std::io::Result<()> {
    let mut stdout = std::io::stdout().lock();
    writeln!(stdout, "{line}").and_then(|()| stdout.flush())
}

/// Returns the reason for the end of the program after a write to stdout. A reader that has closed
/// the pipe, such as `head`, is no error.
fn after_writing(written: std::io::Result<()>) -> Exit {
    match written {
        Ok(()) => Exit::Clean,
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Exit::Clean,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "zlock: cannot write to stdout: {error}");
            Exit::Unwritten
        }
    }
}

/// Prints to stderr why the program does not start.
fn refuse(reason: &str) -> Exit {
    let _ = writeln!(std::io::stderr(), "zlock: {reason}");
    Exit::Refused
}
