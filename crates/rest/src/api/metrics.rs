//! `/metrics`: the node's metrics in Prometheus's text format 0.0.4.
//!
//! The values come from [`replica::Replica::status`], as for `/v1/cluster` and ZooKeeper's `mntr`.
//! All are kept up to date, so that a scrape computes nothing. Only the numbers of the process are
//! measured for a scrape (`process.rs`).

use std::fmt::{Display, Write as _};

use accept::{Certificates, LONG_STEPS, StepTimes};
use axum::http::StatusCode;
use replica::{Bound, Durations, Entrance, NodeStatus, PeerMeasures, Readiness, RequestEnd, Role, Times, TurnedAway};
use znode::{LEVEL_MAX, Limits};

use crate::api::health::readiness;
use crate::api::process;
use crate::request::call::{Answer, Call, answer};
use crate::request::door::Door;
use crate::request::turns::LastBackup;
use crate::route::{Route, route};

pub(crate) const ROUTES: &[Route] = &[route!(metrics)];

const TOLERANCE: &str =
    "Voters that may still fail while the remaining voters are a quorum; only the leader has this metric.";
const FORMAT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Shows the node's metrics for Prometheus.
#[utoipa::path(get, path = "/metrics", operation_id = "nodeMetrics", tag = "node",
    responses((status = 200, description = "Prometheus's text format 0.0.4", body = String, content_type = "text/plain",
        example = "zlock_node_info{cluster_id=\"dev\",node_id=\"1\",version=\"0.1.0\"} 1\n")))]
pub(crate) async fn metrics(mut call: Call) -> Answer {
    std::mem::take(&mut call.query).finish()?;
    let status = call.door.replica.status();
    let mut text = Text::default();
    node(&mut text, &status, readiness(&call.door) == Readiness::Ready.as_str());
    if let Some(tolerance) = call.door.replica.health().failure_tolerance {
        text.gauge("failure_tolerance", TOLERANCE, tolerance);
    }
    let help = "Times that the node has found another leader than before.";
    text.counter("leader_changes_total", help, call.door.replica.times().leader_changes());
    log(&mut text, &status);
    disk(&mut text, &call.door);
    peers(&mut text, &call.door.replica.peer_measures());
    state(&mut text, &status);
    locks(&mut text, call.door.replica.times());
    requests(&mut text, call.door.replica.times());
    limits(&mut text, call.door.replica.state().limits(), &call.door.config.limits_shown);
    traffic(&mut text, &status, call.door.waits());
    refusals(&mut text, &status);
    connections(&mut text, &status);
    certificates(&mut text, &call.door.config.certificates);
    steps(&mut text);
    backups(&mut text, *call.door.backups.last.lock());
    for (name, kind, help, value) in process::measures().await {
        let _ = writeln!(text.0, "# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {value}");
    }
    Ok(answer(StatusCode::OK, status.applied, FORMAT, text.0))
}

/// Text of the metrics that have been written so far.
#[derive(Default)]
struct Text(String);

impl Text {
    /// Writes the help and the type of a metric.
    fn begin(&mut self, name: &str, kind: &str, help: &str) {
        let _ = writeln!(self.0, "# HELP zlock_{name} {help}\n# TYPE zlock_{name} {kind}");
    }

    /// Writes one sample: the metric's name, its labels and its value.
    fn labelled(&mut self, name: &str, labels: &[(&str, &str)], value: impl Display) {
        let label = |(name, value): &(&str, &str)| format!("{name}=\"{}\"", escaped(value));
        let labels: Vec<String> = labels.iter().map(label).collect();
        let _ = writeln!(self.0, "zlock_{name}{{{}}} {value}", labels.join(","));
    }

    /// Writes one sample without labels: the metric's name and its value.
    fn value(&mut self, name: &str, value: impl Display) {
        let _ = writeln!(self.0, "zlock_{name} {value}");
    }

    fn gauge(&mut self, name: &str, help: &str, value: impl Display) {
        self.begin(name, "gauge", help);
        self.value(name, value);
    }

    /// Writes the samples of a histogram in seconds. The caller has written its help and type.
    fn histogram(&mut self, name: &str, labels: &[(&str, &str)], durations: &Durations) {
        let (bucket, mut all) = (format!("{name}_bucket"), 0);
        for (bound, count) in durations.buckets() {
            let bound = bound.map_or_else(|| "+Inf".to_owned(), |bound| bound.to_string());
            let le = [("le", bound.as_str())];
            self.labelled(&bucket, &[labels, &le].concat(), count);
            all = count;
        }
        for (end, value) in [("sum", durations.sum().as_secs_f64()), ("count", all as f64)] {
            let name = format!("{name}_{end}");
            if labels.is_empty() { self.value(&name, value) } else { self.labelled(&name, labels, value) }
        }
    }

