//! Events of watches, and the moments at which clients get them.

use zookeeper_client::{AddWatchMode, EventType, WatchedEvent};

use super::scene::{PERSISTENT, Scene, answered, create, delete, fired, next, seen, set, stat, sync, told};
use crate::harness::until;

fn kind_and_path(event: &WatchedEvent) -> (EventType, &str) {
    (event.event_type, &event.path)
}

#[tokio::test]
async fn a_watch_tells_of_the_first_change_and_its_zxid() {
    let (events, expected) = seen(async |watching, writing| {
        let made = create(watching, "/a", "", &PERSISTENT).await;
        let (.., data) = answered("it is read", async || watching.get_and_watch_data("/a").await).await;
        let (.., children) = answered("it is listed", async || watching.get_and_watch_children("/a").await).await;
        let (nothing, absent) = answered("it is looked at", async || watching.check_and_watch_stat("/b").await).await;
        assert_eq!(nothing, None);

        sync(writing).await;
        set(writing, "/a", "1", made.version).await;
        let set = stat(writing, "/a").await.unwrap();
        let child = create(writing, "/a/child", "", &PERSISTENT).await;
        let other = create(writing, "/b", "", &PERSISTENT).await;
        let events = [fired(data).await, fired(children).await, fired(absent).await];
        let expected = [
            WatchedEvent::new(EventType::NodeDataChanged, "/a").with_zxid(set.mzxid),
            WatchedEvent::new(EventType::NodeChildrenChanged, "/a").with_zxid(child.czxid),
            WatchedEvent::new(EventType::NodeCreated, "/b").with_zxid(other.czxid),
        ];
        (events, expected)
    })
    .await;
    assert_eq!(events, expected);
}

#[tokio::test]
async fn a_one_shot_watch_is_used_up_by_its_event() {
    let scene = Scene::set().await;
    let client = scene.client_of(1).await;
    let made = create(&client, "/a", "", &PERSISTENT).await;
    let (.., watcher) = answered("it is read", async || client.get_and_watch_data("/a").await).await;
    let watches = async |count: u32| {
        let line = format!("Total watches:{count}\n");
        scene.word(1, "wchs").await.filter(|answer| answer.contains(&line)).map(drop)
    };
    assert!(watches(1).await.is_some());
    set(&client, "/a", "1", made.version).await;
    assert_eq!(kind_and_path(&fired(watcher).await), (EventType::NodeDataChanged, "/a"));
    assert!(watches(0).await.is_some());
}

#[tokio::test]
async fn an_event_comes_before_the_answer_that_shows_its_change() {
    let scene = Scene::set().await;
    let (watching, writing) = (scene.client_of(1).await, scene.client_of(2).await);
    let mut version = create(&watching, "/a", "0", &PERSISTENT).await.version;
    sync(&writing).await;
    for round in 0..50 {
        let (.., watcher) = answered("it is read", async || watching.get_and_watch_data("/a").await).await;
        let seen = async {
            let changed = async || {
                let (_, stat) = answered("it is read", async || watching.get_data("/a").await).await;
                (stat.version > version).then_some(())
            };
            until("the change is seen", changed).await;
            told(watcher)
        };
        let ((), event) = tokio::join!(set(&writing, "/a", "1", version), seen);
        assert!(event.is_some(), "round {round}: the change was seen before its event");
        version += 1;
    }
}

#[tokio::test]
async fn a_persistent_watch_tells_of_every_change_in_order() {
    let expected = [
        EventType::NodeCreated,
        EventType::NodeDataChanged,
        EventType::NodeDataChanged,
        EventType::NodeChildrenChanged,
        EventType::NodeChildrenChanged,
        EventType::NodeDeleted,
    ];
    let events = seen(async |watching, writing| {
        let mode = AddWatchMode::Persistent;
        let mut watcher = answered("it is watched", async || watching.watch("/a", mode).await).await;
        let mut events = Vec::new();
        for _ in 0..2 {
            let version = create(writing, "/a", "", &PERSISTENT).await.version;
            set(writing, "/a", "1", version).await;
            set(writing, "/a", "2", version + 1).await;
            create(writing, "/a/child", "", &PERSISTENT).await;
            set(writing, "/a/child", "not of the znode itself", 0).await;
            delete(writing, "/a/child").await;
            delete(writing, "/a").await;
            for _ in expected {
                events.push(next(&mut watcher).await);
            }
        }
        events
    })
    .await;
    let mut zxid = 0;
    for (n, (event, expected)) in events.iter().zip(expected.into_iter().cycle()).enumerate() {
        assert_eq!(kind_and_path(event), (expected, "/a"), "event {n}");
        assert!(event.zxid > zxid, "event {n}: {event:?} behind {zxid}");
        zxid = event.zxid;
    }
}

#[tokio::test]
async fn a_recursive_watch_tells_of_the_whole_subtree_in_order() {
    let expected = [
        (EventType::NodeCreated, "/a"),
        (EventType::NodeCreated, "/a/b"),
        (EventType::NodeCreated, "/a/b/c"),
        (EventType::NodeDataChanged, "/a/b"),
        (EventType::NodeDeleted, "/a/b/c"),
        (EventType::NodeDeleted, "/a/b"),
        (EventType::NodeDeleted, "/a"),
    ];
    let events = seen(async |watching, writing| {
        let mode = AddWatchMode::PersistentRecursive;
        let mut watcher = answered("it is watched", async || watching.watch("/a", mode).await).await;
        create(writing, "/a", "", &PERSISTENT).await;
        create(writing, "/ab", "no child of it", &PERSISTENT).await;
        let deep = create(writing, "/a/b", "", &PERSISTENT).await;
        create(writing, "/a/b/c", "", &PERSISTENT).await;
        set(writing, "/a/b", "1", deep.version).await;
        delete(writing, "/a/b/c").await;
        delete(writing, "/a/b").await;
        delete(writing, "/a").await;
        let mut events = Vec::new();
        for _ in expected {
            events.push(next(&mut watcher).await);
        }
        events
    })
    .await;
    for (n, (event, expected)) in events.iter().zip(expected).enumerate() {
        assert_eq!(kind_and_path(event), expected, "event {n}");
    }
}
