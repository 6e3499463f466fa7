//! `oribi watch` and change streams of the client library against a running server.

mod lines;
mod restarts;

use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdout, Stdio};
use std::sync::mpsc::{Receiver, channel};

use oribi_client::{
    Bytes, Client, Collection, ConnectOptions, DurabilityLevel, FLAGS_JSON, WriteOptions,
};
use oribi_testkit::{PATIENCE, poll_until};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

oribi_testkit::fixture!();

impl Fixture {
    /// Starts `oribi watch ARGUMENTS` against this server.
    fn watch(&self, arguments: &[&str]) -> WatchProcess {
        let mut command = self.command(&[&["watch"], arguments].concat());
        let mut child = command.stdout(Stdio::piped()).spawn().expect("the program runs");
        let stdout = child.stdout.take().expect("the output is piped");
        WatchProcess { child, lines: lines_of(stdout) }
    }

    /// Output of `oribi watch ARGUMENTS --until-now`.
    fn watched_until_now(&self, arguments: &[&str]) -> Vec<Value> {
        let arguments = [&["watch", "--until-now"], arguments].concat();
        let output = self.command(&arguments).output().expect("the program runs");
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{error}");
        String::from_utf8(output.stdout).expect("JSON is text").lines().map(parse).collect()
    }

    async fn client(&self) -> Client {
        let options = ConnectOptions::new("Administrator", "password", "default");
        let options = options.port(self.server.port());
        Client::connect(options).await.expect("the server is there")
    }

    fn path(&self, name: &str) -> String {
        self.directory.path().join(name).to_str().expect("temporary paths are text").to_owned()
    }
}

struct WatchProcess {
    child: Child,
    lines: Receiver<Value>,
}

impl WatchProcess {
    /// The next line that is wanted.
    fn next(&self, mut is_wanted: impl FnMut(&Value) -> bool) -> Value {
        loop {
            let line = self.lines.recv_timeout(PATIENCE).expect("a line comes");
            if is_wanted(&line) {
                return line;
            }
        }
    }

    /// The next change of this key.
    fn change_of(&self, key: &str) -> Value {
        self.next(|line| line["key"] == key)
    }

    /// Its end after a signal.
    fn end(mut self, signal: Signal) -> Option<i32> {
        kill_process(Pid::from_child(&self.child), signal).expect("it runs");
        self.wait()
    }

    fn wait(&mut self) -> Option<i32> {
        let status = poll_until(PATIENCE, || self.child.try_wait().expect("it can be waited for"));
        status.expect("it ends").code()
    }
}

impl Drop for WatchProcess {
    fn drop(&mut self) {
        // A test that failed must not leave its program behind.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn lines_of(stdout: ChildStdout) -> Receiver<Value> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(stdout).lines().map_while(Result::ok) {
            if sender.send(parse(&line)).is_err() {
                return;
            }
        }
    });
    receiver
}

fn parse(line: &str) -> Value {
    serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))
}

/// Writes a JSON document that is on disk when this returns.
async fn write(client: &Client, collection: &Collection, key: &str, number: u64) {
    let value = Bytes::from(format!(r#"{{"n":{number}}}"#));
    let durable = WriteOptions::json().durability(DurabilityLevel::PersistToMajority);
    loop {
        // Written on a connection whose end the client learns now; the same again does no harm.
        match client.upsert(collection, key.as_bytes(), value.clone(), &durable).await {
            Err(error) if error.was_interrupted() => {}
            outcome => {
                outcome.expect("it is written");
                return;
            }
        }
    }
}

async fn remove(client: &Client, key: &str) {
    let durable = WriteOptions::new().durability(DurabilityLevel::PersistToMajority);
    let collection = client.default_collection();
    client.delete(collection, key.as_bytes(), &durable).await.expect("it is removed");
}

/// Flags of the documents above.
const FLAGS: u32 = FLAGS_JSON;
