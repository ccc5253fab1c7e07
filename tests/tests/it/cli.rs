//! The commands of `zlock` for clients, run as the real program against real nodes. In some tests
//! `zlock lock` is killed, paused or cut off.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use rustix::process::Signal;
use zlock_client::Client;

use crate::harness::{Cluster, PROGRAM, kill, until};

/// Session timeout for tests that wait for the session's expiry. Long enough for a machine that is
/// busy with other tests.
pub(crate) const SHORT: &str = "5s";
/// Session timeout for tests in which no session may expire.
pub(crate) const LONG: &str = "60s";

/// Returns a `zlock` command line with these arguments, and the addresses of the cluster in its
/// environment.
pub(crate) fn zlock(cluster: &Cluster, args: &[&str]) -> Command {
    let mut command = Command::new(PROGRAM);
    command.env("ZLOCK_ENDPOINTS", cluster.endpoints().join(",")).args(args).stdin(Stdio::null());
    command
}

/// Runs a command to its end. Returns exit code, stdout and stderr.
pub(crate) async fn run(mut command: Command) -> (i32, String, String) {
    let Output { status, stdout, stderr } =
        tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (status.code().unwrap(), text(stdout), text(stderr))
}

pub(crate) async fn done(cluster: &Cluster, args: &[&str]) -> String {
    let (code, stdout, stderr) = run(zlock(cluster, args)).await;
    assert_eq!(code, 0, "{args:?}: {stderr}");
    stdout
}

/// Shell script with a child of its own, which writes both process ids to a file.
pub(crate) const WITH_CHILD: &str = "sleep 1000 & echo $$ $! > \"$0.new\"; mv \"$0.new\" \"$0\"; wait";

/// `zlock lock` with a command that has a child of its own and runs longer than any test.
pub(crate) struct Locked {
    pub(crate) cli: Child,
    /// Process ids that the command's script wrote: by default of the command and its child.
    pub(crate) command: Vec<u32>,
    pub(crate) watchdog: u32,
    _dir: tempfile::TempDir,
}

impl Locked {
    pub(crate) async fn start(cluster: &Cluster, session_timeout: &str, args: &[&str]) -> Locked {
        Locked::start_script(cluster, session_timeout, args, WITH_CHILD).await
    }

    /// Starts `zlock lock` with `script` as its command. The script must write process ids to the
    /// file that `$0` names, its own id first.
    pub(crate) async fn start_script(cluster: &Cluster, session_timeout: &str, args: &[&str], script: &str) -> Locked {
        let mut lock = vec!["lock", "/l", "--session-timeout", session_timeout];
        lock.extend(args);
        Locked::start_as(zlock(cluster, &lock), script).await
    }

    /// Starts the command line `zlock`, to which it appends a shell that runs `script` as the
    /// command under the lock.
    pub(crate) async fn start_as(mut zlock: Command, script: &str) -> Locked {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("pids");
        zlock.args(["--", "sh", "-c", script, file.to_str().unwrap()]);
        let cli = zlock.stderr(Stdio::piped()).spawn().unwrap();
        let command = until("the command runs", async || pids(&file)).await;
        let watchdog = parent(command[0]).unwrap();
        assert_eq!(parent(watchdog), Some(cli.id()));
        Locked { cli, command, watchdog, _dir: dir }
    }

    pub(crate) fn runs(&self) -> bool {
        self.command.iter().any(|pid| parent(*pid).is_some())
    }

    pub(crate) async fn exit(&mut self) -> i32 {
        until("zlock lock has ended", async || self.cli.try_wait().unwrap()).await.code().unwrap()
    }
}

impl Drop for Locked {
    fn drop(&mut self) {
        // A failed test leaves no process behind.
        for pid in self.command.iter().chain([&self.watchdog]).filter(|pid| parent(**pid).is_some()) {
            kill(*pid, Signal::KILL);
        }
        let _ = self.cli.kill();
        let _ = self.cli.wait();
    }
}

