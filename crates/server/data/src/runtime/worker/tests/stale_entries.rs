//! Entries of queues whose connection is gone.

use std::io::{ErrorKind, Read, Write};

use super::slices::TurnLog;
use super::{read_frames, set};
use crate::connection::close_reason::CloseReason;

#[test]
fn a_stale_turn_entry_is_not_the_next_connections() {
    let mut turns = TurnLog::new();
    let _gone = turns.connect();
    turns.worker.connections.close_all(&mut turns.worker.environment, CloseReason::ServerStopping);
    let mut client = turns.connect();
    client.write_all(&set(b"k", b"v")).unwrap();
    assert_eq!(turns.worker.connections.runnable(), 2);

    turns.run_next();
    client.set_nonblocking(true).unwrap();
    let early = client.read(&mut [0; 100]).map_err(|error| error.kind());
    assert_eq!(early, Err(ErrorKind::WouldBlock));

    turns.run_next();
    client.set_nonblocking(false).unwrap();
    assert_eq!(read_frames(&mut client, 1)[0].0, 0);
}
