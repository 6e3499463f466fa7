//! Readers of a running server's changes, for `bench/run --only streams`, which measures the
//! server.
//!
//! `dcp MODE --port PORT ...` writes lines of JSON. The modes:
//!
//! - `drain`: `--streams` readers take everything that there is, from the beginning;
//! - `follow`: `--streams` readers take what comes from now on. A line says when they have begun;
//!   they end with standard input. Streams without changes are the idle connections of the figures;
//! - `held`: a reader of what comes from now on, which stands still until it gets a line of input,
//!   and ends when it has `--changes` changes;
//! - `latency`: writes `--rate` documents a second for `--seconds`, and says how long each change
//!   took from the acknowledgement of its write to its reader;
//! - `floor`: no server. A thread writes the bytes of `--changes` changes to each of `--streams`
//!   sockets of loopback, whose readers throw them away, and says what processor time that took it:
//!   the kernel's part of a stream. With `--pause-us` it sleeps between looks of `--look` changes,
//!   as a live stream does; sleeping is not counted.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use oribi_client::{Bytes, Client, ConnectOptions, DcpEvent, DcpStreamOptions, Rest, WriteOptions};
use rustix::time::{ClockId, clock_gettime};
use serde_json::json;
use tokio::io::AsyncReadExt;
use tokio::sync::watch;
use tokio::task::JoinSet;

const USAGE: &str = "dcp drain|follow|held|latency|floor --port PORT [--streams N] [--rate N] \
                     [--seconds N] [--value-bytes N] [--changes N] [--look N] [--pause-us N]";

/// Bytes of a change without its value: header, extras, and a key of 20 bytes in the default
/// collection.
const CHANGE_BYTES_MIN: usize = 24 + 31 + 21;
/// Bytes that the server sends at once.
const SLICE_BYTES: usize = 160 << 10;

struct Arguments {
    mode: String,
    port: u16,
    streams: u32,
    rate: u32,
    seconds: u32,
    value_bytes: usize,
    changes: usize,
    look: usize,
    pause_us: u64,
}

impl Arguments {
    fn parse() -> Result<Arguments> {
        let mut parsed = Arguments {
            mode: String::new(),
            port: 11210,
            streams: 1,
            rate: 1000,
            seconds: 10,
            value_bytes: 512,
            changes: 1_000_000,
            look: 230,
            pause_us: 0,
        };
        let mut arguments = std::env::args().skip(1);
        while let Some(argument) = arguments.next() {
            let mut value = || arguments.next().with_context(|| format!("{argument}: {USAGE}"));
            match argument.as_str() {
                // Cargo adds it to whatever it runs as a bench.
                "--bench" => {}
                "--port" => parsed.port = value()?.parse()?,
                "--streams" => parsed.streams = value()?.parse()?,
                "--rate" => parsed.rate = value()?.parse()?,
                "--seconds" => parsed.seconds = value()?.parse()?,
                "--value-bytes" => parsed.value_bytes = value()?.parse()?,
                "--changes" => parsed.changes = value()?.parse()?,
                "--look" => parsed.look = value()?.parse()?,
                "--pause-us" => parsed.pause_us = value()?.parse()?,
                mode if !mode.starts_with('-') => parsed.mode = mode.to_owned(),
                _ => bail!("{USAGE}"),
            }
        }
        Ok(parsed)
    }

