//! File handles: 48 bytes that say which export, which volume and which file, and a tag that only this node can make.
//!
//! | bytes | what |
//! |---|---|
//! | 0–15 | the export: the execution, or the agent, that the volume was handed to |
//! | 16–23 | the volume |
//! | 24–31 | the file, by its number in the export's table |
//! | 32–47 | HMAC-SHA-256 over the rest, cut to 128 bits |

use aegis_stores::{DataDir, data_dir::DataDirError};
use ring::hmac;
use sha2::{Digest, Sha256};

pub(super) const LENGTH: usize = 48;
const SIGNED: usize = 32;
const KEY: usize = 32;

#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    #[error("the key of file handles can't be read or written: {0}")]
    Data(#[from] DataDirError),
    #[error("{0}: {1}; it holds 32 bytes, and a new one is made when it is removed")]
    Unreadable(std::path::PathBuf, std::io::Error),
    #[error("the system has no random numbers: {0}")]
    Randomness(getrandom::Error),
}

/// Makes and checks tags.
pub(super) struct HandleKey(hmac::Key);

impl std::fmt::Debug for HandleKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("HandleKey(…)")
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct ExportId(pub(super) [u8; 16]);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct VolumeMark([u8; 8]);

impl VolumeMark {
    pub(super) fn of(volume: &str) -> Self {
        let digest = Sha256::digest(volume.as_bytes());
        let mut mark = [0; 8];
        mark.copy_from_slice(&digest[..8]);
        Self(mark)
    }

    /// What clients tell file systems apart by.
    pub(super) fn number(self) -> u64 {
        u64::from_be_bytes(self.0)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Handle {
    pub(super) export: ExportId,
    pub(super) volume: VolumeMark,
    pub(super) file: u64,
}

impl HandleKey {
    /// The node's own key, made on first use. It outlives the process, so that a handle of an earlier one is known to be
    /// old and not taken for forged.
    pub(super) fn open(data: &DataDir) -> Result<Self, KeyError> {
        let path = data.nfs_key();
        let key = match std::fs::read(&path) {
            Ok(key) if key.len() == KEY => key,
            Ok(_) => {
                let wrong = std::io::Error::other("it is not as long as a key");
                return Err(KeyError::Unreadable(path, wrong));
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                let mut key = vec![0; KEY];
                getrandom::fill(&mut key).map_err(KeyError::Randomness)?;
                data.write_file(&path, &key, 0o600)?;
                key
            }
            Err(error) => return Err(KeyError::Unreadable(path, error)),
        };
        Ok(Self(hmac::Key::new(hmac::HMAC_SHA256, &key)))
    }

    #[cfg(test)]
    pub(super) fn of(key: &[u8]) -> Self {
        Self(hmac::Key::new(hmac::HMAC_SHA256, key))
    }

    pub(super) fn seal(&self, handle: &Handle) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(LENGTH);
        bytes.extend(handle.export.0);
        bytes.extend(handle.volume.0);
        bytes.extend(handle.file.to_be_bytes());
        let tag = hmac::sign(&self.0, &bytes);
        bytes.extend(&tag.as_ref()[..LENGTH - SIGNED]);
        bytes
    }

    /// `None` for anything that [`HandleKey::seal`] did not make.
    pub(super) fn open_handle(&self, bytes: &[u8]) -> Option<Handle> {
        if bytes.len() != LENGTH {
            return None;
        }
        let (said, tag) = bytes.split_at(SIGNED);
        let right = hmac::sign(&self.0, said);
        // All of it is looked at, whatever differs first.
        let differs = right.as_ref().iter().zip(tag).fold(0, |differs, (one, other)| differs | (one ^ other));
        if differs != 0 {
            return None;
        }
        let (mut export, mut volume, mut file) = ([0; 16], [0; 8], [0; 8]);
        export.copy_from_slice(&said[..16]);
        volume.copy_from_slice(&said[16..24]);
        file.copy_from_slice(&said[24..]);
        Some(Handle { export: ExportId(export), volume: VolumeMark(volume), file: u64::from_be_bytes(file) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_handles_of_this_key_open() {
        let (key, other) = (HandleKey::of(b"one"), HandleKey::of(b"two"));
        let handle = Handle { export: ExportId([7; 16]), volume: VolumeMark::of("local/workspace"), file: 9 };
        let sealed = key.seal(&handle);
        assert_eq!(sealed.len(), LENGTH);
        assert_eq!(key.open_handle(&sealed), Some(handle));
        assert_eq!(other.open_handle(&sealed), None);
        for index in 0..LENGTH {
            let mut forged = sealed.clone();
            forged[index] ^= 1;
            assert_eq!(key.open_handle(&forged), None, "byte {index}");
        }
        assert_eq!(key.open_handle(&sealed[..47]), None);
        assert_eq!(key.open_handle(&[sealed.as_slice(), &[0]].concat()), None);
        assert_eq!(key.open_handle(&[]), None);
    }
}
