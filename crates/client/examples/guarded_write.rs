//! Writes that the state machine applies only while a lock is held (`if_lock`). So a write is
//! refused if this program was paused before the write and lost the lock meanwhile.
//!
//! Start `zlock dev` in one terminal, and in another: `cargo run -p zlock-client --example
//! guarded_write localhost:7001`

use zlock_client::{Client, Error, ProblemType};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    let given: Vec<String> = std::env::args().skip(1).collect();
    run(if given.is_empty() { vec!["localhost:7001".into()] } else { given }).await
}

pub(crate) async fn run(endpoints: Vec<String>) -> Result<(), Error> {
    let client = Client::connect(endpoints).await?;
    match client.create("/example-state", "new").await {
        Ok(_) => {}
        Err(error) if error.code() == Some(ProblemType::NodeExists) => {}
        Err(error) => return Err(error),
    }
    let guard = client.lock("/example-lock").acquire().await?;
    let set = client.set("/example-state", "written by the holder").if_lock(&guard).await?;
    println!("written as version {}", set.stat.version);
    let late = client.set("/example-state", "too late").if_lock(&guard);
    guard.release().await?;
    match late.await {
        Err(error) if error.code() == Some(ProblemType::LockNotHeld) => println!("refused after the release: {error}"),
        other => panic!("a write without its lock was not refused: {other:?}"),
    }
    client.close().await
}
