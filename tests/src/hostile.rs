//! Hostile peers: concurrent attacks on the two ports by unauthenticated peers, until stopped.
//!
//! Each peer is a thread that goes on for ever with one kind of attack; a connection that the
//! master closes is opened anew. Half of them have addresses of their own, the others share that
//! of the honest minions, as behind one NAT. What they say is written here byte by byte: no client
//! library would.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result};
use socket2::{Domain, Socket, Type};

/// One kind of attack: one round of it, over connections of its own.
type Attack = fn(&Peer) -> std::io::Result<()>;

/// Every kind, by the name that a failed test shows.
const ATTACKS: [(&str, Attack); 20] = [
    ("slow readers", slow_reader),
    ("slow readers of many replies", slow_reader_of_many),
    ("slow writers", slow_writer),
    ("big frames", big_frame),
    ("oversized frames", oversized_frame),
    ("half handshakes", half_handshake),
    ("silence", silence),
    ("junk aes", junk_aes),
    ("junk aes, each on a connection of its own", junk_aes_anew),
    ("junk aes, pipelined", junk_aes_pipelined),
    ("auth floods", auth_flood),
    ("auth floods, each on a connection of its own", auth_anew),
    ("oversized ids", oversized_id),
    ("pings", clear_pings),
    ("large pings", large_ping),
    ("ZMTP pings", command_pings),
    ("connection churn", churn),
    ("garbage", garbage),
    ("slow subscribers", slow_subscriber),
    ("subscription floods", subscription_flood),
];

/// How long a round goes on at most.
const ROUND: Duration = Duration::from_secs(5);

/// How long a peer waits for anything; also how soon it notices that it is to stop.
const PATIENCE: Duration = Duration::from_millis(250);

/// Running attacks; stopped when they are dropped.
pub struct Attacks {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
    /// Rounds begun, by kind.
    rounds: Arc<[AtomicU64]>,
}

impl Attacks {
    /// Starts so many peers, of all kinds in turn, against the ports of a master on loopback.
    ///
    /// # Errors
    /// When a thread cannot be started.
    pub fn start(peers: usize, ret_port: u16, publish_port: u16) -> Result<Self> {
        let mut attacks = Self {
            stop: Arc::default(),
            threads: Vec::new(),
            rounds: ATTACKS.iter().map(|_| AtomicU64::new(0)).collect(),
        };
        for number in 0..peers {
            let kind = number % ATTACKS.len();
            let own = u8::try_from(2 + number % 200).unwrap_or(2);
            // Of each kind some here and some there.
            let is_behind_nat = (number + number / ATTACKS.len()).is_multiple_of(2);
            let peer = Peer {
                from: Ipv4Addr::new(127, 0, 0, if is_behind_nat { 1 } else { own }),
                number,
                ret_port,
                publish_port,
                stop: Arc::clone(&attacks.stop),
            };
            let rounds = Arc::clone(&attacks.rounds);
            let thread = std::thread::Builder::new().name(format!("hostile-{number}"));
            let thread = thread.spawn(move || {
                while !peer.is_stopped() {
                    if let Some(count) = rounds.get(kind) {
                        count.fetch_add(1, Ordering::Relaxed);
                    }
                    // A connection that is closed is what is to be expected.
                    let _ = ATTACKS[kind].1(&peer);
                    std::thread::sleep(Duration::from_millis(2));
                }
            });
            attacks
                .threads
                .push(thread.context("a hostile peer cannot be started")?);
        }
        Ok(attacks)
    }

    /// The rounds of each kind so far.
    #[must_use]
    pub fn rounds(&self) -> Vec<(&'static str, u64)> {
        let counts = self.rounds.iter().map(|it| it.load(Ordering::Relaxed));
        ATTACKS.iter().map(|(name, _)| *name).zip(counts).collect()
    }
}

impl Drop for Attacks {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // A peer that panicked has nothing more to say than libtest shows already.
            let _ = thread.join();
        }
    }
}

