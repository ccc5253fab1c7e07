//! `/metrics`: the node's numbers in Prometheus's text format 0.0.4.
//!
//! The numbers are those of [`replica::Replica::status`], which `/v1/cluster` and ZooKeeper's
//! `mntr` tell, too. All are kept up to date, so a scrape counts nothing.

use std::fmt::{Display, Write as _};
use std::sync::PoisonError;

use accept::{LONG_STEPS, StepTimes};
use axum::http::StatusCode;
use replica::{Entrance, NodeStatus, Readiness, RequestEnd, Role, TurnedAway};

use crate::request::call::{Answer, Call, answer};
use crate::request::turns::LastBackup;
use crate::route::{Route, route};

pub(crate) const ROUTES: &[Route] = &[route!(metrics)];

const TOLERANCE: &str =
    "Voters that may fail from now on, so that the rest still is a quorum; the leader tells it alone.";
const FORMAT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Shows the node's numbers, for Prometheus.
#[utoipa::path(get, path = "/metrics", operation_id = "nodeMetrics", tag = "node",
    responses((status = 200, description = "Prometheus's text format 0.0.4", body = String, content_type = "text/plain",
        example = "zlock_node_info{cluster_id=\"dev\",node_id=\"1\",version=\"0.1.0\"} 1\n")))]
pub(crate) async fn metrics(mut call: Call) -> Answer {
    std::mem::take(&mut call.query).finish()?;
    let status = call.door.replica.status();
    let mut text = Text::default();
    node(&mut text, &status, call.door.drains().is_some());
    if let Some(tolerance) = call.door.replica.health().failure_tolerance {
        text.gauge("failure_tolerance", TOLERANCE, tolerance);
    }
    log(&mut text, &status);
    state(&mut text, &status);
    traffic(&mut text, &status, call.door.waits());
    connections(&mut text, &status);
    steps(&mut text);
    backups(&mut text, *call.door.backups.last.lock().unwrap_or_else(PoisonError::into_inner));
    Ok(answer(StatusCode::OK, status.applied, FORMAT, text.0))
}

/// The text written so far.
#[derive(Default)]
struct Text(String);

impl Text {
    /// Begins a metric that has several values with labels.
    fn begin(&mut self, name: &str, kind: &str, help: &str) {
        let _ = writeln!(self.0, "# HELP zlock_{name} {help}\n# TYPE zlock_{name} {kind}");
    }

    /// Adds a value with labels.
    fn labelled(&mut self, name: &str, labels: &[(&str, &str)], value: impl Display) {
        let label = |(name, value): &(&str, &str)| format!("{name}=\"{}\"", escaped(value));
        let labels: Vec<String> = labels.iter().map(label).collect();
        let _ = writeln!(self.0, "zlock_{name}{{{}}} {value}", labels.join(","));
    }

    fn gauge(&mut self, name: &str, help: &str, value: impl Display) {
        self.begin(name, "gauge", help);
        let _ = writeln!(self.0, "zlock_{name} {value}");
    }

    fn counter(&mut self, name: &str, help: &str, value: impl Display) {
        self.begin(name, "counter", help);
        let _ = writeln!(self.0, "zlock_{name} {value}");
    }
}

/// Escapes a label's value.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

fn node(text: &mut Text, status: &NodeStatus, draining: bool) {
    text.begin("node_info", "gauge", "The node: always 1.");
    let (id, version) = (status.node_id.to_string(), env!("CARGO_PKG_VERSION"));
    let labels = [("cluster_id", &*status.cluster_id), ("node_id", &*id), ("version", version)];
    text.labelled("node_info", &labels, 1);
    text.begin("role", "gauge", "1 for the role that the node has in the ensemble, 0 for the others.");
    for role in [Role::Leader, Role::Follower, Role::Candidate, Role::Learner, Role::Stopped] {
        text.labelled("role", &[("role", role.as_str())], u8::from(role == status.role));
    }
    let ready = u8::from(status.ready == Readiness::Ready && !draining);
    text.gauge("ready", "Whether clients should be sent here, as /readyz says.", ready);
    let leader = status.leader.unwrap_or(0);
    text.gauge("leader_id", "The node that leads as far as this one knows; 0 when it knows none.", leader);
    text.gauge("members", "Nodes of the ensemble, running or not.", status.members.len());
}

fn log(text: &mut Text, status: &NodeStatus) {
    text.gauge("term", "The Raft term that the node knows.", status.term);
    text.gauge("last_log_zxid", "The last entry in the node's log.", status.last_log);
    text.gauge("committed_zxid", "The last entry that the node knows to be committed.", status.committed);
    text.gauge("applied_zxid", "The last entry that the node has applied.", status.applied);
    text.gauge("snapshot_zxid", "The last entry in the newest durable snapshot; 0 without one.", status.snapshot.zxid);
    text.gauge("snapshot_bytes", "The length of the newest durable snapshot.", status.snapshot.bytes);
    let help = "Entries applied since the last snapshot was begun, or brought by the leader.";
    text.gauge("unsaved_log_bytes", help, status.unsaved_bytes);
    let help = "How long the oldest write to the log has waited for the disk, in seconds.";
    text.gauge("flush_waiting_seconds", help, status.disk_waits.as_secs_f64());
    let help = "1 while that is longer than disk.stall_max: the node is not ready and leads only if no other can.";
    text.gauge("disk_stalled", help, u8::from(status.disk_stalls));
    let help = "How often another member had lost entries that it had told this leader to be on its disk.";
    text.counter("peer_entries_lost_total", help, status.peer_losses);
    let help = "Snapshots that this node has written of its own state since it started.";
    text.counter("snapshots_built_total", help, status.counts.snapshots_built);
    let help = "Snapshots that this node has sent to followers since it started.";
    text.counter("snapshots_sent_total", help, status.snapshots_sent);
    let help = "Snapshots of leaders that took the place of what was applied here, since it started.";
    text.counter("snapshots_installed_total", help, status.counts.snapshots_installed);
    text.gauge("log_purged_zxid", "The last entry that was purged from the node's log; 0 for none.", status.purged);
    let help = "How often this node could not send a snapshot to a follower; it tries again.";
    text.counter("snapshots_unsent_total", help, status.snapshots_unsent);
    let help = "Writes of this node that are on their way through the log.";
    text.gauge("proposals_in_flight", help, status.proposals);
}

