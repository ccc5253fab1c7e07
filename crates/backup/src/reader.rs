//! Reader of a backup: checks the file, and reads its state.

use std::io::{self, Read, Seek, SeekFrom};

use sha2::{Digest, Sha256};
use znode::{State, StateBuilder};

use crate::error::Error;
use crate::format::{
    CHUNK_BYTES_MAX, CHUNK_RAW_BYTES, HASH_BYTES, MAGIC, MANIFEST_BYTES_MAX, RECORD_BYTES_MAX, VERSION,
};
use crate::manifest::Manifest;

/// A backup whose hash was checked.
#[derive(Debug)]
pub struct Backup<R> {
    file: R,
    manifest: Manifest,
    bytes: u64,
    sha256: [u8; HASH_BYTES],
    /// Offset in the file of the first chunk of records, in bytes.
    chunks_at: u64,
}

impl<R: Read + Seek> Backup<R> {
    /// Reads a whole file, and checks its bytes against the SHA-256 at its end. Blocks the thread.
    ///
    /// # Errors
    /// Any [`Error`] except `Decode`. After an error the content of the file must not be used.
    pub fn open(mut file: R) -> Result<Backup<R>, Error> {
        file.seek(SeekFrom::Start(0)).map_err(Error::Io)?;
        let mut pass = Pass { file, hash: Sha256::new(), at: 0 };
        let text = pass.head()?;
        let chunks_at = pass.at;
        while !pass.frame(CHUNK_BYTES_MAX)?.is_empty() {}
        let Pass { mut file, hash, at } = pass;
        let mut sha256 = [0; HASH_BYTES];
        fill(&mut file, &mut sha256, at)?;
        if hash.finalize()[..] != sha256 {
            return Err(Error::damaged("its SHA-256 is not that of its bytes"));
        }
        if file.read(&mut [0]).map_err(Error::Io)? != 0 {
            return Err(Error::damaged("there are bytes behind its end"));
        }
        Ok(Backup { file, manifest: parse(&text)?, bytes: at + HASH_BYTES as u64, sha256, chunks_at })
    }

    /// The manifest of the backup.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// The length of the file in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The SHA-256 at the end of the file.
    pub fn sha256(&self) -> [u8; HASH_BYTES] {
        self.sha256
    }

    /// Reads the state. Blocks the thread.
    ///
    /// # Errors
    /// `Decode` when this program does not know the records' format version, or the records
    /// contradict each other; `Damaged` when the file has changed since it was opened.
    pub fn state(&mut self) -> Result<State, Error> {
        let mut builder = StateBuilder::new();
        self.each_record(|record| Ok(builder.push(record)?))?;
        let state = builder.finish()?;
        if state.last_zxid().0 != self.manifest.zxid {
            return Err(Error::damaged("its manifest is about another state"));
        }
        Ok(state)
    }

    /// Calls `take` with each record, in order.
    ///
    /// # Errors
    /// The first error of `take`; otherwise as [`Backup::state`].
    pub fn each_record(&mut self, mut take: impl FnMut(&[u8]) -> Result<(), Error>) -> Result<(), Error> {
        let start = SeekFrom::Start(self.chunks_at);
        self.file.seek(start).map_err(Error::Io)?;
        let mut pass = Pass { file: &mut self.file, hash: Sha256::new(), at: self.chunks_at };
        // Uncompressed bytes that were not yet passed on as whole records.
        let mut raw: Vec<u8> = Vec::new();
        loop {
            let chunk = pass.frame(CHUNK_BYTES_MAX)?;
            if chunk.is_empty() {
                break;
            }
            raw.extend_from_slice(&unpack(&chunk)?);
            let mut rest = &raw[..];
            while let Some(record) = next_record(&mut rest)? {
                take(record)?;
            }
            raw.drain(..raw.len() - rest.len());
        }
        if raw.is_empty() { Ok(()) } else { Err(Error::damaged("its last record is cut off")) }
    }
}

