//! Rules that must hold for any input bytes. `cargo test` checks them with random bytes, and
//! `crates/jute/fuzz` searches for bytes that break them.

use jute::{ConnectRequest, ConnectResponse, Frames, Input, Record, Request};

/// Decodes the bytes as every type. Checks that every decoded value encodes and decodes to an equal
/// value. The first byte is the operation's number plus 12, as some numbers are negative. Returns
/// whether the other bytes are a valid body of a request for this operation.
pub(crate) fn decode(bytes: &[u8]) -> bool {
    let Some((op, body)) = bytes.split_first() else { return false };
    let op = i32::from(*op) - 12;
    same::<ConnectRequest>(body);
    same::<ConnectResponse>(body);
    macro_rules! records {
        ($($name:ident)*) => { $(same::<jute::$name>(body);)* };
    }
    records! {
        RequestHeader ReplyHeader Stat Acl CreateRequest CreateTtlRequest PathVersion PathWatch PathOnly SetDataRequest
        SetAclRequest ReconfigRequest PathWatcher AddWatchRequest AuthRequest SaslToken SetWatches SetWatches2 PathStat
        DataStat AclStat Names NamesStat Number ClientInfo WhoAmIResponse WatcherEvent MultiHeader
    }
    if let Ok(results) = jute::read_multi_results(&mut Input::new(body)) {
        let mut written = Vec::new();
        jute::write_multi_results(&results, &mut written);
        assert_eq!(jute::read_multi_results(&mut Input::new(&written)).as_ref(), Ok(&results));
    }
    let Ok(request) = Request::read(op, body) else { return false };
    let mut written = Vec::new();
    request.write(&mut written);
    assert_eq!(Request::read(op, &written).as_ref(), Ok(&request), "op {op}");
    assert!(written.len() <= body.len(), "op {op}: {} bytes make {}", body.len(), written.len());
    true
}

fn same<T: Record + PartialEq + std::fmt::Debug>(bytes: &[u8]) {
    let Ok(value) = T::from_bytes(bytes) else { return };
    let written = value.to_bytes();
    assert_eq!(T::from_bytes(&written).as_ref(), Ok(&value));
    assert!(written.len() <= bytes.len(), "{} bytes make {value:?}", bytes.len());
}

/// Checks that [`Frames`], fed with a stream in pieces, returns the same packets and the same error
/// as a reader of the whole stream. The first byte of `script` is the largest packet length; then
/// come the pieces, each after its length.
pub(crate) fn frames(script: &[u8]) {
    let Some((packet_max, mut rest)) = script.split_first() else { return };
    let packet_max = usize::from(*packet_max);
    let (mut frames, mut stream, mut found) = (Frames::new(packet_max), Vec::new(), Vec::new());
    let (mut ended, mut longest) = (false, 0);
    while let Some((length, behind)) = rest.split_first() {
        let (piece, behind) = behind.split_at(usize::from(*length).min(behind.len()));
        rest = behind;
        stream.extend_from_slice(piece);
        longest = longest.max(piece.len());
        frames.push(piece);
        loop {
            let peeked = frames.peek().map(|packet| packet.map(<[u8]>::to_vec));
            let packet = frames.next_packet().map(|packet| packet.map(<[u8]>::to_vec));
            assert_eq!(peeked, packet);
            match packet {
                Ok(Some(packet)) => found.push(packet),
                Ok(None) => break,
                Err(_) => {
                    ended = true;
                    break;
                }
            }
        }
        if ended {
            break;
        }
        // At most an unfinished packet is kept.
        assert!(frames.pending() < 4 + packet_max.max(1), "{} bytes are kept", frames.pending());
    }
    assert_eq!((found, ended), whole(&stream, packet_max));
}

/// Returns the packets of a stream, and whether the stream ends in a length that is out of bounds.
fn whole(mut stream: &[u8], packet_max: usize) -> (Vec<Vec<u8>>, bool) {
    let mut packets = Vec::new();
    while let Some((length, rest)) = stream.split_first_chunk::<4>() {
        let length = i32::from_be_bytes(*length);
        if length < 0 || length as usize > packet_max {
            return (packets, true);
        }
        let Some((packet, rest)) = rest.split_at_checked(length as usize) else { break };
        packets.push(packet.to_vec());
        stream = rest;
    }
    (packets, false)
}
