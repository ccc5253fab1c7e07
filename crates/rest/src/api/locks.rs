//! `/v1/locks` and `/v1/tickets`: lists, settings, queues, and the wait for a ticket.

use std::collections::BTreeMap;
use std::time::Duration;

use axum::http::StatusCode;
use replica::{Replica, Silence, WaitEnd};
use serde::Serialize;
use tokio::time::Instant;
use utoipa::ToSchema;
use zlock_client::api::ProblemType::{NotEmpty, PermitsMaxDiffers, TicketGone, UpgradeConflict};
use zlock_client::api::{
    Contender, LockHistory, LockList, LockQueue, LockSet, LockSummary, Millis, PathInUrl, ZnodePath,
};
use znode::lock::{self, LockStatus, QueueEntry};
use znode::{Error, Identity, LockSettings, Op, SessionId, State, ZPath};

use crate::api::acquire::{Standing, held, shown_held, shown_waiting, standing, until};
use crate::api::convert;
use crate::api::history;
use crate::api::mixed_clients;
use crate::http::heartbeat::Heartbeat;
use crate::openapi::examples::{TICKET, WAITING, ZXID};
use crate::openapi::problems::{CREATE, NO_FRACTION};
use crate::openapi::schemas::words;
use crate::problem::Problem;
use crate::request::access::{check_readable, own_credential, shows};
use crate::request::call::{Answer, Call, WithBody, json};
use crate::route::{Route, route};

pub(crate) const ROUTES: &[Route] = &[
    Route { reads: true, ..route!(queue) },
    Route {
        problems: &[CREATE, &[NotEmpty, PermitsMaxDiffers, UpgradeConflict]],
        rules: &[NO_FRACTION],
        ..route!(set)
    },
    Route {
        spellings: &["/v1/locks/"],
        reads: true,
        rules: &["not a znode path", "not a cursor of this node"],
        ..route!(list)
    },
    Route { reads: true, problems: &[&[TicketGone]], ..route!(ticket) },
];

words!(UntilWord, ["held", "revoked"]);

/// Shows a lock's queue or its past.
#[utoipa::path(get, path = "/v1/locks/{*path}", operation_id = "locksQueue", tag = "locks",
    params(("path" = PathInUrl, Path, example = "team/x", description = "slashes plain or encoded"),
        ("history" = Option<bool>, Query, description = "the last tickets that ended, instead of the queue"),
        ("limit" = Option<u64>, Query, minimum = 1, description = "of the page"),
        ("from" = Option<u64>, Query, description = "contenders to pass over")),
    responses((status = 200, description = "By the query", body = LockAnswer, example = json!({"lock": "/team/x",
        "contenders": 2, "holders": [{"ticket": TICKET, "position": 0, "mode": "exclusive", "session": 6,
        "label": "worker-7", "since_ms": 1795248152406_u64, "fencing_token": ZXID + 17, "holds": 1,
        "held_since_ms": 1795248152406_u64}], "waiters": [{"ticket": WAITING, "position": 1, "mode": "exclusive",
        "session": 6, "label": "worker-7", "since_ms": 1795248152406_u64, "fencing_token": ZXID + 18,
        "holds": 1}]}))))]
pub(crate) async fn queue(mut call: Call) -> Answer {
    let path = call.lock_path("/v1/locks")?;
    let wants_history = call.query.flag("history")?;
    if call.query.has("wait") {
        return Err(Problem::bad("wait", "unknown parameter of a look at a lock: GET takes no lock, POST does"));
    }
    let state = call.read().await?;
    check_readable(&call.identities, &state, &path)?;
    drop(state);
    let limit = call.query.limit(call.door.config.page_max)?;
    let from = if wants_history { None } else { Some(call.query.get("from")?.unwrap_or(0)) };
    let page = move |call: &Call, state: &State| {
        check_readable(&call.identities, state, &path)?;
        let Some(from) = from else {
            history::check_readable(&call.identities, state, &path)?;
            return Ok(json(StatusCode::OK, state.last_zxid(), &history::history(state, &path, limit)));
        };
        let page = page(&call.identities, state, &path, from, limit)
            .map_err(|error| Problem::from(error).at(&path, state.last_zxid()))?;
        Ok(mixed_clients::warn(json(StatusCode::OK, state.last_zxid(), &page), state, &path, &call.identities))
    };
    call.page(page).await
}

