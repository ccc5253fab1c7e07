//! `zlock recover`: creates a new cluster from the data of one node of an old cluster.

use std::path::PathBuf;

use clap::{ArgMatches, Command};
use replica::offline::{Position, Survivor};

use super::{restore, seeds};
use crate::cli::calendar;
use crate::cli::failure::Failure;
use crate::cli::options::{file, flag};
use crate::cli::output::Output;

pub(crate) fn command() -> Command {
    let inspect = "Shows how much of the log the node has, and writes no seed: recover from the node that has most";
    let command = Command::new("recover")
        .about("Makes a new cluster from the data of a stopped node, when a quorum is lost for good")
        .arg(flag("json", "Prints JSON"))
        .arg(file("data-dir", "DIR", "The data directory of a node that does not run").required(true))
        .arg(flag("inspect", inspect).conflicts_with_all(["members", "out"]));
    seeds::with_options(command)
}

pub(crate) fn run(out: Output, matches: &ArgMatches) -> Result<u8, Failure> {
    let data_dir = matches.get_one::<PathBuf>("data-dir").expect("it is required");
    let survivor = crate::cli::block_on(Survivor::read(data_dir))?;
    let survivor = survivor.map_err(|error| Failure::refused(error.to_string()))?;
    if matches.get_flag("inspect") {
        return inspect(out, &survivor);
    }
    if !survivor.joined {
        let line = "this node was still catching up and had no vote: another survivor has more than it";
        return Err(Failure::refused(line));
    }
    if let Some(zxid) = survivor.removed_at() {
        let line = format!("this node was removed from the cluster at zxid {zxid}: another survivor has more than it");
        return Err(Failure::refused(line));
    }
    let lost = may_be_lost(&survivor);
    let (cluster_id, node_id) = (survivor.cluster_id.clone(), survivor.node_id);
    let sown = seeds::write(survivor.state, &cluster_id, node_id, matches)?;
    if !out.json {
        lost.iter().try_for_each(|line| out.line(line))?;
    }
    restore::told(out, &sown)
}

/// Returns messages about log entries that may be lost by the recovery. The operator must read them
/// before giving up the other nodes of the old cluster.
fn may_be_lost(survivor: &Survivor) -> Vec<String> {
    let place = |position: Option<Position>| {
        position.map_or("none".to_owned(), |at| format!("{} (term {}, zxid {})", at.index, at.term, survivor.zxid(at)))
    };
    vec![
        format!("node {} has entries up to {}", survivor.node_id, place(survivor.last)),
        format!("it knew those up to {} to be committed; those behind may never have been", place(survivor.committed)),
        "what other nodes acknowledged behind its last entry is lost".to_owned(),
    ]
}

fn inspect(out: Output, survivor: &Survivor) -> Result<u8, Failure> {
    let Survivor { cluster_id, node_id, cluster_uuid, voted_term, joined, state, .. } = survivor;
    let place = |at: Option<Position>| {
        at.map(|at| serde_json::json!({ "term": at.term, "index": at.index, "zxid": survivor.zxid(at) }))
    };
    let document = serde_json::json!({
        "cluster_id": cluster_id, "cluster_uuid": cluster_uuid.to_string(), "node_id": node_id,
        "voted_term": voted_term, "joined": joined, "removed_at_zxid": survivor.removed_at().map(|zxid| zxid.0),
        "last": place(survivor.last),
        "committed": place(survivor.committed), "time_ms": state.time_ms(), "znodes": state.znode_count(),
        "sessions": state.session_count(),
        "members": survivor.members.iter().map(|member| member.id).collect::<Vec<_>>(),
    });
    let place = |at: Option<Position>| {
        at.map_or("none".to_owned(), |at| format!("term {} index {} zxid {}", at.term, at.index, survivor.zxid(at)))
    };
    let members: Vec<String> = survivor.members.iter().map(|member| member.id.to_string()).collect();
    let vote = match survivor.removed_at() {
        Some(zxid) => format!(", and was removed from the cluster at zxid {zxid}"),
        None if *joined => String::new(),
        None => ", and has no vote: it was still catching up".to_owned(),
    };
    let rows = [
        ("cluster", format!("{cluster_id} {cluster_uuid}")),
        ("node", format!("{node_id} of {}", members.join(","))),
        ("last entry", place(survivor.last)),
        ("committed", place(survivor.committed)),
        ("voted", format!("in term {voted_term}{vote}")),
        ("time", calendar::show(state.time_ms())),
        ("znodes", state.znode_count().to_string()),
        ("sessions", state.session_count().to_string()),
    ];
    out.answer(&document, || rows.iter().try_for_each(|(name, value)| out.line(&format!("{name:<12}{value}"))))
}