fn pids(file: &Path) -> Option<Vec<u32>> {
    let text = std::fs::read_to_string(file).ok()?;
    Some(text.split_whitespace().map(|pid| pid.parse().unwrap()).collect())
}

/// Process id of a living process's parent; `None` if the process has ended.
pub(crate) fn parent(pid: u32) -> Option<u32> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, fields) = stat.rsplit_once(") ")?;
    let mut fields = fields.split(' ');
    let state = fields.next()?;
    fields.next()?.parse().ok().filter(|_| state != "Z")
}

/// Waits until another client gets the lock, and checks at that moment that the command has ended.
async fn granted_after_the_end_of(locked: &Locked, cluster: &Cluster) {
    let client = Client::builder(cluster.endpoints()).poll_time(Duration::from_secs(2)).build().unwrap();
    let guard = client.lock("/l").acquire().await.unwrap();
    assert!(!locked.runs(), "another holds the lock while the command runs");
    guard.release().await.unwrap();
}

#[tokio::test]
async fn znodes_are_made_read_changed_and_removed() {
    let cluster = Cluster::start().await;
    assert_eq!(done(&cluster, &["create", "-p", "app/conf/a", "hello"]).await, "/app/conf/a\n");
    assert_eq!(done(&cluster, &["get", "/app/conf/a"]).await, "hello");
    done(&cluster, &["set", "/app/conf/a", "bye", "--if-version", "0"]).await;
    assert_eq!(done(&cluster, &["ls", "app"]).await, "conf\n");
    assert_eq!(done(&cluster, &["ls", "app/conf", "--json"]).await, "[\"a\"]\n");
    assert_eq!(done(&cluster, &["tree", "app"]).await, "/app\n  conf\n    a  (3 bytes)\n");
    assert!(done(&cluster, &["stat", "app/conf/a"]).await.contains("version         1\n"));
    let events = done(&cluster, &["watch", "/app", "--since", "1", "--count", "2", "--json"]).await;
    assert!(events.lines().all(|line| line.contains("created\",\"path\":\"/app")), "{events}");

    // The variable of a script may be empty, which names the root. A recursive delete begins with
    // the last name, so `zzz` would be the first znode to go.
    done(&cluster, &["create", "zzz"]).await;
    for args in [&["rm", "-r", ""][..], &["rm", "-r", "/"], &["rm", "/"]] {
        let (code, _, stderr) = run(zlock(&cluster, args)).await;
        assert_eq!((code, stderr.contains("the root cannot be deleted")), (1, true), "{args:?}: {stderr}");
        assert_eq!(run(zlock(&cluster, &["get", "zzz"])).await.0, 0, "{args:?}");
    }
    let (code, stdout, stderr) = run(zlock(&cluster, &["rm", "app"])).await;
    assert_eq!((code, stdout.as_str()), (1, ""));
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
    assert!(stderr.contains("--recursive"), "it says what to do: {stderr}");
    assert_eq!(done(&cluster, &["rm", "-r", "app", "--json"]).await, "{\"removed\":3}\n");
    assert_eq!(run(zlock(&cluster, &["get", "app"])).await.0, 1);
    assert_eq!(run(zlock(&cluster, &["get"])).await.0, 2);
}