fn state(text: &mut Text, status: &NodeStatus) {
    text.gauge("sessions", "Open sessions of the cluster.", status.sessions);
    let help = "Sessions whose expiry the node has applied since it started.";
    text.counter("sessions_expired_total", help, status.counts.sessions_expired);
    text.gauge("znodes", "Znodes, the root included.", status.znodes);
    text.gauge("data_bytes", "The data of all znodes.", status.data_bytes);
    let help = "Memory that the replicated state takes, by estimate.";
    text.gauge("state_bytes", help, status.state_bytes);
    text.gauge("state_bytes_max", "How much of it the state may take: limits.state_bytes_max.", status.state_bytes_max);
    text.begin("largest_subtree_bytes", "gauge", "What the subtree below the root weighs that weighs most.");
    if let Some((path, bytes)) = &status.largest_subtree {
        text.labelled("largest_subtree_bytes", &[("path", path.as_str())], *bytes);
    }
    text.gauge("locks", "Znodes with contenders among their children.", status.locks);
    text.gauge("lock_holders", "Lock nodes of sessions that hold their lock.", status.holders);
    let help = "Other lock nodes: those that wait, those of dead holders whose lock-delay lasts, those of no session.";
    text.gauge("lock_waiters", help, status.waiters);
    let help = "The most sequence numbers used under one znode, of 2147483647, where the node has seen one used since it started.";
    text.gauge("sequence_numbers_used", help, status.counts.sequence_used);
    let help = "Locks with clients in their queue that do not see each other and may hold at once.";
    text.gauge("mixed_locks", help, status.mixed_locks);
}

fn traffic(text: &mut Text, status: &NodeStatus, waits: usize) {
    text.gauge("waiting_requests", "HTTP requests that wait: long-polls and acquires.", waits);
    text.begin("watches", "gauge", "What the node looks out for, by the door that asked.");
    let watches = [(Entrance::Http, status.watches), (Entrance::ZooKeeper, status.observed)];
    for (entrance, watches) in watches {
        text.labelled("watches", &[("door", door(entrance))], watches);
    }
    let help = "Requests that were answered since the node started, by door and outcome.";
    text.begin("requests_total", "counter", help);
    for entrance in Entrance::ALL {
        for end in RequestEnd::ALL {
            let labels = [("door", door(entrance)), ("outcome", outcome(end))];
            text.labelled("requests_total", &labels, status.counts.requests(entrance, end));
        }
    }
}

fn connections(text: &mut Text, status: &NodeStatus) {
    let help = "Connections of clients that were turned away since the node started, by door and cause.";
    text.begin("connections_turned_away_total", "counter", help);
    for entrance in Entrance::ALL {
        for away in TurnedAway::ALL {
            let cause = match away {
                TurnedAway::DoorFull => "door-full",
                TurnedAway::AddressFull => "address-full",
                TurnedAway::GaveWay => "gave-way",
            };
            let labels = [("door", door(entrance)), ("cause", cause)];
            text.labelled("connections_turned_away_total", &labels, status.counts.turned_away(entrance, away));
        }
    }
}

fn steps(text: &mut Text) {
    let times = StepTimes::of_this_process();
    let help = "Steps of doors on the threads that they share with Raft that took longer, since the process started.";
    text.begin("long_steps_total", "counter", help);
    for (than, steps) in LONG_STEPS.into_iter().zip(times.long()) {
        text.labelled("long_steps_total", &[("longer_than", &than.as_secs_f64().to_string())], steps);
    }
    text.gauge("longest_step_seconds", "The longest of them.", times.longest().as_secs_f64());
}

fn backups(text: &mut Text, LastBackup { at_seconds, bytes }: LastBackup) {
    let help = "When this node wrote a backup to its end last, in seconds since 1970; 0 for not since it started.";
    text.gauge("backup_last_success_timestamp_seconds", help, at_seconds);
    text.gauge("backup_last_bytes", "The length of that backup.", bytes);
}

fn door(entrance: Entrance) -> &'static str {
    match entrance {
        Entrance::Http => "http",
        Entrance::ZooKeeper => "zookeeper",
    }
}

fn outcome(end: RequestEnd) -> &'static str {
    match end {
        RequestEnd::Done => "done",
        RequestEnd::Refused => "refused",
        RequestEnd::Unavailable => "unavailable",
        RequestEnd::Unknown => "unknown",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_label_may_not_hold_is_escaped() {
        let mut text = Text::default();
        text.labelled("x", &[("a", "one \"two\"\n\\three"), ("b", "")], 5);
        assert_eq!(text.0, "zlock_x{a=\"one \\\"two\\\"\\n\\\\three\",b=\"\"} 5\n");
    }
}
