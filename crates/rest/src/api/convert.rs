//! Conversions between the types of the state machine and those of the API.

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use zlock_client::api::{AclEntry, EventInfo, EventKind, Mode, ProblemType, RevokeRequest, Stat, ZnodeInfo};
use znode::lock::Revocation;
use znode::{Acl, CreateMode, Identity, LockMode, State, ZPath, Znode};

use crate::problem::Problem;
use crate::request::access::shows;
use crate::request::query::Query;

pub(crate) fn stat(stat: znode::Stat) -> Stat {
    Stat {
        czxid: stat.czxid.0,
        mzxid: stat.mzxid.0,
        ctime: stat.ctime_ms,
        mtime: stat.mtime_ms,
        version: stat.version,
        cversion: stat.cversion,
        aversion: stat.aversion,
        ephemeral_owner: stat.ephemeral_owner,
        data_length: stat.data_length,
        num_children: stat.num_children,
        pzxid: stat.pzxid.0,
    }
}

pub(crate) fn znode_info(path: &ZPath, node: &Znode) -> ZnodeInfo {
    let (data, data_base64) = match std::str::from_utf8(node.data()) {
        Ok(text) => (Some(text.to_owned()), None),
        Err(_) => (None, Some(STANDARD.encode(node.data()))),
    };
    ZnodeInfo { path: path.as_str().into(), data, data_base64, stat: stat(node.stat()) }
}

/// Describes a znode, without its data if the request may not read the znode.
pub(crate) fn shown_info(path: &ZPath, node: &Znode, state: &State, identities: &[Identity]) -> ZnodeInfo {
    if state.may(path, node, znode::READ, identities) {
        return znode_info(path, node);
    }
    ZnodeInfo { path: path.as_str().into(), data: None, data_base64: None, stat: stat(node.stat()) }
}

/// Returns the znode data of one operation of a transaction, from its text field or its base64
/// field. An operation with neither field has empty data.
pub(crate) fn data(text: Option<String>, base64: Option<String>) -> Result<Vec<u8>, Problem> {
    match (text, base64) {
        (Some(_), Some(_)) => Err(Problem::bad("data_base64", "given together with data")),
        (Some(text), None) => Ok(text.into_bytes()),
        (None, Some(base64)) => STANDARD.decode(base64).map_err(|error| Problem::bad("data_base64", error)),
        (None, None) => Ok(Vec::new()),
    }
}

pub(crate) fn event(event: znode::Event) -> EventInfo {
    let kind = match event.kind {
        znode::EventKind::Created => EventKind::Created,
        znode::EventKind::Deleted => EventKind::Deleted,
        znode::EventKind::DataChanged => EventKind::DataChanged,
        znode::EventKind::ChildrenChanged => EventKind::ChildrenChanged,
        znode::EventKind::Granted => EventKind::Granted,
    };
    EventInfo { zxid: event.zxid.0, kind, path: event.path.as_str().into() }
}

/// Converts a create mode. `ttl_ms` is required in the TTL modes, and refused in all others.
pub(crate) fn create_mode(mode: Mode, ttl_ms: Option<u64>) -> Result<CreateMode, Problem> {
    let ttl = || ttl_ms.ok_or_else(|| Problem::bad("ttl", "the mode needs one"));
    let mode = match mode {
        Mode::Persistent => CreateMode::Persistent,
        Mode::Ephemeral => CreateMode::Ephemeral,
        Mode::PersistentSequential => CreateMode::PersistentSequential,
        Mode::EphemeralSequential => CreateMode::EphemeralSequential,
        Mode::Container => CreateMode::Container,
        Mode::PersistentTtl => return Ok(CreateMode::PersistentTtl { ttl_ms: ttl()? }),
        Mode::PersistentSequentialTtl => return Ok(CreateMode::PersistentSequentialTtl { ttl_ms: ttl()? }),
    };
    if ttl_ms.is_some() {
        return Err(Problem::bad("ttl", "only with mode=persistent-ttl or persistent-sequential-ttl"));
    }
    Ok(mode)
}

/// Parses a create mode from the query.
pub(crate) fn parse_mode(text: &str) -> Result<Mode, Problem> {
    // The names in the query are those in JSON, so serde's list is used.
    serde_json::from_value(text.into()).map_err(|_| {
        let all = "persistent, ephemeral, persistent-sequential, ephemeral-sequential, container, persistent-ttl or persistent-sequential-ttl";
        Problem::bad("mode", all)
    })
}

