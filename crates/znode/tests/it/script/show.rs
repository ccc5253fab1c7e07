//! Output of scripts: answers and states as text.

use std::fmt::Write as _;

use znode::lock::{
    self, EndedSession, EndedTicket, LockStatus, LockSummary, MixedPair, Moment, QueueEntry, QueuePage, Revocation,
    TicketHolds, WaitsFor,
};
use znode::{
    Acl, Actor, ClientInfo, Error, EventKind, EventRecord, Kind, LockSettings, ReapCandidate, Refusal, Reply,
    SessionId, Stat, State, TxnOutcome, ZPath,
};

/// Shows the answer to a request and its events. An event that not all clients may receive is shown
/// with its ACLs.
pub(crate) fn applied(applied: &TxnOutcome, events: &[EventRecord], state: &State) -> String {
    let answer = match &applied.reply {
        Ok(answer) => reply(answer, state),
        Err(Refusal { error, path, op_index }) => {
            let path = path.as_ref().map(|path| format!(" {path}")).unwrap_or_default();
            let index = op_index.map(|index| format!(" op={index}")).unwrap_or_default();
            format!("Refused {error:?}{path}{index}")
        }
    };
    let mut output = format!("zxid={} {answer}", applied.zxid);
    for EventRecord { event, acl: readers, parent_acl } in events {
        let kind = match event.kind {
            EventKind::Created => "created",
            EventKind::Deleted => "deleted",
            EventKind::DataChanged => "data",
            EventKind::ChildrenChanged => "children",
            EventKind::Granted => "granted",
        };
        assert_eq!(event.zxid, applied.zxid, "an event of another transaction");
        write!(output, "\n  {kind} {}", event.path).unwrap();
        if let Some(readers) = readers {
            write!(output, " for {}", entries(readers).join(",")).unwrap();
        }
        if let Some(readers) = parent_acl {
            write!(output, " named to {}", entries(readers).join(",")).unwrap();
        }
    }
    output
}

fn reply(reply: &Reply, state: &State) -> String {
    match reply {
        Reply::Done => "Done".into(),
        Reply::Created { path, .. } => format!("Created {path}"),
        Reply::Set { stat } => format!("Set version={} aversion={}", stat.version, stat.aversion),
        Reply::SessionOpened { session, timeout_ms } => format!("Opened session={session} timeout_ms={timeout_ms}"),
        Reply::Multi(replies) => {
            format!("Multi [{}]", replies.iter().map(|part| self::reply(part, state)).collect::<Vec<_>>().join(", "))
        }
        Reply::Acquired { ticket, held: Some(held) } => format!("Acquired {ticket} {}", self::held(*held)),
        Reply::Acquired { ticket, held: None } => format!("Acquired {ticket} {}", status(&lock::status(state, ticket))),
        Reply::Released { holds } => format!("Released holds={holds}"),
        Reply::Withdrawn => "Withdrawn".into(),
        Reply::StillHeld(held) => format!("StillHeld {}", self::held(*held)),
        Reply::Superseded => "Superseded".into(),
        Reply::Removed { count } => format!("Removed {count}"),
        Reply::Deadlock { cycle } => {
            let edge = |edge: &WaitsFor| {
                let WaitsFor { session, owner, lock, blocker } = edge;
                format!("\n  {owner} of {session} waits on {lock} for {}", blocker.name())
            };
            format!("Deadlock{}", cycle.iter().map(edge).collect::<String>())
        }
        Reply::Scrubbed { last, .. } => format!("Scrubbed up to {last:?}"),
        Reply::Revoking { tickets } => {
            format!("Revoking [{}]", tickets.iter().map(ZPath::name).collect::<Vec<_>>().join(" "))
        }
    }
}

fn held(TicketHolds { token, holds }: TicketHolds) -> String {
    format!("Held token={token} holds={holds}")
}

fn standing(status: &LockStatus) -> String {
    match status {
        LockStatus::Held { token, holds } => held(TicketHolds { token: *token, holds: *holds }),
        LockStatus::Waiting { predecessor } => format!("Waiting after {}", predecessor.name()),
    }
}

pub(crate) fn status(status: &Result<LockStatus, Error>) -> String {
    status.as_ref().map_or_else(|error| format!("{error:?}"), standing)
}

pub(crate) fn position(position: &Result<u32, Error>) -> String {
    position.map_or_else(|error| format!("{error:?}"), |position| position.to_string())
}

