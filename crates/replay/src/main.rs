//! Program `replay`: prints one line of JSON for each fact in the data of a stopped node.

use std::io::{BufWriter, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use replay::{Node, replay};

/// Prints what happened to locks and sessions, from the snapshot and the log of a stopped node: one
/// line of JSON for each fact.
#[derive(Debug, Parser)]
#[command(name = "replay", version)]
struct Args {
    /// The node's data directory.
    data_dir: PathBuf,
    /// The cluster's name.
    #[arg(long)]
    cluster_id: String,
    /// The node's id.
    #[arg(long)]
    node_id: u64,
}

fn main() -> ExitCode {
    let Args { data_dir, cluster_id, node_id } = Args::parse();
    match run(Node { data_dir, cluster_id, node_id }) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "replay: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(node: Node) -> Result<(), Box<dyn std::error::Error>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut out = BufWriter::new(std::io::stdout().lock());
    let mut written = Ok(());
    runtime.block_on(replay(node, |fact| {
        if written.is_ok() {
            written = serde_json::to_writer(&mut out, &fact).map_err(Into::into).and_then(|()| out.write_all(b"\n"));
        }
    }))?;
    written?;
    Ok(out.flush()?)
}
