//! Output of the commands, positions of options on the command line, and the users as which
//! commands act.

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};

use rustix::process::Signal;
use zlock_client::Client;

use crate::cli::{LONG, Locked, done, run, zlock};
use crate::harness::{Cluster, Options, PROGRAM, kill, until};

async fn one_node() -> Cluster {
    Cluster::start_with(Options { nodes: 1, ..Options::default() }).await
}

async fn refused(cluster: &Cluster, args: &[&str]) -> (i32, String) {
    let (code, _, stderr) = run(zlock(cluster, args)).await;
    assert_ne!(code, 0, "{args:?}");
    (code, stderr)
}

#[tokio::test]
async fn options_may_stand_before_a_command_and_behind_it() {
    let cluster = one_node().await;
    done(&cluster, &["create", "a"]).await;
    let endpoint = cluster.endpoint(1);
    let plain = |args: &[&str]| {
        let mut command = Command::new(PROGRAM);
        command.args(args).stdin(Stdio::null());
        command
    };
    for args in [
        &["--endpoints", endpoint, "--json", "ls"][..],
        &["--json", "ls", "--endpoints", endpoint],
        &["ls", "--endpoints", endpoint, "--json"],
        &["--endpoints", "127.0.0.1:1", "ls", "--endpoints", endpoint, "--json"],
    ] {
        let (code, stdout, stderr) = run(plain(args)).await;
        assert_eq!((code, stdout.as_str()), (0, "[\"a\"]\n"), "{args:?}: {stderr}");
    }
    // An option in front wins over the environment variable, too.
    let (code, _, stderr) = run(zlock(&cluster, &["--endpoints", "127.0.0.1:1", "acl", "get", "/"])).await;
    assert!(code == 3 && stderr.contains("127.0.0.1:1"), "{code}: {stderr}");
    let (code, _, stderr) = run(plain(&["--json", "serve", "--print-config"])).await;
    assert!(code == 2 && stderr.contains("--json is only for client commands"), "{code}: {stderr}");
    for args in [["version", "--json"], ["--json", "version"]] {
        let (code, stdout, _) = run(plain(&args)).await;
        let version: serde_json::Value = serde_json::from_str(&stdout).unwrap();
        assert!(code == 0 && version["name"] == "zlock" && version["levels"]["max"].is_u64(), "{stdout}");
    }
    let dir = tempfile::tempdir().unwrap();
    let init = ["tls", "init", "--client", "app", "--out", dir.path().to_str().unwrap()];
    let (code, stdout, stderr) = run(plain(&[&["--json"], &init[..]].concat())).await;
    let files: serde_json::Value = serde_json::from_str(&stdout).unwrap_or_else(|_| panic!("{stdout}{stderr}"));
    assert_eq!((code, files["files"].as_array().unwrap().len()), (0, 4), "{files}");
    let (code, stdout, _) = run(plain(&["--version"])).await;
    assert!(code == 0 && stdout.contains("(commit ") && stdout.contains("level"), "{stdout}");
}