struct Peer {
    from: Ipv4Addr,
    number: usize,
    ret_port: u16,
    publish_port: u16,
    stop: Arc<AtomicBool>,
}

impl Peer {
    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    fn connect(&self, port: u16) -> std::io::Result<TcpStream> {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
        // Ports in plenty, however often a peer comes again.
        socket.set_linger(Some(Duration::ZERO))?;
        socket.bind(&SocketAddr::from((self.from, 0)).into())?;
        let to = SocketAddr::from(([127, 0, 0, 1], port));
        socket.connect_timeout(&to.into(), Duration::from_secs(5))?;
        let stream = TcpStream::from(socket);
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(stream)
    }

    /// A connection to the request port that has completed its handshake.
    fn open(&self, socket_type: &str) -> std::io::Result<TcpStream> {
        let mut stream = self.connect(self.ret_port)?;
        stream.write_all(&[greeting(), ready(socket_type)].concat())?;
        let mut head = [0; 66];
        stream.read_exact(&mut head)?;
        let mut rest = vec![0; usize::from(head[65])];
        stream.read_exact(&mut rest)?;
        Ok(stream)
    }

    /// Waits until the master closes the connection, without reading, or the round is over.
    fn hold(&self, stream: &TcpStream) {
        let began = std::time::Instant::now();
        while !self.is_stopped() && began.elapsed() < ROUND {
            std::thread::sleep(PATIENCE);
            if !matches!(stream.take_error(), Ok(None)) {
                return;
            }
        }
    }

