//! The load generator: one table of rates and latencies for a running cluster, or for one that it starts itself.
//!
//! `main.rs` reads the arguments and runs rounds, `workload.rs` says what a client does, `http.rs` sends it, `cluster.rs`
//! starts three nodes when no endpoint is given, `summary.rs` turns rounds into a line. Every client has one connection and
//! one request under way: the load is closed, so a slow server is asked less often. Compare only figures of one run.

mod cluster;
mod http;
mod summary;
mod workload;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use bytes::Bytes;
use clap::Parser;
use hyper::{Method, StatusCode};

use crate::cluster::Cluster;
use crate::http::{Connection, Error};
use crate::summary::Round;
use crate::workload::{Client, Shared, Workload};

/// Measures rates and latencies of a zlock cluster over HTTP.
#[derive(Parser)]
struct Args {
    /// Nodes to load, `host:port`, clients spread over them in turn. Without it, three nodes are started on loopback.
    #[arg(long, value_delimiter = ',')]
    endpoints: Vec<String>,
    /// Numbers of clients to measure with.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 16, 64, 256])]
    clients: Vec<usize>,
    /// What the clients do.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Workload::Write, Workload::LockCycle, Workload::HandOff, Workload::Read])]
    workloads: Vec<Workload>,
    /// Length of one round in seconds.
    #[arg(long, default_value_t = 5)]
    seconds: u64,
    /// Rounds for each line; the line has their median and spread.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    match run(Args::parse()).await {
        Ok(0) => ExitCode::SUCCESS,
        Ok(errors) => {
            eprintln!("bench: {errors} operations failed");
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("bench: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Measures every line of the table. The answer is how many operations failed.
async fn run(args: Args) -> Result<usize, Box<dyn std::error::Error>> {
    let cluster = if args.endpoints.is_empty() { Some(Cluster::start().await?) } else { None };
    let endpoints = cluster.as_ref().map_or(&args.endpoints, |cluster| &cluster.endpoints);
    let mut failed = 0;
    println!("{}", summary::HEAD);
    for &workload in &args.workloads {
        for &clients in &args.clients {
            if workload == Workload::HandOff && clients < 2 {
                continue;
            }
            let mut rounds = Vec::new();
            for _ in 0..args.rounds {
                let round = round(endpoints, workload, clients, Duration::from_secs(args.seconds)).await?;
                failed += round.errors;
                if let Some(error) = &round.first_error {
                    eprintln!("bench: {} with {clients} clients: {error}", workload.name());
                }
                rounds.push(round);
            }
            println!("{}", summary::row(workload.name(), clients, &rounds));
        }
    }
    Ok(failed)
}

/// One round: connects all clients, then lets them work at the same time.
async fn round(endpoints: &[String], workload: Workload, clients: usize, length: Duration) -> Result<Round, Error> {
    let shared = Shared::default();
    let mut connections = Vec::new();
    for number in 0..clients {
        let mut connection = Connection::open(&endpoints[number % endpoints.len()]).await?;
        match workload {
            Workload::Write | Workload::Read => make_znode(&mut connection, number).await?,
            Workload::LockCycle | Workload::HandOff => connection.open_session(30_000).await?,
        }
        connections.push(connection);
    }
    let end = Instant::now() + length;
    let clients = connections
        .into_iter()
        .enumerate()
        .map(|(number, connection)| Client { connection, number, shared: &shared, end }.run(workload));
    let mut total = Round::default();
    for round in join_all(clients).await {
        total.merge(round);
    }
    Ok(total)
}

/// Makes sure that the client's znode exists.
async fn make_znode(connection: &mut Connection, number: usize) -> Result<(), Error> {
    let made = connection.send(Method::POST, &format!("/v1/znodes/bench-{number}"), Bytes::new()).await;
    match made {
        Err(Error::Status { status: StatusCode::CONFLICT, .. }) => Ok(()),
        other => other.map(drop),
    }
}

/// Waits for all of them, polling only those that were woken.
async fn join_all<F: Future<Output = Round>>(clients: impl Iterator<Item = F>) -> Vec<Round> {
    use futures_util::StreamExt as _;
    clients.collect::<futures_util::stream::FuturesUnordered<F>>().collect().await
}
