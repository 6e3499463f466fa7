//! Several nodes: operations go where the map says, and follow it when it changes.

use std::io::{Read, Write};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use oribi_client::{
    Client, ClientError, Completion, ConnectOptions, Operation, PipelineOptions, RejectionKind,
    WriteOptions,
};
use oribi_protocol::frame::Frame;
use oribi_protocol::opcode::Opcode;
use oribi_protocol::request::ConfigVersion;
use oribi_protocol::response::{ResponseParts, write_clustermap_notification, write_response};
use oribi_protocol::status::Status;

use crate::support::{
    ServerAction, answer, bind, cluster_map_of, handshake, key_per_vbucket, opcode, options_for,
    serve, serve_on, serve_streams,
};

async fn connect(options: ConnectOptions) -> Client {
    Client::connect(options).await.expect("the handshake succeeds")
}

/// Answers like the node at `position` of a cluster with this map, and refuses what is not its own.
struct ScriptedNode {
    position: i32,
    /// Map and who is active, shared by all nodes.
    map: Arc<Mutex<Map>>,
    /// Content of refusals.
    refusal: fn(&Map) -> Vec<u8>,
    fetches: Arc<AtomicUsize>,
}

struct Map {
    revision: u32,
    ports: Vec<u16>,
    active: Vec<i32>,
}

impl Map {
    fn json(&self) -> Vec<u8> {
        cluster_map_of(self.revision, &self.ports, &self.active)
    }
}

impl ScriptedNode {
    fn serve(&mut self, frame: &Frame<'_>, out: &mut Vec<u8>) -> ServerAction {
        let map = self.map.lock().expect("no test panics with it");
        match opcode(frame) {
            Opcode::GetClusterConfig => {
                self.fetches.fetch_add(1, Ordering::SeqCst);
                answer(out, frame, Status::Success, &[], &map.json());
            }
            Opcode::Get | Opcode::Set => {
                let vbid = usize::from(frame.header.vbucket_or_status);
                if map.active[vbid] == self.position {
                    let value = self.position.to_string();
                    answer(out, frame, Status::Success, b"\0\0\0\0", value.as_bytes());
                } else {
                    answer(out, frame, Status::NotMyVbucket, &[], &(self.refusal)(&map));
                }
            }
            _ => assert!(handshake(out, frame)),
        }
        ServerAction::GoOn
    }
}

/// Two nodes, and the map that they share.
struct TwoNodes {
    options: ConnectOptions,
    map: Arc<Mutex<Map>>,
    /// How often the map was fetched, from any node.
    fetches: Arc<AtomicUsize>,
}

impl TwoNodes {
    fn start(active: &[i32], refusal: fn(&Map) -> Vec<u8>) -> TwoNodes {
        let listeners = [bind(), bind()];
        let ports = listeners.iter().map(|(_, port)| *port).collect();
        let map = Arc::new(Mutex::new(Map { revision: 1, ports, active: active.to_vec() }));
        let options = options_for(listeners[0].1);
        let fetches = Arc::new(AtomicUsize::new(0));
        for (position, (listener, _)) in (0..).zip(listeners) {
            let (map, fetches) = (map.clone(), fetches.clone());
            let mut node = ScriptedNode { position, map, refusal, fetches };
            serve_on(listener, move |frame, out| node.serve(frame, out));
        }
        TwoNodes { options, map, fetches }
    }

    fn change(&self, active: &[i32]) {
        let mut map = self.map.lock().expect("no test panics with it");
        map.revision += 1;
        map.active = active.to_vec();
    }

    fn fetches(&self) -> usize {
        self.fetches.load(Ordering::SeqCst)
    }
}

async fn read(client: &Client, key: &[u8]) -> Bytes {
    let document = client.get(client.default_collection(), key).await.expect("an answer");
    document.expect("a hit").value
}

#[tokio::test]
async fn operations_go_to_the_node_of_their_vbucket() {
    let nodes = TwoNodes::start(&[0, 1, 1, 0], |_| panic!("nothing goes to the wrong node"));
    let client = connect(nodes.options.clone()).await;
    for (key, node) in key_per_vbucket(4).iter().zip(["0", "1", "1", "0"]) {
        assert_eq!(read(&client, key).await, node);
    }
    let mut pipeline = client.pipeline(PipelineOptions::default());
    let keys = key_per_vbucket(4);
    for number in 0..400 {
        pipeline.queue(client.default_collection(), &Operation::get(&keys[number % 4])).unwrap();
    }
    for number in 0..400_usize {
        let completed = pipeline.next().await.expect("a result for each");
        let node = ["0", "1", "1", "0"][number % 4];
        assert_eq!(
            (completed.number, completed.result.unwrap().value),
            (number as u64, Bytes::from(node))
        );
    }
    assert_eq!(nodes.fetches(), 1);
}