pub(crate) fn queue(queue: &Result<QueuePage, Error>) -> String {
    match queue {
        Err(error) => format!("{error:?}"),
        Ok(queue) => {
            let lines = queue.entries.iter().map(|entry| format!("\n{}", self::entry(entry)));
            let permits = queue.permits.map(|permits| format!(", {} of {} permits", permits.held, permits.limit));
            let LockSettings { managed, waiters_max, .. } = queue.settings;
            let waiters = waiters_max.map(|max| format!(", at most {max} wait")).unwrap_or_default();
            let settings =
                format!("{}{}{waiters}", permits.unwrap_or_default(), if managed { ", managed" } else { "" });
            format!("{} contenders{}{}", queue.contenders, settings, lines.collect::<String>())
        }
    }
}

fn entry(entry: &QueueEntry) -> String {
    let held = if entry.held { "held" } else { "waits" };
    let mut line = format!("{} {} {held} {:?}", entry.position, entry.ticket.name(), entry.mode);
    if let Some(session) = entry.session {
        write!(line, " session={session}").unwrap();
    }
    for (name, value) in [("owner", &entry.owner), ("label", &entry.label.clone().unwrap_or("not text".into()))] {
        if !value.is_empty() {
            write!(line, " {name}={value}").unwrap();
        }
    }
    line += &who(&entry.session_label, &entry.client);
    write!(line, " since={} token={} holds={}", entry.since_ms, entry.token, entry.holds).unwrap();
    if let Some(permits) = entry.permits {
        write!(line, " permits={permits}").unwrap();
    }
    if entry.priority > 0 {
        write!(line, " priority={}", entry.priority).unwrap();
    }
    if let Some(Revocation { at, by, due_ms }) = &entry.revocation {
        let by = actor(Some(by));
        let due = due_ms.map(|due_ms| format!(" due {due_ms}")).unwrap_or_default();
        write!(line, " asked_for={}{by}{due}", moment(at)).unwrap();
    }
    if let Some(until_ms) = entry.lingers_until_ms {
        write!(line, " lingers_until={until_ms}").unwrap();
    }
    line
}

pub(crate) fn mixed_clients(mixed: &[MixedPair]) -> String {
    mixed.iter().map(|pair| format!("{pair}\n")).collect()
}

pub(crate) fn history(tickets: &[std::sync::Arc<EndedTicket>]) -> String {
    some(tickets.iter().map(|ticket| past(ticket)).collect())
}

fn past(ticket: &EndedTicket) -> String {
    let EndedTicket { name, mode, session, owner, label, enqueued, grant, ended, end, .. } = ticket;
    let mut line = format!("{ended} {end:?} {name} {mode:?} session={session}", ended = moment(ended));
    for (name, value) in [("owner", owner), ("label", label)] {
        if !value.is_empty() {
            write!(line, " {name}={value}").unwrap();
        }
    }
    line += &who(&ticket.session_label, &ticket.client);
    write!(line, " enqueued={}", moment(enqueued)).unwrap();
    match grant {
        None => line += " never held",
        Some(grant) => write!(line, " granted={} token={}", moment(&grant.at), grant.token).unwrap(),
    }
    line + &actor(ticket.by.as_deref())
}

/// Shows the label and the client of a session, if they are not empty.
fn who(label: &str, client: &ClientInfo) -> String {
    let ClientInfo { host, pid, program, address } = client;
    let known = [
        (!label.is_empty()).then(|| format!("session_label={label}")),
        (!host.is_empty()).then(|| format!("host={host}")),
        pid.map(|pid| format!("pid={pid}")),
        (!program.is_empty()).then(|| format!("program={program}")),
        address.map(|address| format!("seen={address}")),
    ];
    known.into_iter().flatten().map(|word| format!(" {word}")).collect()
}

fn actor(actor: Option<&Actor>) -> String {
    let Some(Actor { session, label, identity, client }) = actor.filter(|actor| **actor != Actor::default()) else {
        return String::new();
    };
    let session = session.map(|session| format!(" {session}")).unwrap_or_default();
    let identity = if identity.is_empty() { String::new() } else { format!(" {identity}") };
    format!(" by{session}{identity}{}", who(label, client))
}

fn moment(moment: &Moment) -> String {
    format!("{}@{}", moment.zxid, moment.time_ms)
}

pub(crate) fn ended(session: Option<&EndedSession>) -> String {
    let Some(EndedSession { id, label, timeout_ms, opened_ms, ended, expired, ephemerals, client }) = session else {
        return "not remembered".into();
    };
    let how = if *expired { "expired" } else { "closed" };
    let ended = moment(ended);
    let client = who("", client);
    format!(
        "{id} {how} {ended} timeout_ms={timeout_ms} label={label:?} opened={opened_ms} ephemerals={ephemerals}{client}"
    )
}

pub(crate) fn list(locks: &Result<Vec<LockSummary>, Error>) -> String {
    let lines = locks.as_ref().unwrap().iter().map(|lock| {
        let first = lock.first.ticket.name();
        format!("{} contenders={} first={first} held={}", lock.lock, lock.contenders, lock.first.held)
    });
    some(lines.collect())
}

