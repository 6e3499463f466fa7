//! The machine against a model of a producer: random histories, snapshots, crashes and resumes.

use std::collections::BTreeMap;

use oribi_protocol::dcp::end_reason::EndReason;
use oribi_protocol::frame::{self, DecodedFrame};
use oribi_protocol::opcode::Opcode;
use oribi_protocol::status::Status;
use oribi_types::VbUuid;
use proptest::prelude::*;

use self::producer::{ProducerModel, ProducerStep};
use super::super::event::ChangeKind;
use super::*;
use crate::collection::{ManifestCollection, ManifestScope};

mod producer;

const VBID: Vbid = Vbid(0);

/// A consumer's copy, made from its events: the versions of each key, by seqno.
#[derive(Default)]
struct Copy {
    versions: BTreeMap<Vec<u8>, BTreeMap<Seqno, Option<Vec<u8>>>>,
}

impl Copy {
    fn state(&self) -> BTreeMap<Vec<u8>, Vec<u8>> {
        let newest = |versions: &BTreeMap<_, Option<Vec<u8>>>| versions.values().last()?.clone();
        self.versions.iter().filter_map(|(key, v)| Some((key.clone(), newest(v)?))).collect()
    }

    /// Reads documents again that changed after `seqno`, as an application does.
    fn read_again_behind(&mut self, seqno: Seqno, producer: &ProducerModel) {
        let present = producer.state_at(seqno);
        for (key, versions) in &mut self.versions {
            if versions.keys().any(|at| *at > seqno) {
                *versions = [(seqno, present.get(key).cloned())].into();
            }
        }
    }
}

/// A machine, its producer, and the copy that is made.
struct Run {
    machine: DcpStateMachine,
    producer: ProducerModel,
    feed: DcpConnectionId,
    copy: Copy,
    rollbacks: usize,
}

impl Run {
    fn new(machine: DcpStateMachine) -> Run {
        Run {
            machine,
            producer: ProducerModel::new(),
            feed: 1,
            copy: Copy::default(),
            rollbacks: 0,
        }
    }

    fn from_beginning() -> Run {
        let from = ChangeToken::new(Rest::Beginning);
        Run::new(DcpStateMachine::new(
            1,
            &from,
            CollectionFilter::All,
            false,
            CollectionNameCache::new(),
        ))
    }

    fn begin(&mut self) {
        let mut out = Vec::new();
        self.machine.begin(self.feed, VBID, true, &mut out);
        self.exchange(out);
    }

    /// Hands requests over and takes the answers until there are no more requests.
    fn exchange(&mut self, mut requests: Vec<u8>) {
        while !requests.is_empty() {
            let answers = self.producer.answer(&requests);
            requests = self.take(&answers);
        }
    }

    /// Takes bytes of the producer; returns the machine's requests.
    fn take(&mut self, mut bytes: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        while let Ok(DecodedFrame::Complete { consumed, .. }) = frame::decode(bytes) {
            let block = Bytes::copy_from_slice(&bytes[..consumed]);
            let frame = Frame::whole(&block).expect("it was decoded");
            let taken = self.machine.take(self.feed, &frame, &block, true, &mut out);
            let taken = taken.expect("the producer keeps to the protocol");
            bytes = &bytes[consumed..];
            if let Some(change) = taken.change {
                let change = self.machine.share(change, &block);
                self.see(DcpEvent::Change(change));
            }
            while let Some(event) = self.machine.next_event() {
                self.see(event);
            }
        }
        out
    }

    fn see(&mut self, event: DcpEvent) {
        match event {
            DcpEvent::Change(change) => {
                let value = (change.kind == ChangeKind::Mutation)
                    .then(|| change.value().expect("a plain value").to_vec());
                let versions = self.copy.versions.entry(change.key.to_vec()).or_default();
                let before = versions.insert(change.position.seqno, value);
                assert_eq!(before, None, "a change came twice");
            }
            DcpEvent::SnapshotEnd(position) => {
                assert_eq!(self.copy.state(), self.producer.state_at(position.seqno));
            }
            DcpEvent::Rollback(Rollback { to, .. }) => {
                self.rollbacks += 1;
                self.copy.read_again_behind(to.seqno, &self.producer);
            }
            other => panic!("{other:?}"),
        }
    }

