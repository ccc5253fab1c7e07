use crate::api::LockMode;
use futures_util::FutureExt as _;
use tokio::sync::mpsc;

use super::*;
use crate::Guard;
use crate::client::fake_node::fake_node;

const SESSION: &str = r#"{"session":5,"session_key":"5.00","timeout_ms":60000,"safe_for_ms":58800}"#;
const HELD: &str = r#"{"state":"held","ticket":"/l/_c_x-lock-0000000000","path":"/l","fencing_token":7,"holds":1,"safe_for_ms":58800}"#;
const WAITING: &str = r#"{"state":"waiting","ticket":"/l/_c_x-lock-0000000001","path":"/l","position":1,"predecessor":"/l/_c_y-lock-0000000000"}"#;
const ALL_HELD: &str = r#"{"state":"held","ticket":"t","locks":[],"holds":1,"safe_for_ms":58800}"#;

/// Returns the answer of a node that grants every lock at once.
fn granting(request: &str) -> String {
    let answer = match request {
        "POST /v1/sessions" => SESSION,
        _ if request.starts_with("POST /v1/multilocks") => ALL_HELD,
        _ => HELD,
    };
    answer.to_owned()
}

async fn held() -> (Guard, Arc<Session>, mpsc::UnboundedReceiver<String>) {
    // The node receives a release and never answers it.
    let (addr, requests) = fake_node(async |request: String| match request.starts_with("DELETE") {
        true => std::future::pending().await,
        false => granting(&request),
    })
    .await;
    let client = Client::connect([addr]).await.unwrap();
    let session = client.session().await.unwrap();
    (client.lock("/l").acquire().await.unwrap(), session, requests)
}

async fn release_of(requests: &mut mpsc::UnboundedReceiver<String>) {
    while !requests.recv().await.unwrap().starts_with("DELETE") {}
}

/// Tells whether the session lets 1,100 more writes begin. The cluster would then have forgotten
/// the idempotency key of an unfinished release.
fn is_forgotten(session: &Session) -> bool {
    (0..1_100).all(|_| session.window.enter().now_or_never().is_some())
}

// A release that is repeated after the state forgot its key would release another hold of its
// owner.
#[tokio::test]
async fn the_key_of_a_release_is_remembered_until_its_answer_has_come() {
    let (guard, session, mut requests) = held().await;
    assert!(is_forgotten(&session), "nothing is under way");
    drop(guard);
    release_of(&mut requests).await;
    assert!(!is_forgotten(&session));

    let (guard, session, mut requests) = held().await;
    let releasing = tokio::spawn(guard.release());
    release_of(&mut requests).await;
    assert!(!is_forgotten(&session));
    releasing.abort();
    assert!(releasing.await.is_err());
    assert!(!is_forgotten(&session), "it goes on in the background");
}

/// Acquires a lock, lets the session's deadline pass on the client's clock, and closes the client.
/// Tells whether the client asked the node to close the lost session.
async fn closes_after_the_loss_of<G>(acquire: impl AsyncFnOnce(&Client) -> Result<G, Error>) -> bool {
    let (addr, mut requests) = fake_node(async |request: String| match request.contains("keepalive") {
        true => std::future::pending().await,
        false => granting(&request).replace("58800", "3000"),
    })
    .await;
    let client = Client::connect([addr]).await.unwrap();
    let session = client.session().await.unwrap();
    let guard = acquire(&client).await.unwrap();
    session.ended().await;
    client.close().await.unwrap();
    drop((guard, client));
    // Waits until no background task is left that could send a request of the session.
    while Arc::strong_count(&session) > 1 {
        tokio::task::yield_now().await;
    }
    std::iter::from_fn(|| requests.try_recv().ok()).any(|request| request == "DELETE /v1/sessions/5")
}

// A close does not start the lock-delay: the lock would go to the next contender at once.
#[tokio::test]
async fn a_lost_session_is_left_to_expire_when_a_lock_of_it_has_a_delay() {
    let second = Duration::from_secs(1);
    let without = async |client: &Client| client.lock("/l").lock_delay(Duration::ZERO).acquire().await;
    let lock = async |client: &Client| client.lock("/l").lock_delay(second).acquire().await;
    let tried = async |client: &Client| client.lock("/l").lock_delay(second).try_acquire().await;
    let leads = async |client: &Client| client.election("/l").lock_delay(second).campaign("").await;
    let all = async |client: &Client| client.multi_lock().and("/l", LockMode::Read).lock_delay(second).acquire().await;
    let closes = tokio::join!(
        closes_after_the_loss_of(async |client| client.lock("/l").acquire().await),
        closes_after_the_loss_of(without),
        closes_after_the_loss_of(lock),
        closes_after_the_loss_of(tried),
        closes_after_the_loss_of(leads),
        closes_after_the_loss_of(all),
    );
    assert_eq!(closes, (true, true, false, false, false, false));
}