#[tokio::test]
async fn a_refusal_with_a_newer_map_is_enough() {
    let nodes = TwoNodes::start(&[0, 0], Map::json);
    let client = connect(nodes.options.clone()).await;
    nodes.change(&[0, 1]);
    assert_eq!(read(&client, &key_per_vbucket(2)[1]).await, "1");
    assert_eq!(client.config().version.revision, 2);
    assert_eq!(nodes.fetches(), 1, "the map came with the refusal");
}

#[tokio::test]
async fn a_refusal_without_a_newer_map_has_it_fetched() {
    let refusals: [fn(&Map) -> Vec<u8>; 4] = [
        |_| Vec::new(),
        |_| b"{}".to_vec(),
        |_| vec![0xff; 100],
        |map| cluster_map_of(map.revision - 1, &map.ports, &[1, 0]),
    ];
    for refusal in refusals {
        let nodes = TwoNodes::start(&[0, 0], refusal);
        let client = connect(nodes.options.clone()).await;
        nodes.change(&[0, 1]);
        assert_eq!(read(&client, &key_per_vbucket(2)[1]).await, "1");
        assert_eq!(client.config().version.revision, 2);
        assert_eq!(nodes.fetches(), 2);
    }
}

/// The refusals of a pipeline are results; what follows them goes by the new map.
#[tokio::test]
async fn a_pipeline_learns_the_map_from_a_refusal() {
    for refusal in [Map::json, |_: &Map| Vec::new()] as [fn(&Map) -> Vec<u8>; 2] {
        let nodes = TwoNodes::start(&[0, 0], refusal);
        let client = connect(nodes.options.clone()).await;
        nodes.change(&[1, 1]);
        let key = &key_per_vbucket(2)[0];
        let mut pipeline = client.pipeline(PipelineOptions::default());
        let deadline = Instant::now() + Duration::from_secs(10);
        let mut refused = 0;
        loop {
            pipeline.queue(client.default_collection(), &Operation::get(key)).unwrap();
            match pipeline.next().await.expect("one result").result {
                Ok(reply) => break assert_eq!(reply.value, "1"),
                Err(error) => assert_eq!(error.rejection(), Some(RejectionKind::NotMyVbucket)),
            }
            refused += 1;
            assert!(Instant::now() < deadline, "the map is fetched in the background");
        }
        assert!(refused >= 1);
    }
}

/// Nodes that disagree with their own map: the operation ends in time, and they are not hammered.
#[tokio::test]
async fn endless_refusals_end_at_the_deadline() {
    let nodes = TwoNodes::start(&[0, 0], Map::json);
    let timeout = Duration::from_millis(300);
    let client = connect(nodes.options.clone().operation_timeout(timeout)).await;
    nodes.map.lock().expect("no panic").active = vec![5, 5];
    let key = &key_per_vbucket(2)[0];
    let started = Instant::now();
    let error = client.get(client.default_collection(), key).await.unwrap_err();
    // On a slow machine the deadline may come while an attempt is in flight.
    if !matches!(error, ClientError::Timeout { .. }) {
        assert_eq!(error.rejection(), Some(RejectionKind::NotMyVbucket));
    }
    assert!(started.elapsed() < timeout + Duration::from_secs(3));
    assert!(nodes.fetches() < 60, "{} fetches", nodes.fetches());
}

#[tokio::test]
async fn a_vbucket_without_a_node_is_waited_for() {
    let nodes = TwoNodes::start(&[-1], Map::json);
    let client = connect(nodes.options.clone()).await;
    let key = b"k";
    let mut pipeline = client.pipeline(PipelineOptions::default());
    pipeline.queue(client.default_collection(), &Operation::get(key)).unwrap();
    let result = pipeline.next().await.expect("one result").result;
    assert_eq!(result.unwrap_err().rejection(), Some(RejectionKind::NotMyVbucket));
    nodes.change(&[1]);
    assert_eq!(read(&client, key).await, "1");
}