/// Converts a lock mode of the API. Only a semaphore may have `permits` and `permits_max`.
pub(crate) fn lock_mode_of(
    mode: zlock_client::api::LockMode,
    permits: Option<u32>,
    permits_max: Option<u32>,
) -> Result<LockMode, Problem> {
    if mode != zlock_client::api::LockMode::Semaphore {
        let belongs = permits.or(permits_max).is_none();
        let why = || Problem::bad("permits", "permits and permits_max belong to mode=semaphore");
        return belongs.then(|| kind_of_lock(mode)).ok_or_else(why);
    }
    let wanted = permits.unwrap_or(1);
    if permits_max == Some(0) {
        return Err(Problem::bad("permits_max", "at least 1"));
    }
    if wanted == 0 {
        return Err(Problem::bad("permits", "at least 1"));
    }
    if let Some(max) = permits_max.filter(|max| wanted > *max) {
        return Err(Problem::bad("permits", format!("{wanted} of them, and permits_max is {max}")));
    }
    // 0 stands for the lock's own setting of `permits_max`.
    Ok(LockMode::Lease { permits: wanted, limit: permits_max.unwrap_or(0) })
}

/// Converts a lock mode of the API without its permits: those of a semaphore are 0.
pub(crate) fn kind_of_lock(mode: zlock_client::api::LockMode) -> LockMode {
    match mode {
        zlock_client::api::LockMode::Exclusive => LockMode::Exclusive,
        zlock_client::api::LockMode::Read => LockMode::Read,
        zlock_client::api::LockMode::Write => LockMode::Write,
        zlock_client::api::LockMode::Election => LockMode::Latch,
        zlock_client::api::LockMode::Semaphore => LockMode::Lease { permits: 0, limit: 0 },
    }
}

/// Parses the name of a lock mode.
pub(crate) fn parse_lock_mode(text: &str) -> Result<zlock_client::api::LockMode, Problem> {
    // The names in the query are those in JSON, so serde's list is used.
    let mode = serde_json::from_value(text.into());
    mode.map_err(|_| Problem::bad("mode", "exclusive, read, write, election or semaphore"))
}

/// Takes a lock mode and its permits from the query.
pub(crate) fn take_lock_mode(query: &mut Query) -> Result<LockMode, Problem> {
    let mode = query
        .take("mode")?
        .map_or_else(|| Ok(zlock_client::api::LockMode::default()), |text| parse_lock_mode(&text))?;
    lock_mode_of(mode, query.get("permits")?, query.get("permits_max")?)
}

pub(crate) fn lock_mode(mode: LockMode) -> zlock_client::api::LockMode {
    match mode {
        LockMode::Exclusive => zlock_client::api::LockMode::Exclusive,
        LockMode::Read => zlock_client::api::LockMode::Read,
        LockMode::Write => zlock_client::api::LockMode::Write,
        LockMode::Latch => zlock_client::api::LockMode::Election,
        LockMode::Lease { .. } => zlock_client::api::LockMode::Semaphore,
    }
}

/// Converts the stored details of a client (host, pid, program, address); `None` if there are none.
pub(crate) fn client(client: &znode::ClientInfo) -> Option<zlock_client::api::ClientInfo> {
    let known = || zlock_client::api::ClientInfo {
        host: client.host.clone(),
        pid: client.pid,
        program: client.program.clone(),
        address: client.address.map(|address| address.to_string()),
    };
    (!client.is_empty()).then(known)
}

pub(crate) fn actor(actor: &znode::Actor) -> Option<zlock_client::api::Actor> {
    let known = || zlock_client::api::Actor {
        session: actor.session.map(|session| session.0),
        label: actor.label.clone(),
        identity: actor.identity.clone(),
        client: client(&actor.client),
    };
    (*actor != znode::Actor::default()).then(known)
}

/// Converts a contender (a holder or waiter of a lock). Its label is the data of its ticket, so the
/// label and the client's details are left out if the request may not read the ticket's znode.
pub(crate) fn shown_contender(
    identities: &[Identity],
    state: &State,
    mut entry: znode::lock::QueueEntry,
) -> zlock_client::api::Contender {
    if !shows(identities, state, &entry.ticket) {
        entry.label = None;
        entry.client = Arc::default();
        if let Some(asked) = &mut entry.revocation {
            asked.by.client = znode::ClientInfo::default();
        }
    }
    zlock_client::api::Contender {
        ticket: entry.ticket.as_str().into(),
        position: entry.position,
        mode: lock_mode(entry.mode),
        session: entry.session.map(|session| session.0),
        session_label: entry.session_label,
        client: client(&entry.client),
        owner: entry.owner,
        label: entry.label.unwrap_or_default(),
        enqueued_at_ms: entry.since_ms,
        fencing_token: entry.held.then_some(entry.token.0),
        granted_at_ms: entry.grant.map(|grant| grant.at.time_ms),
        revoke: entry.revocation.map(shown_revocation),
        holds: entry.holds,
        permits: entry.permits,
        priority: entry.priority,
        lingers_until_at_ms: entry.lingers_until_ms,
        silent_for_ms: None,
        expires_in_ms: None,
    }
}