#[tokio::test]
async fn what_is_wrong_is_said_in_words_that_help() {
    let cluster = one_node().await;
    // If the program retried, it would go on for a minute.
    let dead = ["--endpoints", "127.0.0.1:1,no-such-host.invalid:7001", "--timeout", "60s"];
    for command in [&["ls"][..], &["create", "x"], &["status"]] {
        let (code, stderr) = refused(&cluster, &[command, &dead[..]].concat()).await;
        assert_eq!(code, 3, "{command:?}: {stderr}");
        for part in ["127.0.0.1:1: Connection refused", "no-such-host.invalid:7001: ", "--endpoints"] {
            assert!(stderr.contains(part), "{command:?}: {part}: {stderr}");
        }
    }
    let (code, stderr) = refused(&cluster, &["locks", "--history"]).await;
    assert!(code == 2 && stderr.contains("zlock locks orders --history"), "{stderr}");
    let (code, stderr) = refused(&cluster, &["lock", "/", "--", "true"]).await;
    assert!(code == 2 && stderr.contains("the root is no lock"), "{stderr}");
    for args in [&["break", "/", "--yes"][..], &["revoke", "/"], &["settings", "/"]] {
        let (code, stderr) = refused(&cluster, args).await;
        assert!(code == 1 && stderr.contains("the root is no lock"), "{args:?}: {stderr}");
    }
    let (code, stderr) = refused(&cluster, &["lock", "l", "--wait", "30", "--", "true"]).await;
    assert!(code == 2 && stderr.contains("30s or 30ms"), "{stderr}");
    let permits = ["semaphore", "s", "--permits-max", "2", "--permits", "3", "--", "true"];
    let (code, stderr) = refused(&cluster, &permits).await;
    assert!(code == 2 && stderr.contains("--permits 3 is more than there are: --permits-max is 2"), "{stderr}");

    let held = Locked::start(&cluster, LONG, &["--label", "nightly"]).await;
    let (code, stderr) = refused(&cluster, &["lock", "l", "--wait", "100ms", "--", "true"]).await;
    assert_eq!(code, 124);
    assert!(stderr.starts_with("zlock: /l was not free within 100ms: held by session "), "{stderr}");
    assert!(
        stderr.contains(" (nightly; ") && stderr.contains("127.0.0.1) for ") && stderr.contains("`zlock locks /l`"),
        "{stderr}"
    );
    let (_, stderr) = refused(&cluster, &["lock", "l", "--wait", "0", "--", "true"]).await;
    assert!(stderr.starts_with("zlock: /l is not free: held by session "), "{stderr}");
    drop(held);
}

#[tokio::test]
async fn a_wrong_command_line_is_told_how_to_write_it() {
    let told = async |args: &[&str]| {
        let mut command = Command::new(PROGRAM);
        // The environment has these options, so the help must not say that the command line needs
        // them.
        command.env("ZLOCK_ENDPOINTS", "127.0.0.1:1").env("ZLOCK_CA", "ca.pem").args(args).stdin(Stdio::null());
        let (code, _, stderr) = run(command).await;
        assert_eq!(code, 2, "{args:?}: {stderr}");
        stderr
    };
    let usage = "Usage: zlock lock [OPTIONS] <NAME> -- <COMMAND>...\n";
    for (args, tip) in [
        (&["lock", "a", "echo", "hi"][..], "put `--` before the command that is to be run: zlock lock NAME -- COMMAND"),
        (&["--json", "elect", "--wait", "5s", "a", "./b", "-n"], "zlock elect NAME -- COMMAND"),
        (&["semaphore", "--permits-max", "2", "a", "./b"], "zlock semaphore NAME -- COMMAND"),
        (&["session", "exec", "env"], "put `--` before the command that is to be run: zlock session exec -- COMMAND"),
        (&["lock", "a"], usage),
        (&["lock", "a", "--simple", "--shared", "--", "true"], usage),
        (&["get"], "Usage: zlock get [OPTIONS] <PATH>\n"),
        (&["acl", "set"], "Usage: zlock acl set [OPTIONS] <PATH> <SCHEME:ID:PERMS>...\n"),
        (&["sets"], "Usage: zlock [OPTIONS] <COMMAND>\n"),
    ] {
        let stderr = told(args).await;
        assert!(stderr.contains(tip) && !stderr.contains("--endpoints"), "{args:?}: {stderr}");
    }
    for args in [&["locks", "a", "b"][..], &["lock", "a", "--foo", "--", "true"]] {
        let stderr = told(args).await;
        assert!(!stderr.contains("before the command") && !stderr.contains("'-- --foo'"), "{args:?}: {stderr}");
    }
    for (args, said) in [
        (&["lock", "a", "--wait", "-5s", "--", "true"][..], "for '--wait <TIME>': it is negative: write 30s, 250ms"),
        (&["create", "a", "--ttl", "-1h"], "it is negative"),
        (&["ls", "--endpoints", "127.0.0.1"], "endpoint \"127.0.0.1\": write host:port"),
        (&["lock", "a", "--endpoints", ":7201", "--", "true"], "endpoint \":7201\": write host:port"),
    ] {
        let stderr = told(args).await;
        assert!(stderr.contains(said), "{args:?}: {stderr}");
    }
}

