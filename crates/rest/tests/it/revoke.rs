//! `/v1/revocations`: a client asks a holder to release its lock; the holder sees the request, and
//! loses the lock at the deadline.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;

use axum::http::Method;
use serde_json::{Value, json};

use crate::node::{Node, number, text};

#[tokio::test]
async fn a_holder_that_waits_for_it_hears_that_its_lock_is_wanted() {
    let node = Node::start().await;
    let (holder, other) = (node.session().await, node.session().await);
    let held = node.acquire(&holder, "/l?label=job").await.expect(200);
    let ticket = text(&held, "ticket").to_owned();
    let uri = format!("/v1/tickets{ticket}?until=revoked&wait");
    let nobody = node.in_session(&holder, Method::GET, &format!("{uri}=10ms")).await.expect(200);
    assert_eq!((&nobody.body["state"], &nobody.body["revoke"]), (&json!("held"), &json!(null)));

    let uri = format!("{uri}=20s");
    let asking = async {
        node.until_watches(1).await;
        node.in_session(&other, Method::POST, "/v1/revocations/l").await.expect(200)
    };
    let (heard, asked) = tokio::join!(node.in_session(&holder, Method::GET, &uri), asking);
    assert_eq!(asked.body, json!({"tickets": [ticket], "zxid": asked.zxid()}));
    let heard = heard.expect(200);
    let by: u64 = other.split_once('.').unwrap().0.parse().unwrap();
    let revoke = json!({"zxid": asked.zxid(), "asked_at_ms": heard.body["revoke"]["asked_at_ms"], "session": by});
    assert_eq!((&heard.body["revoke"], &heard.body["state"]), (&revoke, &json!("held")));
    // The request to release stays visible to all readers, and the holder's label is unchanged.
    let look = node.get(&format!("/v1/tickets{ticket}")).await.expect(200);
    assert_eq!(look.body["revoke"], revoke);
    let queue = node.get("/v1/locks/l").await.expect(200);
    let mut revoke = revoke;
    revoke["by"] = json!({"session": by});
    assert_eq!((&queue.body["holders"][0]["revoke"], &queue.body["holders"][0]["label"]), (&revoke, &json!("job")));
    node.in_session(&holder, Method::GET, &uri).await.expect(200);
    node.release(&holder, &ticket).await.expect(200);
    let free = node.post("/v1/revocations/l", "").await.expect(200);
    assert_eq!(free.body["tickets"], json!([]));
    let free = node.post("/v1/revocations/never", "").await.expect(200);
    assert_eq!(free.body["tickets"], json!([]));
    let gone = node.in_session(&holder, Method::GET, &uri).await.expect_problem(410, "ticket-gone");
    assert_eq!(gone.body["ended"]["how"], "released");
    node.get(&format!("/v1/tickets{ticket}?until=later")).await.expect_problem(400, "bad-request");
}

#[tokio::test]
async fn a_look_at_a_ticket_that_goes_meanwhile_tells_of_one_moment() {
    let node = Node::start().await;
    let holder = node.session().await;
    let mut gone = 0;
    for steps in 0..40 {
        let held = node.acquire(&holder, "/l").await.expect(200);
        let ticket = text(&held, "ticket");
        node.post("/v1/revocations/l", "").await.expect(200);
        let uri = format!("/v1/tickets{ticket}");
        let mut look = pin!(node.in_session(&holder, Method::GET, &uri));
        let mut answer = None;
        // The read of the ticket proceeds by `steps` polls, and so may be anywhere between its
        // start and its heartbeat.
        for _ in 0..steps {
            answer = match poll_fn(|cx| Poll::Ready(look.as_mut().poll(cx))).await {
                Poll::Ready(answer) => Some(answer),
                Poll::Pending => None,
            };
            if answer.is_some() {
                break;
            }
            tokio::task::yield_now().await;
        }
        node.release(&holder, ticket).await.expect(200);
        let answer = match answer {
            Some(answer) => answer,
            None => look.await,
        };
        // As long as the ticket existed, it had been asked back.
        if answer.status == 200 {
            assert_ne!(answer.body["revoke"], Value::Null, "after {steps} steps: {}", answer.body);
        } else {
            answer.expect_problem(410, "ticket-gone");
            gone += 1;
        }
    }
    assert!(gone > 0, "no look met the release");
}