    fn step(&mut self, step: &ProducerStep) {
        match step {
            ProducerStep::Write { key, value } => self.producer.write(*key, *value),
            ProducerStep::Persist => self.producer.persist(),
            ProducerStep::Send { items } => {
                let bytes = self.producer.send(*items);
                self.take(&bytes);
            }
            ProducerStep::Disconnect => {
                self.producer.disconnect();
                self.machine.lose(self.feed);
                self.feed += 1;
                self.begin();
            }
            ProducerStep::Crash => {
                self.producer.crash();
                self.machine.lose(self.feed);
                self.feed += 1;
                self.begin();
            }
            ProducerStep::Restart => {
                // The application saves its token as text, and its copy.
                let token = self.machine.token().to_string().parse().expect("a token");
                self.producer.disconnect();
                self.machine = DcpStateMachine::new(
                    1,
                    &token,
                    CollectionFilter::All,
                    false,
                    CollectionNameCache::new(),
                );
                self.begin();
            }
        }
    }

    /// Sends everything that there is.
    fn settle(&mut self) {
        for _ in 0..100 {
            let bytes = self.producer.send(1000);
            if bytes.is_empty() {
                return;
            }
            self.take(&bytes);
        }
        panic!("the producer does not end");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    // Invariant: A consumer that resumes at its position repeats no change and omits none.
    /// Whatever happens to server, connection and application, the copy is the server's state at
    /// every end of a snapshot, and at the end.
    #[test]
    fn a_copy_follows_every_history(steps in proptest::collection::vec(producer::steps(), 0..80)) {
        let mut run = Run::from_beginning();
        run.begin();
        for step in &steps {
            run.step(step);
        }
        run.settle();
        prop_assert_eq!(run.copy.state(), run.producer.state_at(Seqno(u64::MAX)));
    }

    /// A stream that starts now shows what was written since, and one that ends now ends.
    #[test]
    fn from_now_and_until_now(before in 0..20_u8, after in 1..20_u8) {
        let from = ChangeToken::new(Rest::Now);
        let mut run = Run::new(DcpStateMachine::new(1, &from, CollectionFilter::All, false, CollectionNameCache::new()));
        (0..before).for_each(|key| run.producer.write(key, Some(1)));
        prop_assert_eq!(run.machine.token().to_string(), "rest=now");
        run.begin();
        run.producer.ignore_before_now();
        (0..after).for_each(|key| run.producer.write(key, Some(2)));
        run.settle();
        prop_assert_eq!(run.copy.versions.len(), usize::from(after));

        let from = ChangeToken::new(Rest::Beginning);
        let producer = run.producer;
        let mut run = Run::new(DcpStateMachine::new(1, &from, CollectionFilter::All, true, CollectionNameCache::new()));
        run.producer = producer;
        run.producer.ignore_nothing();
        run.begin();
        prop_assert!(!run.machine.is_finished());
        run.settle();
        prop_assert!(run.machine.is_finished());
        prop_assert_eq!(run.copy.state(), run.producer.state_at(Seqno(u64::MAX)));
    }
}

/// A stream that ended now, resumed in a history that the server had lost, was over at once if the
/// lost history was not shorter than the present one. The consumer kept what was gone.
#[test]
fn a_stream_that_ends_now_is_told_of_a_lost_history() {
    let mut run = Run::from_beginning();
    run.begin();
    run.producer.write(1, Some(1));
    run.producer.persist();
    run.producer.write(9, Some(1));
    run.settle();
    let (token, copy) = (run.machine.token(), run.copy);
    run.copy = Copy::default();
    run.step(&ProducerStep::Crash);
    let producer = run.producer;
    let mut run = Run::new(DcpStateMachine::new(
        1,
        &token,
        CollectionFilter::All,
        true,
        CollectionNameCache::new(),
    ));
    (run.producer, run.copy) = (producer, copy);
    run.begin();
    run.settle();
    assert!(run.machine.is_finished());
    assert_eq!((run.rollbacks, run.copy.state().len()), (1, 1));
}

/// An unclean end that loses what the consumer had is told, with both places.
#[test]
fn a_rollback_is_reported_once_to_the_shared_seqno() {
    let mut run = Run::from_beginning();
    run.begin();
    for key in 0..4 {
        run.producer.write(key, Some(1));
        run.producer.persist();
    }
    run.producer.write(9, Some(1));
    run.settle();
    assert_eq!(run.copy.state().len(), 5);
    run.step(&ProducerStep::Crash);
    assert_eq!((run.rollbacks, run.copy.state().len()), (1, 4));
    run.producer.write(7, Some(2));
    run.settle();
    assert_eq!(run.copy.state(), run.producer.state_at(Seqno(u64::MAX)));
}

/// Found by the property above: the first version of a document was left out of a snapshot for a
/// second one, which a crash took before it was sent. The first one was then never sent.
#[test]
fn a_superseded_version_returns_if_the_later_is_lost() {
    let mut run = Run::from_beginning();
    run.begin();
    run.producer.write(1, Some(1));
    run.producer.write(2, Some(1));
    run.producer.persist();
    run.producer.write(1, Some(2));
    run.step(&ProducerStep::Send { items: 1 });
    assert_eq!(run.copy.state(), [(vec![2], vec![1])].into(), "the other one is on its way");
    run.step(&ProducerStep::Crash);
    run.settle();
    assert_eq!(run.copy.state(), [(vec![1], vec![1]), (vec![2], vec![1])].into());
}

fn refused(status: Status, value: &[u8]) -> (DcpStateMachine, Result<FollowUp, MalformedResponse>) {
    let from: ChangeToken = "0:a:7".parse().unwrap();
    let wanted = CollectionFilter::Collections(vec![CollectionId(8), CollectionId(9)]);
    let mut machine = DcpStateMachine::new(1, &from, wanted, false, CollectionNameCache::new());
    let mut out = Vec::new();
    machine.begin(1, VBID, true, &mut out);
    let answer = Bytes::from(producer::response(&out, status, value));
    let frame = Frame::whole(&answer).expect("a frame");
    let taken = machine.take(1, &frame, &answer, true, &mut out);
    (machine, taken.map(|taken| taken.then))
}

#[test]
fn refusals_say_what_to_do() {
    let map = Bytes::from_static(b"map");
    for (status, expected) in [
        (Status::NotMyVbucket, FollowUp::Moved(VBID, map)),
        (Status::Etmpfail, FollowUp::Later(VBID)),
        (Status::Enomem, FollowUp::Later(VBID)),
        (Status::KeyEexists, FollowUp::Later(VBID)),
        (Status::UnknownCollection, FollowUp::CheckFilter(VBID)),
        (Status::Eaccess, FollowUp::Fail(RejectionKind::AccessDenied)),
        (Status::Einval, FollowUp::Fail(RejectionKind::Invalid)),
    ] {
        let (machine, then) = refused(status, b"map");
        assert_eq!(then, Ok(expected), "{status:?}");
        assert!(!machine.uses(1), "{status:?}");
    }
    for value in [&b""[..], &[0; 7], &[0; 16], &7_u64.to_be_bytes(), &9_u64.to_be_bytes()] {
        refused(Status::Rollback, value).1.expect_err("it does not lead back");
    }
    let (mut machine, then) = refused(Status::Rollback, &3_u64.to_be_bytes());
    assert_eq!(then, Ok(FollowUp::GoOn));
    let Some(DcpEvent::Rollback(rollback)) = machine.next_event() else { panic!("an event") };
    assert_eq!((rollback.from, rollback.to.to_string()), (Seqno(7), "0:a:3".to_owned()));
    assert!(machine.uses(1), "it has asked again");
}

/// A server refuses a filter with a collection that is gone, so it is taken out.
#[test]
fn collections_that_are_gone_are_not_asked_for_again() {
    let manifest = |ids: &[u32]| CollectionsManifest {
        uid: ManifestUid(3),
        scopes: vec![ManifestScope {
            name: "shop".to_owned(),
            id: ScopeId(8),
            collections: ids
                .iter()
                .map(|id| ManifestCollection {
                    name: format!("c{id}"),
                    id: CollectionId(*id),
                    max_ttl_s: None,
                })
                .collect(),
        }],
    };
    let (mut machine, _) = refused(Status::UnknownCollection, b"");
    machine.check_filter(&manifest(&[9, 10]));
    let mut out = Vec::new();
    machine.begin(1, VBID, true, &mut out);
    let text = String::from_utf8_lossy(&out);
    assert!(text.contains(r#""collections":["9"]"#), "{text}");
    machine.lose(1);
    machine.check_filter(&manifest(&[10]));
    assert!(machine.is_finished());
}

/// The end of a stream, and what is left over of an earlier one.
#[test]
fn only_the_present_stream_counts() {
    let mut run = Run::from_beginning();
    run.producer.write(1, Some(1));
    run.begin();
    let left_over = run.producer.send(1000);
    run.step(&ProducerStep::Disconnect);
    let (feed, before) = (run.feed, run.machine.token());
    run.feed = feed - 1;
    run.take(&left_over);
    assert_eq!(run.machine.token(), before, "it came over a connection that has ended");
    run.feed = feed;
    let mut out = Vec::new();
    EndReason::StateChanged.write(&mut out, run.producer.stream());
    run.take(&out);
    assert!(!run.machine.uses(feed) && !run.machine.is_finished());
}

#[test]
fn messages_before_the_answer_break_the_protocol() {
    let from = ChangeToken::new(Rest::Beginning);
    let mut machine =
        DcpStateMachine::new(1, &from, CollectionFilter::All, false, CollectionNameCache::new());
    let mut out = Vec::new();
    machine.begin(1, VBID, true, &mut out);
    let mut producer = ProducerModel::new();
    producer.write(1, Some(1));
    producer.answer(&out);
    let early = producer.send(10);
    let early = Bytes::from(early);
    let mut frame = Frame::whole(&early).expect("a frame");
    machine.take(1, &frame, &early, true, &mut out).expect_err("too early");
    // Of other vbuckets than the bucket has.
    frame.header.vbucket_or_status = 5;
    machine.take(1, &frame, &early, true, &mut out).expect_err("no such vbucket");
    assert_eq!(Opcode::from_u8(frame.header.opcode), Some(Opcode::DcpSnapshotMarker));
    assert_eq!(machine.token().position(VBID).map(|p| p.vb_uuid), Some(VbUuid(0)));
}

#[test]
fn moving_some_vbuckets_leaves_the_others() {
    let mut from = ChangeToken::new(Rest::Beginning);
    let elsewhere = Position::at(Vbid(2), VbUuid(7), Seqno(9));
    from.set(elsewhere);
    let mut machine =
        DcpStateMachine::new(3, &from, CollectionFilter::All, true, CollectionNameCache::new());
    machine.show_only(&[Vbid(1)]);
    let finished =
        |machine: &DcpStateMachine| [0, 1, 2].map(|vbid| machine.has_finished(Vbid(vbid)));
    assert_eq!((finished(&machine), machine.is_finished()), ([true, false, true], false));
    let mut out = Vec::new();
    machine.begin(1, Vbid(0), true, &mut out);
    machine.begin(1, Vbid(2), true, &mut out);
    assert!(out.is_empty(), "nothing is asked for");
    machine.begin(1, Vbid(1), true, &mut out);
    assert!(!out.is_empty());
    assert_eq!(machine.token().position(Vbid(2)), Some(&elsewhere));
    machine.end_stream(Vbid(1), EndReason::Ok);
    assert!(machine.is_finished());
}
