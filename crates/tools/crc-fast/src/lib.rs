//! The part of the registry's crate `crc-fast` that `object_store` calls: CRC-64/NVME, with which
//! it signs uploads to S3 if `AWS_CHECKSUM_ALGORITHM` asks for it.
//!
//! Why it is patched: that crate chooses among some sixty checksums at run time, so `oribi-tools`
//! would carry the tables of all of them: 0.7 of its 16 MB. A release of `object_store` that calls
//! more of the crate than this does not compile.

#![forbid(unsafe_code)]

use crc::{CRC_64_NVME, Crc, Table};

static NVME: Crc<u64, Table<16>> = Crc::<u64, Table<16>>::new(&CRC_64_NVME);

/// The checksums that there are.
#[derive(Clone, Copy, Debug)]
pub enum CrcAlgorithm {
    Crc64Nvme,
}

/// A checksum of bytes that come in pieces.
#[derive(Clone)]
pub struct Digest(crc::Digest<'static, u64, Table<16>>);

impl Digest {
    /// Of no bytes yet.
    pub fn new(algorithm: CrcAlgorithm) -> Digest {
        match algorithm {
            CrcAlgorithm::Crc64Nvme => Digest(NVME.digest()),
        }
    }

    /// Adds the next piece.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The checksum of all pieces.
    pub fn finalize(self) -> u64 {
        self.0.finalize()
    }
}

#[cfg(test)]
mod tests {
    use super::{CrcAlgorithm, Digest};

    /// The check value that the catalogue of CRCs and the NVM Express specification give.
    #[test]
    fn pieces_have_the_specified_checksum() {
        for cut in 0..=9 {
            let (head, tail) = b"123456789".split_at(cut);
            let mut digest = Digest::new(CrcAlgorithm::Crc64Nvme);
            digest.update(head);
            digest.update(tail);
            assert_eq!(digest.finalize(), 0xAE8B_1486_0A79_9888);
        }
    }
}