#[tokio::test]
async fn problems_are_json_where_json_is_asked_for() {
    let cluster = one_node().await;
    for (args, code, kind, detail) in [
        (&["--json", "get", "nope"][..], 1, "no-node", "there is no such znode (/nope)"),
        (&["get", "nope", "--json"], 1, "no-node", "`zlock ls`"),
        (&["ls", "--json", "--endpoints", "127.0.0.1:1"], 3, "about:blank", "127.0.0.1:1: Connection refused"),
        (&["break", "nope", "--yes", "--json"], 1, "about:blank", "/nope has no holder"),
        (&["get", "--json"], 2, "about:blank", "required arguments were not provided: <PATH>"),
        (&["lock", "l", "--json", "--", "/no/such/program"], 127, "", ""),
        (&["lock", "l", "--json", "--wait", "soon", "--", "true"], 2, "about:blank", "not a duration"),
    ] {
        let (ended, stderr) = refused(&cluster, args).await;
        assert_eq!(ended, code, "{args:?}: {stderr}");
        if !detail.is_empty() {
            let problem: serde_json::Value = serde_json::from_str(&stderr).unwrap();
            let said = |field: &str| problem[field].as_str().unwrap().to_owned();
            assert!(said("type").ends_with(kind) && said("detail").contains(detail), "{args:?}: {stderr}");
            assert_eq!(problem["exit_code"], code, "{stderr}");
            assert!(["refused", "unavailable"].contains(&&*said("outcome")), "{stderr}");
        }
    }
    let (_, stderr) = refused(&cluster, &["lock", "l", "--", "ls", "--json", "/no/such/file"]).await;
    assert!(!stderr.starts_with('{'), "that is the command's: {stderr}");
}

#[tokio::test]
async fn a_port_that_speaks_no_http_is_told_of() {
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = silent.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = silent.accept().await {
            let _ = tokio::io::AsyncReadExt::read(&mut stream, &mut [0; 4096]).await;
        }
    });
    let mut command = Command::new(PROGRAM);
    command.args(["ls", "--timeout", "1s", "--endpoints", &addr]).stdin(Stdio::null());
    let (code, _, stderr) = run(command).await;
    assert!(code == 3 && stderr.contains("it may be a port for other than HTTP"), "{code}: {stderr}");
}

#[tokio::test]
async fn that_there_is_no_lock_is_said_and_is_no_error() {
    let cluster = one_node().await;
    for (args, said) in [
        (&["locks"][..], "zlock: no lock is held or waited for; simple locks are not shown\n"),
        (&["locks", "a"], "zlock: no lock at /a or below it is held or waited for; simple locks are not shown\n"),
        (&["locks", "--watch", "--count", "1"], "zlock: no lock is held or waited for; simple locks are not shown\n"),
        (
            &["locks", "a", "--history"],
            "zlock: /a has no past that is remembered; `zlock locks /a` shows who has it now\n",
        ),
    ] {
        assert_eq!(run(zlock(&cluster, args)).await, (0, String::new(), said.to_owned()), "{args:?}");
    }
    assert_eq!(run(zlock(&cluster, &["locks", "a", "--json"])).await, (0, "[]\n".to_owned(), String::new()));
}

