//! Takes a lock, works while it is held, and releases it. Work that is under way when the lock is
//! lost is dropped.
//!
//! Start `zlock dev` in one terminal, and in two others: `cargo run -p zlock-client --example lock
//! localhost:7001 localhost:7002`

use std::time::Duration;

use zlock_client::{Client, WithError};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), WithError> {
    let given: Vec<String> = std::env::args().skip(1).collect();
    run(if given.is_empty() { vec!["localhost:7001".into()] } else { given }).await
}

pub(crate) async fn run(endpoints: Vec<String>) -> Result<(), WithError> {
    let client = Client::builder(endpoints).session_timeout(Duration::from_secs(10)).label("example").build()?;
    println!("waiting for /example/lock");
    let lock = client.lock("/example/lock").label("the example");
    let done = lock.with(async |guard| {
        println!("held with fencing token {}, safe for {:?}", guard.fencing_token(), guard.safe_for());
        tokio::select! {
            done = work() => done,
            _ = guard.revoked() => "another client asks for the lock, so this one stops early",
        }
    });
    match done.await {
        Ok(done) => println!("{done}"),
        // From now on another client may hold the lock.
        Err(WithError::Lost(why)) => println!("lost the lock in the middle of the work: {why}"),
        Err(error) => return Err(error),
    }
    client.close().await?;
    Ok(())
}

async fn work() -> &'static str {
    tokio::time::sleep(Duration::from_secs(1)).await;
    "done"
}
