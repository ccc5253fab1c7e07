//! Multis: several operations in one request.

use zookeeper_client::{CheckWriteError, Client, Error, MultiReadResult, MultiWriteError, MultiWriteResult};

use super::scene::{CONTAINER, LONG, PERSISTENT, Scene, answered, create, set, stat};
use crate::harness::until;

/// Commits a multi that must be refused, and repeats it while the connection is lost. Returns the
/// error of the refusal.
async fn refused(mut commit: impl AsyncFnMut() -> Result<Vec<MultiWriteResult>, MultiWriteError>) -> MultiWriteError {
    until("the multi is answered", async || match commit().await.expect_err("it must be refused") {
        MultiWriteError::RequestFailed { source: Error::ConnectionLoss } => None,
        error => Some(error),
    })
    .await
}

#[tokio::test]
async fn a_multi_is_done_in_one_transaction() {
    let scene = Scene::set().await;
    let client = scene.client().await;
    let multi = async |dir: &str| {
        let [a, b, old, chest, ttl] = ["a", "b", "old", "chest", "ttl"].map(|name| format!("{dir}/{name}"));
        create(&client, dir, "", &PERSISTENT).await;
        create(&client, &old, "", &PERSISTENT).await;
        let mut writer = client.new_multi_writer();
        writer.add_check_version(dir, 0).unwrap();
        writer.add_create(&a, b"1", &PERSISTENT).unwrap();
        writer.add_create(&b, b"", &PERSISTENT).unwrap();
        writer.add_set_data(&a, b"2", Some(0)).unwrap();
        writer.add_delete(&old, None).unwrap();
        writer.add_create(&chest, b"", &CONTAINER).unwrap();
        writer.add_create(&ttl, b"", &PERSISTENT.with_ttl(LONG)).unwrap();
        writer.commit().await
    };
    let mut round = 0;
    let (dir, results) = until("a multi is done and its answer comes", async || {
        round += 1;
        let dir = format!("/dir{round}");
        match multi(&dir).await {
            Ok(results) => Some((dir, results)),
            // The outcome is unknown, and the next try tells it.
            Err(MultiWriteError::RequestFailed { source: Error::ConnectionLoss }) => None,
            Err(error) => panic!("{error}"),
        }
    })
    .await;
    let [a, b, old, chest, ttl] = ["a", "b", "old", "chest", "ttl"].map(|name| format!("{dir}/{name}"));
    let (cheststat, ttl_stat) = (stat(&client, &chest).await.unwrap(), stat(&client, &ttl).await.unwrap());
    let (a_stat, b_stat) = (stat(&client, &a).await.unwrap(), stat(&client, &b).await.unwrap());
    assert_eq!((a_stat.mzxid, b_stat.czxid), (a_stat.czxid, a_stat.czxid), "one zxid for all");
    assert_eq!(stat(&client, &old).await, None);
    let expected = [
        MultiWriteResult::Check,
        // This is the stat at the create: the operation that sets the data came later.
        MultiWriteResult::Create { path: a, stat: zookeeper_client::Stat { data_length: 1, version: 0, ..a_stat } },
        MultiWriteResult::Create { path: b, stat: b_stat },
        MultiWriteResult::SetData { stat: a_stat },
        MultiWriteResult::Delete,
        MultiWriteResult::Create { path: chest, stat: cheststat },
        MultiWriteResult::Create { path: ttl, stat: ttl_stat },
    ];
    assert_eq!(results, expected);
}

#[tokio::test]
async fn a_multi_that_is_refused_leaves_nothing_and_names_the_operation() {
    let scene = Scene::set().await;
    let client = scene.client().await;
    let version = create(&client, "/kept", "before", &PERSISTENT).await.version;
    let error = refused(async || {
        let mut writer = client.new_multi_writer();
        writer.add_create("/made", b"", &PERSISTENT).unwrap();
        writer.add_set_data("/kept", b"after", Some(version)).unwrap();
        writer.add_check_version("/kept", version).unwrap();
        writer.add_delete("/kept", None).unwrap();
        writer.commit().await
    })
    .await;
    assert_eq!(error, MultiWriteError::OperationFailed { index: 2, source: Error::BadVersion });
    assert_eq!(stat(&client, "/made").await, None);
    let (data, kept) = answered("it is read", async || client.get_data("/kept").await).await;
    assert_eq!((data.as_slice(), kept.version), (b"before".as_slice(), version));
}

#[tokio::test]
async fn a_multi_read_answers_each_operation_from_one_state() {
    let scene = Scene::set().await;
    let client = scene.client().await;
    create(&client, "/a", "data", &PERSISTENT).await;
    create(&client, "/a/child", "", &PERSISTENT).await;
    let read = async || {
        let mut reader = client.new_multi_reader();
        reader.add_get_data("/a")?;
        reader.add_get_data("/none")?;
        reader.add_get_children("/a")?;
        reader.commit().await
    };
    let answers = answered("the multi is answered", read).await;
    let stat = stat(&client, "/a").await.unwrap();
    let expected = [
        MultiReadResult::Data { data: b"data".into(), stat },
        MultiReadResult::Error { err: Error::NoNode },
        MultiReadResult::Children { children: vec!["child".into()] },
    ];
    // The results can only be compared as text.
    assert_eq!(format!("{answers:?}"), format!("{expected:?}"));
}

#[tokio::test]
async fn a_write_behind_a_check_is_done_only_while_the_check_holds() {
    let scene = Scene::set().await;
    let client = scene.client().await;
    let version = create(&client, "/guard", "", &PERSISTENT).await.version;
    create(&client, "/guarded", "", &PERSISTENT).await;
    let guarded = async |client: &Client, data: &'static [u8]| {
        until("the write is answered", async || {
            let mut writer = client.new_check_writer("/guard", Some(version)).unwrap();
            writer.add_set_data("/guarded", data, None).unwrap();
            match writer.commit().await {
                Err(CheckWriteError::RequestFailed { source: Error::ConnectionLoss }) => None,
                answer => Some(answer),
            }
        })
        .await
    };
    assert!(guarded(&client, b"done").await.is_ok());
    set(&client, "/guard", "another version", version).await;
    let error = guarded(&client, b"too late").await.unwrap_err();
    assert_eq!(error, CheckWriteError::CheckFailed { source: Error::BadVersion });
    assert_eq!(answered("it is read", async || client.get_data("/guarded").await).await.0, b"done");
}
