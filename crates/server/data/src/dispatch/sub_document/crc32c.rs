//! CRC-32C (Castagnoli), for the macro of a body's checksum and for `$document`.
//!
//! Eight bytes at a time, with one table for each of them ("slicing by eight"). A body of 20 MiB
//! costs the worker some 15 ms, a sixth of the time byte by byte.

/// The polynomial, lowest bit first.
const POLYNOMIAL: u32 = 0x82f6_3b78;

const STRIDE: usize = 8;

/// The checksum's contribution of each byte value. A table's index is the number of bytes after
/// that byte.
static TABLES: [[u32; 256]; STRIDE] = {
    let mut tables = [[0; 256]; STRIDE];
    let mut byte = 0;
    while byte < 256 {
        let mut rest = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            rest = if rest & 1 == 1 { rest >> 1 ^ POLYNOMIAL } else { rest >> 1 };
            bit += 1;
        }
        tables[0][byte] = rest;
        byte += 1;
    }
    let mut behind = 1;
    while behind < STRIDE {
        let mut byte = 0;
        while byte < 256 {
            let before = tables[behind - 1][byte];
            tables[behind][byte] = before >> 8 ^ tables[0][(before & 0xff) as usize];
            byte += 1;
        }
        behind += 1;
    }
    tables
};

/// The checksum of the concatenated parts.
pub(super) fn crc32c(parts: &[&[u8]]) -> u32 {
    !parts.iter().fold(u32::MAX, |sum, part| {
        let (words, rest) = part.as_chunks::<STRIDE>();
        rest.iter().fold(words.iter().fold(sum, step), |sum, byte| {
            sum >> 8 ^ TABLES[0][((sum ^ u32::from(*byte)) & 0xff) as usize]
        })
    })
}

fn step(sum: u32, word: &[u8; STRIDE]) -> u32 {
    let word = (u64::from_le_bytes(*word) ^ u64::from(sum)).to_le_bytes();
    let tables = TABLES.iter().rev();
    word.iter().zip(tables).fold(0, |sum, (byte, table)| sum ^ table[usize::from(*byte)])
}

#[cfg(test)]
mod tests {
    use super::crc32c;

    #[test]
    fn known_checksums() {
        assert_eq!(crc32c(&[b"123456789"]), 0xe306_9283);
        assert_eq!(crc32c(&[b"1234", b"", b"56789"]), 0xe306_9283);
        assert_eq!(crc32c(&[&[0; 32]]), 0x8a91_36aa);
        assert_eq!(crc32c(&[]), 0);
    }

    #[test]
    fn the_place_of_a_cut_does_not_matter() {
        let bytes: Vec<u8> = (0..100).map(|n| (n * 37) as u8).collect();
        let whole = crc32c(&[&bytes]);
        for cut in 0..bytes.len() {
            let (before, behind) = bytes.split_at(cut);
            assert_eq!(crc32c(&[before, behind]), whole, "cut at {cut}");
        }
        assert_eq!(crc32c(&bytes.chunks(1).collect::<Vec<_>>()), whole, "byte by byte");
    }
}
