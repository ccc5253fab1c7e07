//! Load generator that measures zlock (over HTTP and over ZooKeeper's protocol), ZooKeeper, etcd
//! and Redis with the same code.
//!
//! ```text
//! compare.rs    which rounds, interleaved          clusters.rs  the running systems
//! workload.rs   what the clients of a round do     figures.rs   latencies, median, spread
//! client/       five protocols over one `Link`     results.rs   results.json, part by part
//! scenario/     failing nodes, many watchers ...   report.rs    tables, the page
//! hostile/      honest clients beside traffic that means harm
//! limits.rs     what the machine itself allows     error.rs     the error
//! system/       starting, stopping, counting
//! ```
//!
//! Compare only figures of one run: machines are shared, and two runs an hour apart differ by a
//! third.

mod client;
mod clusters;
mod compare;
mod error;
mod figures;
mod hostile;
mod limits;
mod report;
mod results;
mod scenario;
mod system;
mod workload;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Measures zlock and the systems with which it is compared.
#[derive(Parser)]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Starts the systems on loopback with empty data, measures them in turn over several rounds,
    /// and prints and stores tables.
    Compare(compare::Args),
    /// Starts three nodes of zlock on loopback, and measures honest clients beside each kind of
    /// hostile traffic.
    Hostile(hostile::Args),
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let done = match Args::parse().command {
        Command::Compare(args) => compare::run(args).await,
        Command::Hostile(args) => hostile::run(args).await,
    };
    match done {
        Ok(0) => ExitCode::SUCCESS,
        Ok(errors) => {
            eprintln!("bench: {errors} clients, parts or checks failed");
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("bench: {error}");
            ExitCode::FAILURE
        }
    }
}
