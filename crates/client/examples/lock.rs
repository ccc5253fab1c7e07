//! Takes a lock, works while it is certainly held, and releases it.
//!
//! `zlock dev` in one terminal, then twice: `cargo run -p zlock-client --example lock localhost:7001 localhost:7002`

use std::time::Duration;

use zlock_client::{Client, Error};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    let client = Client::builder(endpoints()).session_timeout(Duration::from_secs(10)).label("example").build()?;
    println!("waiting for /example/lock");
    let guard = client.lock("/example/lock").label("the example").acquire().await?;
    println!("held with fencing token {}, safe for {:?}", guard.fencing_token(), guard.safe_for());
    tokio::select! {
        () = work() => println!("done"),
        // Stop at once: from now on somebody else may hold the lock.
        () = guard.lost() => println!("lost the lock in the middle of the work"),
        _ = guard.revoked() => println!("somebody asks for the lock, so this one stops early"),
    }
    println!("released, {} holds left", guard.release().await?);
    client.close().await
}

async fn work() {
    tokio::time::sleep(Duration::from_secs(3)).await;
}

fn endpoints() -> Vec<String> {
    let given: Vec<String> = std::env::args().skip(1).collect();
    if given.is_empty() { vec!["localhost:7001".into()] } else { given }
}