fn page(identities: &[Identity], state: &State, path: &ZPath, from: usize, limit: usize) -> Result<LockQueue, Error> {
    let queue = match lock::queue(state, path, from, limit) {
        // A free lock may have no directory: it is made with the first contender, and deleted some
        // time after the last.
        Err(Error::NoNode) => {
            lock::Queue { contenders: 0, entries: Vec::new(), permits: None, settings: LockSettings::default() }
        }
        queue => queue?,
    };
    let end = from.saturating_add(queue.entries.len());
    let next = (end < queue.contenders as usize && !queue.entries.is_empty()).then_some(end);
    let (holders, others): (Vec<_>, Vec<_>) = queue.entries.into_iter().partition(|entry| entry.held);
    let (lingering, waiters): (Vec<_>, Vec<_>) = others.into_iter().partition(|entry| entry.lingers_until_ms.is_some());
    let words = |entries: Vec<QueueEntry>| {
        entries.into_iter().map(|entry| convert::shown_contender(identities, state, entry)).collect()
    };
    Ok(LockQueue {
        lock: path.as_str().into(),
        contenders: queue.contenders,
        settings: (queue.settings != LockSettings::default()).then(|| settings(queue.settings)),
        permits: queue.permits.map(|permits| zlock_client::api::Permits { limit: permits.limit, held: permits.held }),
        holders: words(holders),
        lingering: words(lingering),
        waiters: words(waiters),
        blind_spots: mixed_clients::blind_spots(state, path),
        next,
    })
}

fn settings(settings: LockSettings) -> zlock_client::api::LockSettings {
    let LockSettings { limit, managed, waiters_max } = settings;
    zlock_client::api::LockSettings { limit, managed, waiters_max }
}

/// Sets the properties of a lock. While the lock is in use, only `waiters_max` can be changed.
#[utoipa::path(put, path = "/v1/locks/{*path}", operation_id = "locksSet", tag = "locks",
    request_body(content = zlock_client::api::LockSettings, example = json!({"managed": true, "waiters_max": 10})),
    params(("path" = PathInUrl, Path, example = "team/x", description = "slashes plain or encoded")),
    responses((status = 200, description = "Set", body = LockSet, example = json!({"lock": "/team/x",
        "settings": {"managed": true, "waiters_max": 10}, "zxid": ZXID + 33}))))]
pub(crate) async fn set(WithBody(mut call): WithBody) -> Answer {
    let lock = call.lock_path("/v1/locks")?;
    std::mem::take(&mut call.query).finish()?;
    let (wish, _permit) = call.json::<zlock_client::api::LockSettings>().await?;
    let zlock_client::api::LockSettings { managed, waiters_max, limit } = wish;
    let new = LockSettings { limit, managed, waiters_max };
    let (zxid, _) = call.propose(Op::SetLock { lock: lock.clone(), settings: new }).await?;
    let set = LockSet { lock: lock.as_str().into(), settings: settings(new), zxid: zxid.0 };
    Ok(json(StatusCode::OK, zxid, &set))
}

/// Lists the locks that have contenders, with their queues on request.
#[utoipa::path(get, path = "/v1/locks", operation_id = "locksList", tag = "locks",
    params(("prefix" = Option<ZnodePath>, Query, description = "locks at and below this path; absent: all"),
        ("limit" = Option<u64>, Query, minimum = 1),
        ("after" = Option<String>, Query, max_length = 2048, pattern = r"^[/~]",
            description = "a lock, or `next` of the page before, as it is"),
        ("queues" = Option<bool>, Query,
            description = "with the queue of each; the page ends with the lock with which it has `limit` contenders")),
    responses((status = 200, description = "Locks by path", body = LockList,
        example = json!({"locks": [{"lock": "/team/x", "contenders": 2, "first": {"ticket": TICKET, "position": 0,
        "mode": "exclusive", "session": 6, "label": "worker-7", "since_ms": 1795248152406_u64,
        "fencing_token": ZXID + 17, "holds": 1, "held_since_ms": 1795248152406_u64}}]}))))]
pub(crate) async fn list(mut call: Call) -> Answer {
    // The page shows this state or a later one.
    call.read().await?;
    let limit = call.query.limit(call.door.config.page_max)?;
    let prefix = call.query.path("prefix")?.unwrap_or_else(ZPath::root);
    let after = call.query.take("after")?.map(|text| call.door.cursors.open(&text)).transpose()?;
    let with_queues = call.query.flag("queues")?;
    let listing = Listing { prefix, after, limit, with_queues };
    call.page(move |call, state| page_of_locks(call, state, &listing)).await
}

/// Parameters of a page of locks.
struct Listing {
    prefix: ZPath,
    after: Option<ZPath>,
    limit: usize,
    with_queues: bool,
}

