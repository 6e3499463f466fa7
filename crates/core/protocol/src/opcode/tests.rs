//! The opcode table is consistent and holds the codes that clients use.

use super::*;

#[test]
fn codes_and_names_agree() {
    let mut known = 0;
    for code in 0..=u8::MAX {
        if let Some(opcode) = Opcode::from_u8(code) {
            assert_eq!(opcode as u8, code);
            assert_eq!(opcode.name(), format!("{opcode:?}"));
            known += 1;
        }
    }
    assert_eq!(known, ALL.len());
    assert!(Opcode::all().is_sorted());
    assert_eq!(Opcode::from_u8(0xff), None);
    assert_eq!(Opcode::from_u8(0x88), None);
}

#[test]
fn spot_checks() {
    for (code, opcode) in [
        (0x00, Opcode::Get),
        (0x06, Opcode::Decrement),
        (0x1d, Opcode::Gat),
        (0x22, Opcode::SaslStep),
        (0x89, Opcode::SelectBucket),
        (0xa0, Opcode::GetMeta),
        (0xb5, Opcode::GetClusterConfig),
        (0xbb, Opcode::CollectionsGetId),
        (0xd1, Opcode::SubdocMultiMutation),
        (0xfe, Opcode::GetErrorMap),
    ] {
        assert_eq!(Opcode::from_u8(code), Some(opcode));
    }
}

/// A quiet opcode is named after the loud one, with a `q` added.
#[test]
fn quiet_opcodes_have_a_loud_twin() {
    let names: Vec<&str> = Opcode::all().map(Opcode::name).collect();
    for opcode in Opcode::all() {
        let name = opcode.name();
        let loud = name.strip_suffix('q').map(str::to_owned);
        let loud = loud.or_else(|| name.contains("qWith").then(|| name.replace("qWith", "With")));
        let loud = loud.or_else(|| name.contains("qMeta").then(|| name.replace("qMeta", "Meta")));
        let has_twin = loud.is_some_and(|loud| names.contains(&loud.as_str()));
        assert_eq!(opcode.is_quiet(), has_twin, "{name}");
    }
}
