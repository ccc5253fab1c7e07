//! Hostile traffic at the peer ports of nodes that require TLS of each other.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::Instant;

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

/// Makes the first message of a TLS 1.3 handshake (RFC 8446, section 4.1.2), with the group x25519.
fn client_hello() -> Vec<u8> {
    let extension = |number: u16, body: &[u8]| [&number.to_be_bytes(), &sized(body)[..]].concat();
    let key = [9; 32];
    let share = sized(&[&29_u16.to_be_bytes(), &sized(&key)[..]].concat());
    let algorithms: Vec<u8> =
        [0x0403_u16, 0x0503, 0x0804, 0x0805, 0x0807].iter().flat_map(|n| n.to_be_bytes()).collect();
    let extensions = [
        // supported_groups, signature_algorithms, supported_versions and key_share.
        extension(10, &sized(&29_u16.to_be_bytes())),
        extension(13, &sized(&algorithms)),
        extension(43, &[2, 3, 4]),
        extension(51, &share),
    ]
    .concat();
    let random = [7; 32];
    // The suite is TLS_AES_128_GCM_SHA256; there is no session id and no compression.
    let body = [&[3, 3], &random[..], &[0, 0, 2, 0x13, 0x01, 1, 0], &sized(&extensions)].concat();
    let message = [&[1, 0], &sized(&body)[..]].concat();
    [&[22, 3, 1], &sized(&message)[..]].concat()
}

/// Returns `bytes` behind their number in two bytes.
fn sized(bytes: &[u8]) -> Vec<u8> {
    let count = u16::try_from(bytes.len()).unwrap_or(u16::MAX);
    [&count.to_be_bytes(), bytes].concat()
}
