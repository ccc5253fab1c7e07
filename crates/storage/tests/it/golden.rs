//! Frozen bytes on disk and on the wire, in golden files that never change. A failed test means
//! that the program would misread old data or an older peer. The remedy is a new version of the
//! format beside the old one.

use std::fmt::Debug;
use std::fs;
use std::path::PathBuf;

use bincode::{Decode, Encode};
use openraft::RaftLogReader;
use storage::codec::{
    self, CodecError, EntryRecord, LogIdRecord, MembershipRecord, PayloadRecord, SnapshotMetaRecord,
    StoredMembershipRecord, VoteRecord,
};
use storage::{Command, Entry, Manifest, Payload, SnapshotMeta, Vote};

use crate::harness::{append, block_on, bytes_of, data_dir, entry, log_id, members, meta, open, seeded};

fn golden(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden/level-1").join(name)
}

fn hex(bytes: &[u8]) -> String {
    let lines = bytes.chunks(32).map(|line| line.iter().map(|byte| format!("{byte:02x}")).collect::<String>() + "\n");
    lines.collect()
}

fn bytes(hex: &str) -> Vec<u8> {
    let digits: String = hex.split_whitespace().collect();
    (0..digits.len()).step_by(2).map(|at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap()).collect()
}

/// Checks that a record encodes to the bytes of its golden file and decodes from them. A missing
/// file is written when `NEW_GOLDENFILES` is set; an existing one never is.
#[track_caller]
fn check<T: Encode + Decode<()> + PartialEq + Debug>(name: &str, value: &T) {
    let path = golden(&format!("{name}.hex"));
    let encoded = codec::encode(value);
    if !path.exists() && std::env::var_os("NEW_GOLDENFILES").is_some() {
        fs::write(&path, hex(&encoded)).unwrap();
    }
    let frozen = fs::read_to_string(&path).unwrap();
    assert_eq!(hex(&encoded), frozen, "{name} is written differently");
    assert_eq!(&codec::decode::<T>(&bytes(&frozen)).unwrap(), value, "{name} is read differently");
}

#[test]
fn the_records_are_what_they_were() {
    check("vote", &VoteRecord::from(&Vote::new(7, 3)));
    check("vote-committed", &VoteRecord::from(&Vote::new_committed(1_000_000, 5)));
    check("log-id", &LogIdRecord::from(&log_id(300, 70_000)));
    let payload = |payload: Payload| EntryRecord::from(&Entry { log_id: log_id(2, 9), payload });
    check("entry-blank", &payload(Payload::Blank));
    check("entry-normal", &payload(Payload::Normal(Command(b"any bytes".to_vec().into()))));
    check("entry-membership", &payload(Payload::Membership(members())));
    check("membership", &MembershipRecord::from(&members()));
    check("stored-membership", &StoredMembershipRecord::from(&meta(3, 4).last_membership));
    check("snapshot-meta", &SnapshotMetaRecord::from(&meta(3, 4)));
    check(
        "snapshot-meta-empty",
        &SnapshotMetaRecord::from(&SnapshotMeta { last_log_id: None, last_membership: Default::default() }),
    );
    let manifest =
        Manifest { meta: (&meta(3, 4)).into(), chunk_count: 3, bytes: 60_000, records: 17, sha256: [0xab; 32] };
    check("manifest", &manifest);
}

#[test]
fn records_give_back_what_they_were_made_from() {
    let joint = vec![[1, 2].into(), [2, 3].into()];
    let nodes: std::collections::BTreeMap<_, _> = members().nodes().map(|(id, node)| (*id, node.clone())).collect();
    let joint = storage::Membership::new(joint, nodes).unwrap();
    for payload in [Payload::Blank, Payload::Normal(Command::default()), Payload::Membership(joint)] {
        let entry = Entry { log_id: log_id(1, 2), payload };
        assert_eq!(EntryRecord::from(&entry).into_entry().unwrap(), entry);
    }
    for meta in [meta(5, 6), SnapshotMeta { last_log_id: None, last_membership: Default::default() }] {
        assert_eq!(SnapshotMeta::try_from(SnapshotMetaRecord::from(&meta)).unwrap(), meta);
    }
    for vote in [Vote::new(1, 2), Vote::new_committed(3, 4)] {
        assert_eq!(Vote::from(VoteRecord::from(&vote)), vote);
    }
}

