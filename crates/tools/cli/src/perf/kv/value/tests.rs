//! What was composed is verified, and no single change of it is.

use super::*;

const IDENTITY: ValueIdentity = ValueIdentity { index: 0x0123_4567_89ab_cdef, seed: 0xdead_beef };

fn values(form: KvValueForm) -> KvValues {
    KvValues::new(form, 1..=5000, true, 7)
}

fn whole(composed: &ValuePieces) -> Vec<u8> {
    [composed.head(), &composed.body, composed.tail].concat()
}

const SIZES: [usize; 12] = [1, 2, 8, 19, 20, 21, 54, 55, 64, 512, 1023, 5000];

#[test]
fn every_size_is_composed_and_verified() {
    for form in [KvValueForm::Binary, KvValueForm::Json] {
        let mut values = values(form);
        for bytes in SIZES {
            for version in [0, 1, u32::MAX] {
                let value = whole(&values.compose(IDENTITY, version, bytes));
                assert_eq!(value.len(), bytes, "{form:?}");
                assert_eq!(values.verify(IDENTITY, &value), Ok(()), "{form:?} {bytes}");
            }
        }
    }
}

/// The mutant of everything that is measured with these values: each bit that is flipped, each byte
/// that is missing or added and each foreign value is found.
#[test]
fn every_change_is_found() {
    for form in [KvValueForm::Binary, KvValueForm::Json] {
        let mut values = values(form);
        for bytes in SIZES {
            let value = whole(&values.compose(IDENTITY, 3, bytes));
            for at in (0..bytes).step_by((bytes / 97).max(1)).chain([bytes - 1]) {
                let mut changed = value.clone();
                changed[at] ^= 1 << (at % 8);
                values.verify(IDENTITY, &changed).expect_err("a flipped bit");
            }
            let other = ValueIdentity { index: IDENTITY.index + 1, ..IDENTITY };
            let elsewhere = ValueIdentity { seed: IDENTITY.seed + 1, ..IDENTITY };
            // A single byte is equal by chance once in a while.
            if bytes > 2 {
                values.verify(other, &value).expect_err("another document");
                values.verify(elsewhere, &value).expect_err("another collection");
                values.verify(IDENTITY, &value[1..]).expect_err("the first byte is missing");
            }
        }
    }
}

/// A long value that lost its end or grew is found by its length, before its checksum.
#[test]
fn kinds_of_corruption_are_told_apart() {
    for form in [KvValueForm::Binary, KvValueForm::Json] {
        let mut values = values(form);
        let value = whole(&values.compose(IDENTITY, 3, 512));
        assert_eq!(values.verify(IDENTITY, &value[..511]), Err(Corruption::Length));
        let longer = [&value[..], b"x"].concat();
        assert_eq!(values.verify(IDENTITY, &longer), Err(Corruption::Length));
        let other = ValueIdentity { index: 5, ..IDENTITY };
        assert_eq!(values.verify(other, &value), Err(Corruption::Document));
        let mut changed = value.clone();
        changed[300] ^= 1;
        assert_eq!(values.verify(IDENTITY, &changed), Err(Corruption::Checksum));
        let small = whole(&values.compose(IDENTITY, 3, 10));
        assert_eq!(values.verify(other, &small), Err(Corruption::Pattern));
        assert_eq!(values.verify(IDENTITY, b""), Err(Corruption::Length));
    }
}

#[test]
fn json_documents_are_json() {
    for random in [false, true] {
        let mut values = KvValues::new(KvValueForm::Json, 1..=5000, random, 9);
        for bytes in SIZES {
            let value = whole(&values.compose(IDENTITY, 3, bytes));
            serde_json::from_slice::<serde_json::Value>(&value).unwrap();
        }
    }
}

#[test]
fn versions_differ_and_runs_agree() {
    let (mut first, mut second) = (values(KvValueForm::Binary), values(KvValueForm::Binary));
    let version = |values: &mut KvValues, number| whole(&values.compose(IDENTITY, number, 512));
    assert_ne!(version(&mut first, 1), version(&mut first, 2));
    assert_ne!(version(&mut first, 1)[HEADER_BYTES..], version(&mut first, 2)[HEADER_BYTES..]);
    assert_eq!(version(&mut first, 1), version(&mut second, 1));
    // Whatever block a run has made: values are verified by what they say of themselves.
    for sizes in [600..=700, 1..=10] {
        let other = KvValues::new(KvValueForm::Binary, sizes, false, 8);
        let mut value = version(&mut first, 1);
        assert_eq!(other.verify(IDENTITY, &value), Ok(()));
        value[200] ^= 8;
        assert_eq!(other.verify(IDENTITY, &value), Err(Corruption::Checksum));
    }
}