/// Permission letters as ZooKeeper's command line writes them, in its order.
const PERMS: [(char, u32); 5] =
    [('c', znode::CREATE), ('d', znode::DELETE), ('r', znode::READ), ('w', znode::WRITE), ('a', znode::ADMIN)];

pub(crate) fn acl_entry(acl: &Acl, may_set: bool) -> AclEntry {
    let perms = PERMS.iter().filter(|(_, bit)| acl.perms & bit != 0).map(|(letter, _)| *letter).collect();
    AclEntry { perms, scheme: acl.scheme.clone(), id: acl.shown_id(may_set) }
}

pub(crate) fn acl(entries: Vec<AclEntry>) -> Result<Vec<Acl>, Problem> {
    let entry = |entry: AclEntry| Ok(Acl { perms: perms(&entry.perms)?, scheme: entry.scheme, id: entry.id });
    entries.into_iter().map(entry).collect()
}

/// Parses an ACL from the query: a JSON list, or `world:anyone:cdrwa,digest:user:hash:r` if no id
/// contains a comma. In an entry, the scheme ends at the first colon, and the permissions follow
/// the last colon.
pub(crate) fn parse_acl(text: &str) -> Result<Vec<Acl>, Problem> {
    // A bracket begins a JSON list, because schemes have none.
    if text.starts_with('[') {
        let entries = serde_json::from_str(text);
        return acl(entries.map_err(|error| malformed_acl(&format!("not a JSON list of entries: {error}")))?);
    }
    let entry = |entry: &str| {
        let (who, letters) = entry.rsplit_once(':')?;
        let (scheme, id) = who.split_once(':')?;
        Some((scheme.to_owned(), id.to_owned(), letters.to_owned()))
    };
    let entry = |text| {
        let (scheme, id, letters) = entry(text).ok_or_else(|| malformed_acl("write scheme:id:perms"))?;
        Ok(Acl { perms: perms(&letters)?, scheme, id })
    };
    text.split(',').map(entry).collect()
}

fn perms(letters: &str) -> Result<u32, Problem> {
    let bit = |letter| PERMS.iter().find(|(known, _)| *known == letter).map(|(_, bit)| *bit);
    letters.chars().try_fold(0, |bits, letter| {
        bit(letter).map(|bit| bits | bit).ok_or_else(|| malformed_acl("perms are letters out of cdrwa"))
    })
}

fn malformed_acl(why: &str) -> Problem {
    Problem::new(ProblemType::InvalidAcl, format!("acl: {why}"))
}

/// Converts a revocation (a client's request that a ticket's session give the ticket up), with the
/// details of that client. For answers to requests that may read the lock.
pub(crate) fn shown_revocation(revocation: Revocation) -> RevokeRequest {
    let by = actor(&revocation.by).map(Box::new);
    RevokeRequest { by, ..revocation_request(revocation) }
}

pub(crate) fn revocation_request(revocation: Revocation) -> RevokeRequest {
    RevokeRequest {
        zxid: revocation.at.zxid.0,
        asked_at_ms: revocation.at.time_ms,
        session: revocation.by.session.map(|session| session.0),
        due_at_ms: revocation.due_ms,
        by: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_acl_in_the_query_reads_as_zookeepers_command_line_writes_it() {
        let acl = parse_acl("world:anyone:r,digest:bob:aGFzaA==:cdrwa").unwrap();
        assert_eq!(acl[0], Acl { perms: znode::READ, scheme: "world".into(), id: "anyone".into() });
        assert_eq!(acl[1], Acl { perms: znode::ALL, scheme: "digest".into(), id: "bob:aGFzaA==".into() });
        assert_eq!(acl_entry(&acl[1], true).perms, "cdrwa");
        for bad in ["", "world", "world:anyone", "world:anyone:x", "world:anyone:r,"] {
            assert!(parse_acl(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn an_acl_whose_ids_have_commas_is_written_as_json() {
        let acl = parse_acl(r#"[{"perms":"r","scheme":"x509","id":"CN=alice,O=a:r,OU=b:c:r"}]"#).unwrap();
        let id = "CN=alice,O=a:r,OU=b:c:r".into();
        assert_eq!(acl, [Acl { perms: znode::READ, scheme: "x509".into(), id }]);
        for bad in ["[", "[{}]", r#"[{"perms":"x","scheme":"world","id":"anyone"}]"#] {
            assert!(parse_acl(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_ttl_belongs_to_the_ttl_modes() {
        assert_eq!(create_mode(Mode::PersistentTtl, Some(5)).unwrap(), CreateMode::PersistentTtl { ttl_ms: 5 });
        assert!(create_mode(Mode::PersistentTtl, None).is_err());
        assert!(create_mode(Mode::Container, Some(5)).is_err());
        assert_eq!(parse_mode("container").unwrap(), Mode::Container);
        assert!(parse_mode("Container").is_err());
    }
}
