//! The connection breaks between request and answer; the client retries with the same idempotency
//! key at another node.

use zlock_client::api::{Children, CreatedZnode, Deletion, LockQueue, Release, Ticket};

use crate::harness::{Answer, Call, Client, Cluster, Proxy, Rule, Session};

struct Scene {
    cluster: Cluster,
    proxy: Proxy,
    session: Session,
}

impl Scene {
    async fn set() -> Scene {
        let cluster = Cluster::start().await;
        let proxy = Proxy::start(cluster.endpoint(1)).await;
        let session = cluster.client(2).open_session(60_000).await;
        Scene { cluster, proxy, session }
    }

    /// Sends the call to one node, whose answer is lost, and then to another. Returns the second
    /// node's answer.
    async fn twice(&self, call: Call) -> Answer {
        let call = call.session(&self.session).once();
        self.proxy.set(Rule::LoseAnswers);
        let lost = Client::new(self.proxy.addr()).send(call.clone()).await;
        assert!(lost.is_err(), "the answer is lost: {lost:?}");
        self.cluster.client(2).ask(call).await
    }

    async fn once(&self, call: Call) -> Answer {
        self.cluster.client(3).ask(call.session(&self.session).once()).await
    }

    async fn queue(&self) -> LockQueue {
        self.once(Call::get("/v1/locks/one")).await.json()
    }
}

#[tokio::test]
async fn a_retried_create_creates_once() {
    let scene = Scene::set().await;
    assert_eq!(scene.once(Call::post("/v1/znodes/parent")).await.status, 201);
    let answer = scene.twice(Call::post("/v1/znodes/parent/child-?mode=persistent-sequential").body("x")).await;
    let created: CreatedZnode = answer.json();
    let children: Children = scene.once(Call::get("/v1/znodes/parent?children")).await.json();
    assert_eq!(children.children, ["child-0000000000"]);
    assert_eq!(created.path, "/parent/child-0000000000");
}

#[tokio::test]
async fn a_retried_delete_says_done_and_leaves_a_newer_znode_alone() {
    let scene = Scene::set().await;
    assert_eq!(scene.once(Call::post("/v1/znodes/gone")).await.status, 201);
    let delete = Call::delete("/v1/znodes/gone").session(&scene.session).once();
    scene.proxy.set(Rule::LoseAnswers);
    assert!(Client::new(scene.proxy.addr()).send(delete.clone()).await.is_err());
    // Another client makes the znode anew before the retry, and the new znode must stay.
    assert_eq!(scene.once(Call::post("/v1/znodes/gone").body("new")).await.status, 201);
    let deleted: Deletion = scene.cluster.client(2).ask(delete).await.json();
    assert!(deleted.zxid > 0);
    assert_eq!(scene.once(Call::get("/v1/znodes/gone")).await.status, 200);
}

#[tokio::test]
async fn a_retried_acquire_holds_once_and_a_retried_release_releases_once() {
    let scene = Scene::set().await;
    let acquire = || Call::post("/v1/locks/one?wait=20s&owner=me");
    let held = |answer: Answer| match answer.json() {
        Ticket::Held { ticket, fencing_token, holds, .. } => (ticket, fencing_token, holds),
        Ticket::Waiting { .. } => panic!("the lock is free"),
    };
    let (ticket, token, holds) = held(scene.twice(acquire()).await);
    assert_eq!(holds, 1, "a retry is not a second hold");
    let queue = scene.queue().await;
    assert_eq!((queue.holders.len(), queue.waiters.len()), (1, 0));
    assert_eq!(queue.holders[0].ticket, ticket);

    // Another request of the same owner takes the lock a second time.
    assert_eq!(held(scene.once(acquire()).await), (ticket.clone(), token, 2));
    let released: Release = scene.twice(Call::delete(format!("/v1/tickets{ticket}"))).await.json();
    assert_eq!(released.holds, 1, "a retry is not a second release");
    assert_eq!(scene.queue().await.holders[0].holds, 1);
    let released: Release = scene.twice(Call::delete(format!("/v1/tickets{ticket}"))).await.json();
    assert_eq!(released.holds, 0);
    assert_eq!(scene.queue().await.holders.len(), 0);
}

#[tokio::test]
async fn a_client_that_hangs_up_leaves_no_ghost_in_the_queue() {
    let scene = Scene::set().await;
    let other = scene.cluster.client(2).open_session(60_000).await;
    let held = scene.cluster.client(2).ask(Call::post("/v1/locks/one?wait=5s").session(&other).once()).await;
    assert_eq!(held.status, 200);
    let call = Call::post("/v1/locks/one?wait=60s").session(&scene.session).once();
    let mut waiter = scene.cluster.client(1);
    let waiting = tokio::spawn(async move { waiter.send(call).await });
    crate::harness::until("it waits", async || (scene.queue().await.waiters.len() == 1).then_some(())).await;
    waiting.abort();
    crate::harness::until("it has left", async || (scene.queue().await.waiters.is_empty()).then_some(())).await;
    assert_eq!(scene.queue().await.holders.len(), 1);
}