/// Reads the manifest at the beginning of a file. The rest of the file is not checked and may be
/// damaged.
///
/// # Errors
/// As [`Backup::open`].
pub fn read_manifest(file: impl Read) -> Result<Manifest, Error> {
    parse(&Pass { file, hash: Sha256::new(), at: 0 }.head()?)
}

/// Returns the digest of a state, which equals that of `Replica::digest` on a node.
pub fn digest(state: &State) -> [u8; HASH_BYTES] {
    let mut hash = Sha256::new();
    state.digest_with(|bytes| hash.update(bytes));
    hash.finalize().into()
}

fn parse(text: &[u8]) -> Result<Manifest, Error> {
    serde_json::from_slice(text).map_err(|error| Error::damaged(format!("its manifest cannot be read: {error}")))
}

/// Takes the next record from the front of `raw`; returns `None` when the bytes end before the
/// record does.
fn next_record<'a>(raw: &mut &'a [u8]) -> Result<Option<&'a [u8]>, Error> {
    let Some((length, rest)) = raw.split_first_chunk::<4>() else { return Ok(None) };
    let length = u32::from_le_bytes(*length) as usize;
    if length > RECORD_BYTES_MAX {
        return Err(Error::damaged(format!("a record claims {length} bytes")));
    }
    let Some((record, rest)) = rest.split_at_checked(length) else { return Ok(None) };
    *raw = rest;
    Ok(Some(record))
}

/// Returns the uncompressed bytes of a chunk. A length that is too large is refused before memory
/// is allocated.
fn unpack(chunk: &[u8]) -> Result<Vec<u8>, Error> {
    let raw_length = chunk.first_chunk::<4>().map(|length| u32::from_le_bytes(*length) as usize);
    if raw_length.is_none_or(|length| length > CHUNK_RAW_BYTES) {
        return Err(Error::damaged(format!("a chunk claims {raw_length:?} raw bytes")));
    }
    lz4_flex::block::decompress_size_prepended(chunk).map_err(|error| Error::damaged(format!("a chunk: {error}")))
}

/// Reader of a file from front to back, which hashes the bytes that it reads.
struct Pass<R> {
    file: R,
    hash: Sha256,
    at: u64,
}

impl<R: Read> Pass<R> {
    /// Reads the beginning of a file, and returns the JSON text of its manifest.
    fn head(&mut self) -> Result<Vec<u8>, Error> {
        let mut magic = [0; MAGIC.len()];
        match self.fill(&mut magic) {
            Ok(()) if magic == MAGIC => {}
            Ok(()) | Err(Error::Cut(_)) => return Err(Error::NotABackup),
            Err(error) => return Err(error),
        }
        let version = self.number()?;
        if version > VERSION {
            return Err(Error::Newer(version));
        }
        self.frame(MANIFEST_BYTES_MAX)
    }

    fn fill(&mut self, bytes: &mut [u8]) -> Result<(), Error> {
        fill(&mut self.file, bytes, self.at)?;
        self.hash.update(&*bytes);
        self.at += bytes.len() as u64;
        Ok(())
    }

    fn number(&mut self) -> Result<u32, Error> {
        let mut bytes = [0; 4];
        self.fill(&mut bytes)?;
        Ok(u32::from_le_bytes(bytes))
    }

    fn frame(&mut self, max: usize) -> Result<Vec<u8>, Error> {
        let length = self.number()? as usize;
        if length > max {
            return Err(Error::damaged(format!("a part claims {length} bytes, and {max} are the most")));
        }
        let mut bytes = vec![0; length];
        self.fill(&mut bytes)?;
        Ok(bytes)
    }
}

/// Fills `bytes` from the file. `at` is the offset in the file, for the error.
fn fill(file: &mut impl Read, mut bytes: &mut [u8], at: u64) -> Result<(), Error> {
    let length = bytes.len() as u64;
    let filled = io::copy(&mut file.take(length), &mut bytes).map_err(Error::Io)?;
    if filled < length { Err(Error::Cut(at + filled)) } else { Ok(()) }
}