/// A node that is not in the map any more loses its connection; one that is new gets one.
#[tokio::test]
async fn nodes_come_and_go_with_the_map() {
    let (old_listener, old_port) = bind();
    let (new_listener, new_port) = bind();
    let (sender, old_ended) = tokio::sync::oneshot::channel::<()>();
    let sender = Mutex::new(Some(sender));
    serve_streams(old_listener, move |mut stream, _| {
        let script = Mutex::new(|frame: &Frame<'_>, out: &mut Vec<u8>| {
            match opcode(frame) {
                Opcode::GetClusterConfig => {
                    answer(out, frame, Status::Success, &[], &cluster_map_of(1, &[old_port], &[0]));
                }
                Opcode::Get => {
                    let map = cluster_map_of(2, &[new_port], &[0]);
                    answer(out, frame, Status::NotMyVbucket, &[], &map);
                }
                _ => assert!(handshake(out, frame)),
            }
            ServerAction::GoOn
        });
        crate::support::serve_one(&mut stream, &script);
        let sender = sender.lock().expect("no panic").take();
        sender.expect("there is one connection").send(()).expect("the test waits for it");
    });
    serve_on(new_listener, |frame, out| {
        if !handshake(out, frame) {
            answer(out, frame, Status::Success, b"\0\0\0\0", b"new");
        }
        ServerAction::GoOn
    });
    let client = connect(options_for(old_port)).await;
    assert_eq!(read(&client, b"k").await, "new");
    assert_eq!(client.config().nodes[0].port, new_port);
    let patience = Duration::from_secs(10);
    tokio::time::timeout(patience, old_ended).await.expect("it is closed").expect("and says so");
}

#[tokio::test]
async fn a_seed_that_is_down_is_passed_over() {
    let nodes = TwoNodes::start(&[0], Map::json);
    let (listener, dead_port) = bind();
    drop(listener);
    let all_dead = nodes.options.clone().port(dead_port).seed("127.0.0.1", dead_port);
    let client = connect(all_dead.clone().seed(&*nodes.options.host, nodes.options.port)).await;
    assert_eq!(read(&client, b"k").await, "0");
    let error = Client::connect(all_dead).await.err().expect("nobody is there");
    assert!(matches!(&error, ClientError::Connect { .. }), "{error}");
    assert!(error.to_string().contains(&dead_port.to_string()), "{error}");
}

/// A server that refuses name and password is believed; the other seeds would say the same.
#[tokio::test]
async fn no_seed_is_asked_after_a_refusal() {
    let refusing = serve(|frame, out| {
        match opcode(frame) {
            Opcode::SaslAuth => answer(out, frame, Status::AuthError, &[], b""),
            _ => assert!(handshake(out, frame)),
        }
        ServerAction::GoOn
    });
    let untouched = serve(|_, _| panic!("nobody comes here"));
    let options = refusing.seed(untouched.host, untouched.port);
    let error = Client::connect(options).await.err().expect("refused");
    assert!(matches!(error, ClientError::Authentication(_)), "{error}");
}

/// A map that is announced is fetched before anything is refused.
#[tokio::test]
async fn announced_maps_are_fetched() {
    let nodes = TwoNodes::start(&[0, 0], |_| panic!("nothing is refused"));
    let (listener, port) = bind();
    let map = nodes.map.clone();
    // A third server, which only announces; the map that it gives leads to the two nodes.
    serve_on(listener, move |frame, out| {
        let map = map.lock().expect("no panic");
        match opcode(frame) {
            Opcode::GetClusterConfig => {
                answer(out, frame, Status::Success, &[], &map.json());
            }
            Opcode::Get => {
                let version = ConfigVersion { epoch: 1, revision: 2 };
                write_clustermap_notification(out, b"default", version, b"", 0);
                answer(out, frame, Status::Success, b"\0\0\0\0", b"announced");
            }
            _ => assert!(handshake(out, frame)),
        }
        ServerAction::GoOn
    });
    nodes.map.lock().expect("no panic").ports = vec![port];
    let client = connect(options_for(port)).await;
    let ports = [nodes.options.port, nodes.options.port];
    {
        let mut map = nodes.map.lock().expect("no panic");
        map.revision = 2;
        map.ports = ports.to_vec();
    }
    assert_eq!(client.config().version.revision, 1);
    assert_eq!(read(&client, b"k").await, "announced");
    let deadline = Instant::now() + Duration::from_secs(10);
    while client.config().version.revision != 2 {
        assert!(Instant::now() < deadline, "the announced map comes");
        tokio::task::yield_now().await;
    }
}

