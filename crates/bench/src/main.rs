//! The load generator: zlock by both its doors beside ZooKeeper, etcd and Redis, all driven by one code path.
//!
//! ```text
//! compare.rs    which rounds, interleaved          figures.rs   median, spread, ratios
//! workload.rs   what the clients of a round do     report.rs    tables, results.json
//! client/       five protocols over one `Link`     plot.rs      SVG
//! scenario/     failing nodes, many watchers ...
//! limits.rs     what the machine itself allows
//! system/       starting, stopping, counting       error.rs     the error
//! ```
//!
//! Compare only figures of one run: machines are shared, and two runs an hour apart differ by a third.

mod client;
mod compare;
mod error;
mod figures;
mod limits;
mod plot;
mod report;
mod scenario;
mod system;
mod workload;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Measures zlock, and what it is compared with.
#[derive(Parser)]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Starts the systems on loopback with empty data, interleaves them over several rounds, and prints and stores tables.
    Compare(compare::Args),
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let done = match Args::parse().command {
        Command::Compare(args) => compare::run(args).await,
    };
    match done {
        Ok(0) => ExitCode::SUCCESS,
        Ok(errors) => {
            eprintln!("bench: {errors} clients failed");
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("bench: {error}");
            ExitCode::FAILURE
        }
    }
}
