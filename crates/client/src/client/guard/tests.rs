//! Tests of the loss of a lock: how a guard learns of it, what the guard reports from then on, and
//! how work under the lock ends.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use futures_util::FutureExt as _;
use tokio::sync::watch;

use crate::client::fake_node::{fake_node, fake_node_with_keys};
use crate::{Actor, Client, ClientInfo, Guard, LockMode, Loss, ProblemType, WithError};

const SESSION: &str = r#"{"session":5,"session_key":"5.00","timeout_ms":60000,"safe_for_ms":58800}"#;
const HELD: &str = r#"{"state":"held","ticket":"/l/_c_x-lock-0000000000","path":"/l","fencing_token":7,"holds":1,"safe_for_ms":58800}"#;
const ALL_HELD: &str = r#"{"state":"held","ticket":"/zlock/multi/7","locks":[{"path":"/l","ticket":"/l/_c_x-lock-0000000000","fencing_token":7}],"holds":1,"safe_for_ms":58800}"#;
const DELETED: &str = r#"{"events":[{"zxid":9,"kind":"deleted","path":"/l/_c_x-lock-0000000000"}],"upto":9}"#;

/// Returns the node's answer with the lock's history, in which the ticket ended for the reason
/// `end`.
fn history(end: &str) -> String {
    let by = match end {
        "deleted" | "revoked" => r#","by":{"session":8,"client":{"host":"web-1","pid":71}}"#,
        _ => "",
    };
    format!(
        r#"{{"path":"/l","history":[{{"ticket":"/l/_c_x-lock-0000000000","mode":"exclusive","session":5,"enqueued_zxid":7,"enqueued_at_ms":1,"ended":{{"how":"{end}","zxid":9,"at_ms":2{by}}}}}]}}"#
    )
}

/// Returns the client that takes the lock away, as the answer of `history` describes it.
fn actor() -> Option<Box<Actor>> {
    let client = ClientInfo { host: "web-1".into(), pid: Some(71), ..ClientInfo::default() };
    Some(Box::new(Actor { session: Some(8), client: Some(client), ..Actor::default() }))
}

fn problem(kind: ProblemType, status: u16, path: &str) -> String {
    let uri = kind.uri();
    format!(
        r#"{{"type":"{uri}","title":"T","status":{status},"detail":"d","outcome":"refused","path":"{path}","zxid":9}}"#
    )
}

/// Starts a node that grants the lock and reports it as held until `taken` is true. Then the lock
/// node is gone, for the reason `end`.
async fn node(end: &'static str) -> (Client, watch::Sender<bool>) {
    let (taken, seen) = watch::channel(false);
    let (addr, _requests) = fake_node(move |request: String| {
        let mut seen = seen.clone();
        async move {
            let is_taken = *seen.borrow();
            if request == "POST /v1/sessions" {
                SESSION.to_owned()
            } else if request.contains("/v1/history/") {
                history(end)
            } else if request.contains("watch=exists") || request.contains("until=revoked") {
                let _ = seen.wait_for(|taken| *taken).await;
                let is_watch = request.contains("watch=exists");
                if is_watch {
                    DELETED.to_owned()
                } else {
                    problem(ProblemType::TicketGone, 410, "/l/_c_x-lock-0000000000")
                }
            } else if request.starts_with("PUT /v1/znodes") {
                problem(ProblemType::LockNotHeld, 412, "/l")
            } else if request.starts_with("DELETE /v1/tickets") && !request.contains("to=") {
                match is_taken {
                    true => problem(ProblemType::TicketGone, 410, "/l/_c_x-lock-0000000000"),
                    false => r#"{"holds":0,"zxid":8}"#.to_owned(),
                }
            } else if request.starts_with("POST /v1/hand-overs") && is_taken {
                problem(ProblemType::TicketGone, 410, "/l/_c_x-lock-0000000000")
            } else if request.starts_with("DELETE") {
                r#"{"holds":0,"zxid":8}"#.to_owned()
            } else {
                HELD.to_owned()
            }
        }
    })
    .await;
    (Client::builder([addr]).build().unwrap(), taken)
}

async fn held(end: &'static str) -> (Client, Guard, watch::Sender<bool>) {
    let (client, taken) = node(end).await;
    let guard = client.lock("/l").acquire().await.unwrap();
    assert!(guard.is_safe() && guard.lost().now_or_never().is_none());
    (client, guard, taken)
}

