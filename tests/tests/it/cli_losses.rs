//! `zlock lock` and `zlock session exec` when the lock, or the session, is taken away: their output
//! and exit codes.

use std::io::Read as _;
use std::process::{Child, Command, Stdio};

use rustix::process::Signal;
use tokio::sync::watch;
use zlock_client::{Client, ProblemType};

use crate::cli::{LONG, Locked, SHORT, WITH_CHILD, done, run, zlock};
use crate::harness::{Cluster, Options, PROGRAM, kill, until};

#[path = "../../../crates/client/src/client/fake_node.rs"]
mod fake_node;

use fake_node::fake_node;

const SESSION: &str = r#"{"session":5,"session_key":"5.00","timeout_ms":60000,"safe_for_ms":58800}"#;
const HELD: &str = r#"{"state":"held","ticket":"/l/_c_x-lock-0000000000","path":"/l","fencing_token":7,"holds":1,"safe_for_ms":58800}"#;
const PAST: &str = r#"{"path":"/l","history":[{"ticket":"/l/_c_x-lock-0000000000","mode":"exclusive","session":5,"enqueued_zxid":7,"enqueued_at_ms":1,"ended":{"how":"deleted","zxid":9,"at_ms":2,"by":{"session":41,"client":{"host":"desk","pid":9}}}}]}"#;

async fn one_node() -> Cluster {
    Cluster::start_with(Options { nodes: 1, ..Options::default() }).await
}

/// Reads stderr to its end.
fn said(cli: &mut Child) -> String {
    let mut text = String::new();
    cli.stderr.take().unwrap().read_to_string(&mut text).unwrap();
    text
}

