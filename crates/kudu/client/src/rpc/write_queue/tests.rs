//! The write queue against a plain buffer.

use std::sync::Arc;

use proptest::prelude::*;
use tokio::sync::Semaphore;

use super::*;
use crate::rpc::Method;

const METHOD: Method = Method { service: "service", name: "Method" };

fn header(call_id: i32) -> CallHeader<'static> {
    CallHeader {
        call_id,
        method: Some(&METHOD),
        timeout: None,
        required_feature_flags: &[],
        request_id: None,
    }
}

fn room(semaphore: &Arc<Semaphore>, permits: u32) -> OwnedSemaphorePermit {
    semaphore.clone().try_acquire_many_owned(permits).expect("enough room")
}

/// Takes at most this many bytes, like a socket in one vectored write.
fn take(queue: &mut WriteQueue, bytes_max: usize) -> Vec<u8> {
    let mut slices = [IoSlice::new(&[]); 3];
    let count = queue.slices(&mut slices);
    let mut taken: Vec<u8> =
        slices[..count].iter().flat_map(|slice| slice.iter().copied()).collect();
    taken.truncate(bytes_max);
    queue.advance(taken.len());
    taken
}

#[test]
fn the_pieces_of_a_body_are_queued_as_they_are() {
    let semaphore = Arc::new(Semaphore::new(10));
    let mut queue = WriteQueue::default();
    let pieces = [Bytes::from(vec![1; 100]), Bytes::new(), Bytes::from(vec![2; 100])];
    queue.push_call(&header(1), pieces.to_vec(), 1024, room(&semaphore, 1)).expect("small");
    let mut slices = [IoSlice::new(&[]); 8];
    let count = queue.slices(&mut slices);
    assert_eq!(count, 3, "a header and two pieces that are not empty");
    assert_eq!(slices[1].as_ptr(), pieces[0].as_ptr());
    assert_eq!(slices[2].as_ptr(), pieces[2].as_ptr());
}

#[test]
fn room_is_given_back_with_the_last_byte_of_a_frame() {
    let semaphore = Arc::new(Semaphore::new(10));
    let mut queue = WriteQueue::default();
    queue
        .push_call(&header(1), vec![Bytes::from_static(b"one")], 1024, room(&semaphore, 3))
        .expect("small");
    let first_bytes = queue.bytes();
    queue
        .push_call(&header(2), vec![Bytes::from_static(b"two")], 1024, room(&semaphore, 4))
        .expect("small");
    assert_eq!(semaphore.available_permits(), 3);
    queue.advance(first_bytes - 1);
    assert_eq!(semaphore.available_permits(), 3);
    queue.advance(1);
    assert_eq!(semaphore.available_permits(), 6);
    queue.advance(queue.bytes());
    assert_eq!(semaphore.available_permits(), 10);
    assert!(queue.is_empty());
}

#[test]
fn a_call_that_is_too_large_leaves_nothing_behind() {
    let semaphore = Arc::new(Semaphore::new(1));
    let mut queue = WriteQueue::default();
    let result =
        queue.push_call(&header(1), vec![Bytes::from(vec![0; 100])], 100, room(&semaphore, 1));
    assert!(matches!(result, Err(FrameError::TooLarge { bytes_max: 100, .. })));
    assert!(queue.is_empty());
    assert_eq!((queue.bytes(), semaphore.available_permits()), (0, 1));
}

proptest! {
    #[test]
    fn bytes_come_out_in_order_whatever_the_socket_takes(
        bodies in proptest::collection::vec(
            proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..40), 0..4),
            1..20,
        ),
        takes in proptest::collection::vec(1..60usize, 1..10),
    ) {
        let semaphore = Arc::new(Semaphore::new(bodies.len()));
        let mut queue = WriteQueue::default();
        let mut expected = Vec::new();
        let mut written = Vec::new();
        let mut takes = takes.iter().cycle();
        for (call_id, body) in bodies.iter().enumerate() {
            let mut head = BytesMut::new();
            let call_id = call_id as i32;
            header(call_id).encode(body.concat().len(), 1024, &mut head).expect("small");
            expected.extend_from_slice(&head);
            expected.extend_from_slice(&body.concat());
            let pieces = body.iter().map(|piece| Bytes::from(piece.clone())).collect();
            queue.push_call(&header(call_id), pieces, 1024, room(&semaphore, 1)).expect("small");
            written.extend(take(&mut queue, *takes.next().expect("endless")));
            prop_assert_eq!(queue.bytes(), expected.len() - written.len());
        }
        while !queue.is_empty() {
            written.extend(take(&mut queue, *takes.next().expect("endless")));
        }
        prop_assert_eq!(written, expected);
        prop_assert_eq!(semaphore.available_permits(), bodies.len());
    }
}