#[tokio::test]
async fn endpoints_come_from_the_flag_the_variable_or_a_file() {
    let mut cluster = Cluster::start().await;
    let dir = tempfile::tempdir().unwrap();
    let file: PathBuf = dir.path().join("client.toml");
    std::fs::write(&file, format!("endpoints = [\"http://{}\"]", cluster.endpoint(2))).unwrap();
    let status = |args: &[&str]| {
        let mut command = zlock(&cluster, &["status", "--json"]);
        command.env_remove("ZLOCK_ENDPOINTS").args(args);
        command
    };
    let (_, stdout, _) = run(status(&["--client-config", file.to_str().unwrap()])).await;
    assert!(stdout.contains("\"node_id\":2") && !stdout.contains("\"node_id\":1,"), "{stdout}");
    let (_, stdout, _) = run(status(&["--endpoints", cluster.endpoint(3)])).await;
    assert!(stdout.contains("\"node_id\":3"), "{stdout}");
    // To the program, as to the Rust client, an empty variable counts as missing.
    let names = ["ENDPOINTS", "ADMIN_SOCKET", "CLIENT_CONFIG", "CA", "CERTIFICATE", "KEY", "USER", "USER_FILE"];
    let home = dir.path().join("home/zlock");
    std::fs::create_dir_all(&home).unwrap();
    std::fs::copy(&file, home.join("client.toml")).unwrap();
    let mut command = status(&[]);
    command.envs(names.map(|name| (format!("ZLOCK_{name}"), ""))).env("XDG_CONFIG_HOME", dir.path().join("home"));
    let (_, stdout, stderr) = run(command).await;
    assert!(stdout.contains("\"node_id\":2"), "{stdout}{stderr}");
    // A busy machine may lose its quorum for a moment.
    until("status says that it serves", async || (run(zlock(&cluster, &["status"])).await.0 == 0).then_some(())).await;
    std::fs::write(&file, "endpoint = []").unwrap();
    let (code, _, stderr) = run(status(&["--client-config", file.to_str().unwrap()])).await;
    assert!(code == 1 && stderr.contains("endpoint") && stderr.lines().count() == 1, "{stderr}");

    for id in cluster.ids() {
        cluster.kill(id);
    }
    let (code, _, stderr) = run(zlock(&cluster, &["status"])).await;
    assert!(code == 3 && stderr.starts_with("zlock: no node of "), "{stderr}");
    let (code, _, stderr) = run(zlock(&cluster, &["ls", "--timeout", "500ms"])).await;
    assert!(code == 3 && stderr.contains("--endpoints"), "{stderr}");
}

#[tokio::test]
async fn a_command_finds_its_token_and_its_exit_code_and_signals_pass_through() {
    let cluster = Cluster::start().await;
    let script = "echo $ZLOCK_LOCK $ZLOCK_TICKET $ZLOCK_FENCING_TOKEN; cat; exit 7";
    let mut command = zlock(&cluster, &["lock", "l", "--", "sh", "-c", script]);
    command.stdin(std::fs::File::open("/proc/version").unwrap());
    let (code, stdout, stderr) = run(command).await;
    assert_eq!(code, 7, "{stderr}");
    let words: Vec<&str> = stdout.split_whitespace().collect();
    assert!(words[0] == "/l" && words[1].starts_with("/l/0000000000_") && words[2].parse::<u64>().is_ok(), "{stdout}");
    assert_eq!(words[3], "Linux", "stdin is passed on");
    assert_eq!(run(zlock(&cluster, &["lock", "l", "--", "/no/such/program"])).await.0, 127);
    assert_eq!(run(zlock(&cluster, &["lock", "l", "--", "sh", "-c", "kill -9 $$"])).await.0, 137);

    let mut locked = Locked::start(&cluster, LONG, &[]).await;
    assert_eq!(run(zlock(&cluster, &["lock", "l", "--wait", "100ms", "--", "true"])).await.0, 124);
    let locks = done(&cluster, &["locks"]).await;
    assert!(locks.contains("/l ") && locks.contains("holds"), "{locks}");
    // Waiting clients see the holder's program, and so know where to ask.
    let client = format!(", pid {}, zlock", locked.cli.id());
    assert!(locks.contains(&client), "{locks}");
    assert!(done(&cluster, &["sessions"]).await.contains(&client));
    assert!(done(&cluster, &["revoke", "l"]).await.starts_with("asked /l/0"));
    done(&cluster, &["create", "none"]).await;
    for args in [["break", "none", "--yes"], ["break", "none/x", "--yes"]] {
        let (code, _, stderr) = run(zlock(&cluster, &args)).await;
        assert!(
            code == 1 && stderr.starts_with("zlock: /none") && stderr.contains(" has no holder"),
            "{args:?}: {code}: {stderr}"
        );
    }
    for (json, said) in [(&[][..], ""), (&["--json"], "{\"tickets\":[],")] {
        let (code, stdout, stderr) = run(zlock(&cluster, &[&["revoke", "none"], json].concat())).await;
        assert!(code == 1 && stderr.contains("/none has no holder"), "{code}: {stderr}");
        assert!(stdout.starts_with(said) && stdout.is_empty() == json.is_empty(), "{stdout}");
    }
    let (code, _, stderr) = run(zlock(&cluster, &["revoke", "never"])).await;
    assert!(code == 1 && stderr.starts_with("zlock: /never has no holder"), "no znode is there: {code}: {stderr}");
    assert!(done(&cluster, &["locks", "l", "--history"]).await.contains("exclusive"));
    // A waiting program that is told to end leaves the queue.
    let mut waiting = zlock(&cluster, &["lock", "l", "--", "true"]).spawn().unwrap();
    until("it waits", async || done(&cluster, &["locks"]).await.contains("waits").then_some(())).await;
    kill(waiting.id(), Signal::TERM);
    assert_eq!(until("it has ended", async || waiting.try_wait().unwrap()).await.code(), Some(143));
    until("it has left", async || (!done(&cluster, &["locks"]).await.contains("waits")).then_some(())).await;

    kill(locked.cli.id(), Signal::TERM);
    assert_eq!(locked.exit().await, 143);
    assert!(!locked.runs());
    assert_eq!(run(zlock(&cluster, &["lock", "l", "--wait", "0", "--", "true"])).await.0, 0, "it is free at once");
}