async fn check_end(end: &'static str, expected: Loss) {
    let (_client, guard, taken) = held(end).await;
    taken.send_replace(true);
    assert_eq!(guard.lost().await, expected, "{end}");
    assert!(!guard.is_safe() && guard.safe_for().is_zero(), "{end}: another may hold it");
    assert_eq!(guard.lost().await, expected, "{end}: told once, it stays");
}

#[tokio::test]
async fn lost_says_why() {
    check_end("deleted", Loss::Deleted { by: actor() }).await;
    check_end("revoked", Loss::Revoked { by: actor() }).await;
    check_end("released", Loss::Released).await;
    check_end("closed", Loss::Closed).await;
    check_end("expired", Loss::Expired).await;
    check_end("deadlock", Loss::Unknown).await;
}

#[tokio::test]
async fn lost_says_that_the_session_was_closed() {
    let (client, guard, _taken) = held("deleted").await;
    let (loss, closed) = tokio::join!(guard.lost(), client.close());
    closed.unwrap();
    assert_eq!(loss, Loss::Closed);
    assert!(!guard.is_safe());
}

#[tokio::test]
async fn a_loss_is_told_at_once_although_nothing_says_why() {
    let (addr, _requests) = fake_node(async |request: String| match request.as_str() {
        "POST /v1/sessions" => SESSION.to_owned(),
        _ if request.contains("/v1/history/") => std::future::pending().await,
        _ if request.contains("until=revoked") => problem(ProblemType::TicketGone, 410, "/l/_c_x-lock-0000000000"),
        _ => HELD.to_owned(),
    })
    .await;
    let day = Duration::from_secs(86_400);
    let client = Client::builder([addr]).attempt_timeout(day).operation_timeout(day).build().unwrap();
    let guard = client.lock("/l").acquire().await.unwrap();
    assert_eq!(guard.lost().await, Loss::Unknown);
}

/// State of a lock at the node of `unreadable_node`.
#[derive(Clone, Copy, PartialEq)]
enum Stage {
    Held,
    Asked,
    Taken,
}