    fn durations(&mut self, name: &str, help: &str, durations: &Durations) {
        self.begin(name, "histogram", help);
        self.histogram(name, &[], durations);
    }

    fn counter(&mut self, name: &str, help: &str, value: impl Display) {
        self.begin(name, "counter", help);
        self.value(name, value);
    }
}

/// Escapes a label's value.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

fn node(text: &mut Text, status: &NodeStatus, is_ready: bool) {
    text.begin("node_info", "gauge", "Always 1; the labels name the node, its cluster and its version.");
    let (id, version) = (status.node_id.to_string(), env!("CARGO_PKG_VERSION"));
    let labels = [("cluster_id", &*status.cluster_id), ("node_id", &*id), ("version", version)];
    text.labelled("node_info", &labels, 1);
    text.begin("role", "gauge", "1 for the role of the node in the ensemble, 0 for each other role.");
    for role in Role::ALL {
        text.labelled("role", &[("role", role.as_str())], u8::from(role == status.role));
    }
    let help = "1 while clients should be sent to the node, as /readyz says; else 0.";
    text.gauge("ready", help, u8::from(is_ready));
    let help = "1 while the node can serve, also if it is drained or a certificate has expired; else 0.";
    text.gauge("serving", help, u8::from(status.ready == Readiness::Ready));
    let leader = status.leader.unwrap_or(0);
    text.gauge("leader_id", "Id of the leader that the node knows; 0 when it knows none.", leader);
    text.gauge("members", "Members of the ensemble, running or not.", status.members.len());
    if let Some(cluster) = &status.cluster {
        text.gauge("level", "Format level of the cluster.", cluster.level());
    }
    let help = "Highest format level that the node's program knows.";
    text.gauge("level_max", help, LEVEL_MAX);
}

fn log(text: &mut Text, status: &NodeStatus) {
    text.gauge("term", "Latest Raft term that the node knows.", status.term);
    text.gauge("last_log_zxid", "Zxid of the last entry in the node's log.", status.last_log);
    text.gauge("committed_zxid", "Zxid of the last entry that the node knows to be committed.", status.committed);
    text.gauge("applied_zxid", "Zxid of the last entry that the node has applied.", status.applied);
    text.gauge("log_purged_zxid", "Zxid of the last entry purged from the node's log; 0 for none.", status.purged);
    let help = "Bytes of entries applied since the node began to build its newest snapshot, or installed one.";
    text.gauge("log_since_snapshot_bytes", help, status.log_since_snapshot_bytes);
    let help = "Seconds that the oldest write to the log has waited for the disk so far; 0 when none waits.";
    text.gauge("log_sync_wait_seconds", help, status.disk_waits.as_secs_f64());
    let help = "1 while a write to the log waits for the disk for longer than allowed; else 0.";
    text.gauge("disk_stalled", help, u8::from(status.disk_stalls));
    let help = "Times that another member had lost entries that it had acknowledged to this leader.";
    text.counter("peer_log_losses_total", help, status.peers.entries_lost);
    let help = "Zxid of the last entry up to which the node's state is known to agree with a majority of the voters.";
    text.gauge("agreed_zxid", help, status.agreed);
    let help = "Members whose state differed from that of a majority when they last answered.";
    text.gauge("members_differing", help, status.differing);
    let help = "1 while the states of voters differ and no majority is known to agree; else 0.";
    text.gauge("members_divided", help, u8::from(status.divided));
    let help =
        "Time at which the last round of the scrub ended, in seconds since 1970; 0 for none that the node knows.";
    text.gauge("scrub_last_round_timestamp_seconds", help, status.scrubbed_ms / 1_000);
    let help = "Zxid of the last entry in the node's newest durable snapshot; 0 without one.";
    text.gauge("snapshot_zxid", help, status.snapshot.zxid);
    text.gauge("snapshot_bytes", "Bytes of the node's newest durable snapshot.", status.snapshot.bytes);
    let help = "Snapshots of its own state that the node has written since it started.";
    text.counter("snapshots_built_total", help, status.counts.snapshots_built);
    let help = "Snapshots that the node has sent to followers since it started.";
    text.counter("snapshots_sent_total", help, status.peers.snapshots_sent);
    let help = "Failures to send a snapshot to a follower since the node started; the node tries again.";
    text.counter("snapshot_send_failures_total", help, status.peers.snapshot_send_failures);
    let help = "Snapshots of leaders that have replaced the node's own state since it started.";
    text.counter("snapshots_installed_total", help, status.counts.snapshots_installed);
    let help = "Writes of the node's clients that are proposed and not answered yet.";
    text.gauge("proposals_in_flight", help, status.proposals);
}