#[tokio::test]
async fn at_the_deadline_the_lock_is_taken_away() {
    let node = Node::start().await;
    let (holder, other) = (node.session().await, node.session().await);
    let held = node.acquire(&holder, "/l").await.expect(200);
    let (ticket, token) = (text(&held, "ticket").to_owned(), number(&held, "fencing_token"));
    let waiting = node.acquire(&other, "/l?wait=20s");
    let revoking = async {
        node.until_contenders("/l", 2).await;
        let asked = node.post(&format!("/v1/revocations{ticket}?deadline=300ms"), "").await.expect(200);
        // The holder does not react, and only sees that its ticket has ended.
        let watch = format!("/v1/znodes{ticket}?watch=exists&since={}&wait=15s", asked.zxid());
        node.get(&watch).await.expect(200);
    };
    let (next, ()) = tokio::join!(waiting, revoking);
    assert!(number(&next.expect(200), "fencing_token") > token);
    let gone = node.get(&format!("/v1/tickets{ticket}")).await.expect_problem(410, "ticket-gone");
    assert_eq!(gone.body["ended"]["how"], "revoked");
    let headers = [("zlock-session-key", &*holder), ("if-lock", &*format!("/l;{token}"))];
    node.call(Method::POST, "/v1/znodes/x", &headers, b"").await.expect_problem(412, "lock-not-held");
    let history = node.get("/v1/history/l").await.expect(200);
    let past = &history.body["history"][0];
    assert_eq!((&past["ticket"], &past["ended"]["how"]), (&json!(ticket), &json!("revoked")));
    assert!(past["ended"]["at_ms"].as_u64().unwrap() >= past["granted_at_ms"].as_u64().unwrap() + 300);
}

#[tokio::test]
async fn a_deadline_of_nothing_takes_the_lock_at_once() {
    let node = Node::start().await;
    let session = node.session().await;
    let held = node.acquire(&session, "/l").await.expect(200);
    let asked = node.post("/v1/revocations/l?deadline=0", "").await.expect(200);
    assert_eq!(asked.body["tickets"][0], held.body["ticket"]);
    node.release(&session, text(&held, "ticket")).await.expect_problem(410, "ticket-gone");
    let again = node.post(&format!("/v1/revocations{}", text(&held, "ticket")), "").await;
    again.expect_problem(410, "ticket-gone");
    node.post("/v1/revocations/l?deadline=soon", "").await.expect_problem(400, "bad-request");
    node.post("/v1/revocations/l?deadlien=1s", "").await.expect_problem(400, "bad-request");
}

#[tokio::test]
async fn both_conventions_of_zookeepers_clients_are_understood() {
    let node = Node::start().await;
    let session = node.session().await;
    // A revocable holder of Curator watches its own data.
    node.post("/v1/znodes/l", "").await.expect(201);
    let curator = "/l/_c_0a3a5b6c-0000-4000-8000-00000000000a-lock-";
    let uri = format!("/v1/znodes{curator}?mode=ephemeral-sequential");
    let made = node.in_session(&session, Method::POST, &uri).await.expect(201);
    node.post("/v1/revocations/l", "").await.expect(200);
    let data = node.get(&format!("/v1/znodes{}", text(&made, "path"))).await.expect(200);
    assert_eq!(data.body["data"], "__REVOKE__");
    // For a holder that uses HTTP, Curator's Revoker or a client of ZooKeeper's recipe writes into
    // the lock node's data.
    for word in ["__REVOKE__", "unlock"] {
        let held = node.acquire(&session, &format!("/{word}")).await.expect(200);
        let uri = format!("/v1/tickets{}?until=revoked&wait=20s", text(&held, "ticket"));
        let telling = async {
            node.until_watches(1).await;
            node.put(&format!("/v1/znodes{}", text(&held, "ticket")), word).await.expect(200)
        };
        let (heard, told) = tokio::join!(node.in_session(&session, Method::GET, &uri), telling);
        assert_eq!(heard.expect(200).body["revoke"]["zxid"], told.zxid());
    }
}

#[tokio::test]
async fn a_waiter_can_be_asked_as_well() {
    let node = Node::start().await;
    let session = node.session().await;
    node.acquire(&session, "/l").await.expect(200);
    let queued = node.acquire(&session, "/l?keep=true").await.expect(202);
    let ticket = text(&queued, "ticket").to_owned();
    node.post(&format!("/v1/revocations{ticket}"), "").await.expect(200);
    let heard = node.get(&format!("/v1/tickets{ticket}?until=revoked&wait=20s")).await.expect(202);
    assert!(heard.body["revoke"]["zxid"].is_u64(), "{}", heard.body);
}
