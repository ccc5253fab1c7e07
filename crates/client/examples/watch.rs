//! Prints the events at and below a path, from now on or from a zxid on, until Ctrl-C; then prints
//! how to continue.
//!
//! `cargo run -p zlock-client --example watch localhost:7001 /example [zxid]`

use zlock_client::{Client, Error, WatchKind};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    let mut args = std::env::args().skip(1);
    let endpoint = args.next().unwrap_or_else(|| "localhost:7001".into());
    let path = args.next().unwrap_or_else(|| "/".into());
    let since = args.next().and_then(|text| text.parse().ok());
    let interrupted = async {
        let _ = tokio::signal::ctrl_c().await;
    };
    run(vec![endpoint], &path, since, interrupted).await
}

pub(crate) async fn run(
    endpoints: Vec<String>,
    path: &str,
    since: Option<u64>,
    interrupted: impl Future<Output = ()>,
) -> Result<(), Error> {
    let client = Client::builder(endpoints).build()?;
    let mut watcher = client.watch(path, WatchKind::Subtree);
    if let Some(zxid) = since {
        watcher.resume_from(zxid);
    }
    watcher.start().await?;
    println!("watching {path} after zxid {:?}", watcher.position());
    tokio::pin!(interrupted);
    loop {
        tokio::select! {
            event = watcher.next() => {
                let event = event?;
                println!("{} {:?} {}", event.zxid, event.kind, event.path);
            }
            () = &mut interrupted => {
                println!("everything up to zxid {:?} was printed", watcher.position());
                return Ok(());
            }
        }
    }
}
