//! Hostile traffic at the peer ports of nodes that require TLS of each other.

use std::sync::Arc;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::Instant;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{ClientConfig, ClientConnection, RootCertStore};

use super::attack::{Tally, Target, swarm};
use crate::client::connect_from;
use crate::error::Error;

/// Number of connections to each node, just below the number of callers without a hello that a node
/// keeps. A node ends connections beyond that number before it works for them.
const CONNECTIONS: usize = 60;

/// Begins TLS handshakes. The node answers the first message of a handshake with a signature, and
/// the client needs no key for that message. Of ten connections nine then begin anew, and one stays
/// open.
pub(crate) async fn begin_handshakes(target: &Target, until: Instant, tally: &Tally) {
    let hello = &client_hello();
    swarm(CONNECTIONS * target.peers.len(), until, tally, |number| async move {
        let mut stream = connect_from(target.source(number), &target.peers[number % target.peers.len()]).await?;
        stream.write_all(hello).await?;
        tally.sent(1);
        let mut answer = [0; 16 << 10];
        // The first byte of a record with a part of the handshake is 22; that of an alert is 21.
        let read = stream.read(&mut answer).await?;
        tally.answer(read > 0 && answer[0] == 22);
        if number.is_multiple_of(10) {
            while stream.read(&mut answer).await? > 0 {}
            return Err(Error::Gone);
        }
        Ok(())
    })
    .await;
}

/// Makes the first message of a TLS handshake.
fn client_hello() -> Vec<u8> {
    let config = ClientConfig::builder().with_root_certificates(RootCertStore::empty()).with_no_client_auth();
    let server = ServerName::try_from("localhost").expect("it is a name");
    let mut hello = Vec::new();
    let mut client = ClientConnection::new(Arc::new(config), server).expect("the configuration is complete");
    client.write_tls(&mut hello).expect("a vector takes all bytes");
    hello
}