#[tokio::test]
async fn a_paused_cli_holds_no_lock_for_a_command_that_still_runs() {
    let cluster = Cluster::start().await;
    let mut locked = Locked::start(&cluster, SHORT, &[]).await;
    kill(locked.cli.id(), Signal::STOP);
    granted_after_the_end_of(&locked, &cluster).await;
    kill(locked.cli.id(), Signal::CONT);
    assert_eq!(locked.exit().await, 121);
}

#[tokio::test]
async fn a_killed_cli_takes_its_command_along() {
    let cluster = Cluster::start().await;
    let mut locked = Locked::start(&cluster, SHORT, &["--on-loss", "kill"]).await;
    locked.cli.kill().unwrap();
    granted_after_the_end_of(&locked, &cluster).await;
}

#[tokio::test]
async fn a_watchdog_that_is_paused_or_killed_is_replaced_by_the_cli() {
    let cluster = Cluster::start().await;
    let mut locked = Locked::start(&cluster, SHORT, &[]).await;
    kill(locked.watchdog, Signal::KILL);
    assert_eq!(locked.exit().await, 121);
    granted_after_the_end_of(&locked, &cluster).await;

    let mut cluster = cluster;
    let mut locked = Locked::start(&cluster, SHORT, &[]).await;
    kill(locked.watchdog, Signal::STOP);
    let leader = cluster.leader().await;
    cluster.kill(leader);
    cluster.kill(leader % 3 + 1);
    assert_eq!(locked.exit().await, 121);
    assert!(!locked.runs());
}

#[tokio::test]
async fn a_command_is_ended_when_the_cluster_is_away_or_the_lock_is_taken() {
    let mut cluster = Cluster::start().await;
    let mut locked = Locked::start(&cluster, LONG, &[]).await;
    assert!(done(&cluster, &["break", "l", "--yes"]).await.starts_with("broke /l/0"));
    assert_eq!(locked.exit().await, 121);
    assert!(!locked.runs());

    let mut locked = Locked::start(&cluster, SHORT, &[]).await;
    let leader = cluster.leader().await;
    cluster.kill(leader);
    cluster.kill(leader % 3 + 1);
    assert_eq!(locked.exit().await, 121);
    assert!(!locked.runs());
}

#[tokio::test]
async fn with_warn_a_command_outlives_its_lock() {
    let cluster = Cluster::start().await;
    let mut locked = Locked::start(&cluster, LONG, &["--on-loss", "warn"]).await;
    done(&cluster, &["break", "l", "--yes"]).await;
    let client = Client::builder(cluster.endpoints()).build().unwrap();
    let guard = client.lock("/l").acquire().await.unwrap();
    assert!(locked.runs());
    kill(locked.cli.id(), Signal::TERM);
    assert_eq!(locked.exit().await, 143);
    guard.release().await.unwrap();
}