pub(crate) fn data(state: &State, path: &ZPath) -> String {
    match state.node(path) {
        None => "NoNode".into(),
        Some(node) => format!("{:?} version={}", String::from_utf8_lossy(node.data()), node.stat().version),
    }
}

pub(crate) fn stat(state: &State, path: &ZPath) -> String {
    let Some(node) = state.node(path) else {
        return "NoNode".into();
    };
    let Stat { czxid, mzxid, ctime_ms, mtime_ms, version, cversion, aversion, .. } = node.stat();
    let Stat { ephemeral_owner, data_length, num_children, pzxid, .. } = node.stat();
    format!(
        "czxid={czxid} mzxid={mzxid} pzxid={pzxid} ctime={ctime_ms} mtime={mtime_ms}\n\
         version={version} cversion={cversion} aversion={aversion} owner={ephemeral_owner:#x} length={data_length} \
         children={num_children}"
    )
}

pub(crate) fn acl(state: &State, path: &ZPath) -> String {
    let Some(node) = state.node(path) else {
        return "NoNode".into();
    };
    some(entries(node.acl()))
}

fn entries(acl: &[Acl]) -> Vec<String> {
    acl.iter().map(|entry| format!("{}:{}:{}", entry.scheme, entry.id, entry.perms)).collect()
}

pub(crate) fn children(state: &State, path: &ZPath, after: Option<&str>) -> String {
    let names: Result<Vec<&str>, Error> = match after {
        None => state.children(path).map(Iterator::collect),
        Some(after) => state.children_from(path, after).map(Iterator::collect),
    };
    names.map_or_else(|error| format!("{error:?}"), |names| format!("[{}]", names.join(" ")))
}

/// Shows all paths below the root, with the kind of those znodes that are not persistent.
pub(crate) fn tree(state: &State) -> String {
    let mut lines = Vec::new();
    let mut left = vec![ZPath::root()];
    while let Some(path) = left.pop() {
        let mut names: Vec<_> = state.children(&path).unwrap().map(|name| path.child(name).unwrap()).collect();
        names.reverse();
        left.extend(names);
        let kind = match state.node(&path).unwrap().kind() {
            Kind::Persistent => String::new(),
            Kind::Ephemeral { owner } => format!(" ephemeral of {owner}"),
            Kind::Container => " container".into(),
            Kind::Ttl { ttl_ms } => format!(" ttl {ttl_ms}"),
        };
        lines.push(format!("{path}{kind}"));
    }
    lines.join("\n")
}

pub(crate) fn sessions(state: &State, after: SessionId) -> String {
    let lines = state.sessions_from(after).map(|session| {
        let ephemerals: Vec<_> = session.ephemerals().map(ZPath::as_str).collect();
        assert_eq!(ephemerals.len(), session.ephemeral_count());
        let znode::Session { id, timeout_ms, label, opened_ms, client, .. } = session;
        let (client, owns) = (who("", client), ephemerals.join(" "));
        format!("{id} timeout_ms={timeout_ms} label={label:?} opened={opened_ms}{client} owns [{owns}]")
    });
    some(lines.collect())
}

/// Shows the subtrees with a quota, with a mark for those that exceed it.
pub(crate) fn quotas(state: &State) -> String {
    let exceeded: Vec<_> = state.exceeded_quotas().map(|(path, _)| path).collect();
    let number = |limit: Option<u64>| limit.map_or("-".into(), |limit| limit.to_string());
    let line = |(path, quota): (&ZPath, &znode::Quota)| {
        let znode::QuotaLimits { count, bytes, count_hard, bytes_hard } = quota.limits;
        let [count, bytes, count_hard, bytes_hard] = [count, bytes, count_hard, bytes_hard].map(number);
        let mark = if exceeded.contains(&path) { " exceeded" } else { "" };
        format!("{path} {} of {count}/{count_hard} {bytes}/{bytes_hard}{mark}\n", quota.usage)
    };
    state.quotas().map(line).collect()
}

pub(crate) fn counts(state: &State) -> String {
    format!(
        "zxid={} term={} time={} znodes={} bytes={} sessions={}",
        state.last_zxid(),
        state.last_term(),
        state.time_ms(),
        state.znode_count(),
        state.data_bytes(),
        state.session_count()
    )
}

pub(crate) fn candidates(candidates: &[ReapCandidate]) -> String {
    some(candidates.iter().map(|candidate| format!("{} czxid={}", candidate.path, candidate.czxid)).collect())
}

fn some(lines: Vec<String>) -> String {
    if lines.is_empty() { "none".into() } else { lines.join("\n") }
}