#[tokio::test]
async fn what_cannot_be_had_of_a_time_is_refused_or_said() {
    let cluster = one_node().await;
    for (options, said) in [
        (&["--grace", "9s"][..], "--grace 9s is more than 2500ms, a quarter of --session-timeout"),
        (&["--grace", "2s", "--session-timeout", "4s"], "--grace 2s is more than 1s"),
        (&["--grace", "1s", "--on-loss", "kill"], "--grace is for --on-loss term"),
    ] {
        for command in [&["lock", "l"][..], &["session", "exec"]] {
            let (code, stderr) = refused(&cluster, &[command, options, &["--", "true"]].concat()).await;
            assert!(code == 2 && stderr.contains(said), "{command:?} {options:?}: {code} {stderr}");
        }
    }
    for (timeout, said) in [
        ("10m", "zlock: the cluster does not grant --session-timeout 600s: it is 300s, the grace 2s\n"),
        ("1s", "zlock: the cluster does not grant --session-timeout 1s: it is 2s, the grace 500ms\n"),
        ("4s", ""),
    ] {
        for command in [&["lock", "l"][..], &["session", "exec"]] {
            let args = [command, &["--session-timeout", timeout, "--", "true"]].concat();
            assert_eq!(run(zlock(&cluster, &args)).await, (0, String::new(), said.to_owned()), "{args:?}");
        }
    }
}

#[tokio::test]
async fn locks_tell_who_is_silent_and_who_is_asked() {
    let cluster = one_node().await;
    let client = Client::builder(cluster.endpoints()).label("nightly").build().unwrap();
    let guard = client.lock("/l").label("me").acquire().await.unwrap();
    client.revoke("/l", Some(std::time::Duration::from_secs(300))).await.unwrap();
    let table = done(&cluster, &["locks"]).await;
    let words =
        |line: usize| table.lines().nth(line).unwrap().split("  ").map(str::trim).filter(|word| !word.is_empty());
    let row: Vec<(&str, &str)> = words(0).zip(words(1)).collect();
    let of = |heading: &str| row.iter().find(|(name, _)| *name == heading).unwrap().1;
    assert!(of("HEARD").ends_with("s ago") && of("EXPIRES IN").ends_with('s'), "{table}");
    assert!(of("ASKED").contains(" ago, due in "), "{table}");
    assert_eq!((of("LABEL"), of("SESSION LABEL"), of("STATE")), ("me", "nightly", "holds"), "{table}");

    let held = async |args: &[&str]| run(zlock(&cluster, &[&["locks", "--held"], args].concat())).await;
    let simple = client.simple_lock("/s").acquire().await.unwrap();
    for name in ["l", "s"] {
        assert_eq!(held(&[name]).await, (0, String::new(), String::new()), "{name}");
    }
    guard.release().await.unwrap();
    simple.release().await.unwrap();
    for name in ["l", "s", "nothing"] {
        assert_eq!(held(&[name]).await.0, 5, "{name}");
    }
    assert_eq!(held(&["l", "--json"]).await.1, "false\n");
}

// A client's znode may have a name like a lock node's, and nothing else in common with it.
#[tokio::test]
async fn data_that_looks_like_a_lock_node_is_not_taken_away() {
    let cluster = one_node().await;
    done(&cluster, &["create", "-p", "--sequential", "q/x-lock-", "pay 100"]).await;
    done(&cluster, &["create", "-p", "--sequential", "q/x-lock-", "pay 200"]).await;
    for args in [
        &["break", "q", "--yes"][..],
        &["break", "q/x-lock-0000000000", "--yes"],
        &["break", "q/x-lock-0000000001", "--yes"],
        &["revoke", "q"],
        &["revoke", "q", "--deadline", "0"],
    ] {
        let (code, stderr) = refused(&cluster, args).await;
        assert!(code == 1 && stderr.contains("is a persistent znode"), "{args:?}: {stderr}");
        assert!(stderr.contains("`zlock rm /q/x-lock-000000000"), "{args:?}: {stderr}");
    }
    let script = "curl -s -X DELETE \"$ZLOCK_ENDPOINT/v1/tickets/q/x-lock-0000000000\" \
                  -H \"Zlock-Session-Key: $ZLOCK_SESSION_KEY\"";
    let problem = done(&cluster, &["session", "exec", "--", "sh", "-c", script]).await;
    assert!(problem.contains("not-owner") && problem.contains("no ticket: no session owns it"), "{problem}");
    assert_eq!(done(&cluster, &["ls", "q"]).await.lines().count(), 2);
}

