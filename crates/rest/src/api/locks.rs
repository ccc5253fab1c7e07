//! `/v1/locks` and `/v1/tickets`: lists of locks, their queues, and waiting for a ticket.

use std::collections::BTreeMap;
use std::time::Duration;

use axum::http::StatusCode;
use replica::{Replica, Silence, WaitEnd};
use tokio::time::Instant;
use zlock_client::api::ProblemType::TicketGone;
use zlock_client::api::{Contender, LockList, LockQueue, LockSummary, Millis, PathInUrl, ZnodePath};
use znode::lock::{self, LockStatus, QueueEntry};
use znode::{Error, Identity, LockSettings, SessionId, State, ZPath};

use crate::api::acquire::{Standing, held, shown_held, shown_waiting, standing, until};
use crate::api::convert;
use crate::api::history;
use crate::api::holders;
use crate::api::mixed_clients;
use crate::api::settings;
use crate::http::heartbeat::Heartbeat;
use crate::openapi::examples::{TICKET, WAITING, ZXID};
use crate::openapi::schemas::words;
use crate::problem::Problem;
use crate::request::access::{check_readable, own_credential, shows};
use crate::request::call::{Answer, Call, json};
use crate::route::{Route, route};

pub(crate) const ROUTES: &[Route] = &[
    Route { reads: true, ..route!(queue) },
    Route {
        spellings: &["/v1/locks/"],
        reads: true,
        rules: &["not a znode path", "not a cursor of this node"],
        ..route!(list)
    },
    Route { reads: true, problems: &[&[TicketGone]], rules: &["is no ticket"], ..route!(ticket) },
];

words!(UntilWord, ["held", "revoked"]);

/// Shows a lock's queue.
#[utoipa::path(get, path = "/v1/locks/{*path}", operation_id = "locksQueue", tag = "locks",
    params(("path" = PathInUrl, Path, example = "team/x", description = "path of the lock, with slashes as / or %2F"),
        ("page_size" = Option<u64>, Query, minimum = 1,
            description = "largest number of contenders (holders and waiters) on the page"),
        ("after" = Option<u64>, Query, description = "`cursor` of the previous page")),
    responses((status = 200, description = "The queue", body = LockQueue, example = json!({"path": "/team/x",
        "contenders": 2, "holders": [{"ticket": TICKET, "position": 0, "mode": "exclusive", "session": 6,
        "label": "worker-7", "enqueued_at_ms": 1795248152406_u64, "fencing_token": ZXID + 17, "holds": 1,
        "granted_at_ms": 1795248152406_u64}], "waiters": [{"ticket": WAITING, "position": 1, "mode": "exclusive",
        "session": 6, "label": "worker-7", "enqueued_at_ms": 1795248152406_u64, "holds": 1}]}))))]
pub(crate) async fn queue(mut call: Call) -> Answer {
    let path = call.lock_path("/v1/locks")?;
    if call.query.has("wait") {
        return Err(Problem::bad("wait", "unknown parameter of a look at a lock: GET takes no lock, POST does"));
    }
    let state = call.read().await?;
    check_readable(&call.identities, &state, &path)?;
    drop(state);
    let page_size = call.query.page_size(call.door.config.page_max)?;
    let after = call.query.get("after")?.unwrap_or(0);
    let page = move |call: &Call, state: &State| {
        check_readable(&call.identities, state, &path)?;
        let page = page(&call.identities, state, &path, after, page_size)
            .map_err(|error| Problem::from(error).at(&path, state.last_zxid()))?;
        Ok(mixed_clients::warn(json(StatusCode::OK, state.last_zxid(), &page), state, &path, &call.identities))
    };
    call.page(page).await
}

fn page(
    identities: &[Identity],
    state: &State,
    path: &ZPath,
    after: usize,
    page_size: usize,
) -> Result<LockQueue, Error> {
    let queue = match lock::queue(state, path, after, page_size) {
        // A free lock may have no directory: the first contender creates it, and it is deleted some
        // time after the last contender has left.
        Err(Error::NoNode) => {
            lock::QueuePage { contenders: 0, entries: Vec::new(), permits: None, settings: LockSettings::default() }
        }
        queue => queue?,
    };
    let end = after.saturating_add(queue.entries.len());
    let cursor = (end < queue.contenders as usize && !queue.entries.is_empty()).then_some(end);
    let (holders, others): (Vec<_>, Vec<_>) = queue.entries.into_iter().partition(|entry| entry.held);
    let (lingering, waiters): (Vec<_>, Vec<_>) = others.into_iter().partition(|entry| entry.lingers_until_ms.is_some());
    let words = |entries: Vec<QueueEntry>| {
        entries.into_iter().map(|entry| convert::shown_contender(identities, state, entry)).collect()
    };
    Ok(LockQueue {
        path: path.as_str().into(),
        contenders: queue.contenders,
        settings: (queue.settings != LockSettings::default()).then(|| settings::shown(queue.settings)),
        permits_max: queue.permits.map(|permits| permits.limit),
        permits_held: queue.permits.map(|permits| permits.held),
        holders: words(holders),
        lingering: words(lingering),
        waiters: words(waiters),
        mixed_clients: mixed_clients::of(state, path),
        cursor,
    })
}