#[test]
fn what_is_no_record_is_refused() {
    let record = codec::encode(&LogIdRecord { term: 1, index: 2 });
    assert!(matches!(codec::decode::<LogIdRecord>(&[]), Err(CodecError::Empty)));
    assert!(matches!(codec::decode::<LogIdRecord>(&record[..2]), Err(CodecError::Malformed(_))));
    assert!(matches!(codec::decode::<LogIdRecord>(&[record.clone(), vec![0]].concat()), Err(CodecError::Trailing(1))));
    assert!(matches!(codec::decode::<LogIdRecord>(&[9, 1, 2]), Err(CodecError::Version { found: 9 })));
    // Thirteen bytes that claim a terabyte.
    let forged = [&[codec::VERSION, 0xfd][..], &(1u64 << 40).to_le_bytes()].concat();
    assert!(matches!(codec::decode::<Command>(&forged), Err(CodecError::Malformed(_))));
    let mut sealed = codec::seal(&LogIdRecord { term: 1, index: 2 });
    assert_eq!(codec::unseal::<LogIdRecord>(&sealed).unwrap(), LogIdRecord { term: 1, index: 2 });
    sealed[1] ^= 1;
    assert!(matches!(codec::unseal::<LogIdRecord>(&sealed), Err(CodecError::Checksum)));
}

#[test]
fn no_bytes_make_the_decoder_panic() {
    let (_, mut rng) = seeded();
    for _ in 0..50_000 {
        let mut bytes: Vec<u8> = (0..rng.usize(..60)).map(|_| rng.u8(..)).collect();
        if let Some(version) = bytes.first_mut() {
            *version = codec::VERSION;
        }
        if let Ok(record) = codec::decode::<EntryRecord>(&bytes) {
            drop(record.into_entry());
        }
        drop(codec::decode::<Manifest>(&bytes));
        drop(codec::decode::<PayloadRecord>(&bytes));
    }
}

/// The golden files are a log file of the first version, as raft-log wrote it, and the `node`
/// record of its directory.
#[test]
fn a_log_of_the_first_version_is_read() {
    let name = "r-00_000_000_000_000_000_000.wal";
    let (_parent, dir) = data_dir();
    if !golden("log.hex").exists() && std::env::var_os("NEW_GOLDENFILES").is_some() {
        use openraft::storage::RaftLogStorage;
        block_on(async {
            let storage = open(&dir).unwrap();
            let mut log = storage.log.clone();
            log.save_vote(&Vote::new_committed(4, 2)).await.unwrap();
            append(&storage, vec![entry(4, 0, b"zero"), entry(4, 1, b"one"), entry(4, 2, b"two")]).await.unwrap();
            log.save_committed(Some(log_id(4, 1))).await.unwrap();
            log.truncate_after(Some(log_id(4, 1))).await.unwrap();
        });
        fs::write(golden("log.hex"), hex(&fs::read(dir.join("log").join(name)).unwrap())).unwrap();
        fs::write(golden("node.hex"), hex(&fs::read(dir.join("node")).unwrap())).unwrap();
        fs::remove_dir_all(&dir).unwrap();
    }
    drop(open(&dir).unwrap());
    fs::write(dir.join("node"), bytes(&fs::read_to_string(golden("node.hex")).unwrap())).unwrap();
    fs::write(dir.join("log").join(name), bytes(&fs::read_to_string(golden("log.hex")).unwrap())).unwrap();
    let storage = open(&dir).unwrap();
    let found = block_on(storage.log.clone().try_get_log_entries(..)).unwrap();
    assert_eq!(found.iter().map(bytes_of).collect::<Vec<_>>(), [&b"zero"[..], b"one"]);
    assert_eq!(storage.log.vote(), Some(Vote::new_committed(4, 2)));
    assert_eq!(storage.log.committed(), Some(log_id(4, 1)));
}

/// Only reading a chunk must stay the same in all versions, as another release of lz4 may compress
/// differently.
#[test]
fn a_chunk_of_the_first_version_is_read() {
    use crate::harness::{read_snapshot, write_snapshot};
    let pushed = [b"first record".to_vec(), vec![7; 300], Vec::new(), (0..=255).collect()];
    let path = golden("chunk.hex");
    let (_parent, dir) = data_dir();
    let storage = open(&dir).unwrap();
    let written = write_snapshot(&storage, &pushed, &meta(1, 1)).unwrap();
    if !path.exists() && std::env::var_os("NEW_GOLDENFILES").is_some() {
        fs::write(&path, hex(&written.chunk(0).unwrap())).unwrap();
    }
    let chunk = bytes(&fs::read_to_string(&path).unwrap());
    // A receiver accepts a chunk of an older node together with that node's manifest.
    let hash = {
        use sha2::{Digest, Sha256};
        let meta = codec::encode(&written.manifest().meta);
        Sha256::new()
            .chain_update((chunk.len() as u32).to_le_bytes())
            .chain_update(&chunk)
            .chain_update(meta)
            .finalize()
    };
    let manifest = Manifest { bytes: chunk.len() as u64, sha256: hash.into(), ..written.manifest().clone() };
    let mut receiver = storage.snapshots.receive(manifest).unwrap();
    receiver.push_chunk(&chunk).unwrap();
    assert_eq!(read_snapshot(&receiver.finish(|_| Ok(())).unwrap()), pushed);
}