fn page_of_locks(call: &Call, state: &State, listing: &Listing) -> Answer {
    let Listing { prefix, after, limit, with_queues } = listing;
    let limit = *limit;
    let named = |lock: &ZPath| lock == prefix || state.may_read_name(lock, &call.identities);
    let is_shown = |lock: &ZPath| shows(&call.identities, state, lock) && named(lock);
    let page = Page::of(lock::paths(state, prefix, after.as_ref()), limit, is_shown);
    let mut next = match page.end {
        End::All => None,
        // A cursor shows a name: the last lock shown is on the page anyway, but one that was passed
        // over must stay hidden.
        End::Shown(last) => Some(last.as_str().into()),
        End::PassedOver(last) => Some(call.door.cursors.seal(last)?),
    };
    let summary = |lock: &ZPath| {
        let lock::LockSummary { lock, contenders, first } = lock::summary(state, lock).ok()?;
        let first = convert::shown_contender(&call.identities, state, first);
        Some(LockSummary { lock: lock.as_str().into(), contenders, first, queue: None })
    };
    let mut locks: Vec<LockSummary> = page.shown.iter().filter_map(|lock| summary(lock)).collect();
    if *with_queues {
        let queue = |lock: &LockSummary| {
            // A lock that cannot be shown leaves the others.
            self::page(&call.identities, state, &ZPath::parse(&lock.lock).ok()?, 0, limit).ok()
        };
        if let Some(cut) = add_queues(&mut locks, limit, queue) {
            next = Some(cut);
        }
        tell_silences(&call.door.replica, &mut locks);
    }
    Ok(json(StatusCode::OK, state.last_zxid(), &LockList { locks, next }))
}

/// Adds the queues of a page, up to the lock at which there are `limit` contenders. Returns this
/// lock if the page is cut behind it.
fn add_queues(
    locks: &mut Vec<LockSummary>,
    limit: usize,
    queue: impl Fn(&LockSummary) -> Option<LockQueue>,
) -> Option<String> {
    let mut contenders = 0;
    let end = locks.iter_mut().position(|lock| {
        lock.queue = queue(lock);
        contenders += lock.queue.as_ref().map_or(1, |queue| contenders_of(queue).count());
        contenders >= limit
    })?;
    (end + 1 < locks.len()).then(|| {
        locks.truncate(end + 1);
        locks[end].lock.clone()
    })
}

fn contenders_of(queue: &LockQueue) -> impl Iterator<Item = &Contender> {
    queue.holders.iter().chain(&queue.lingering).chain(&queue.waiters)
}

/// Adds the silence of the contenders' sessions, where this node leads.
fn tell_silences(replica: &Replica, locks: &mut [LockSummary]) {
    let queues = || locks.iter().filter_map(|lock| lock.queue.as_ref());
    let mut sessions: Vec<SessionId> =
        queues().flat_map(contenders_of).filter_map(|one| one.session).map(SessionId).collect();
    sessions.sort_unstable();
    sessions.dedup();
    let Some(silences) = replica.silences(&sessions) else { return };
    let ms = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    let known: BTreeMap<u64, Silence> =
        sessions.iter().zip(silences).filter_map(|(session, silence)| Some((session.0, silence?))).collect();
    let queues = locks.iter_mut().filter_map(|lock| lock.queue.as_mut());
    let contenders = queues.flat_map(|queue| queue.holders.iter_mut().chain(&mut queue.waiters));
    for one in contenders {
        let silence = one.session.and_then(|session| known.get(&session));
        one.heard_ms_ago = silence.map(|silence| ms(silence.so_far));
        one.expires_in_ms = silence.map(|silence| ms(silence.left));
    }
}

/// Unreadable locks that one request passes over at most, as looking at them costs time too.
const PASSED_OVER_MAX: usize = 10_000;

/// A page of locks.
struct Page<'a> {
    shown: Vec<&'a ZPath>,
    end: End<'a>,
}