#[tokio::test]
async fn a_command_asks_as_the_user_that_it_is_given() {
    let cluster = one_node().await;
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("user");
    std::fs::write(&file, "alice:pa55word\n").unwrap();
    let file = file.to_str().unwrap();
    done(&cluster, &["create", "vault", "treasure"]).await;
    let alice = ["--user", "alice:pa55word"];
    done(&cluster, &[&["acl", "set", "vault", "auth::cdrwa"][..], &alice].concat()).await;

    let (code, stderr) = refused(&cluster, &["get", "vault"]).await;
    assert!(code == 1 && stderr.contains("ACL"), "{stderr}");
    assert_eq!(refused(&cluster, &["get", "vault", "--user", "alice:other"]).await.0, 1);
    assert_eq!(done(&cluster, &[&["get", "vault"][..], &alice].concat()).await, "treasure");
    assert_eq!(done(&cluster, &["--user-file", file, "get", "vault"]).await, "treasure");
    for (variable, value) in [("ZLOCK_USER", "alice:pa55word"), ("ZLOCK_USER_FILE", file)] {
        let mut command = zlock(&cluster, &["acl", "get", "vault"]);
        command.env(variable, value);
        let (code, stdout, stderr) = run(command).await;
        assert!(code == 0 && stdout.starts_with("digest:alice:") && stdout.ends_with(":cdrwa\n"), "{stdout}{stderr}");
    }
    let config = dir.path().join("client.toml");
    std::fs::write(&config, format!("endpoints = [\"{}\"]\nuser_file = \"{file}\"", cluster.endpoint(1))).unwrap();
    let named = ["--client-config", config.to_str().unwrap()];
    assert_eq!(done(&cluster, &[&["get", "vault"][..], &named].concat()).await, "treasure");
    let wrong = [&["get", "vault"][..], &alice, &["--user-file", file]].concat();
    assert_eq!(refused(&cluster, &wrong).await.0, 2);
    let (_, stderr) = refused(&cluster, &["get", "vault", "--user", "pa55word"]).await;
    assert!(stderr.contains("NAME:PASSWORD") && !stderr.contains("pa55word"), "{stderr}");
}

