//! Random sequences of everything that a queue can be asked for.

use proptest::prelude::{Just, ProptestConfig, Strategy, prop_oneof, proptest};

use super::{READERS, ReadLimits, World, limits};

#[derive(Clone, Debug)]
enum Op {
    Enqueue { key: u16, deleted: bool },
    EnqueueMany { from: u16, count: u16 },
    Overwrite { key: u16, times: u16 },
    Purge(u16),
    Read { reader: usize, items_max: usize },
    ReadBounded { reader: usize, bytes_max: usize },
    Advance(usize),
    Rewind,
    Register { reader: usize, permille: u64 },
    Drop(usize),
    DropSlow,
    Expel,
    Settle,
    Close,
    Wait,
    Clear,
    EndStreams,
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let reader = || 0..READERS;
    let op = prop_oneof![
        8 => (0u16..40, proptest::bool::ANY)
            .prop_map(|(key, deleted)| Op::Enqueue { key, deleted }),
        2 => (0u16..2000, 1u16..700).prop_map(|(from, count)| Op::EnqueueMany { from, count }),
        1 => (0u16..40, 200u16..600).prop_map(|(key, times)| Op::Overwrite { key, times }),
        1 => (0u16..40).prop_map(Op::Purge),
        5 => (reader(), 0usize..2000)
            .prop_map(|(reader, items_max)| Op::Read { reader, items_max }),
        1 => (reader(), 0usize..60_000)
            .prop_map(|(reader, bytes_max)| Op::ReadBounded { reader, bytes_max }),
        3 => reader().prop_map(Op::Advance),
        1 => Just(Op::Rewind),
        1 => (reader(), 0u64..1001)
            .prop_map(|(reader, permille)| Op::Register { reader, permille }),
        1 => reader().prop_map(Op::Drop),
        1 => Just(Op::DropSlow),
        2 => Just(Op::Expel),
        2 => Just(Op::Settle),
        1 => Just(Op::Close),
        1 => Just(Op::Wait),
        1 => Just(Op::Clear),
        1 => Just(Op::EndStreams),
    ];
    proptest::collection::vec(op, 0..100)
}

impl World {
    fn apply(&mut self, op: &Op) {
        match *op {
            Op::Enqueue { key, deleted } => self.enqueue(key, deleted),
            Op::EnqueueMany { from, count } => {
                (from..from + count).for_each(|key| self.enqueue(key, false));
            }
            Op::Overwrite { key, times } => (0..times).for_each(|_| self.enqueue(key, false)),
            Op::Purge(key) => self.purge(key),
            Op::Read { reader, items_max } => self.read(reader, limits(items_max)),
            Op::ReadBounded { reader, bytes_max } => {
                let limits = ReadLimits { items_max: usize::MAX, bytes_max, checkpoints_max: 2 };
                self.read(reader, limits);
            }
            Op::Advance(reader) => self.advance(reader),
            Op::Rewind => self.rewind(),
            Op::Register { reader, permille } => {
                self.register(reader, self.high().0 * permille / 1000);
            }
            Op::Drop(reader) => self.drop_reader(reader),
            Op::DropSlow => self.drop_slow(),
            Op::Expel => self.expel(),
            Op::Settle => self.settle(),
            Op::Close => {
                let was_used = self.manager.open.start <= self.high().0;
                assert_eq!(self.manager.close_open(), was_used);
            }
            Op::Wait => self.now.unix_ns += 1 << 30,
            Op::Clear => self.clear(),
            Op::EndStreams => self.end_streams(),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    // Invariant: Every enqueue takes one slot and one seqno, and the slot follows from the seqno by
    // arithmetic.
    // Invariant: A batch is a run of checkpoints with the newest version of each key, durable as a
    // whole or not at all.
    #[test]
    fn keeps_its_invariants(ops in ops()) {
        let mut world = World::new();
        for op in &ops {
            world.apply(op);
            world.check();
        }
        world.drain();
    }
}
