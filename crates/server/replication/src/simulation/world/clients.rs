//! Clients of one simulated world: each has one operation open at most.

use oribi_types::DurabilityLevel;

use super::super::checker::RegisterCall;
use super::{
    CLIENTS_AGAIN_US, ClientAction, ClientAnswer, ClientOperation, END_US, KEYS, World, WorldEvent,
};

impl World {
    pub(super) fn call(&mut self, client: usize) {
        let is_quiet = self.is_healed && self.now_us < CLIENTS_AGAIN_US;
        let is_over = self.now_us > END_US - 2_500_000;
        if is_quiet || is_over {
            if !is_over {
                self.at(100_000, WorldEvent::Call { client });
            }
            return;
        }
        self.next_id += 1;
        let id = self.next_id;
        let key = self.random.below(u64::from(2 * KEYS)) as u8;
        let level = match self.random.below(4) {
            0 => DurabilityLevel::MajorityAndPersistOnMaster,
            1 => DurabilityLevel::PersistToMajority,
            _ => DurabilityLevel::Majority,
        };
        let committed = self.oracle.committed.get(usize::from(key)).and_then(|it| it.last());
        let action = match self.random.below(7) {
            0..3 => ClientAction::Read,
            3 => ClientAction::Swap { expected: committed.copied().unwrap_or(0), level },
            4 => ClientAction::Write { deleted: true, level },
            _ => ClientAction::Write { deleted: false, level },
        };
        let required = if key < KEYS { self.oracle.required(key) } else { None };
        let operation = ClientOperation { id, client, key, action, required };
        if key < KEYS {
            let call = match action {
                ClientAction::Read => RegisterCall::Read,
                ClientAction::Write { deleted: true, .. } => RegisterCall::Write { value: 0 },
                ClientAction::Write { .. } => RegisterCall::Write { value: id },
                ClientAction::Swap { expected, .. } => RegisterCall::Swap { expected, value: id },
            };
            self.oracle.registers[usize::from(key)].called(id, call);
        }
        self.clients[client] = Some(operation);
        let node = match self.random.chance(700) {
            true => usize::from(self.record.active.node),
            false => self.random.below(self.nodes.len() as u64) as usize,
        };
        let delay = self.random.range(100, 2000);
        self.at(delay, WorldEvent::Request { node, operation });
        self.at(1_500_000, WorldEvent::Timeout { client, id });
    }

    pub(super) fn answer(&mut self, operation: ClientOperation, answer: ClientAnswer) {
        let delay = self.random.range(100, 2000);
        self.at(delay, WorldEvent::Answer { operation, answer });
    }

    pub(super) fn answered(&mut self, operation: ClientOperation, answer: ClientAnswer) {
        let ClientOperation { id, client, key, .. } = operation;
        if self.clients[client].is_none_or(|current| current.id != id) {
            return;
        }
        self.clients[client] = None;
        let pause = self.random.range(1000, 60_000);
        self.at(pause, WorldEvent::Call { client });
        if key >= KEYS {
            return;
        }
        let register = &mut self.oracle.registers[usize::from(key)];
        match answer {
            ClientAnswer::Value(value) => {
                self.counts.reads += 1;
                register.returned(id, Some(value));
            }
            ClientAnswer::Done => {
                self.counts.durable += 1;
                register.returned(id, None);
                let known = self.oracle.writes.get_mut(&id).expect("it was prepared");
                known.acknowledged = true;
                self.counts.excused += u64::from(known.is_excused);
            }
            ClientAnswer::Rejected => register.rejected(id),
        }
    }
}