#[tokio::test]
async fn a_grant_of_which_a_lost_session_hears_is_no_guard() {
    let (open, opened) = tokio::sync::watch::channel(false);
    let (addr, _requests) = fake_node(move |request: String| {
        let mut opened = opened.clone();
        async move {
            if !request.starts_with("POST /v1/sessions") {
                opened.wait_for(|opened| *opened).await.unwrap();
            }
            granting(&request).replace("58800", "3000")
        }
    })
    .await;
    let client = Client::connect([addr]).await.unwrap();
    let session = client.session().await.unwrap();
    let lock = client.lock("/l");
    let (acquired, ()) = tokio::join!(lock.acquire(), async {
        session.ended().await;
        open.send(true).unwrap();
    });
    assert_eq!(acquired.unwrap_err().code(), Some(ProblemType::SessionExpired));
}

// The node that refuses a try forgets its key. A copy of the try that arrives later would get the
// lock, and no guard would know of it. A release keeps the key.
#[tokio::test]
async fn a_try_that_may_arrive_twice_is_not_taken_for_refused() {
    let tries = Arc::new(std::sync::atomic::AtomicU32::new(0));
    let (addr, mut requests) = fake_node(move |request: String| {
        let is_try = request == "POST /v1/locks/l";
        let earlier = if is_try { tries.fetch_add(1, std::sync::atomic::Ordering::Relaxed) } else { 0 };
        async move {
            match request.as_str() {
                "POST /v1/sessions" => SESSION.to_owned(),
                _ if is_try && earlier == 0 => std::future::pending().await,
                _ if is_try => {
                    let kind = ProblemType::NotAcquired.uri();
                    format!(r#"{{"type":"{kind}","title":"T","status":409,"detail":"d","outcome":"refused","zxid":9}}"#)
                }
                _ if request.starts_with("DELETE") => r#"{"holds":0,"zxid":8}"#.to_owned(),
                _ => WAITING.to_owned(),
            }
        }
    })
    .await;
    let client = Client::builder([addr]).attempt_timeout(Duration::from_millis(300)).build().unwrap();
    let tried = client.lock("/l").try_acquire().await;
    assert!(matches!(tried, Err(Error::Unknown { .. })), "{tried:?}");
    let mut sent = Vec::new();
    while sent.last().is_none_or(|request: &String| !request.starts_with("DELETE")) {
        sent.push(requests.recv().await.unwrap());
    }
    sent.retain(|request| !request.contains("/v1/sessions"));
    let expected = ["POST /v1/locks/l", "POST /v1/locks/l", "POST /v1/locks/l?keep=true"];
    assert_eq!(sent, [&expected[..], &["DELETE /v1/tickets/l/_c_x-lock-0000000001"]].concat());
}

// A node that hangs during a long-poll would hide the grant, while heartbeats keep the session
// alive. So one long-poll takes at most a third of the session's timeout: here 2 s of 6 s.
#[tokio::test]
async fn a_wait_for_a_grant_is_asked_again_within_the_timeout_of_its_session() {
    let (addr, mut requests) = fake_node(async |request: String| match request.as_str() {
        "POST /v1/sessions" => SESSION.replace("60000", "6000").replace("58800", "5880"),
        _ if request.starts_with("POST") => WAITING.to_owned(),
        _ => HELD.to_owned(),
    })
    .await;
    let client = Client::connect([addr]).await.unwrap();
    let guard = client.lock("/l").acquire().await.unwrap();
    let polls = std::iter::from_fn(|| requests.try_recv().ok()).filter(|request| request.starts_with("GET"));
    assert_eq!(polls.collect::<Vec<_>>(), ["GET /v1/tickets/l/_c_x-lock-0000000001?wait=2s"]);
    guard.leak();
}

// As long as the release counts as unfinished, its slot of the window keeps later writes waiting.
#[tokio::test]
async fn a_release_whose_key_was_evicted_is_not_repeated_for_ever() {
    for lost in ["POST /v1/locks", "DELETE /v1/tickets"] {
        let (addr, _requests) = fake_node(move |request: String| {
            let (kind, title) = (ProblemType::RequestKeyEvicted.uri(), ProblemType::RequestKeyEvicted.title());
            let evicted = format!(
                r#"{{"type":"{kind}","title":"{title}","status":409,"detail":"d","outcome":"refused","zxid":9}}"#
            );
            let answer = if request.starts_with(lost) { evicted } else { granting(&request) };
            async { answer }
        })
        .await;
        let client = Client::connect([addr]).await.unwrap();
        let session = client.session().await.unwrap();
        drop(client.lock("/l").acquire().await);
        while !is_forgotten(&session) {
            tokio::task::yield_now().await;
        }
    }
}
