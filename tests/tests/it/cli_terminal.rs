//! `zlock lock` on a terminal, signals that it passes on, and commands that are stopped.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::Duration;

use rustix::process::Signal;
use tokio::sync::mpsc::UnboundedReceiver;

use crate::cli::{LONG, Locked, done, parent, zlock};
use crate::harness::{Cluster, Options, PROGRAM, kill, until};

async fn one_node() -> Cluster {
    Cluster::start_with(Options { nodes: 1, ..Options::default() }).await
}

/// A shell's command line on a terminal, in which `"$ZLOCK"` is the path of `zlock`. Dropping it
/// hangs the terminal up, which ends all processes on the terminal.
struct OnTerminal {
    script: Child,
    keys: ChildStdin,
    lines: UnboundedReceiver<String>,
}

impl OnTerminal {
    fn start(cluster: &Cluster, line: &str) -> OnTerminal {
        // `script` opens a new terminal, which controls all processes on it.
        let mut script = Command::new("script");
        script.args(["--quiet", "--return", "--flush", "--command", line, "/dev/null"]);
        script.env("SHELL", "/bin/sh").env("ZLOCK", PROGRAM).env("ZLOCK_ENDPOINTS", cluster.endpoints().join(","));
        let mut script = script.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let lines = lines(script.stdout.take().unwrap());
        OnTerminal { keys: script.stdin.take().unwrap(), script, lines }
    }

    /// Waits for the first output line that contains `word`, and returns the text behind `word`.
    async fn behind(&mut self, word: &str) -> String {
        loop {
            let line = next(&mut self.lines).await;
            if let Some((_, rest)) = line.split_once(word) {
                return rest.trim().to_owned();
            }
        }
    }

    async fn exit(&mut self) -> i32 {
        until("the shell has ended", async || self.script.try_wait().unwrap()).await.code().unwrap()
    }
}

impl Drop for OnTerminal {
    fn drop(&mut self) {
        let _ = self.script.kill();
        let _ = self.script.wait();
    }
}

async fn next(lines: &mut UnboundedReceiver<String>) -> String {
    let line = tokio::time::timeout(Duration::from_secs(60), lines.recv()).await;
    line.expect("a line comes in time").expect("it is not the end")
}

fn lines(from: impl std::io::Read + Send + 'static) -> UnboundedReceiver<String> {
    let (tell, lines) = tokio::sync::mpsc::unbounded_channel();
    std::thread::spawn(move || BufReader::new(from).lines().map_while(Result::ok).try_for_each(|line| tell.send(line)));
    lines
}

#[tokio::test]
async fn a_command_in_a_pipeline_reads_from_the_terminal_and_hears_its_keys() {
    let cluster = one_node().await;
    let line = r#"echo data | "$ZLOCK" lock t -- sh -c 'read l </dev/tty; echo "read $l"; exec sleep 1000'"#;
    let mut shell = OnTerminal::start(&cluster, line);
    shell.keys.write_all(b"hello\n").unwrap();
    assert_eq!(shell.behind("read ").await, "hello");
    shell.keys.write_all(b"\x03").unwrap();
    assert_eq!(shell.exit().await, 130, "Ctrl-C ends it");
    until("the lock is free", async || done(&cluster, &["locks"]).await.is_empty().then_some(())).await;
}

