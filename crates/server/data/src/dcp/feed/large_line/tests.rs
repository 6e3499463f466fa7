//! A line in pieces is the line that is made at once.

use oribi_engine::{ItemFields, ItemRef, NewItem};
use oribi_storage::Record;
use oribi_types::{CollectionId, DocKey, Seqno, VbUuid, Vbid};

use super::*;
use crate::dcp::feed::line::write_document;

const EXTENT: Extent = Extent { values: true, xattrs: true };

fn both_ways(value: &[u8], datatype: Datatype) -> (Vec<u8>, Vec<u8>) {
    let key = DocKey { collection: CollectionId::DEFAULT, key: b"large" };
    let fields = ItemFields { datatype, flags: 5, ..ItemFields::default() };
    let item: ItemRef = NewItem::new(key, fields, &[value]).publish();
    let record = Record {
        key: item.key(),
        value: item.value(),
        cas: item.cas(),
        seqno: item.seqno(),
        rev_seqno: item.rev_seqno(),
        flags: item.flags(),
        expiry: item.expiry(),
        datatype: item.datatype(),
        deleted: false,
        expired: false,
    };
    let document = ChangedDocument { record, item: Some(&item), copied: None };
    let position = Position::at(Vbid(1), VbUuid(2), Seqno(3));
    let names = Names::new();
    let mut at_once = Vec::new();
    write_document(&mut at_once, &document, &position, EXTENT, &names).unwrap();
    let line = LargeLine::new(&document, &position, EXTENT, &names, None).unwrap();
    let (mut line, mut in_pieces) = (line.expect("it has a place"), Vec::new());
    loop {
        let mut piece = Vec::new();
        let is_whole = line.write(&mut piece, 5000).unwrap();
        assert!(piece.len() <= 5000 + 2 * STEP_BYTES, "{} bytes", piece.len());
        in_pieces.extend_from_slice(&piece);
        if is_whole {
            return (at_once, in_pieces);
        }
    }
}

#[test]
fn pieces_of_a_line_equal_the_whole_line() {
    let json = format!(" {{\"a\":\n\"{}\"}}\r\n", "ü1".repeat(40_000));
    let cut = "\"\u{fc}".repeat(50_000).into_bytes();
    for bytes in [300_000, 300_001, 300_002] {
        let noise: Vec<u8> = (0..bytes).map(|at: u32| (at.wrapping_mul(at) / 7) as u8).collect();
        for value in [json.as_bytes(), &noise, &cut[..cut.len() - 1], b"[\"\xff\"]"] {
            let stream = snap::raw::Encoder::new().compress_vec(value).unwrap();
            for kind in [Datatype::RAW, Datatype::JSON] {
                let (at_once, in_pieces) = both_ways(value, kind);
                assert!(at_once == in_pieces, "{kind:?} of {} bytes", value.len());
                let snappy = Datatype(kind.0 | Datatype::SNAPPY.0);
                let (at_once, in_pieces) = both_ways(&stream, snappy);
                let trimmed = |line: &[u8]| String::from_utf8_lossy(line).replace(' ', "");
                assert!(trimmed(&at_once) == trimmed(&in_pieces), "{snappy:?}, {bytes}");
            }
        }
    }
}
