//! `/v1/settings/{path}`: the settings of a lock, such as the largest number of waiters.

use axum::http::StatusCode;
use zlock_client::api::ProblemType::{NotEmpty, PermitsMaxDiffers};
use zlock_client::api::{LockSettings, LockSettingsInfo, PathInUrl};
use znode::{Error, Op, State, ZPath, Zxid, lock};

use crate::openapi::examples::ZXID;
use crate::openapi::problems::{CREATE, NO_FRACTION};
use crate::problem::Problem;
use crate::request::access::check_readable;
use crate::request::call::{Answer, Call, WithBody, json};
use crate::route::{Route, route};

const ROUTE: &str = "/v1/settings";

pub(crate) const ROUTES: &[Route] = &[
    Route { reads: true, ..route!(look) },
    Route { problems: SET, rules: &[NO_FRACTION, "not together with managed"], ..route!(set) },
    Route { problems: SET, ..route!(reset) },
];

const SET: &[&[zlock_client::api::ProblemType]] = &[CREATE, &[NotEmpty, PermitsMaxDiffers]];

/// Shows the settings of a lock.
#[utoipa::path(get, path = "/v1/settings/{*path}", operation_id = "settingsLook", tag = "locks",
    params(("path" = PathInUrl, Path, example = "team/x", description = "path of the lock, with slashes as / or %2F")),
    responses((status = 200, description = "The settings", body = LockSettingsInfo, example = json!({"path": "/team/x",
        "settings": {"managed": true, "waiters_max": 10}, "zxid": ZXID + 33}))))]
pub(crate) async fn look(mut call: Call) -> Answer {
    let path = call.lock_path(ROUTE)?;
    let state = call.read().await?;
    std::mem::take(&mut call.query).finish()?;
    check_readable(&call.identities, &state, &path)?;
    Ok(answer(&path, of(&state, &path), state.last_zxid()))
}

/// Sets the settings of a lock. While the lock's queue has tickets, `managed` cannot be changed,
/// and `permits_max` cannot be added or removed.
#[utoipa::path(put, path = "/v1/settings/{*path}", operation_id = "settingsSet", tag = "locks",
    request_body(content = LockSettings, example = json!({"managed": true, "waiters_max": 10})),
    params(("path" = PathInUrl, Path, example = "team/x", description = "path of the lock, with slashes as / or %2F")),
    responses((status = 200,
        description = "The settings are set", body = LockSettingsInfo, example = json!({"path": "/team/x",
        "settings": {"managed": true, "waiters_max": 10}, "zxid": ZXID + 33}))))]
pub(crate) async fn set(WithBody(mut call): WithBody) -> Answer {
    let path = call.lock_path(ROUTE)?;
    std::mem::take(&mut call.query).finish_beside(&["managed", "waiters_max", "permits_max"])?;
    let (LockSettings { managed, waiters_max, permits_max }, _permit) = call.json().await?;
    replace(&call, path, znode::LockSettings { limit: permits_max, managed, waiters_max }).await
}

/// Resets all settings of a lock to their defaults.
#[utoipa::path(delete, path = "/v1/settings/{*path}", operation_id = "settingsReset", tag = "locks",
    params(("path" = PathInUrl, Path, example = "team/x", description = "path of the lock, with slashes as / or %2F")),
    responses((status = 200,
        description = "The settings are the defaults", body = LockSettingsInfo, example = json!({"path": "/team/x",
        "settings": {}, "zxid": ZXID + 34}))))]
pub(crate) async fn reset(mut call: Call) -> Answer {
    let path = call.lock_path(ROUTE)?;
    std::mem::take(&mut call.query).finish()?;
    replace(&call, path, znode::LockSettings::default()).await
}

async fn replace(call: &Call, path: ZPath, settings: znode::LockSettings) -> Answer {
    if settings.limit == Some(0) {
        return Err(Problem::bad("permits_max", "at least 1"));
    }
    if settings.managed && settings.limit.is_some() {
        return Err(Problem::bad("permits_max", "not together with managed"));
    }
    let set = call.propose(Op::SetLock { lock: path.clone(), settings }).await;
    let (zxid, _) = set.map_err(|problem| match problem.is(Error::NotEmpty) {
        true => problem.because("the lock is in use: `managed` and semaphores change while the queue is empty"),
        false => problem,
    })?;
    Ok(answer(&path, settings, zxid))
}

fn answer(path: &ZPath, settings: znode::LockSettings, zxid: Zxid) -> axum::response::Response {
    let info = LockSettingsInfo { path: path.as_str().into(), settings: shown(settings), zxid: zxid.0 };
    json(StatusCode::OK, zxid, &info)
}

/// Returns the settings of a lock; the defaults if the lock's znode does not exist.
fn of(state: &State, path: &ZPath) -> znode::LockSettings {
    lock::queue(state, path, 0, 0).map(|queue| queue.settings).unwrap_or_default()
}

/// Converts the settings of a lock to the API's type.
pub(crate) fn shown(settings: znode::LockSettings) -> LockSettings {
    let znode::LockSettings { limit, managed, waiters_max } = settings;
    LockSettings { permits_max: limit, managed, waiters_max }
}
