//! ZooKeeper as Debian packs it: the JVM's own heap, log4j as packed, every transaction synced.
//!
//! Differences from ZooKeeper's defaults: no bound on the connections of one address (the default
//! of 60 is too small here), no admin server (its port would collide), and an answer to the command
//! `srvr`.

use std::fmt::Write as _;
use std::path::Path;

use testkit::Ports;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::{Plan, installed, owned};
use crate::error::Error;

const JAR: &str = "/usr/share/java/zookeeper.jar";

pub(super) fn plans(data: &Path, nodes: u16, ports: &Ports) -> Result<Vec<Plan>, Error> {
    let java = installed("java", "zookeeper")?;
    if !Path::new(JAR).exists() {
        return Err(Error::Absent(format!("{JAR} is not there: apt-get install zookeeper")));
    }
    let mut members = String::new();
    for n in 0..nodes {
        let _ = writeln!(members, "server.{}={}:{}", n + 1, ports.addr(3 * n), ports.port(3 * n + 1));
    }
    let plan = |n: u16| {
        let dir = data.join(format!("node{n}"));
        std::fs::create_dir_all(&dir)?;
        std::fs::write(dir.join("myid"), format!("{}\n", n + 1))?;
        let config = dir.join("zoo.cfg");
        let text = format!(
            "tickTime=2000\ninitLimit=10\nsyncLimit=5\ndataDir={}\nclientPort={}\nclientPortAddress=127.0.0.1\n\
             maxClientCnxns=0\nadmin.enableServer=false\n4lw.commands.whitelist=srvr\n{members}",
            dir.display(),
            ports.port(3 * n + 2)
        );
        std::fs::write(&config, text)?;
        let mut arguments = vec![format!("-Dzookeeper.log.dir={}", dir.display())];
        arguments.extend(owned(["-Dzookeeper.root.logger=INFO,ROLLINGFILE", "-cp"]));
        arguments.push(format!("/etc/zookeeper/conf:{JAR}"));
        arguments.extend(owned(["org.apache.zookeeper.server.quorum.QuorumPeerMain"]));
        arguments.push(config.display().to_string());
        Ok(Plan { program: java.clone(), arguments, rest: None, client: ports.addr(3 * n + 2) })
    };
    (0..nodes).map(plan).collect()
}

/// Returns `leader` or `follower`; `None` while the node is neither.
pub(super) async fn mode(addr: &str) -> Result<Option<String>, Error> {
    let mut stream = TcpStream::connect(addr).await?;
    stream.write_all(b"srvr").await?;
    let mut text = String::new();
    stream.read_to_string(&mut text).await?;
    Ok(text.lines().find_map(|line| line.strip_prefix("Mode: ")).map(str::to_owned))
}