#[tokio::test]
async fn commands_run_under_permits_and_as_leaders() {
    let cluster = Cluster::start().await;
    let client = Client::builder(cluster.endpoints()).build().unwrap();
    let permit = client.semaphore("/s", 2).acquire().await.unwrap();
    let script = ["--", "sh", "-c", "echo $ZLOCK_LOCK; exit 5"];
    let semaphore = |limit: &str| {
        let args = ["semaphore", "s", "--permits-max", limit, "--wait", "0", "--quiet"];
        zlock(&cluster, &[&args[..], &script[..]].concat())
    };
    assert_eq!(run(semaphore("2")).await, (5, "/s\n".into(), String::new()));
    let (code, _, stderr) = run(semaphore("3")).await;
    assert!(code == 125 && stderr.lines().count() == 1, "{stderr}");
    let second = client.semaphore("/s", 2).acquire().await.unwrap();
    assert_eq!(run(semaphore("2")).await.0, 124);
    drop((permit, second));

    let leads = client.election("/e").campaign("first").await.unwrap();
    let elect = |wait: &str| zlock(&cluster, &[&["elect", "e", "--wait", wait][..], &script[..]].concat());
    assert_eq!(run(elect("100ms")).await.0, 124);
    assert_eq!(run(elect("0")).await.0, 124);
    leads.resign().await.unwrap();
    assert_eq!(run(elect("0")).await.0, 5, "a try leads where nobody does");
    assert_eq!(run(elect("30s")).await.0, 5);
}

#[tokio::test]
async fn what_runs_a_command_fails_with_a_code_of_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("client.toml");
    std::fs::write(&file, "endpoint = []").unwrap();
    for args in [&["lock", "l"][..], &["semaphore", "l", "--permits-max", "1"], &["elect", "l"]] {
        let with = |more: &[&str]| {
            let mut command = Command::new(PROGRAM);
            command.args(args).args(more).args(["--", "true"]).stdin(Stdio::null());
            command
        };
        let (code, _, stderr) = run(with(&["--client-config", file.to_str().unwrap()])).await;
        assert!(
            code == 125 && stderr.contains("endpoint") && stderr.lines().count() == 1,
            "{args:?}: {code}: {stderr}"
        );
        // No node listens there. The program reports that, however short the wait, and not a lock
        // that others hold.
        for wait in [&[][..], &["--wait", "0"], &["--wait", "10ms"]] {
            let nobody = ["--endpoints", "127.0.0.1:1", "--timeout", "100ms"];
            let (code, _, stderr) = run(with(&[&nobody[..], wait].concat())).await;
            assert!(code == 125 && stderr.starts_with("zlock: nothing was done"), "{args:?}: {code}: {stderr}");
        }
        let (code, _, stderr) = run(with(&["--wiat", "1s"])).await;
        assert!(code == 2 && stderr.contains("--wiat"), "{args:?}: {code}: {stderr}");
    }
}

#[tokio::test]
async fn completions_and_man_pages_name_every_command() {
    let dir = tempfile::tempdir().unwrap();
    let zlock = |args: &[&str]| {
        let mut command = Command::new(PROGRAM);
        command.args(args);
        command
    };
    let (code, completions, _) = run(zlock(&["completions", "bash"])).await;
    assert!(code == 0 && ["lock", "locks", "watch"].iter().all(|name| completions.contains(name)));
    assert!(!completions.contains("internal-watchdog"));
    assert_eq!(run(zlock(&["man", dir.path().to_str().unwrap()])).await.0, 0);
    let page = std::fs::read_to_string(dir.path().join("zlock-lock.1")).unwrap();
    assert!(page.contains("on\\-loss"), "{page}");
    let (_, help, _) = run(zlock(&["settings", "--help"])).await;
    assert!(help.starts_with("Shows the settings of a lock, or changes them."), "{help}");
    assert!(help.contains("Without an option the command shows the settings."), "{help}");
}
