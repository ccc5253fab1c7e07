//! Locks for readers and writers.

use super::scene::{Scene, Waiting, problem};
use crate::harness::Session;

struct Readers(Vec<Waiting>);

impl Readers {
    async fn come(scene: &Scene, session: &Session, labels: [&str; 3]) -> Readers {
        let mut readers = Vec::new();
        for label in labels {
            readers.push(scene.wait(session, "/rw?mode=read", label).await);
        }
        Readers(readers)
    }

    /// Waits until all three readers hold the lock, then releases them one after the other. The
    /// lock's queue as text must end with `last` after the first release, and begin with `then`
    /// after the third.
    async fn pass(self, scene: &Scene, session: &Session, last: &str, then: &str) {
        let mut tickets = Vec::new();
        for reader in self.0 {
            tickets.push(reader.held().await.ticket);
        }
        for (n, ticket) in tickets.iter().enumerate() {
            scene.release(session, ticket).await;
            let queue = scene.queue("/rw").await;
            match n {
                0 => assert!(queue.ends_with(last) && !queue.starts_with(then), "a writer beside readers: {queue}"),
                2 => assert!(queue.starts_with(then), "the writer alone: {queue}"),
                _ => {}
            }
        }
    }
}

#[tokio::test]
async fn readers_after_a_writer_wake_together_and_writers_alone() {
    let mut scene = Scene::set().await;
    let session = scene.session().await;
    let first = scene.hold(&session, "/rw?mode=write&label=w1").await;
    let readers = Readers::come(&scene, &session, ["r1", "r2", "r3"]).await;
    let writer = scene.wait(&session, "/rw?mode=write", "w2").await;
    let late = Readers::come(&scene, &session, ["r4", "r5", "r6"]).await;
    let alone = scene.wait(&session, "/rw?mode=write", "w3").await;
    assert_eq!(scene.queue("/rw").await, "w1 | r1 r2 r3 w2 r4 r5 r6 w3");
    scene.kill_leader().await;

    let released = scene.release(&session, &first.ticket).await;
    assert_eq!(scene.queue("/rw").await, "r1 r2 r3 | w2 r4 r5 r6 w3");
    readers.pass(&scene, &session, "| w2 r4 r5 r6 w3", "w2 | r4").await;
    let second = writer.held().await;
    assert_eq!(scene.queue("/rw").await, "w2 | r4 r5 r6 w3");
    scene.release(&session, &second.ticket).await;
    late.pass(&scene, &session, "| w3", "w3 | ").await;
    alone.held().await;
    // One entry granted all these readers the lock: the release of the writer before them.
    let past = scene.read("/v1/history/rw").await;
    let grants = past["history"].as_array().unwrap().iter().filter(|one| one["granted_zxid"] == released.zxid);
    assert_eq!(grants.count(), 3, "{past}");
}

#[tokio::test]
async fn a_writer_goes_over_to_reading_and_lets_readers_in_but_no_writer() {
    let mut scene = Scene::set().await;
    let (mine, other) = (scene.session().await, scene.session().await);
    let writing = scene.hold(&mine, "/rw?mode=write&owner=me&label=w").await;
    let writer = scene.wait(&other, "/rw?mode=write", "next").await;
    scene.kill_leader().await;
    let reading = scene.hold(&mine, "/rw?mode=read&owner=me&label=r").await;
    assert_eq!(scene.queue("/rw").await, "w r | next");
    scene.release(&mine, &writing.ticket).await;
    assert_eq!(scene.queue("/rw").await, "r | next");
    assert!(scene.token_holds("/rw", reading.token).await && !scene.token_holds("/rw", writing.token).await);
    scene.release(&mine, &reading.ticket).await;
    assert_eq!(scene.queue("/rw").await, "next | ");
    writer.held().await;
}

#[tokio::test]
async fn a_reader_upgrades_before_waiting_writers_although_the_leader_dies() {
    let mut scene = Scene::set().await;
    let (one, two) = (scene.session().await, scene.session().await);
    let first = scene.hold(&one, "/rw?mode=read&label=r1").await;
    let second = scene.hold(&two, "/rw?mode=read&label=r2").await;
    let writer = scene.wait(&two, "/rw?mode=write", "w").await;
    let upgrading = scene.wait(&one, &format!("/rw?upgrade={}", first.ticket), "up").await;
    scene.kill_leader().await;

    // Each of two upgrades would wait for the other's read lock. So the second upgrade is refused
    // at once, by the new leader, too.
    let refused = scene.acquire(&two, &format!("/rw?upgrade={}&wait=90s", second.ticket)).await;
    assert_eq!(problem(&refused), "upgrade-conflict");
    scene.release(&two, &second.ticket).await;
    let up = upgrading.held().await;
    assert!(up.token > first.token && scene.token_holds("/rw", up.token).await);
    let queue = scene.queue("/rw").await;
    assert!(queue.contains("up") && queue.ends_with("| w"), "{queue}");
    scene.release(&one, &up.ticket).await;
    assert_eq!(scene.queue("/rw").await, "r1 | w");
    assert!(scene.token_holds("/rw", first.token).await);
    scene.release(&one, &first.ticket).await;
    let written = writer.held().await;
    assert!(written.token > up.token, "{} after {}", written.token, up.token);
    assert!(scene.token_holds("/rw", written.token).await);
}
