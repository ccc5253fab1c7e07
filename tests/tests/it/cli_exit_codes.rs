//! The table of exit codes in docs/cli.md: a command for each row.

use std::collections::BTreeSet;
use std::fs::File;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::process::Signal;

use crate::cli::{LONG, Locked, done, run, zlock};
use crate::harness::{Cluster, Options, PROGRAM, kill, until};

/// The password of the user `super` is `test`.
const SETTINGS: &str = "admin.super_digest = \"super:D/InIHSb7yEEbrWz8b9l71RjZJU=\"";

/// Exit codes in the first column of docs/cli.md's table of exit codes.
fn codes_of_the_page() -> BTreeSet<i32> {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/cli.md");
    let text = std::fs::read_to_string(page).unwrap();
    let table = text.split("| exit code | means |").nth(1).expect("the page has the table");
    let rows = table.lines().skip(2).take_while(|line| line.starts_with('|'));
    let first = rows.map(|row| row.trim_start_matches(['|', ' ']).split([' ', ',']).next().unwrap().to_owned());
    first.map(|code| code.parse().unwrap_or_else(|_| panic!("a row begins with {code:?}"))).collect()
}

/// Runs a command that is to end with this exit code. Returns its real exit code.
async fn ends_with(code: i32, cluster: &Cluster) -> i32 {
    let to_its_end = async |args: &[&str]| run(zlock(cluster, args)).await.0;
    match code {
        0 => to_its_end(&["ls"]).await,
        1 => to_its_end(&["get", "none"]).await,
        2 => to_its_end(&["get"]).await,
        3 => to_its_end(&["ls", "--endpoints", "127.0.0.1:1"]).await,
        4 => {
            let mut command = zlock(cluster, &["ls", "--json"]);
            command.stdout(File::options().write(true).open("/dev/full").unwrap()).stderr(Stdio::null());
            tokio::task::spawn_blocking(move || command.status().unwrap()).await.unwrap().code().unwrap()
        }
        5 => to_its_end(&["locks", "--held", "free"]).await,
        121 => {
            let mut locked = Locked::start(cluster, LONG, &[]).await;
            done(cluster, &["break", "l", "--yes"]).await;
            locked.exit().await
        }
        124 => {
            let mut locked = Locked::start(cluster, LONG, &[]).await;
            let code = to_its_end(&["lock", "l", "--wait", "0", "--", "true"]).await;
            // A holder that is killed would keep the lock from the next row for a minute.
            done(cluster, &["break", "l", "--yes"]).await;
            locked.exit().await;
            code
        }
        125 => to_its_end(&["lock", "l", "--endpoints", "127.0.0.1:1", "--", "true"]).await,
        126 => to_its_end(&["lock", "free", "--", "/etc/passwd"]).await,
        127 => to_its_end(&["lock", "free", "--", "/no/such/program"]).await,
        128 => {
            let _held = Locked::start(cluster, LONG, &[]).await;
            let mut waits = zlock(cluster, &["lock", "l", "--", "true"]).spawn().unwrap();
            until("it waits", async || done(cluster, &["locks"]).await.contains("waits").then_some(())).await;
            kill(waits.id(), Signal::TERM);
            let ended = until("it has ended", async || waits.try_wait().unwrap()).await.code().unwrap();
            ended - Signal::TERM.as_raw()
        }
        other => panic!("{other} stands in the table, and no command is known that ends so"),
    }
}

#[tokio::test]
async fn every_exit_code_of_the_table_is_what_a_command_ends_with() {
    let cluster = Cluster::start_with(Options { nodes: 1, ..Options::default() }).await;
    let codes = codes_of_the_page();
    assert_eq!(codes.len(), 12, "{codes:?}");
    for code in codes {
        assert_eq!(ends_with(code, &cluster).await, code);
    }
}

#[tokio::test]
async fn what_cannot_be_written_is_an_error_and_a_closed_pipe_is_none() {
    let cluster = Cluster::start_with(Options { nodes: 1, ..Options::default() }).await;
    done(&cluster, &["create", "a", "hello"]).await;
    let mut ends = Vec::new();
    for args in [
        &["get", "a"][..],
        &["get", "a", "--json"],
        &["create", "b"],
        &["locks", "--watch", "--json"],
        &["completions", "bash"],
        &["version"],
        &["--help"],
        &["help", "lock"],
    ] {
        let mut command = zlock(&cluster, args);
        command.stdout(File::options().write(true).open("/dev/full").unwrap()).stderr(Stdio::piped());
        let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        ends.push((args, output.status.code(), stderr.contains("cannot write to stdout: No space left")));
        let mut closed = Command::new("sh");
        closed.args(["-c", "\"$@\" | true", "sh", PROGRAM]).args(args).stderr(Stdio::piped());
        closed.env("ZLOCK_ENDPOINTS", cluster.endpoints().join(","));
        // `locks --watch` does not end, and `create` has done its work already.
        if !["locks", "create"].contains(&args[0]) {
            let (_, _, stderr) = run(closed).await;
            assert_eq!(stderr, "", "{args:?}: a reader that has gone is no error");
        }
    }
    let wrong: Vec<_> = ends.iter().filter(|(_, code, said)| *code != Some(4) || !said).collect();
    assert!(wrong.is_empty(), "{wrong:?}");
    assert_eq!(done(&cluster, &["get", "b"]).await, "", "what was asked for is done");
}

/// Runs a shell's command line as the operator, with the path of `zlock` in `"$0"` and a file's
/// path in `"$1"`. Returns its exit code and stderr.
async fn shell(cluster: &Cluster, line: &str, file: &Path) -> (i32, String) {
    let mut shell = Command::new("sh");
    shell.args(["-c", line, PROGRAM]).arg(file).env("ZLOCK_USER", "super:test");
    shell.env("ZLOCK_ENDPOINTS", cluster.endpoints().join(","));
    let (code, _, stderr) = run(shell).await;
    (code, stderr)
}

#[tokio::test]
async fn a_backup_that_cannot_be_written_is_no_nodes_fault() {
    let cluster = Cluster::start_with(Options { nodes: 1, settings: SETTINGS, ..Options::default() }).await;
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("b");
    for (line, expected, words) in [
        (r#""$0" backup save - > /dev/full"#, 4, "cannot write to stdout: No space left"),
        (r#"trap '' XFSZ; ulimit -f 0; "$0" backup save "$1""#, 1, "b: File too large"),
    ] {
        let (code, stderr) = shell(&cluster, line, &file).await;
        assert_eq!((code, stderr.contains(words)), (expected, true), "{line}: {stderr}");
        assert!(!stderr.contains("no node") && !stderr.contains("is done"), "{line}: {stderr}");
    }
    assert!(std::fs::read_dir(dir.path()).unwrap().next().is_none(), "no file is left");
    let (_, stderr) = shell(&cluster, r#""$0" backup save - | true"#, &file).await;
    assert_eq!(stderr, "", "a reader that has gone is no error");
}