/// With several connections to a node, all operations on one key take the same one.
#[tokio::test]
async fn a_key_keeps_its_connection() {
    let (listener, port) = bind();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let log = seen.clone();
    serve_streams(listener, move |mut stream, number| {
        let script = Mutex::new(|frame: &Frame<'_>, out: &mut Vec<u8>| {
            if !handshake(out, frame) {
                log.lock().expect("no panic").push((frame.key.to_vec(), number));
                answer(out, frame, Status::Success, &[], b"");
            }
            ServerAction::GoOn
        });
        crate::support::serve_one(&mut stream, &script);
    });
    let options = options_for(port).connections_per_node(3);
    let client = connect(options).await;
    let mut pipeline = client.pipeline(PipelineOptions::default());
    for number in 0..300 {
        let key = format!("key{}", number % 30);
        let operation = Operation::upsert(key.as_bytes(), Bytes::new(), &WriteOptions::default());
        pipeline.queue(client.default_collection(), &operation).unwrap();
    }
    while let Some(Completion { result, .. }) = pipeline.next().await {
        result.unwrap();
    }
    let mut seen = seen.lock().expect("no panic").clone();
    assert_eq!(seen.len(), 300);
    seen.sort();
    seen.dedup();
    assert_eq!(seen.len(), 30, "each key on one connection: {seen:?}");
    let mut connections: Vec<usize> = seen.iter().map(|(_, number)| *number).collect();
    connections.sort_unstable();
    connections.dedup();
    assert_eq!(connections.len(), 3, "all are used");
}

/// An operation in flight on a node that leaves the map still gets its answer.
#[tokio::test]
async fn operations_outlive_their_nodes_place_in_the_map() {
    let (listener, port) = bind();
    let (other_listener, other_port) = bind();
    let (sender, release) = std::sync::mpsc::channel::<()>();
    let release = Mutex::new(release);
    serve_streams(listener, move |mut stream, _| {
        // The bootstrap's own map, so that the node has the right place in it.
        let script = Mutex::new(|frame: &Frame<'_>, out: &mut Vec<u8>| {
            match opcode(frame) {
                Opcode::GetClusterConfig => {
                    answer(out, frame, Status::Success, &[], &cluster_map_of(1, &[port], &[0]));
                    return ServerAction::HandOver;
                }
                _ => assert!(handshake(out, frame)),
            }
            ServerAction::GoOn
        });
        crate::support::serve_one(&mut stream, &script);
        let mut request = [0; 24 + 2];
        stream.read_exact(&mut request).expect("one read comes");
        // While it waits, another request brings the news.
        let mut second = [0; 24 + 2];
        stream.read_exact(&mut second).expect("another read comes");
        let refusal = cluster_map_of(2, &[other_port], &[0]);
        let parts = |opaque: &[u8; 26], status, value| {
            let opaque = u32::from_be_bytes([12, 13, 14, 15].map(|at: usize| opaque[at]));
            let mut out = Vec::new();
            let parts = ResponseParts { value, ..ResponseParts::new(0, status, opaque) };
            write_response(&mut out, &parts);
            out
        };
        stream.write_all(&parts(&second, Status::NotMyVbucket, &refusal)).expect("it is read");
        release.lock().expect("no panic").recv().expect("the test goes on");
        stream.write_all(&parts(&request, Status::Success, b"late")).expect("it is read");
        stream.read_exact(&mut request).expect_err("then it is closed");
    });
    serve_on(other_listener, |frame, out| {
        if !handshake(out, frame) {
            answer(out, frame, Status::Success, b"", b"other");
        }
        ServerAction::GoOn
    });
    let client = connect(options_for(port)).await;
    let collection = client.default_collection();
    let mut pipeline = client.pipeline(PipelineOptions::default());
    pipeline.queue(collection, &Operation::get(b"k")).unwrap();
    assert_eq!(read(&client, b"k").await, "other");
    sender.send(()).expect("the server waits for it");
    let reply = pipeline.next().await.expect("one result").result;
    assert_eq!(reply.unwrap().value, "late");
}

