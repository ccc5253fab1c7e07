//! Writer of a backup: one pass over a state, with bounded memory.

use std::io::{self, Write};

use sha2::{Digest, Sha256};
use znode::State;

use crate::format::{CHUNK_RAW_BYTES, MAGIC, MANIFEST_BYTES_MAX, RECORD_BYTES_MAX, VERSION};
use crate::manifest::Manifest;

/// Size of a backup that was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    /// The length of the file in bytes.
    pub bytes: u64,
    /// The number of records in the file.
    pub records: u64,
}

/// Writes the backup of a state to `out`. Blocks the thread as long as `out` does. `state` can be a
/// clone, which costs little, so that a node can change its own state meanwhile.
///
/// # Errors
/// The errors of `out`, and `InvalidInput` for a manifest beyond 1 MiB or a record beyond 64 MiB.
pub fn write(state: &State, manifest: &Manifest, out: impl Write) -> io::Result<Written> {
    let mut writer = Writer { out, hash: Sha256::new(), bytes: 0, raw: Vec::with_capacity(CHUNK_RAW_BYTES) };
    writer.put(&MAGIC)?;
    writer.put(&VERSION.to_le_bytes())?;
    let text = serde_json::to_vec(manifest)?;
    if text.len() > MANIFEST_BYTES_MAX {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "the manifest of a backup is too long"));
    }
    writer.frame(&text)?;
    let mut records = 0;
    for record in state.records() {
        writer.record(&record)?;
        records += 1;
    }
    writer.close_chunk()?;
    writer.frame(&[])?;
    let hash = writer.hash.clone().finalize();
    writer.put(&hash)?;
    writer.out.flush()?;
    Ok(Written { bytes: writer.bytes, records })
}

struct Writer<W> {
    out: W,
    hash: Sha256,
    bytes: u64,
    /// Uncompressed bytes of the unfinished chunk.
    raw: Vec<u8>,
}

impl<W: Write> Writer<W> {
    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.out.write_all(bytes)?;
        self.hash.update(bytes);
        self.bytes += bytes.len() as u64;
        Ok(())
    }

    fn frame(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.put(&(bytes.len() as u32).to_le_bytes())?;
        self.put(bytes)
    }

    fn record(&mut self, record: &[u8]) -> io::Result<()> {
        if record.len() > RECORD_BYTES_MAX {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "a record beyond 64 MiB"));
        }
        self.raw(&(record.len() as u32).to_le_bytes())?;
        self.raw(record)
    }

    fn raw(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let (fits, rest) = bytes.split_at(bytes.len().min(CHUNK_RAW_BYTES - self.raw.len()));
            self.raw.extend_from_slice(fits);
            bytes = rest;
            if self.raw.len() == CHUNK_RAW_BYTES {
                self.close_chunk()?;
            }
        }
        Ok(())
    }

    fn close_chunk(&mut self) -> io::Result<()> {
        if !self.raw.is_empty() {
            let chunk = lz4_flex::block::compress_prepend_size(&self.raw);
            self.raw.clear();
            self.frame(&chunk)?;
        }
        Ok(())
    }
}