#[tokio::test]
async fn quotas_and_acls_are_shown_and_set() {
    let cluster = one_node().await;
    assert_eq!(refused(&cluster, &["quota", "get", "team"]).await.0, 1);
    done(&cluster, &["create", "team", "1234"]).await;
    done(&cluster, &["quota", "set", "team", "--count", "3", "--soft-bytes", "100"]).await;
    let said = done(&cluster, &["quota", "set", "team", "--bytes", "9", "--json"]).await;
    let expected = r#"{"path":"/team","count":{"used":1,"hard":3,"soft":null},"bytes":{"used":4,"hard":9,"soft":100}}"#;
    assert_eq!(said.trim(), expected, "what is not named stays");
    assert_eq!(done(&cluster, &["quota", "get", "team", "--json"]).await.trim(), expected);
    let table = done(&cluster, &["quota", "get", "team"]).await;
    assert!(table.contains("znodes  1     3        -"), "{table}");
    let (code, stderr) = refused(&cluster, &["set", "team", "1234567890"]).await;
    assert!(code == 1 && stderr.contains("/team"), "{stderr}");
    assert_eq!(done(&cluster, &["quota", "rm", "team", "--json"]).await, "{\"removed\":\"/team\"}\n");
    done(&cluster, &["set", "team", "1234567890"]).await;
    assert_eq!(done(&cluster, &["ls", "zookeeper/quota"]).await, "", "nothing is left behind");
    assert_eq!(refused(&cluster, &["quota", "rm", "team"]).await.0, 1);
    assert_eq!(refused(&cluster, &["quota", "set", "/", "--count", "1"]).await.0, 1);
    assert_eq!(refused(&cluster, &["quota", "set", "team"]).await.0, 2);

    assert_eq!(done(&cluster, &["acl", "get", "team"]).await, "world:anyone:cdrwa\n");
    let set =
        done(&cluster, &["acl", "set", "team", "world:anyone:ra", "auth::cdrwa", "--user", "a:b", "--json"]).await;
    assert!(set.contains("\"aversion\":1"), "{set}");
    let shown = done(&cluster, &["acl", "get", "team", "--json"]).await;
    assert!(shown.contains("\"scheme\":\"digest\"") && shown.contains("\"perms\":\"ra\""), "{shown}");
    assert_eq!(refused(&cluster, &["acl", "set", "team", "world:anyone"]).await.0, 2);
}

#[tokio::test]
async fn a_slash_at_the_end_of_a_path_is_refused_as_over_http() {
    let cluster = one_node().await;
    for args in [&["create", "a/"][..], &["ls", "a/"], &["break", "a/", "--yes"], &["lock", "a/", "--", "true"]] {
        let (code, _, told) = run(zlock(&cluster, args)).await;
        assert!(code != 0 && told.contains("ends with a slash"), "{args:?}: {code} {told}");
    }
    assert_eq!(run(zlock(&cluster, &["ls", "/"])).await.0, 0);
}

#[tokio::test]
async fn queues_are_shown_again_when_they_change() {
    let cluster = one_node().await;
    let client = Client::builder(cluster.endpoints()).build().unwrap();
    let mut watch = zlock(&cluster, &["locks", "--watch", "--json", "--count", "3"]);
    let mut watch = watch.stdout(Stdio::piped()).spawn().unwrap();
    let (tell, mut lines) = tokio::sync::mpsc::unbounded_channel();
    let stdout = BufReader::new(watch.stdout.take().unwrap());
    std::thread::spawn(move || stdout.lines().try_for_each(|line| tell.send(line.unwrap())));
    let mut next = async || lines.recv().await.unwrap();
    assert_eq!(next().await, "[]");
    let guard = client.lock("/team/x").label("first").acquire().await.unwrap();
    let line = next().await;
    assert!(line.contains("\"path\":\"/team/x\"") && line.contains("first"), "{line}");
    guard.release().await.unwrap();
    assert_eq!(next().await, "[]");
    assert!(until("it ends by itself", async || watch.try_wait().unwrap()).await.success());

    let mut forever = zlock(&cluster, &["locks", "--watch"]);
    let mut forever = forever.stdout(Stdio::null()).spawn().unwrap();
    kill(forever.id(), Signal::INT);
    until("it ends when it is interrupted", async || forever.try_wait().unwrap()).await;
}

#[tokio::test]
async fn a_session_is_kept_behind_its_command_and_quiet_is_quiet() {
    let cluster = one_node().await;
    let client = Client::builder(cluster.endpoints()).build().unwrap();
    let ends = async |options: &[&str]| {
        let exec = [&["session", "exec", "--label", "kept"], options, &["--", "sh", "-c", "exit 7"]].concat();
        run(zlock(&cluster, &exec)).await
    };
    assert_eq!(ends(&["--quiet", "--session-timeout", "10m"]).await, (7, String::new(), String::new()));
    let began = std::time::Instant::now();
    assert_eq!(ends(&["--hold-at-least", "1s"]).await.0, 7);
    assert!(began.elapsed().as_secs() >= 1, "it is kept");
    assert!(client.sessions().await.unwrap().iter().all(|session| session.label != "kept"), "and closed then");

    // The command ends at once, and the program keeps the session open until a signal comes.
    let mut kept = zlock(&cluster, &["session", "exec", "--label", "kept", "--hold-at-least", "1h", "--", "true"]);
    let mut kept = kept.spawn().unwrap();
    until("it has its session", async || {
        client.sessions().await.unwrap().iter().find(|session| session.label == "kept").map(|_| ())
    })
    .await;
    kill(kept.id(), Signal::TERM);
    until("a signal ends the wait", async || kept.try_wait().unwrap()).await;
}