#[tokio::test]
async fn a_lock_is_broken_on_a_terminal_after_a_yes() {
    let cluster = one_node().await;
    let client = zlock_client::Client::builder(cluster.endpoints()).build().unwrap();
    let guard = client.lock("/l").label("nightly").acquire().await.unwrap();
    for (keys, code) in [("\n", "1"), ("n\n", "1"), ("y\n", "0")] {
        assert!(guard.is_safe());
        let mut shell = OnTerminal::start(&cluster, r#""$ZLOCK" break l; echo "ended $?""#);
        let holder = shell.behind("/l: session ").await;
        assert!(holder.contains(" (nightly; "), "{holder}");
        shell.keys.write_all(keys.as_bytes()).unwrap();
        assert_eq!(shell.behind("ended ").await, code);
    }
    assert!(matches!(guard.lost().await, zlock_client::Loss::Deleted { .. }));
}

#[tokio::test]
async fn a_signal_goes_to_all_that_the_command_has_in_its_group_on_a_terminal_too() {
    let cluster = one_node().await;
    let line = r#""$ZLOCK" lock t -- sh -c 'sleep 1000 & echo "runs $$ $!"; wait' & echo "zlock $!"; wait $!"#;
    let mut shell = OnTerminal::start(&cluster, line);
    let zlock: u32 = shell.behind("zlock ").await.parse().unwrap();
    let runs = shell.behind("runs ").await;
    kill(zlock, Signal::TERM);
    assert_eq!(shell.exit().await, 143);
    let gone = || runs.split_whitespace().all(|pid| parent(pid.parse().unwrap()).is_none());
    until("its child has ended too", async || gone().then_some(())).await;
}

#[tokio::test]
async fn a_stopped_command_is_told_of_and_hears_what_is_to_end_it() {
    let cluster = one_node().await;
    let mut locked = Locked::start(&cluster, LONG, &[]).await;
    let mut said = lines(locked.cli.stderr.take().unwrap());
    kill(locked.command[0], Signal::STOP);
    let pid = locked.command[0];
    let line = format!("zlock: the command is stopped, and keeps the lock /l; `kill -CONT {pid}` lets it go on");
    assert_eq!(next(&mut said).await, line);
    kill(locked.cli.id(), Signal::TERM);
    assert_eq!(locked.exit().await, 143);
    assert!(!locked.runs());

    // The stopped command gets time to end in its own way, like a running one.
    let script = "trap 'exit 7' TERM; echo $$ > \"$0.new\"; mv \"$0.new\" \"$0\"; while :; do sleep 0.05; done";
    let mut locked = Locked::start_script(&cluster, LONG, &["--grace", "15s"], script).await;
    let mut said = lines(locked.cli.stderr.take().unwrap());
    kill(locked.command[0], Signal::STOP);
    assert!(next(&mut said).await.contains("the command is stopped"));
    let began = std::time::Instant::now();
    done(&cluster, &["break", "l", "--yes"]).await;
    assert_eq!(locked.exit().await, 121);
    assert!(began.elapsed().as_secs() < 10, "it is not killed after the grace");
}

#[tokio::test]
async fn signals_that_end_nothing_and_those_of_real_time_are_passed_on() {
    let cluster = one_node().await;
    let script = "trap 'echo winch' WINCH; trap 'echo cont' CONT; trap 'echo 37' 37; \
                  echo $$ > \"$0.new\"; mv \"$0.new\" \"$0\"; while :; do sleep 0.05; done";
    let mut lock = zlock(&cluster, &["lock", "/l", "--session-timeout", LONG]);
    lock.stdout(Stdio::piped());
    let mut locked = Locked::start_as(lock, script).await;
    let mut heard = lines(locked.cli.stdout.take().unwrap());
    for (signal, expected) in [("WINCH", "winch"), ("CONT", "cont"), ("37", "37")] {
        let sent = Command::new("sh").args(["-c", &format!("kill -{signal} {}", locked.cli.id())]).status().unwrap();
        assert!(sent.success());
        assert_eq!(next(&mut heard).await, expected);
    }
    kill(locked.cli.id(), Signal::TERM);
    assert_eq!(locked.exit().await, 143);
}

#[tokio::test]
async fn a_window_that_changes_its_size_ends_no_wait() {
    let cluster = one_node().await;
    let mut locked = Locked::start(&cluster, LONG, &[]).await;
    let mut waits = zlock(&cluster, &["lock", "l", "--", "true"]).spawn().unwrap();
    until("it waits", async || done(&cluster, &["locks"]).await.contains("waits").then_some(())).await;
    kill(waits.id(), Signal::WINCH);
    kill(waits.id(), Signal::CONT);
    kill(locked.cli.id(), Signal::TERM);
    locked.exit().await;
    assert_eq!(until("it has ended", async || waits.try_wait().unwrap()).await.code(), Some(0));
}

#[tokio::test]
async fn a_watchdog_tells_of_a_loss_also_with_stty_tostop() {
    let cluster = one_node().await;
    let line = r#"stty tostop; "$ZLOCK" lock t --on-loss warn --session-timeout 2s -- sh -c 'echo "watchdog $PPID"; exec sleep 1000'"#;
    let mut shell = OnTerminal::start(&cluster, line);
    let watchdog: u32 = shell.behind("watchdog ").await.parse().unwrap();
    let zlock = parent(watchdog).unwrap();
    // Without heartbeats the session expires.
    kill(zlock, Signal::STOP);
    assert!(shell.behind("the lock /t may be lost, and ").await.starts_with("the command goes on"));
    kill(zlock, Signal::CONT);
    shell.keys.write_all(b"\x03").unwrap();
    shell.exit().await;
}
