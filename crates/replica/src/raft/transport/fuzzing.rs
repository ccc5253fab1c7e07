//! Assertions about any bytes that a peer may send. The fuzz target (`crates/replica/fuzz`) and a
//! property test call them.

use storage::codec::{self, EntryRecord, PayloadRecord};

use super::append_frame::AppendFrame;
use super::connect::Identity;
use super::messages::{Answer, AppendAnswer, Ask, Hello, NumberedMessage, SnapshotAnswer, SnapshotFrame, Welcome};
use super::rules::{INDEXES_AHEAD_MAX, PeerMessage, Rules, TERMS_AHEAD_MAX};

const TERM: u64 = 5;
const INDEX: u64 = 1_000;

/// Decodes a record as the kind of message that its first byte selects, as node 1 of three does
/// with a message of node 2. Asserts bounds on the fields of a message that `Rules` accept.
///
/// # Panics
/// When a message is accepted that must be refused.
pub fn peer_message(bytes: &[u8]) {
    let Some((kind, record)) = bytes.split_first() else { return };
    let identity = Identity::new("c", 1, &[1, 2, 3]);
    identity.horizon.reach(TERM, INDEX);
    let rules = identity.rules(2);
    match kind % 8 {
        0 => drop(read::<AppendFrame>(&rules, record).map(append)),
        1 => drop(read::<NumberedMessage<Ask>>(&rules, record).map(|ask| question(&ask.body))),
        2 => drop(read::<SnapshotFrame>(&rules, record)),
        3 => drop(read::<AppendAnswer>(&rules, record)),
        4 => drop(read::<NumberedMessage<Answer>>(&rules, record)),
        5 => drop(read::<SnapshotAnswer>(&rules, record)),
        6 => {
            let hello = codec::decode_short::<Hello>(record).ok();
            let let_in = hello.filter(|hello| identity.refusal(hello).is_none());
            assert!(let_in.is_none_or(|hello| hello.from > 1 && hello.from <= 3 && hello.to == 1));
        }
        _ => drop(codec::decode_short::<Welcome>(record)),
    }
}

fn read<T: PeerMessage>(rules: &Rules, record: &[u8]) -> Option<T> {
    let message: T = codec::decode(record).ok()?;
    message.check(rules).ok().map(|()| message)
}

/// Asserts that Raft and its log can take an accepted frame.
fn append(frame: AppendFrame) {
    assert!(frame.vote.committed && frame.vote.node_id == 2 && frame.vote.term <= TERM + TERMS_AHEAD_MAX);
    let first = frame.prev_log_id.map_or(0, |prev| prev.index + 1);
    for (entry, next) in frame.entries.into_iter().zip(first..) {
        assert!(entry.log_id.index == next && next <= INDEX + INDEXES_AHEAD_MAX);
        if let PayloadRecord::Normal(command) = &entry.payload {
            drop(znode::decode_txn(&command.0));
        }
        assert!(EntryRecord::into_entry(entry).is_ok(), "Raft takes every membership that passes");
    }
}

fn question(ask: &Ask) {
    match ask {
        Ask::Vote(frame) | Ask::PreVote(frame) => {
            assert!(frame.vote.node_id == 2 && !frame.vote.committed && frame.vote.term <= TERM + TERMS_AHEAD_MAX);
        }
        Ask::Propose { request, .. } => drop(znode::decode_request(request)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes of all messages in the golden file (the stored encodings of all messages).
    fn golden() -> Vec<Vec<u8>> {
        let lines =
            include_str!("../../../tests/golden/level-1/peers.txt").lines().filter(|line| line.starts_with("    "));
        let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
        lines.map(|line| line.trim().as_bytes().chunks(2).map(byte).collect()).collect()
    }

    #[test]
    fn no_bytes_of_a_peer_panic_and_nothing_passes_that_raft_cannot_take() {
        let mut random = fastrand::Rng::with_seed(7);
        let golden = golden();
        assert!(golden.len() > 30);
        for round in 0..60_000 {
            let mut bytes = vec![random.u8(..)];
            match round % 3 {
                0 => bytes.extend(
                    (0..random.usize(..64)).map(|_| if random.bool() { random.u8(..6) } else { random.u8(..) }),
                ),
                _ => bytes.extend(&golden[random.usize(..golden.len())]),
            }
            for _ in 0..random.usize(..3) {
                let at = random.usize(1..=bytes.len());
                match random.u8(..3) {
                    0 => bytes.insert(at, random.u8(..)),
                    1 => bytes.truncate(at),
                    _ => drop(bytes.get_mut(at).map(|byte| *byte = random.u8(..))),
                }
            }
            peer_message(&bytes);
        }
    }
}
