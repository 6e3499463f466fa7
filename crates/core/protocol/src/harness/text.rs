//! The check of the text codec: however a stream is torn, its commands are the same.

use crate::text::{Command, DecodedCommand, Decoder, login};

/// Checks the text codec on `input`. The first byte chooses the sizes of the pieces.
///
/// # Panics
/// When an invariant is violated.
pub fn check_text(input: &[u8]) {
    let (seed, stream) = input.split_first().map_or((0, input), |(seed, rest)| (*seed, rest));
    let whole = read(stream, |_| usize::MAX);
    let mut state = u32::from(seed);
    let torn = read(stream, |_| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        1 + (state >> 24) as usize % (1 + usize::from(seed) * 8)
    });
    assert_eq!(whole, torn, "pieces of a stream are the same commands as the whole");
    if let login::Login::Credentials { consumed, .. } | login::Login::Refused { consumed, .. } =
        login::decode(stream)
    {
        assert!((1..=stream.len()).contains(&consumed));
    }
}

/// The commands of a stream that arrives in pieces. Ends where the stream is not the protocol.
pub(crate) fn read(stream: &[u8], mut piece: impl FnMut(usize) -> usize) -> Vec<String> {
    let (mut decoder, mut commands) = (Decoder::default(), Vec::new());
    let (mut head, mut arrived) = (0, 0);
    loop {
        let bytes = &stream[head.min(arrived)..arrived];
        let mut next = decoder;
        let consumed = match next.decode(bytes) {
            DecodedCommand::TooLong => {
                commands.push("too long".to_owned());
                return commands;
            }
            DecodedCommand::Foreign(protocol) => {
                commands.push(format!("{protocol:?}"));
                return commands;
            }
            DecodedCommand::Incomplete | DecodedCommand::Partial { .. }
                if arrived == stream.len() =>
            {
                return commands;
            }
            DecodedCommand::Incomplete | DecodedCommand::Partial { .. } => {
                arrived = arrived.saturating_add(piece(arrived).max(1)).min(stream.len());
                continue;
            }
            DecodedCommand::Skipped { consumed } => consumed,
            DecodedCommand::Complete { command, consumed } => {
                commands.push(format!("{command:?}"));
                let skipped = match command {
                    Command::Invalid(fault) => fault.skip_bytes,
                    _ => 0,
                };
                head += skipped;
                consumed
            }
        };
        assert!((1..=bytes.len()).contains(&consumed), "it makes progress within its input");
        decoder = next;
        head += consumed;
        arrived = arrived.max(head.min(stream.len()));
        if head >= stream.len() {
            return commands;
        }
    }
}