/// Lists the locks that have contenders (holders or waiters), with their queues on request.
#[utoipa::path(get, path = "/v1/locks", operation_id = "locksList", tag = "locks",
    params(("prefix" = Option<ZnodePath>, Query, description = "only locks at and below this path; absent: all locks"),
        ("page_size" = Option<u64>, Query, minimum = 1),
        ("after" = Option<String>, Query, max_length = 2048, pattern = r"^[/~]",
            description = "path of a lock, or `cursor` of the previous page, unchanged"),
        ("queues" = Option<bool>, Query,
            description = "true: adds the queue of each lock; the page ends at the lock with which it reaches \
                `page_size` contenders")),
    responses((status = 200, description = "Locks, sorted by path", body = LockList,
        example = json!({"locks": [{"path": "/team/x", "contenders": 2, "first": {"ticket": TICKET, "position": 0,
        "mode": "exclusive", "session": 6, "label": "worker-7", "enqueued_at_ms": 1795248152406_u64,
        "fencing_token": ZXID + 17, "holds": 1, "granted_at_ms": 1795248152406_u64}}]}))))]
pub(crate) async fn list(mut call: Call) -> Answer {
    // The page is made later, of this state or a newer one.
    call.read().await?;
    let page_size = call.query.page_size(call.door.config.page_max)?;
    let prefix = call.query.path("prefix")?.unwrap_or_else(ZPath::root);
    let after = call.query.take("after")?.map(|text| call.door.cursors.open(&text)).transpose()?;
    let with_queues = call.query.flag("queues")?;
    let listing = LockPageQuery { prefix, after, page_size, with_queues };
    call.page(move |call, state| page_of_locks(call, state, &listing)).await
}

/// Parameters of a page of locks.
struct LockPageQuery {
    prefix: ZPath,
    after: Option<ZPath>,
    page_size: usize,
    with_queues: bool,
}

fn page_of_locks(call: &Call, state: &State, listing: &LockPageQuery) -> Answer {
    let LockPageQuery { prefix, after, page_size, with_queues } = listing;
    let page_size = *page_size;
    let named = |lock: &ZPath| lock == prefix || state.may_read_name(lock, &call.identities);
    let is_shown = |lock: &ZPath| shows(&call.identities, state, lock) && named(lock);
    let page = Page::of(lock::paths(state, prefix, after.as_ref()), page_size, is_shown);
    let mut cursor = match page.end {
        End::All => None,
        // A plain cursor shows a lock's name. That is fine for the last lock on the page; the name
        // of a lock that was passed over is encrypted.
        End::Shown(last) => Some(last.as_str().into()),
        End::PassedOver(last) => Some(call.door.cursors.seal(last)?),
    };
    let summary = |lock: &ZPath| {
        let lock::LockSummary { lock, contenders, first } = lock::summary(state, lock).ok()?;
        let first = convert::shown_contender(&call.identities, state, first);
        Some(LockSummary { path: lock.as_str().into(), contenders, first, queue: None })
    };
    let mut locks: Vec<LockSummary> = page.shown.iter().filter_map(|lock| summary(lock)).collect();
    if *with_queues {
        let queue = |lock: &LockSummary| {
            // A lock whose queue cannot be shown must not fail the page.
            self::page(&call.identities, state, &ZPath::parse(&lock.path).ok()?, 0, page_size).ok()
        };
        if let Some(cut) = add_queues(&mut locks, page_size, queue) {
            cursor = Some(cut);
        }
        tell_silences(&call.door.replica, &mut locks);
    }
    Ok(json(StatusCode::OK, state.last_zxid(), &LockList { locks, cursor }))
}

/// Adds the queues to the locks of a page, and ends the page at the lock where `page_size`
/// contenders are reached. Returns the path of that lock if the page is cut there.
fn add_queues(
    locks: &mut Vec<LockSummary>,
    page_size: usize,
    queue: impl Fn(&LockSummary) -> Option<LockQueue>,
) -> Option<String> {
    let mut contenders = 0;
    let end = locks.iter_mut().position(|lock| {
        lock.queue = queue(lock);
        contenders += lock.queue.as_ref().map_or(1, |queue| contenders_of(queue).count());
        contenders >= page_size
    })?;
    (end + 1 < locks.len()).then(|| {
        locks.truncate(end + 1);
        locks[end].path.clone()
    })
}