/// End of a page.
enum End<'a> {
    /// No lock follows.
    All,
    /// The last lock on the page.
    Shown(&'a ZPath),
    /// A lock that was passed over.
    PassedOver(&'a ZPath),
}

impl<'a> Page<'a> {
    /// Collects the first `limit` locks to be shown, and stops at [`PASSED_OVER_MAX`] that are not.
    fn of(locks: impl Iterator<Item = &'a ZPath>, limit: usize, is_shown: impl Fn(&ZPath) -> bool) -> Page<'a> {
        let (mut shown, mut passed_over): (Vec<&ZPath>, usize) = (Vec::new(), 0);
        for lock in locks {
            if is_shown(lock) {
                match shown.last() {
                    Some(last) if shown.len() == limit => {
                        let end = End::Shown(last);
                        return Page { shown, end };
                    }
                    _ => shown.push(lock),
                }
            } else {
                passed_over += 1;
                if passed_over == PASSED_OVER_MAX {
                    let full = shown.last().filter(|_| shown.len() == limit);
                    let end = full.map_or(End::PassedOver(lock), |last| End::Shown(last));
                    return Page { shown, end };
                }
            }
        }
        Page { shown, end: End::All }
    }
}

/// Shows a ticket. Waits for as long as `wait` says until it holds, or until a client asks for it
/// back.
#[utoipa::path(get, path = "/v1/tickets/{*ticket}", operation_id = "ticketsLook", tag = "locks",
    params(("ticket" = PathInUrl, Path, example = json!(TICKET),
        description = "the lock node's path, slashes plain or encoded"),
        ("wait" = Option<Millis>, Query, description = "absent: not at all"),
        ("until" = inline(Option<UntilWord>), Query,
            description = "held, the default; revoked: until a client wants it back")),
    responses((status = 200, description = "Held", body = zlock_client::api::Ticket, example = shown_held),
        (status = 202, description = "Waiting", body = zlock_client::api::Ticket, example = shown_waiting)))]
pub(crate) async fn ticket(mut call: Call) -> Answer {
    let (ticket, lock) = call.ticket_path("/v1/tickets")?;
    let wait_ms = call.query.duration_ms("wait", call.door.config.wait_max_ms)?.unwrap_or(0);
    let until_revoked = match call.query.take("until")?.as_deref() {
        None | Some("held") => false,
        Some("revoked") => true,
        Some(_) => return Err(Problem::bad("until", "held or revoked")),
    };
    let state = call.read().await?;
    std::mem::take(&mut call.query).finish()?;
    let zxid = state.last_zxid();
    let status = lock::status(&state, &ticket).map_err(|error| match error {
        Error::NoNode => history::ticket_gone_for(&call.identities, &state, &ticket),
        error => Problem::from(error).at(&ticket, zxid),
    })?;
    // Only the owner is told how long the lock is safe: no other client keeps the session alive.
    let own = own_credential(&call, &state, &ticket);
    if own.is_none() {
        check_readable(&call.identities, &state, &lock)?;
    }
    let was_own = own.is_some();
    // While a reader keeps a state, all that changes is copied.
    drop(state);
    let heartbeat = own.map(|credential| Heartbeat::send(&call.door, credential));
    let _permit = if wait_ms > 0 { Some(call.door.wait_permit()?) } else { None };
    let _waiting = if wait_ms > 0 { call.waits() } else { None };
    call.forget_head();
    let deadline = (call.arrived + Duration::from_millis(wait_ms)).max(Instant::now());
    let wanted = |state: &State, status: LockStatus| match until_revoked {
        true => lock::revocation(state, &ticket).map(drop),
        false => matches!(status, LockStatus::Held { .. }).then_some(()),
    };
    let ended = match status {
        LockStatus::Held { .. } if !until_revoked => Ok(Ok(())),
        _ => until(&call.door, &ticket, deadline, wanted).await,
    };
    match ended {
        // The reply about a missing ticket depends on the asker.
        Err(problem) if !problem.is(Error::NoNode) => return Err(problem),
        Ok(Err(end)) if end != WaitEnd::Deadline => return Err(end.into()),
        _ => {}
    }
    if let Standing::Waiting(answer) = standing(&call, &ticket, was_own)? {
        return Ok(answer);
    }
    // The heartbeat may take a while, and the ticket may go meanwhile, so its status is read again
    // afterwards.
    let safe_for_ms = match heartbeat {
        Some(heartbeat) => heartbeat.safe_for_ms().await,
        None => 0,
    };
    match standing(&call, &ticket, was_own)? {
        Standing::Held(grant) => Ok(held(&call, &ticket, &lock, grant, safe_for_ms)),
        Standing::Waiting(answer) => Ok(answer),
    }
}

/// Answers of a GET of a lock, by its query. Each has a field that the other lacks.
#[derive(Serialize, ToSchema)]
#[serde(untagged)]
#[allow(dead_code, reason = "describes the answers, which are written one by one")]
pub(crate) enum LockAnswer {
    Queue(LockQueue),
    History(LockHistory),
}
