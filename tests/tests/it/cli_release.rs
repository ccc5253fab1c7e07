//! `zlock release` of locks that one's own session holds, and `zlock break` of locks that other
//! sessions hold.

use zlock_client::{Client, Loss};

use crate::cli::{done, run, zlock};
use crate::harness::{Cluster, Options};

async fn one_node() -> Cluster {
    Cluster::start_with(Options { nodes: 1, ..Options::default() }).await
}

/// Runs `zlock release` with the session key in its environment.
async fn release(cluster: &Cluster, key: &str, args: &[&str]) -> (i32, String, String) {
    let mut command = zlock(cluster, &[&["release"], args].concat());
    command.env("ZLOCK_SESSION_KEY", key);
    run(command).await
}

#[tokio::test]
async fn a_release_gives_back_what_its_session_holds() {
    let cluster = one_node().await;
    let (own, other) = [(); 2].map(|()| Client::builder(cluster.endpoints()).build().unwrap()).into();
    let key = own.open_session().await.unwrap().key().to_owned();
    let guard = own.lock("/l").acquire().await.unwrap();
    let released = release(&cluster, &key, &["l"]).await;
    assert_eq!(released, (0, "released /l\n".to_owned(), String::new()));
    assert_eq!(guard.lost().await, Loss::Released);

    let guard = own.lock("/l").acquire().await.unwrap();
    let (code, stdout, stderr) = release(&cluster, &key, &[guard.ticket(), "--json"]).await;
    assert!(code == 0 && stdout.starts_with("{\"holds\":0,\"zxid\":"), "{stdout}{stderr}");
    let (code, _, stderr) = release(&cluster, &key, &[guard.ticket()]).await;
    assert!(code == 1 && stderr.contains("the ticket was released"), "{stderr}");

    // The name of a lock may end like the name of a ticket.
    let _odd = own.lock("/jobs/7-0000000001").acquire().await.unwrap();
    assert_eq!(release(&cluster, &key, &["jobs/7-0000000001"]).await.0, 0);

    let theirs = other.lock("/l").acquire().await.unwrap();
    let (code, _, stderr) = release(&cluster, &key, &["l"]).await;
    assert!(code == 1 && stderr.contains("it is held by session"), "{stderr}");
    let (code, _, stderr) = release(&cluster, &key, &[theirs.ticket()]).await;
    assert!(code == 1 && stderr.contains("belongs to session"), "{stderr}");
    assert!(theirs.is_safe() && own.session_info(own.session_id().await.unwrap()).await.is_ok());

    let _readers =
        [own.rw_lock("/r").read().acquire().await.unwrap(), own.rw_lock("/r").read().acquire().await.unwrap()];
    let (code, _, stderr) = release(&cluster, &key, &["r"]).await;
    assert!(code == 1 && stderr.contains("`zlock release TICKET`"), "{stderr}");
}

#[tokio::test]
async fn a_script_gives_back_the_locks_of_its_session() {
    let cluster = one_node().await;
    let script = "curl -sf -X POST \"$ZLOCK_ENDPOINT/v1/locks/l\" -H \"Zlock-Session-Key: $ZLOCK_SESSION_KEY\" >/dev/null && \
                  \"$0\" release l && \"$0\" locks --held l";
    let (code, stdout, stderr) =
        run(zlock(&cluster, &["session", "exec", "--", "sh", "-c", script, crate::harness::PROGRAM])).await;
    assert_eq!((code, stdout.as_str()), (5, "released /l\n"), "it is free before the session ends: {stderr}");
}

#[tokio::test]
async fn a_lock_is_broken_by_one_who_is_sure() {
    let cluster = one_node().await;
    let client = Client::builder(cluster.endpoints()).build().unwrap();
    let guard = client.lock("/l").acquire().await.unwrap();
    for (args, said) in [
        (&["release", "l"][..], "`zlock break /l` takes it away from its holders"),
        (&["break", "l"], "--yes"),
        (&["break", guard.ticket()], "--yes"),
    ] {
        let (code, stdout, stderr) = run(zlock(&cluster, args)).await;
        assert!(code == 1 && stdout.is_empty() && stderr.contains(said), "{args:?}: {code} {stderr}");
    }
    let (code, _, stderr) = release(&cluster, "nonsense", &["l"]).await;
    assert!(code == 1 && stderr.starts_with("zlock: ZLOCK_SESSION_KEY: ") && !stderr.contains("nonsense"), "{stderr}");
    assert!(guard.is_safe());
    assert_eq!(done(&cluster, &["break", "l", "--yes"]).await, format!("broke {}\n", guard.ticket()));
    assert!(matches!(guard.lost().await, Loss::Deleted { .. }));
}
