//! Three nodes on loopback, started with the `zlock` program that lies beside this one.

use std::io;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, Instant};

use tempfile::TempDir;
use tokio::process::{Child, Command};

/// A running `zlock dev`, ended on drop.
pub(crate) struct Cluster {
    /// `host:port` of every node.
    pub(crate) endpoints: Vec<String>,
    _dev: Child,
    _data: TempDir,
}

impl Cluster {
    /// Starts it and waits until every node is ready.
    pub(crate) async fn start() -> io::Result<Cluster> {
        let data = tempfile::tempdir()?;
        let base_port = free_port_range()?;
        let dev = Command::new(zlock()?)
            .args(["dev", "--nodes", "3", "--base-port", &base_port.to_string(), "--data"])
            .arg(data.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()?;
        let endpoints: Vec<String> = (0..3).map(|node| format!("127.0.0.1:{}", base_port + node)).collect();
        let cluster = Cluster { endpoints, _dev: dev, _data: data };
        cluster.wait_until_ready(Instant::now() + Duration::from_secs(30)).await?;
        Ok(cluster)
    }

    async fn wait_until_ready(&self, deadline: Instant) -> io::Result<()> {
        for endpoint in &self.endpoints {
            while !is_ready(endpoint).await {
                if Instant::now() > deadline {
                    return Err(io::Error::new(io::ErrorKind::TimedOut, format!("{endpoint} did not become ready")));
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
        Ok(())
    }
}

async fn is_ready(endpoint: &str) -> bool {
    match crate::http::Connection::open(endpoint).await {
        Ok(mut connection) => connection.send(hyper::Method::GET, "/readyz", bytes::Bytes::new()).await.is_ok(),
        Err(_) => false,
    }
}

/// The program `zlock` of the same build.
fn zlock() -> io::Result<PathBuf> {
    let beside = std::env::current_exe()?.with_file_name("zlock");
    if beside.exists() {
        return Ok(beside);
    }
    let message = format!("{} is missing: run `cargo build --release` first, or name --endpoints", beside.display());
    Err(io::Error::new(io::ErrorKind::NotFound, message))
}

/// A base port whose neighbours are free just now.
fn free_port_range() -> io::Result<u16> {
    let port = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
    Ok(if port > 65_000 { port - 1_000 } else { port })
}