/// Starts a node that grants locks to a client which may not read them. So its watches report
/// nothing, and the node answers only reads of the session's own tickets and tokens, which need the
/// session key. The node refuses a `wait` of 10 s, which is the client's default.
async fn unreadable_node() -> (Client, watch::Sender<Stage>) {
    let (stage, seen) = watch::channel(Stage::Held);
    let (addr, _requests) = fake_node_with_keys(move |request: String, has_key: bool| {
        let mut seen = seen.clone();
        async move {
            let (is_ticket, is_fence) = (request.starts_with("GET /v1/tickets"), request.starts_with("GET /v1/fence"));
            if request == "POST /v1/sessions" {
                SESSION.to_owned()
            } else if request.contains("wait=10s") {
                problem(ProblemType::BadRequest, 400, "/l")
            } else if request.contains("watch=") {
                r#"{"events":[],"upto":9}"#.to_owned()
            } else if is_ticket && has_key {
                match *seen.wait_for(|stage| *stage != Stage::Held).await.unwrap() {
                    Stage::Taken => problem(ProblemType::TicketGone, 410, "/l/_c_x-lock-0000000000"),
                    _ => HELD.replace('}', r#","revoke":{"zxid":8,"asked_at_ms":1,"session":8}}"#),
                }
            } else if is_fence && has_key && *seen.borrow() != Stage::Taken {
                "{}".to_owned()
            } else if request.starts_with("GET") {
                problem(ProblemType::NoAuth, 403, "/l")
            } else if request.starts_with("DELETE") {
                r#"{"holds":0,"zxid":8}"#.to_owned()
            } else if request.starts_with("POST /v1/multilocks") {
                ALL_HELD.to_owned()
            } else {
                HELD.to_owned()
            }
        }
    })
    .await;
    (Client::builder([addr]).build().unwrap(), stage)
}

#[tokio::test]
async fn a_holder_that_may_not_read_its_lock_learns_of_the_loss() {
    let (client, stage) = unreadable_node().await;
    let guard = client.lock("/l").acquire().await.unwrap();
    let simple = client.simple_lock("/l").acquire().await.unwrap();
    let all = client.multi_lock().and("/l", LockMode::Exclusive).acquire().await.unwrap();
    let losses = async { tokio::join!(guard.lost(), simple.lost(), all.lost()) };
    let (all_losses, ()) = tokio::join!(losses, async {
        stage.send_replace(Stage::Taken);
    });
    assert_eq!(all_losses, (Loss::Unknown, Loss::Unknown, Loss::Unknown), "the history is hidden, too");
    assert!(!guard.is_safe() && !simple.is_safe() && !all.is_safe());
}

#[tokio::test]
async fn a_holder_that_may_not_read_its_lock_hears_who_asks() {
    let (client, stage) = unreadable_node().await;
    let guard = client.lock("/l").acquire().await.unwrap();
    stage.send_replace(Stage::Asked);
    assert_eq!(guard.revoked().await.session, Some(8));
    let mut lost = std::pin::pin!(guard.lost());
    assert!(lost.as_mut().now_or_never().is_none());
    let taken = async {
        stage.send_replace(Stage::Taken);
    };
    assert_eq!(tokio::join!(lost, taken).0, Loss::Unknown);
}

// A poll of the ticket is a heartbeat, so it could keep the lost session alive at the cluster.
#[tokio::test]
async fn nothing_is_polled_for_a_lock_whose_session_is_lost() {
    let (addr, mut requests) = fake_node(async |request: String| match request.as_str() {
        "POST /v1/sessions" => SESSION.replace("58800", "3000"),
        _ if request.contains("keepalive") || request.contains("until=revoked") => std::future::pending().await,
        _ => HELD.replace("58800", "0"),
    })
    .await;
    // The lock-delay keeps the client from closing the session, whose end is the answer to a poll.
    let client = Client::builder([addr]).build().unwrap();
    let guard = client.lock("/l").lock_delay(Duration::from_secs(1)).acquire().await.unwrap();
    assert_eq!(guard.lost().await, Loss::Expired);
    while requests.try_recv().is_ok() {}
    // The node would get a poll before this read, which is sent later.
    tokio::select! {
        biased;
        _ = guard.revoked() => panic!("no client asked for the lock"),
        () = async { _ = client.get("/a").await } => {}
    }
    assert_eq!(requests.try_recv().unwrap(), "GET /v1/znodes/a");
}

// A release by another guard of the same owner frees the lock, and nothing records who freed it.
#[tokio::test]
async fn a_simple_lock_does_not_blame_another_client() {
    let (client, stage) = unreadable_node().await;
    let lock = client.simple_lock("/l").owner("me");
    let (released, guard) = (lock.acquire().await.unwrap(), lock.acquire().await.unwrap());
    released.release().await.unwrap();
    stage.send_replace(Stage::Taken);
    assert_eq!(guard.lost().await, Loss::Unknown);
}

// No task awaits `lost` here.
#[tokio::test]
async fn a_guard_is_not_safe_once_anything_has_told_of_the_loss() {
    let (client, guard, _taken) = held("deleted").await;
    let refused = client.set("/state", "late").if_lock(&guard).await.unwrap_err();
    assert_eq!(refused.code(), Some(ProblemType::LockNotHeld));
    assert!(!guard.is_safe(), "a guarded write was refused");
    assert_eq!(guard.lost().await, Loss::Deleted { by: actor() });

    let (_client, guard, taken) = held("deleted").await;
    taken.send_replace(true);
    assert!(guard.revoked().now_or_never().is_none());
    tokio::select! {
        _ = guard.revoked() => panic!("the lock is gone, and was not asked for"),
        () = guard.claim.fate.gone() => {}
    }
    assert!(!guard.is_safe(), "a poll for those who ask was told that the ticket is gone");

    let (_client, mut guard, _taken) = held("deleted").await;
    guard.hand_over("/l/_c_y-lock-0000000001").await.unwrap();
    assert!(!guard.is_safe(), "it was handed over");
    assert_eq!(guard.lost().await, Loss::HandedOver);
}

#[tokio::test]
async fn a_hand_over_of_a_lost_lock_marks_the_guard() {
    let (_client, mut guard, taken) = held("deleted").await;
    taken.send_replace(true);
    let refused = guard.hand_over("/l/_c_y-lock-0000000001").await.unwrap_err();
    assert_eq!(refused.code(), Some(ProblemType::TicketGone));
    assert!(!guard.is_safe(), "its own ticket is gone");
    assert_eq!(guard.lost().await, Loss::Deleted { by: actor() });
}

#[tokio::test]
async fn another_clients_refusal_tells_nothing_of_a_guard() {
    let (_client, guard, _taken) = held("deleted").await;
    let (other, _) = node("deleted").await;
    assert!(other.set("/state", "x").if_lock(&guard).await.is_err());
    assert!(guard.is_safe(), "the other one may not be permitted to read the lock");
}

/// Value that sets its flag when it is dropped, to show that the work which owns the value was
/// dropped.
struct DropFlag(Arc<AtomicBool>);

impl Drop for DropFlag {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[tokio::test]
async fn work_under_a_lock_is_dropped_when_the_lock_is_lost() {
    let (client, taken) = node("deleted").await;
    let dropped = Arc::new(AtomicBool::new(false));
    let flag = DropFlag(Arc::clone(&dropped));
    // The work runs in a task of its own, as in a program.
    let working = tokio::spawn(async move {
        client
            .lock("/l")
            .with(async move |guard| {
                let _flag = flag;
                assert_eq!(guard.fencing_token(), 7);
                taken.send_replace(true);
                std::future::pending::<()>().await;
            })
            .await
    });
    let ended = working.await.unwrap();
    assert!(matches!(ended, Err(WithError::Lost(Loss::Deleted { .. }))), "{ended:?}");
    assert!(dropped.load(Ordering::Relaxed));
}

#[tokio::test]
async fn work_that_ends_under_its_lock_answers_and_releases() {
    let (client, taken) = node("deleted").await;
    let done = client.lock("/l").with(async |guard| guard.fencing_token() + 1).await;
    assert_eq!(done.unwrap(), 8);
    // The lock is lost while the work does not wait: only the release reports it.
    let lock = client.lock("/l");
    let late = lock.with(async |_| {
        taken.send_replace(true);
    });
    assert!(matches!(late.await, Err(WithError::Lost(Loss::Deleted { .. }))));
}

/// Starts a node that promises each session only 2 s without expiry. It confirms every release, as
/// it cannot see that the client's own deadline has passed.
async fn short_lived() -> Client {
    let (addr, _requests) = fake_node(async |request: String| {
        let answer = match request.as_str() {
            "POST /v1/sessions" => SESSION,
            _ if request.contains("until=revoked") => std::future::pending().await,
            _ if request.starts_with("DELETE") => r#"{"holds":0,"zxid":8}"#,
            _ if request.starts_with("POST /v1/multilocks") => ALL_HELD,
            _ => HELD,
        };
        answer.replace("58800", "2000")
    })
    .await;
    Client::builder([addr]).build().unwrap()
}

/// Blocks the thread until the session's deadline has passed, like work without an await.
fn work_past(deadline: Instant) {
    while Instant::now() < deadline {
        std::hint::spin_loop();
    }
}

#[tokio::test]
async fn work_that_ends_past_the_clients_own_deadline_is_no_success_whatever_the_release_answers() {
    let client = short_lived().await;
    let late = client.lock("/l").with(async |guard| work_past(guard.safe_until())).await;
    assert!(matches!(late, Err(WithError::Lost(Loss::Expired))), "{late:?}");
}

// After a pause of the process, tokio may run the work before the timer that publishes the loss.
#[tokio::test]
async fn work_makes_no_step_after_the_deadline_of_its_session() {
    let client = short_lived().await;
    let (lock, mut stepped) = (client.lock("/l"), false);
    let late = lock.with(async |guard| {
        work_past(guard.safe_until());
        tokio::task::yield_now().await;
        stepped = true;
    });
    assert!(matches!(late.await, Err(WithError::Lost(Loss::Expired))));
    assert!(!stepped);
}

#[tokio::test]
async fn work_under_several_locks_that_ends_past_the_deadline_is_no_success_either() {
    let client = short_lived().await;
    let both = client.multi_lock().and("/l", LockMode::Exclusive);
    let late = both.with(async |guard| work_past(Instant::now() + guard.safe_for())).await;
    assert!(matches!(late, Err(WithError::Lost(Loss::Expired))), "{late:?}");
}
