//! Facts from the logs of stopped nodes (grants, ends of holds, and begins and ends of sessions).
//! The program `replay` prints them; it shares no code with `jepsen`.

use std::path::{Path, PathBuf};

use tokio::process::Command;

use crate::check::Workload;
use crate::check::replayed::{self, NodeFacts};
use crate::cluster::CLUSTER_ID;
use crate::history::{self, Entry};
use crate::verdict::Verdict;

/// Path of the file, below the run's directory, for the facts that `replay` printed about a node's
/// log.
fn kept(dir: &Path, node: u64) -> PathBuf {
    dir.join(format!("node{node}")).join("facts.jsonl")
}

/// Runs `replay` on each stopped node's data, and stores and returns the facts that it prints.
///
/// # Errors
/// When the program fails, or a line of its output is not understood.
pub async fn run(program: &Path, data_dirs: &[PathBuf], dir: &Path) -> Result<Vec<NodeFacts>, String> {
    let mut nodes = Vec::new();
    for (node, data_dir) in (1..).zip(data_dirs) {
        let mut command = Command::new(program);
        command.arg(data_dir).args(["--cluster-id", CLUSTER_ID, "--node-id", &node.to_string()]);
        let output = command.output().await.map_err(|error| format!("{}: {error}", program.display()))?;
        if !output.status.success() {
            return Err(format!("replay of node {node}: {}", String::from_utf8_lossy(&output.stderr).trim_end()));
        }
        let path = kept(dir, node);
        std::fs::write(&path, &output.stdout).map_err(|error| format!("{}: {error}", path.display()))?;
        nodes.push(read(node, &output.stdout)?);
    }
    Ok(nodes)
}

/// Reads the facts that a run stored about its nodes' logs; empty if the run did not use `replay`.
///
/// # Errors
/// When a stored line is not understood.
pub fn stored(dir: &Path) -> Result<Vec<NodeFacts>, String> {
    let there = (1..).map_while(|node| Some((node, std::fs::read(kept(dir, node)).ok()?)));
    there.map(|(node, bytes)| read(node, &bytes)).collect()
}

fn read(node: u64, bytes: &[u8]) -> Result<NodeFacts, String> {
    NodeFacts::read(node, &String::from_utf8_lossy(bytes)).map_err(|why| format!("facts of node {node}: {why}"))
}

/// Judges the facts from the logs of all nodes, and adds the result to `verdict`; without facts
/// does nothing.
pub fn judge(workload: Workload, entries: &[Entry], facts: &[NodeFacts], verdict: &mut Verdict) {
    if facts.is_empty() {
        return;
    }
    match history::operations(entries) {
        Ok(operations) => verdict.join(replayed::check(workload, facts, &operations)),
        Err(why) => verdict.doubt(why),
    }
}
