//! Frames of zstd's format (RFC 8878) that have their content as it is.
//!
//! Layout, numbers little-endian: magic u32, descriptor u8, bytes of the content u32, then blocks:
//! a head of 24 bits (last block, type 0 for raw, bytes) and the bytes. Every reader of zstd reads
//! them, so an archive that is not compressed has no separate format.

const MAGIC: u32 = 0xfd2f_b528;

/// A content of 32 bits, which is also the window; neither checksum nor dictionary.
const DESCRIPTOR: u8 = 2 << 6 | 1 << 5;

/// Most bytes of a block.
const RAW_BLOCK_BYTES: usize = 128 * 1024;

/// Appends a frame of `content`, which is not empty and shorter than 4 GiB, to `out`.
pub(super) fn append(content: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(&MAGIC.to_le_bytes());
    out.push(DESCRIPTOR);
    out.extend_from_slice(&(content.len() as u32).to_le_bytes());
    let last = content.len().div_ceil(RAW_BLOCK_BYTES) - 1;
    for (index, block) in content.chunks(RAW_BLOCK_BYTES).enumerate() {
        let head = (block.len() as u32) << 3 | u32::from(index == last);
        out.extend_from_slice(&head.to_le_bytes()[..3]);
        out.extend_from_slice(block);
    }
}

#[cfg(test)]
mod tests {
    //! zstd reads them.

    use super::*;

    #[test]
    fn zstd_reads_frames_of_all_lengths() {
        let content: Vec<u8> = (0..3 * RAW_BLOCK_BYTES).map(|at| (at % 253) as u8).collect();
        let block = RAW_BLOCK_BYTES;
        let mut frame = Vec::new();
        for length in [1, 255, 256, 70_000, block - 1, block, block + 1, 2 * block, 3 * block] {
            frame.clear();
            append(&content[..length], &mut frame);
            let plain = zstd::bulk::decompress(&frame, length).unwrap();
            assert!(plain == content[..length], "{length} bytes");
            zstd::bulk::decompress(&frame[..frame.len() - 1], length).unwrap_err();
        }
    }
}