    /// Asks the same again and again, each time after the reply, until the connection is closed.
    fn ask_on(&self, stream: &mut TcpStream, request: &[u8]) -> std::io::Result<()> {
        let mut reply = [0; 4096];
        while !self.is_stopped() {
            stream.write_all(request)?;
            match stream.read(&mut reply) {
                Ok(0) => return Ok(()),
                Ok(_) => {}
                // The master takes its time.
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Writes all of it, however slowly it is taken; not for ever.
    fn write_long(&self, stream: &mut TcpStream, mut bytes: &[u8]) -> std::io::Result<()> {
        let began = std::time::Instant::now();
        while !bytes.is_empty() && !self.is_stopped() && began.elapsed() < ROUND {
            match stream.write(bytes) {
                Ok(written) => bytes = bytes.get(written..).unwrap_or_default(),
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// The greeting of ZMTP 3.0 with the mechanism `NULL` (RFC 23).
fn greeting() -> Vec<u8> {
    let mut bytes = vec![0xff, 0, 0, 0, 0, 0, 0, 0, 1, 0x7f, 3, 0];
    bytes.extend_from_slice(b"NULL");
    bytes.resize(64, 0);
    bytes
}

fn ready(socket_type: &str) -> Vec<u8> {
    let mut body = b"\x05READY\x0bSocket-Type\0\0\0".to_vec();
    body.push(u8::try_from(socket_type.len()).unwrap_or(0));
    body.extend_from_slice(socket_type.as_bytes());
    let mut bytes = vec![4, u8::try_from(body.len()).unwrap_or(0)];
    bytes.extend(body);
    bytes
}

/// The header of a long frame.
fn long_frame(flags: u8, length: u64) -> Vec<u8> {
    let mut bytes = vec![flags | 2];
    bytes.extend_from_slice(&length.to_be_bytes());
    bytes
}

/// A request as a REQ or DEALER socket sends it.
fn request(payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![1, 0];
    bytes.extend(long_frame(0, payload.len() as u64));
    bytes.extend_from_slice(payload);
    bytes
}

/// A packed text.
fn text(text: &[u8]) -> Vec<u8> {
    let mut bytes = match u8::try_from(text.len()) {
        // As stock packs it: the master looks for `_auth` so packed.
        Ok(short @ ..32) => vec![0xa0 | short],
        _ => {
            let length = u32::try_from(text.len()).unwrap_or(0);
            [&[0xdb][..], &length.to_be_bytes()].concat()
        }
    };
    bytes.extend_from_slice(text);
    bytes
}

/// A clear load with these entries, packed already.
fn clear(entries: &[(&[u8], &[u8])]) -> Vec<u8> {
    let mut load = vec![0x80 | u8::try_from(entries.len()).unwrap_or(0)];
    for (name, value) in entries {
        load.extend(text(name));
        load.extend_from_slice(value);
    }
    let envelope = b"\x83\xa3enc\xa5clear\xa7version\x03\xa4load";
    request(&[&envelope[..], &load].concat())
}

fn ping(size: usize) -> Vec<u8> {
    clear(&[(b"cmd", &text(b"ping")), (b"x", &text(&vec![b'x'; size]))])
}

fn aes(id: &str, size: usize) -> Vec<u8> {
    let mut payload = b"\x84\xa3enc\xa3aes\xa7version\x03\xa2id".to_vec();
    payload.extend(text(id.as_bytes()));
    payload.extend_from_slice(b"\xa4load");
    payload.extend(text(&vec![0x5a; size]));
    request(&payload)
}

fn auth(id: &str) -> Vec<u8> {
    let key = b"-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----";
    clear(&[
        (b"cmd", &text(b"_auth")),
        (b"id", &text(id.as_bytes())),
        (b"pub", &text(key)),
        (b"token", &text(&[b'x'; 256])),
        (b"nonce", &text(&[b'0'; 32])),
    ])
}

fn slow_reader(peer: &Peer) -> std::io::Result<()> {
    let mut stream = peer.open("DEALER")?;
    peer.write_long(&mut stream, &ping(900).repeat(64))?;
    peer.hold(&stream);
    Ok(())
}

fn slow_reader_of_many(peer: &Peer) -> std::io::Result<()> {
    let mut streams = Vec::new();
    for _ in 0..16 {
        let mut stream = peer.open("DEALER")?;
        peer.write_long(&mut stream, &ping(64 << 10).repeat(64))?;
        streams.push(stream);
    }
    streams.first().into_iter().for_each(|it| peer.hold(it));
    Ok(())
}

fn slow_writer(peer: &Peer) -> std::io::Result<()> {
    let mut stream = peer.open("REQ")?;
    stream.write_all(&[1, 0])?;
    stream.write_all(&long_frame(0, 12 << 20))?;
    let chunk = vec![0; 64 << 10];
    for _ in 0..100 {
        stream.write_all(&chunk)?;
        std::thread::sleep(Duration::from_millis(50));
        if peer.is_stopped() {
            break;
        }
    }
    Ok(())
}

fn big_frame(peer: &Peer) -> std::io::Result<()> {
    let mut stream = peer.open("REQ")?;
    peer.write_long(&mut stream, &aes("live-0", 15 << 20))?;
    let _ = stream.read(&mut [0; 64]);
    // The master's memory is tried, not the machine's.
    std::thread::sleep(PATIENCE);
    Ok(())
}

fn oversized_frame(peer: &Peer) -> std::io::Result<()> {
    let mut stream = peer.open("REQ")?;
    stream.write_all(&[1, 0])?;
    stream.write_all(&long_frame(0, 1 << 40))?;
    stream.read(&mut [0; 64]).map(drop)
}

fn half_handshake(peer: &Peer) -> std::io::Result<()> {
    let mut streams = Vec::new();
    for _ in 0..32 {
        let mut stream = peer.connect(peer.ret_port)?;
        stream.write_all(greeting().get(..40).unwrap_or_default())?;
        streams.push(stream);
    }
    streams.first().into_iter().for_each(|it| peer.hold(it));
    Ok(())
}

fn silence(peer: &Peer) -> std::io::Result<()> {
    let port = [peer.ret_port, peer.publish_port][peer.number / 2 % 2];
    let streams: std::io::Result<Vec<_>> = (0..32).map(|_| peer.connect(port)).collect();
    streams?.first().into_iter().for_each(|it| peer.hold(it));
    Ok(())
}

fn junk_aes(peer: &Peer) -> std::io::Result<()> {
    let mut stream = peer.open("REQ")?;
    peer.ask_on(&mut stream, &aes("live-0", 512))
}

fn junk_aes_anew(peer: &Peer) -> std::io::Result<()> {
    let mut stream = peer.open("REQ")?;
    stream.write_all(&aes("live-1", 512))?;
    stream.read(&mut [0; 64]).map(drop)
}

fn junk_aes_pipelined(peer: &Peer) -> std::io::Result<()> {
    let mut stream = peer.open("DEALER")?;
    peer.ask_on(&mut stream, &aes("live-2", 512).repeat(64))
}

fn auth_flood(peer: &Peer) -> std::io::Result<()> {
    let mut stream = peer.open("DEALER")?;
    peer.ask_on(
        &mut stream,
        &auth(&format!("hostile-{}", peer.number)).repeat(16),
    )
}

fn auth_anew(peer: &Peer) -> std::io::Result<()> {
    let mut stream = peer.open("REQ")?;
    stream.write_all(&auth(&format!("hostile-{}", peer.number)))?;
    stream.read(&mut [0; 64]).map(drop)
}

fn oversized_id(peer: &Peer) -> std::io::Result<()> {
    let mut stream = peer.open("REQ")?;
    // No text: a list of a million numbers.
    let mut id = vec![0xdd];
    id.extend_from_slice(&(1_u32 << 20).to_be_bytes());
    id.resize(id.len() + (1 << 20), 0x07);
    let load = clear(&[(b"cmd", &text(b"ping")), (b"id", &id)]);
    peer.write_long(&mut stream, &load)?;
    let _ = stream.read(&mut [0; 64]);
    std::thread::sleep(PATIENCE);
    Ok(())
}

fn clear_pings(peer: &Peer) -> std::io::Result<()> {
    let mut stream = peer.open("REQ")?;
    peer.ask_on(&mut stream, &ping(100))
}

fn large_ping(peer: &Peer) -> std::io::Result<()> {
    let mut stream = peer.open("REQ")?;
    peer.write_long(&mut stream, &ping(8 << 20))?;
    peer.hold(&stream);
    Ok(())
}

fn command_pings(peer: &Peer) -> std::io::Result<()> {
    let mut stream = peer.open("REQ")?;
    peer.write_long(&mut stream, &b"\x04\x08\x04PING\0\0x".repeat(1 << 16))
}

fn churn(peer: &Peer) -> std::io::Result<()> {
    for port in [peer.ret_port, peer.publish_port] {
        peer.connect(port)?;
    }
    Ok(())
}

fn garbage(peer: &Peer) -> std::io::Result<()> {
    for port in [peer.ret_port, peer.publish_port] {
        let mut stream = peer.connect(port)?;
        stream.write_all(b"GET / HTTP/1.1\r\nHost: master\r\n\r\n")?;
        let _ = stream.read(&mut [0; 64]);
    }
    Ok(())
}

fn slow_subscriber(peer: &Peer) -> std::io::Result<()> {
    let mut streams = Vec::new();
    for _ in 0..8 {
        let mut stream = peer.connect(peer.publish_port)?;
        stream.write_all(&[greeting(), ready("SUB"), b"\0\x01\x01".to_vec()].concat())?;
        streams.push(stream);
    }
    streams.first().into_iter().for_each(|it| peer.hold(it));
    Ok(())
}

fn subscription_flood(peer: &Peer) -> std::io::Result<()> {
    let mut stream = peer.connect(peer.publish_port)?;
    stream.write_all(&[greeting(), ready("SUB")].concat())?;
    peer.write_long(&mut stream, &b"\0\x02\x01x\0\x02\0x".repeat(1 << 16))
}