fn disk(text: &mut Text, door: &Door) {
    let (replica, times) = (&door.replica, door.replica.times());
    text.durations("log_sync_seconds", "Durations of the syncs of the node's log.", replica.log_syncs());
    let help = "Durations of clients' writes at this node, from the proposal until the node has applied the entry.";
    text.durations("commit_seconds", help, &times.commit);
    text.durations("snapshot_seconds", "Durations of building a snapshot of the node's own state.", &times.snapshot);
    if let Some(free) = replica.free_disk_bytes() {
        text.gauge("disk_free_bytes", "Free bytes on the disk of the data directory.", free);
    }
}

fn peers(text: &mut Text, peers: &[PeerMeasures]) {
    let ids: Vec<String> = peers.iter().map(|peer| peer.id.to_string()).collect();
    let help = "Durations of the round trips of the node's pings to another member.";
    text.begin("peer_round_trip_seconds", "histogram", help);
    for (peer, id) in peers.iter().zip(&ids) {
        text.histogram("peer_round_trip_seconds", &[("peer", id)], &peer.round_trips);
    }
    let help = "Entries that another member lacks; only the leader has this metric.";
    text.begin("peer_lag_entries", "gauge", help);
    for (lag, id) in peers.iter().zip(&ids).filter_map(|(peer, id)| Some((peer.lag?, id))) {
        text.labelled("peer_lag_entries", &[("peer", id)], lag);
    }
}

fn locks(text: &mut Text, times: &Times) {
    let help = "Times from the entry into a lock's queue to the grant, counted by the leader at the grant.";
    text.durations("lock_wait_seconds", help, &times.lock_wait);
    let help = "Times from the grant of a lock to the end of the hold, counted by the leader at the end.";
    text.durations("lock_hold_seconds", help, &times.lock_hold);
    let help = "Times from the proposal that frees a lock until the leader has applied the grant to a waiting ticket.";
    text.durations("lock_handoff_seconds", help, &times.lock_handoff);
}

fn requests(text: &mut Text, times: &Times) {
    let help = "Durations of answered requests, by protocol (door) and operation; long-polls include their wait.";
    text.begin("request_seconds", "histogram", help);
    for ((entrance, operation), durations) in times.requests() {
        if durations.buckets().last().is_some_and(|(_, all)| *all > 0) {
            let labels = [("door", entrance.as_str()), ("operation", operation.as_str())];
            text.histogram("request_seconds", &labels, &durations);
        }
    }
}

fn limits(text: &mut Text, limits: &Limits, shown: &[(&str, u64)]) {
    text.begin("limit", "gauge", "Configured bounds; the label is the name of the key.");
    let of_state = [
        ("limits.sessions_max", u64::from(limits.sessions_max)),
        ("limits.znodes_max", limits.znodes_max),
        ("limits.state_bytes_max", limits.state_bytes_max),
        ("limits.subtree_bytes_max", limits.subtree_bytes_max),
    ];
    for (key, bound) in of_state.iter().chain(shown) {
        text.labelled("limit", &[("limit", key)], bound);
    }
}

fn state(text: &mut Text, status: &NodeStatus) {
    text.gauge("sessions", "Open sessions of the cluster.", status.sessions);
    let help = "Sessions whose expiry the node has applied since it started.";
    text.counter("sessions_expired_total", help, status.counts.sessions_expired);
    text.gauge("znodes", "Znodes of the cluster, the root included.", status.znodes);
    text.gauge("data_bytes", "Bytes of data in all znodes.", status.data_bytes);
    let help = "Estimated bytes of memory that the replicated state takes.";
    text.gauge("state_bytes", help, status.state_bytes);
    let help = "Bytes of memory that the replicated state may take.";
    text.gauge("state_max_bytes", help, status.state_bytes_max);
    text.begin("largest_subtree_bytes", "gauge", "Estimated bytes of the largest subtree below the root.");
    // No label names the path: clients choose paths, and each of them would begin a time series.
    if let Some((_, bytes)) = &status.largest_subtree {
        text.value("largest_subtree_bytes", bytes);
    }
    text.gauge("locks", "Locks with contenders: holders or waiters.", status.locks);
    text.gauge("lock_holders", "Contenders with a session that hold their lock.", status.holders);
    let help = "Contenders that wait, have no session, or block the lock for an expired holder during its lock-delay.";
    text.gauge("lock_waiters", help, status.waiters);
    let help = "Most sequence numbers used under one znode, among the znodes with a new one since the node started.";
    text.gauge("sequence_numbers_used", help, status.counts.sequence_used);
    let help = "Locks whose queue has clients that ignore each other's lock nodes and may hold at the same time.";
    text.gauge("mixed_clients_locks", help, status.mixed_locks);
}