fn contenders_of(queue: &LockQueue) -> impl Iterator<Item = &Contender> {
    queue.holders.iter().chain(&queue.lingering).chain(&queue.waiters)
}

/// Adds the time since the last heartbeat of each contender's session. Only the leader knows these
/// times.
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
        one.silent_for_ms = silence.map(|silence| ms(silence.so_far));
        one.expires_in_ms = silence.map(|silence| ms(silence.left));
    }
}

/// Largest number of unreadable locks that one request passes over, because checking them takes
/// time.
const PASSED_OVER_MAX: usize = 10_000;

/// Locks of one page, and where the page ends.
struct Page<'a> {
    shown: Vec<&'a ZPath>,
    end: End<'a>,
}

/// Place where a page of the list of locks ends.
enum End<'a> {
    /// At the end of the list of locks.
    All,
    /// The page ends after this lock, and the next page continues there.
    Shown(&'a ZPath),
    /// After this lock, which is not on the page, because the request may not see it.
    PassedOver(&'a ZPath),
}

impl<'a> Page<'a> {
    /// Collects the first `page_size` locks that may be shown, and stops after passing over
    /// [`PASSED_OVER_MAX`] others.
    fn of(locks: impl Iterator<Item = &'a ZPath>, page_size: usize, is_shown: impl Fn(&ZPath) -> bool) -> Page<'a> {
        let (mut shown, mut passed_over): (Vec<&ZPath>, usize) = (Vec::new(), 0);
        for lock in locks {
            if is_shown(lock) {
                match shown.last() {
                    Some(last) if shown.len() == page_size => {
                        let end = End::Shown(last);
                        return Page { shown, end };
                    }
                    _ => shown.push(lock),
                }
            } else {
                passed_over += 1;
                if passed_over == PASSED_OVER_MAX {
                    let full = shown.last().filter(|_| shown.len() == page_size);
                    let end = full.map_or(End::PassedOver(lock), |last| End::Shown(last));
                    return Page { shown, end };
                }
            }
        }
        Page { shown, end: End::All }
    }
}

/// Shows a ticket. With `wait`, first waits until the ticket holds its lock, or until a client asks
/// the ticket's session to give it up.
#[utoipa::path(get, path = "/v1/tickets/{*ticket}", operation_id = "ticketsLook", tag = "locks",
    params(("ticket" = PathInUrl, Path, example = json!(TICKET),
        description = "path of the lock node, with slashes as / or %2F"),
        ("wait" = Option<Millis>, Query, description = "longest time to wait for a change; absent: no wait"),
        ("until" = inline(Option<UntilWord>), Query,
            description = "`held`, the default: waits until the ticket holds; `revoked`: waits until a client asks \
                the holder to release")),
    responses((status = 200,
        description = "The ticket holds the lock", body = zlock_client::api::Ticket, example = shown_held),
        (status = 202,
            description = "The ticket waits for the lock", body = zlock_client::api::Ticket, example = shown_waiting)))]
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
        Error::BadArguments => holders::no_ticket().at(&ticket, zxid),
        error => Problem::from(error).at(&ticket, zxid),
    })?;
    // Only the ticket's owner gets `safe_for_ms`, because only its requests keep the session alive.
    let own = own_credential(&call, &state, &ticket);
    if own.is_none() {
        check_readable(&call.identities, &state, &lock)?;
    }
    let was_own = own.is_some();
    // While a reader holds a state, every write copies what it changes.
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
        // The answer about an ended ticket depends on who asks, so `standing` makes it.
        Err(problem) if !problem.is(Error::NoNode) => return Err(problem),
        Ok(Err(end)) if end != WaitEnd::Deadline => return Err(end.into()),
        _ => {}
    }
    if let Standing::Waiting(answer) = standing(&call, &ticket, was_own)? {
        return Ok(answer);
    }
    // The ticket may end while the heartbeat is awaited, so its status is read again afterwards.
    let safe_for_ms = match heartbeat {
        Some(heartbeat) => heartbeat.safe_for_ms().await,
        None => 0,
    };
    match standing(&call, &ticket, was_own)? {
        Standing::Held(grant) => Ok(held(&call, &ticket, &lock, grant, safe_for_ms)),
        Standing::Waiting(answer) => Ok(answer),
    }
}