    async fn client(&self) -> Result<Client> {
        let options = ConnectOptions::new("Administrator", "password", "default");
        Ok(Client::connect(options.port(self.port)).await?)
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let run = async {
        let arguments = Arguments::parse()?;
        match arguments.mode.as_str() {
            "drain" => drain(&arguments).await,
            "follow" => follow(&arguments).await,
            "held" => held(&arguments).await,
            "latency" => latency(&arguments).await,
            "floor" => floor(&arguments),
            _ => bail!("{USAGE}"),
        }
    };
    match run.await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

/// What a reader has taken.
#[derive(Clone, Copy, Default)]
struct Taken {
    changes: u64,
    value_bytes: u64,
    rollbacks: u64,
    disconnected: u64,
}

impl Taken {
    fn add(&mut self, event: &DcpEvent) {
        match event {
            DcpEvent::Change(change) => {
                self.changes += 1;
                self.value_bytes += change.raw_value.len() as u64;
            }
            DcpEvent::Rollback(_) => self.rollbacks += 1,
            DcpEvent::Disconnected(_) => self.disconnected += 1,
            _ => {}
        }
    }
}

fn report(mode: &str, taken: &[Taken], began: Instant) {
    let sum = |figure: fn(&Taken) -> u64| taken.iter().map(figure).sum::<u64>();
    let changes: Vec<u64> = taken.iter().map(|taken| taken.changes).collect();
    println!(
        "{}",
        json!({
            "mode": mode,
            "changes": changes,
            "value_bytes": sum(|taken| taken.value_bytes),
            "rollbacks": sum(|taken| taken.rollbacks),
            "disconnected": sum(|taken| taken.disconnected),
            "wall_ns": began.elapsed().as_nanos() as u64,
        })
    );
}

async fn drain(arguments: &Arguments) -> Result<()> {
    let client = arguments.client().await?;
    let began = Instant::now();
    let mut readers = JoinSet::new();
    for _ in 0..arguments.streams {
        let options = DcpStreamOptions::new().from_beginning().until_now(true);
        let mut changes = client.dcp_stream(&options).await?;
        readers.spawn(async move {
            let mut taken = Taken::default();
            while let Some(event) = changes.next().await? {
                taken.add(&event);
            }
            anyhow::Ok(taken)
        });
    }
    let mut taken = Vec::new();
    while let Some(reader) = readers.join_next().await {
        taken.push(reader??);
    }
    report("drain", &taken, began);
    Ok(())
}

async fn follow(arguments: &Arguments) -> Result<()> {
    let client = arguments.client().await?;
    let (end, ended) = watch::channel(false);
    let (started, mut starts) = tokio::sync::mpsc::unbounded_channel();
    let mut readers = JoinSet::new();
    for _ in 0..arguments.streams {
        let options = DcpStreamOptions::new().from_now();
        let mut changes = client.dcp_stream(&options).await?;
        let (mut ended, started) = (ended.clone(), started.clone());
        readers.spawn(async move {
            let mut taken = Taken::default();
            let mut has_started = false;
            loop {
                // An event may never come; a look at the token needs none.
                let pause = Duration::from_millis(20);
                let event = tokio::select! {
                    event = changes.next() => Some(event),
                    () = tokio::time::sleep(pause), if !has_started => None,
                    _ = ended.changed() => return anyhow::Ok(taken),
                };
                match event.transpose()? {
                    None => {}
                    Some(None) => bail!("an endless stream has ended"),
                    Some(Some(event)) => taken.add(&event),
                }
                if !has_started && changes.token().rest == Rest::Beginning {
                    has_started = true;
                    started.send(()).ok();
                }
            }
        });
    }
    for _ in 0..arguments.streams {
        tokio::select! {
            _ = starts.recv() => {}
            Some(reader) = readers.join_next() => drop(reader??),
        }
    }
    println!("{}", json!({ "mode": "started", "streams": arguments.streams }));
    let began = Instant::now();
    tokio::io::stdin().read_to_end(&mut Vec::new()).await?;
    // What was written last may be on its way.
    tokio::time::sleep(Duration::from_secs(1)).await;
    end.send(true)?;
    let mut taken = Vec::new();
    while let Some(reader) = readers.join_next().await {
        taken.push(reader??);
    }
    report("follow", &taken, began);
    Ok(())
}

async fn held(arguments: &Arguments) -> Result<()> {
    let client = arguments.client().await?;
    let mut changes = client.dcp_stream(&DcpStreamOptions::new().from_now()).await?;
    while changes.token().rest == Rest::Now {
        let _ = tokio::time::timeout(Duration::from_millis(20), changes.next()).await;
    }
    println!("{}", json!({ "mode": "started", "streams": 1 }));
    tokio::io::stdin().read_u8().await?;
    let (began, mut taken) = (Instant::now(), Taken::default());
    while taken.changes < arguments.changes as u64 {
        let event = changes.next().await?.context("an endless stream has ended")?;
        taken.add(&event);
    }
    report("held", &[taken], began);
    Ok(())
}

async fn latency(arguments: &Arguments) -> Result<()> {
    let client = arguments.client().await?;
    let mut changes = client.dcp_stream(&DcpStreamOptions::new().from_now()).await?;
    while changes.token().rest == Rest::Now {
        let _ = tokio::time::timeout(Duration::from_millis(20), changes.next()).await;
    }
    let count = usize::try_from(arguments.rate * arguments.seconds)?;
    let reader = tokio::spawn(async move {
        let mut arrivals = vec![None; count];
        let mut missing = count;
        while missing > 0 {
            let Some(event) = changes.next().await? else { bail!("the stream has ended") };
            let DcpEvent::Change(change) = event else { continue };
            let number = std::str::from_utf8(&change.key)?.strip_prefix("latency:");
            let Some(number) = number else { continue };
            let arrival = arrivals.get_mut(number.parse::<usize>()?).context("a known key")?;
            missing -= usize::from(arrival.is_none());
            *arrival = Some(Instant::now());
        }
        anyhow::Ok(arrivals)
    });
    let mut acknowledged = Vec::with_capacity(count);
    let mut ticks = tokio::time::interval(Duration::from_secs(1) / arguments.rate);
    let value = Bytes::from(vec![b'v'; arguments.value_bytes]);
    for number in 0..count {
        ticks.tick().await;
        let key = format!("latency:{number}");
        let collection = client.default_collection();
        client.upsert(collection, key.as_bytes(), value.clone(), &WriteOptions::new()).await?;
        acknowledged.push(Instant::now());
    }
    let arrivals = tokio::time::timeout(Duration::from_secs(60), reader).await;
    let arrivals = arrivals.context("changes are missing after a minute")???;
    let arrivals = arrivals.into_iter().map(|arrival| arrival.context("each change came"));
    let arrivals = arrivals.collect::<Result<Vec<Instant>>>()?;
    let delays = arrivals.iter().zip(&acknowledged);
    // A change may come before the answer to its write.
    let mut us: Vec<f64> =
        delays.map(|(at, from)| at.saturating_duration_since(*from).as_secs_f64() * 1e6).collect();
    us.sort_by(f64::total_cmp);
    let quantile = |share: f64| us[((us.len() - 1) as f64 * share).round() as usize];
    println!(
        "{}",
        json!({
            "mode": "latency",
            "changes": count,
            "p50_us": quantile(0.5),
            "p99_us": quantile(0.99),
            "max_us": quantile(1.0),
        })
    );
    Ok(())
}

/// Processor time of this thread.
fn cpu_ns() -> i64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec * 1_000_000_000 + time.tv_nsec
}

/// A socket of loopback whose peer throws away what it gets.
fn drained_socket() -> Result<TcpStream> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let mut peer = TcpStream::connect(listener.local_addr()?)?;
    std::thread::spawn(move || {
        let mut buffer = vec![0; SLICE_BYTES];
        while peer.read(&mut buffer).is_ok_and(|bytes| bytes > 0) {}
    });
    let (socket, _) = listener.accept()?;
    socket.set_nodelay(true)?;
    Ok(socket)
}

fn floor(arguments: &Arguments) -> Result<()> {
    let sockets = (0..arguments.streams).map(|_| drained_socket()).collect::<Result<Vec<_>>>()?;
    let change_bytes = CHANGE_BYTES_MIN + arguments.value_bytes;
    let (look, mut left) = (vec![b'v'; change_bytes * arguments.look], arguments.changes);
    let mut spent_ns = 0;
    while left > 0 {
        let changes = left.min(arguments.look);
        let began_ns = cpu_ns();
        for slice in look[..changes * change_bytes].chunks(SLICE_BYTES) {
            sockets.iter().try_for_each(|mut socket| socket.write_all(slice))?;
        }
        spent_ns += cpu_ns() - began_ns;
        left -= changes;
        if arguments.pause_us > 0 {
            std::thread::sleep(Duration::from_micros(arguments.pause_us));
        }
    }
    let report = json!({ "mode": "floor", "changes": arguments.changes, "cpu_ns": spent_ns });
    println!("{report}");
    Ok(())
}