fn traffic(text: &mut Text, status: &NodeStatus, waits: usize) {
    text.gauge("waits", "HTTP requests that wait: acquires and long-polls.", waits);
    text.begin("watches", "gauge", "Watches and waits that the node keeps, by the client's protocol (door).");
    let watches = [(Entrance::Http, status.watches), (Entrance::ZooKeeper, status.observed)];
    for (entrance, watches) in watches {
        text.labelled("watches", &[("door", entrance.as_str())], watches);
    }
    let help = "Requests answered since the node started, by protocol (door) and outcome.";
    text.begin("requests_total", "counter", help);
    for entrance in Entrance::ALL {
        for end in RequestEnd::ALL {
            let labels = [("door", entrance.as_str()), ("outcome", end.as_str())];
            text.labelled("requests_total", &labels, status.counts.requests(entrance, end));
        }
    }
}

fn refusals(text: &mut Text, status: &NodeStatus) {
    let help = "Requests, bodies, watches, sessions and writes refused for a bound since the node started, by bound.";
    text.begin("refused_total", "counter", help);
    for bound in Bound::ALL {
        text.labelled("refused_total", &[("bound", bound.as_str())], status.counts.refused(bound));
    }
}

fn connections(text: &mut Text, status: &NodeStatus) {
    text.begin("connections", "gauge", "Open client connections, by protocol (door).");
    for entrance in Entrance::ALL {
        text.labelled("connections", &[("door", entrance.as_str())], status.counts.connections(entrance));
    }
    text.begin("peer_connections", "gauge", "Open connections of other members to the node, with TLS or plain.");
    for (transport, has_tls) in [("plain", false), ("tls", true)] {
        text.labelled("peer_connections", &[("transport", transport)], status.counts.peer_connections(has_tls));
    }
    let help = "Client connections refused or closed for a bound since the node started, by protocol (door) and cause.";
    text.begin("connections_turned_away_total", "counter", help);
    for entrance in Entrance::ALL {
        for away in TurnedAway::ALL {
            let labels = [("door", entrance.as_str()), ("cause", away.as_str())];
            text.labelled("connections_turned_away_total", &labels, status.counts.turned_away(entrance, away));
        }
    }
}

fn certificates(text: &mut Text, certificates: &Certificates) {
    let help = "End of the validity of the certificate of a port with TLS, in seconds since 1970.";
    text.begin("tls_certificate_not_after_seconds", "gauge", help);
    for certificate in certificates.iter() {
        let labels = [("port", certificate.port)];
        text.labelled("tls_certificate_not_after_seconds", &labels, certificate.not_after_s());
    }
    let help = "Times that changed TLS files of a port came into use, or could not be used, since the node started.";
    text.begin("tls_reloads_total", "counter", help);
    for certificate in certificates.iter() {
        for (result, count) in [("done", certificate.reloads()), ("failed", certificate.failures())] {
            text.labelled("tls_reloads_total", &[("port", certificate.port), ("result", result)], count);
        }
    }
}

fn steps(text: &mut Text) {
    let times = StepTimes::of_this_process();
    let help = "Durations of steps above 200 us that serve clients, on the threads that clients share with Raft.";
    text.begin("long_step_seconds", "histogram", help);
    let mut count = 0;
    let bounds = LONG_STEPS[1..].iter().map(|bound| bound.as_secs_f64().to_string()).chain(["+Inf".to_owned()]);
    for (bound, steps) in bounds.zip(times.long()) {
        count += steps;
        text.labelled("long_step_seconds_bucket", &[("le", &bound)], count);
    }
    text.value("long_step_seconds_sum", times.total().as_secs_f64());
    text.value("long_step_seconds_count", count);
    let help = "Duration of the longest step that served clients since the process started; 0 for none above 200 us.";
    text.gauge("longest_step_seconds", help, times.longest().as_secs_f64());
}

fn backups(text: &mut Text, LastBackup { at_seconds, bytes }: LastBackup) {
    let help =
        "Time of the last backup that the node wrote to its end, in seconds since 1970; 0 for none since it started.";
    text.gauge("backup_last_success_timestamp_seconds", help, at_seconds);
    let help = "Bytes of the last backup that the node wrote to its end; 0 for none since it started.";
    text.gauge("backup_last_bytes", help, bytes);
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
