//! `zlock lock` and its watchdog: what ends the one or the other, and what becomes of the command and the lock.

use rustix::process::Signal;

use crate::cli::{LONG, Locked, run, zlock};
use crate::harness::{Cluster, kill};

#[tokio::test]
async fn a_lost_lock_with_a_delay_is_not_given_back() {
    let cluster = Cluster::start().await;
    let mut locked = Locked::start(&cluster, LONG, &["--lock-delay", "60s"]).await;
    kill(locked.watchdog, Signal::KILL);
    assert_eq!(locked.exit().await, 121);
    assert!(!locked.runs());
    let (code, _, stderr) = run(zlock(&cluster, &["lock", "l", "--wait", "0", "--", "true"])).await;
    assert_eq!(code, 124, "it is nobody's before the session has expired and the delay is over: {stderr}");
}