fn refusal(kind: ProblemType, status: u16) -> String {
    let uri = kind.uri();
    format!(r#"{{"type":"{uri}","title":"T","status":{status},"detail":"d","outcome":"refused","zxid":9}}"#)
}

#[tokio::test]
async fn a_command_is_ended_before_anything_asks_why_its_lock_is_gone() {
    let (take, taken) = watch::channel(false);
    let (end, ended) = watch::channel(false);
    let (addr, _requests) = fake_node(move |request: String| {
        let (mut taken, mut ended) = (taken.clone(), ended.clone());
        async move {
            if request == "POST /v1/sessions" {
                SESSION.to_owned()
            } else if request.contains("/v1/history/") {
                let _ = ended.wait_for(|ended| *ended).await;
                PAST.to_owned()
            } else if request.contains("until=revoked") {
                let _ = taken.wait_for(|taken| *taken).await;
                refusal(ProblemType::TicketGone, 410)
            } else if request.starts_with("DELETE /v1/tickets") {
                refusal(ProblemType::TicketGone, 410)
            } else {
                HELD.to_owned()
            }
        }
    })
    .await;
    let mut lock = Command::new(PROGRAM);
    lock.args(["lock", "l", "--session-timeout", LONG, "--on-loss", "kill", "--endpoints", &addr]).stdin(Stdio::null());
    let mut locked = Locked::start_as(lock, WITH_CHILD).await;
    take.send_replace(true);
    until("the command is ended, and nothing has told why", async || (!locked.runs()).then_some(())).await;
    end.send_replace(true);
    assert_eq!(locked.exit().await, 121);
    let said = said(&mut locked.cli);
    let why = "and the command was ended: its lock node was deleted by session 41 (desk, pid 9)";
    assert!(said.contains(&format!("zlock: the lock /l was lost, {why}\n")), "{said}");
}

#[tokio::test]
async fn a_loss_is_told_with_the_client_that_took_the_lock_away() {
    let cluster = one_node().await;
    for (args, what) in [(&["break", "l", "--yes"][..], "deleted"), (&["revoke", "l", "--deadline", "1ms"], "revoked")]
    {
        let mut locked = Locked::start(&cluster, LONG, &[]).await;
        let mut taking = zlock(&cluster, args).stdout(Stdio::null()).spawn().unwrap();
        assert!(until("it is taken away", async || taking.try_wait().unwrap()).await.success());
        assert_eq!(locked.exit().await, 121);
        let said = said(&mut locked.cli);
        let by = format!(", pid {}, zlock", taking.id());
        assert!(said.contains(&format!("was {what} by session ")) && said.contains(&by), "{args:?}: {said}");
    }
    let mut locked = Locked::start(&cluster, LONG, &["--on-loss", "warn"]).await;
    done(&cluster, &["break", "l", "--yes"]).await;
    kill(locked.cli.id(), Signal::TERM);
    assert_eq!(locked.exit().await, 143);
    let said = said(&mut locked.cli);
    assert!(said.contains("/l was lost before the command had ended: "), "{said}");
}

#[tokio::test]
async fn a_lock_with_more_holders_than_a_page_is_taken_from_all() {
    let settings = "http.page_size_max = 2";
    let cluster = Cluster::start_with(Options { nodes: 1, settings, ..Options::default() }).await;
    let client = Client::builder(cluster.endpoints()).build().unwrap();
    let mut readers = Vec::new();
    for _ in 0..5 {
        readers.push(client.rw_lock("/l").read().acquire().await.unwrap());
    }
    done(&cluster, &["break", readers[4].ticket(), "--yes"]).await;
    assert_eq!(client.lock_queue("/l").await.unwrap().contenders, 4);
    done(&cluster, &["break", "l", "--yes"]).await;
    assert_eq!(client.lock_queue("/l").await.unwrap().contenders, 0);
}

#[tokio::test]
async fn a_refused_try_names_the_program_that_holds_the_lock() {
    let cluster = one_node().await;
    let client = Client::builder(cluster.endpoints()).build().unwrap();
    let queued = client.lock("/l").label("nightly").acquire().await.unwrap();
    let simple = client.simple_lock("/s").owner("nightly").acquire().await.unwrap();
    for lock in [&["l"][..], &["s", "--simple"]] {
        let (code, _, stderr) = run(zlock(&cluster, &[&["lock", "--wait", "0"], lock, &["--", "true"]].concat())).await;
        let holder = format!(", pid {}, ", std::process::id());
        assert!(code == 124 && stderr.contains(" (nightly; ") && stderr.contains(&holder), "{code}: {stderr}");
    }
    drop((queued, simple));
}

// The next heartbeat would come much later.
#[tokio::test]
async fn a_session_that_ends_before_its_command_is_lost_though_no_heartbeat_has_told_of_it() {
    let cluster = one_node().await;
    let script = "curl -sf -X DELETE \"$ZLOCK_ENDPOINT/v1/sessions/${ZLOCK_SESSION_KEY%%.*}\" \
                  -H \"Zlock-Session-Key: $ZLOCK_SESSION_KEY\" >/dev/null || exit 9; exit 7";
    for (how, expected) in [("term", 121), ("warn", 7)] {
        let args = [
            "session",
            "exec",
            "--session-timeout",
            LONG,
            "--on-loss",
            how,
            "--timeout",
            "30s",
            "--",
            "sh",
            "-c",
            script,
        ];
        let (code, _, stderr) = run(zlock(&cluster, &args)).await;
        assert_eq!(code, expected, "{how}: {stderr}");
        assert!(stderr.starts_with("zlock: session ") && stderr.lines().count() == 1, "{how}: {stderr}");
        assert!(stderr.contains(" was lost before the command had ended: "), "{how}: {stderr}");
    }
}

#[tokio::test]
async fn a_session_that_ends_while_its_command_runs_ends_the_command() {
    let cluster = one_node().await;
    let client = Client::builder(cluster.endpoints()).build().unwrap();
    let script = "sleep 1000 & echo $$ $! > \"$0.new\"; mv \"$0.new\" \"$0\"; \
                  curl -sf -X DELETE \"$ZLOCK_ENDPOINT/v1/sessions/${ZLOCK_SESSION_KEY%%.*}\" \
                  -H \"Zlock-Session-Key: $ZLOCK_SESSION_KEY\" >/dev/null; wait";
    let exec = zlock(&cluster, &["session", "exec", "--session-timeout", SHORT, "--label", "exec"]);
    let mut running = Locked::start_as(exec, script).await;
    assert_eq!(running.exit().await, 121);
    assert!(!running.runs(), "what the command has started goes with it");
    let said = said(&mut running.cli);
    assert!(said.contains("zlock: session ") && said.contains(" was lost, and the command was ended: "), "{said}");
    assert!(client.sessions().await.unwrap().iter().all(|session| session.label != "exec"));
}