/// A request for any node goes to another one when the first cannot be reached.
#[tokio::test]
async fn any_node_stands_in_for_one_that_is_gone() {
    let (listener, port) = bind();
    let (other_listener, other_port) = bind();
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("the client comes");
        let script = Mutex::new(|frame: &Frame<'_>, out: &mut Vec<u8>| {
            match opcode(frame) {
                Opcode::GetClusterConfig => {
                    let map = cluster_map_of(1, &[port, other_port], &[0, 1]);
                    answer(out, frame, Status::Success, &[], &map);
                    return ServerAction::Close;
                }
                _ => assert!(handshake(out, frame)),
            }
            ServerAction::GoOn
        });
        crate::support::serve_one(&mut stream, &script);
    });
    serve_on(other_listener, |frame, out| {
        if !handshake(out, frame) {
            assert_eq!(opcode(frame), Opcode::CollectionsGetId);
            let id = [0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 9];
            answer(out, frame, Status::Success, &id, b"");
        }
        ServerAction::GoOn
    });
    let client = connect(options_for(port)).await;
    server.join().expect("the first node ends");
    let collection = client.collection("shop.carts").await.unwrap();
    assert_eq!(collection.id().0, 9);
}

/// A node dies without a word. Whoever waits for it goes to the one that takes its place in the
/// map, long before the operation's own patience ends: reads, and writes that were not sent.
#[tokio::test]
async fn requests_of_a_dead_node_go_to_its_successor() {
    let (listener, port) = bind();
    let (dead_listener, dead_port) = bind();
    drop(dead_listener);
    let fetches = AtomicUsize::new(0);
    serve_on(listener, move |frame, out| {
        match opcode(frame) {
            Opcode::GetClusterConfig => {
                // The cluster takes a while to notice.
                let map = match fetches.fetch_add(1, Ordering::SeqCst) {
                    0..4 => cluster_map_of(1, &[port, dead_port], &[1, 1]),
                    _ => cluster_map_of(2, &[port], &[0, 0]),
                };
                answer(out, frame, Status::Success, &[], &map);
            }
            Opcode::Get => answer(out, frame, Status::Success, b"\0\0\0\0", b"successor"),
            Opcode::Set => answer(out, frame, Status::Success, b"", b""),
            _ => assert!(handshake(out, frame)),
        }
        ServerAction::GoOn
    });
    let patience = Duration::from_secs(600);
    let client = connect(options_for(port).operation_timeout(patience)).await;
    let (reading, writing) = (key_per_vbucket(2)[0].clone(), key_per_vbucket(2)[1].clone());
    let collection = client.default_collection();
    let options = WriteOptions::default();
    let write = client.upsert(collection, &writing, Bytes::from_static(b"v"), &options);
    let both = async { tokio::join!(read(&client, &reading), write) };
    let (found, written) =
        tokio::time::timeout(Duration::from_secs(60), both).await.expect("nobody waits that long");
    assert_eq!(found, "successor");
    written.expect("the successor takes it");
}

/// A node that does not hear from the cluster refuses what is not its own any more and gives its
/// old map. It was asked for the map again and again, because it was connected and answered.
#[tokio::test]
async fn a_stale_node_does_not_hide_the_newer_map() {
    let ((behind, port), (ahead, next_port)) = (bind(), bind());
    let ports = [port, next_port];
    serve_on(behind, move |frame, out| {
        match opcode(frame) {
            Opcode::GetClusterConfig => {
                answer(out, frame, Status::Success, &[], &cluster_map_of(1, &ports, &[0, 1]));
            }
            Opcode::Get => answer(out, frame, Status::NotMyVbucket, &[], b""),
            _ => assert!(handshake(out, frame)),
        }
        ServerAction::GoOn
    });
    serve_on(ahead, move |frame, out| {
        match opcode(frame) {
            Opcode::GetClusterConfig => {
                answer(out, frame, Status::Success, &[], &cluster_map_of(2, &ports, &[1, 1]));
            }
            Opcode::Get => answer(out, frame, Status::Success, b"\0\0\0\0", b"ahead"),
            _ => assert!(handshake(out, frame)),
        }
        ServerAction::GoOn
    });
    let keys = key_per_vbucket(2);
    // Neither a node that is connected already nor one that is not may be passed over.
    for connected in [false, true] {
        let options = options_for(port).operation_timeout(Duration::from_secs(600));
        let client = connect(options).await;
        if connected {
            assert_eq!(read(&client, &keys[1]).await, "ahead");
        }
        assert_eq!(client.config().version.revision, 1);
        let found = tokio::time::timeout(Duration::from_secs(60), read(&client, &keys[0])).await;
        assert_eq!(found.expect("nobody waits that long"), "ahead");
        assert_eq!(client.config().version.revision, 2);
    }
}