#[tokio::test]
async fn a_script_has_a_session_for_as_long_as_it_runs() {
    let mut cluster = Cluster::start().await;
    let client = Client::builder(cluster.endpoints()).build().unwrap();
    // curl uses the session, as a script would.
    let script = "curl -sf -X POST \"$ZLOCK_ENDPOINT/v1/locks/team/x\" \
                  -H \"Zlock-Session-Key: $ZLOCK_SESSION_KEY\" >/dev/null || exit 9; \
                  echo \"$ZLOCK_SESSION_KEY $ZLOCK_ENDPOINT $ZLOCK_ENDPOINTS\"; read line; exit 7";
    let exec = ["session", "exec", "--session-timeout", "5s", "--label", "nightly", "--", "sh", "-c", script];
    let mut running = zlock(&cluster, &exec);
    let mut running = running.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut said = String::new();
    let mut stdout = BufReader::new(running.stdout.take().unwrap());
    let said = tokio::task::spawn_blocking(move || stdout.read_line(&mut said).map(|_| said)).await.unwrap().unwrap();
    let words: Vec<&str> = said.split_whitespace().collect();
    let id: u64 = words[0].split('.').next().unwrap().parse().unwrap();
    assert!(cluster.endpoints().iter().any(|endpoint| words[1] == format!("http://{endpoint}")), "{said}");
    assert_eq!(words[2], cluster.endpoints().join(","));
    let session = client.session_info(id).await.unwrap();
    assert_eq!((session.label.as_str(), session.ephemeral_count), ("nightly", 1));
    drop(running.stdin.take());
    let ended = until("the command has ended", async || running.try_wait().unwrap()).await;
    assert_eq!(ended.code(), Some(7), "its exit code is passed on");
    assert_eq!(client.lock_queue("/team/x").await.unwrap().contenders, 0, "the session is closed, and its lock free");
    assert_eq!(run(zlock(&cluster, &["session", "exec", "--", "/no/such/program"])).await.0, 127);
    let (code, _, stderr) = run(zlock(&cluster, &["session", "exec", "--json", "--", "true"])).await;
    let opened: serde_json::Value = serde_json::from_str(&stderr).unwrap();
    assert!(code == 0 && opened["session"].is_u64() && opened["timeout_ms"] == 10_000, "{stderr}");

    let script = ["sh", "-c", "echo runs; exec sleep 1000"];
    let mut lost = zlock(&cluster, &[&["session", "exec", "--session-timeout", "4s", "--"][..], &script].concat());
    let mut lost = lost.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut stdout = BufReader::new(lost.stdout.take().unwrap());
    tokio::task::spawn_blocking(move || stdout.read_line(&mut String::new())).await.unwrap().unwrap();
    let leader = cluster.leader().await;
    cluster.kill(leader);
    cluster.kill(leader % 3 + 1);
    let ended = until("the command is ended", async || lost.try_wait().unwrap()).await;
    assert_eq!(ended.code(), Some(121));
    let mut stderr = String::new();
    std::io::Read::read_to_string(&mut lost.stderr.take().unwrap(), &mut stderr).unwrap();
    assert!(stderr.contains("was lost") && stderr.contains("and the command was ended"), "{stderr}");
}
