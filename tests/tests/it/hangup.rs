//! SIGHUP: the log's file is opened anew and its filter is read again; the node serves on.

use std::path::Path;

use rustix::process::Signal;

use crate::harness::{Call, Cluster, Options, run_to_end, until};

fn read(file: &Path) -> String {
    std::fs::read_to_string(file).unwrap_or_default()
}

async fn says(file: &Path, words: &str) {
    let what = format!("{} says `{words}`", file.display());
    until(&what, async || read(file).contains(words).then_some(())).await;
}

#[tokio::test]
async fn a_hangup_opens_the_log_anew_reloads_its_filter_and_keeps_what_a_broken_file_would_change() {
    let mut cluster = Cluster::prepare(Options { nodes: 1, ..Options::default() }).await;
    let config = cluster.config(1).to_owned();
    let (log, old) = (config.with_extension("out"), config.with_extension("out.1"));
    let good = format!("{}log.file = {log:?}\n", read(&config));
    std::fs::write(&config, &good).unwrap();
    cluster.restart(1);
    cluster.all_ready().await;
    says(&log, "ready").await;
    assert!(!cluster.log(1).contains("started"), "stderr has none of it");
    let hang_up = |cluster: &Cluster| rustix::process::kill_process(cluster.pid(1), Signal::HUP).unwrap();

    // The file is rotated as by logrotate, with a new filter and a key that needs a restart.
    std::fs::rename(&log, &old).unwrap();
    std::fs::write(&config, format!("{good}log.level = \"info,rest=debug\"\nhttp.waits_max = 10\n")).unwrap();
    hang_up(&cluster);
    says(&log, "the configuration was reloaded log=\"info,rest=debug\" needs_restart=\"http.waits_max\"").await;
    let call = || Call::get("/livez");
    assert_eq!(cluster.client(1).send(call()).await.unwrap().status, 200);
    says(&log, ": request method=GET path=\"/livez\"").await;

    // A broken file changes nothing.
    for (broken, why) in [
        ("log.level = \"json\"\n", "`json` is not a level"),
        ("raft.heart_beat = 5\n", "unknown key `raft.heart_beat`"),
    ] {
        std::fs::write(&config, format!("{good}{broken}")).unwrap();
        hang_up(&cluster);
        says(&log, why).await;
    }
    let refused = "the configuration was not reloaded: the running one stays";
    assert_eq!(read(&log).matches(refused).count(), 2, "{}", read(&log));
    let before = read(&log).matches("path=\"/livez\"").count();
    assert_eq!(cluster.client(1).send(call()).await.unwrap().status, 200);
    until("the filter is the old one", async || (read(&log).matches("path=\"/livez\"").count() > before).then_some(()))
        .await;
    assert_eq!(cluster.stop(1).await, Some(0));
    says(&log, "stopped").await;
}

#[tokio::test]
async fn a_filter_that_names_nothing_is_refused_at_start() {
    let cluster = Cluster::prepare(Options { nodes: 1, ..Options::default() }).await;
    let (code, told) = run_to_end(["serve", "--log-level", "json"], Some(cluster.config(1)));
    assert!(code == 1 && told.contains("log.level (from --log-level): `json` is not a level"), "{told}");
    assert!(told.contains("for the form of the lines there is log.format"), "{told}");
    let (code, told) = run_to_end(["serve", "--log-file", "/nowhere/zlock.log"], Some(cluster.config(1)));
    assert!(code == 1 && told.contains("log.file: cannot open /nowhere/zlock.log"), "{told}");
}
