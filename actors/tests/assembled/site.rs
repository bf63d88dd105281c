//! Helpers: a master in a directory of its own on free ports, with its minions and clients.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::{Bytes, BytesMut};
use saltern_actors::{Master, MasterParts};
use saltern_automation::reactor::Reactions;
use saltern_base::clock::Clock;
use saltern_base::metrics::Registry;
use saltern_config::{MasterConfig, load_master};
use saltern_crypto::{Crypticle, EncAlgo, KeyString, PrivateKey, SigAlgo};
use saltern_model::MinionId;
use saltern_requests::Stores;
use saltern_store::PkiTree;
use saltern_store::files::ensure_dir;
use saltern_store::jobs::JobQueries;
use saltern_store::sqlite::open_reader;
use saltern_store::sqlite::{DatabaseLimits, JobDatabase};
use saltern_wire::msgpack::{Dialect, Limits, Value, decode_exact, decode_wire, encode};
use saltern_wire::port::Inherited;
use saltern_wire::zmtp::ReqClient;
use tokio::io::AsyncReadExt;
use tokio::net::UnixStream;

/// The answer to a request that was not handled.
pub const NOT_HANDLED: &[u8] = b"\xda\x00\x26Some exception handling minion payload";

/// A directory for a master, which may be started in it several times.
pub struct Site {
    dir: PathBuf,
    pub options: &'static str,
    /// Removes the directory at the end, unless that is another process's.
    _temporary: Option<tempfile::TempDir>,
}

/// A started master.
pub struct Running {
    pub master: Master,
    pub config: Arc<MasterConfig>,
    pub registry: Registry,
    user_key: String,
}

impl Site {
    pub fn new(options: &'static str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        Self {
            dir: dir.path().to_owned(),
            options,
            _temporary: Some(dir),
        }
    }

    /// The site of another process, which made it.
    #[cfg(feature = "fault-injection")]
    pub fn at(dir: PathBuf, options: &'static str) -> Self {
        Self {
            dir,
            options,
            _temporary: None,
        }
    }

    pub fn path(&self) -> &Path {
        &self.dir
    }

    pub fn config(&self) -> MasterConfig {
        let dir = self.path().to_str().unwrap();
        let text = format!(
            "root_dir: {dir}\npki_dir: {dir}/pki\ncachedir: {dir}/cache\nsock_dir: {dir}/sock\n\
             id: m\ninterface: 127.0.0.1\nworker_threads: 2\nkeysize: 2048\n\
             saltern_metrics_address: 127.0.0.1:0\n{}",
            self.options
        );
        std::fs::write(self.path().join("master"), text).unwrap();
        let loaded = load_master(self.path()).map_err(|errors| errors.to_string());
        let mut config = loaded.unwrap().config;
        (config.ret_port, config.publish_port) = (0, 0);
        config
    }

    pub fn parts(&self, config: &Arc<MasterConfig>) -> MasterParts {
        let clock = Clock::system();
        for path in [&config.cachedir, &config.sock_dir, &config.pki_dir] {
            ensure_dir(path, 0o755).unwrap();
        }
        if !config.pki_dir.join("master.pem").exists() {
            saltern_stock::keys::install("master", &config.pki_dir, "master").unwrap();
        }
        ensure_dir(config.saltern_job_database.parent().unwrap(), 0o700).unwrap();
        let path = &config.saltern_job_database;
        let stores = Stores::open(config, &clock).unwrap();
        let reactions = Reactions::open(config, &clock, &stores).unwrap();
        MasterParts {
            config: config.clone(),
            stores,
            reactions: Arc::new(reactions),
            clock,
            database: JobDatabase::open(path, DatabaseLimits::default())
                .and_then(JobDatabase::into_engine)
                .unwrap(),
            registry: Registry::new(),
            member_tls: None,
            inherited: Inherited::default(),
            log_levels: None,
            diagnose: None,
        }
    }

    pub fn start(&self) -> Running {
        let config = Arc::new(self.config());
        let parts = self.parts(&config);
        let registry = parts.registry.clone();
        let (_, key) = parts
            .stores
            .users
            .users()
            .next()
            .map(|user| (user.to_owned(), parts.stores.users.key(user).unwrap()))
            .unwrap();
        let user_key = key.expose().to_owned();
        let master = Master::start(parts).unwrap();
        Running {
            master,
            config,
            registry,
            user_key,
        }
    }

    /// Makes a minion whose key is accepted.
    pub fn minion(&self, id: &str) -> Identity {
        static GIVEN: AtomicUsize = AtomicUsize::new(0);
        let name = format!("minion-{}", GIVEN.fetch_add(1, Ordering::Relaxed));
        let pem = saltern_stock::keys::ready_made(&name).unwrap();
        let private = PrivateKey::from_pem(pem, None).unwrap();
        let config = self.config();
        let pki = PkiTree::open(&config, Clock::system()).unwrap();
        let minion = MinionId::parse(id).unwrap();
        pki.accept(&minion, private.public().pem()).unwrap();
        Identity {
            id: minion,
            private: Arc::new(private),
        }
    }

    /// Writes the key of a minion to where [`Site::minion_of_file`] reads it.
    #[cfg(feature = "fault-injection")]
    pub fn write_key(&self, identity: &Identity) {
        let pem = identity.private.to_pem(None).unwrap();
        std::fs::write(self.key_file(identity.id.as_str()), pem.expose()).unwrap();
    }

    #[cfg(feature = "fault-injection")]
    pub fn minion_of_file(&self, id: &str) -> Identity {
        let pem = std::fs::read(self.key_file(id)).unwrap();
        Identity {
            id: MinionId::parse(id).unwrap(),
            private: Arc::new(PrivateKey::from_pem(pem, None).unwrap()),
        }
    }

    #[cfg(feature = "fault-injection")]
    fn key_file(&self, id: &str) -> PathBuf {
        self.path().join(format!("{id}.pem"))
    }

    pub fn reader(&self) -> Arc<dyn JobQueries> {
        let path = self.config().saltern_job_database;
        open_reader(&path, DatabaseLimits::default()).unwrap()
    }

    pub fn socket(&self, name: &str) -> PathBuf {
        self.path().join("sock").join(name)
    }
}

impl Running {
    pub async fn ask(&self, load: Value) -> Bytes {
        let mut client = ReqClient::connect(self.master.request_address(), None)
            .await
            .unwrap();
        client.request(clear(load)).await.unwrap()
    }

    /// Publishes `test.ping` as the master's own user; gives the whole answer.
    pub async fn publish(&self, targets: &[&str]) -> Value {
        let targets = targets.iter().map(|id| Value::from(*id)).collect();
        self.publish_to(("list", Value::Array(targets))).await
    }

    pub async fn publish_to(&self, (kind, target): (&str, Value)) -> Value {
        let reply = self.ask(self.publish_load(kind, target)).await;
        decode_wire(&reply, &Limits::WIRE).unwrap()
    }

    pub fn publish_load(&self, kind: &str, target: Value) -> Value {
        Value::map([
            ("cmd", Value::from("publish")),
            ("tgt", target),
            ("tgt_type", Value::from(kind)),
            ("fun", Value::from("test.ping")),
            ("arg", Value::Array(Vec::new())),
            ("jid", Value::from("")),
            ("ret", Value::from("")),
            ("key", Value::from(self.user_key.as_str())),
            ("user", Value::from(self.config.user.as_str())),
        ])
    }

    /// Resolves when the publish port has taken this many subscriptions.
    pub async fn subscriptions(&self, count: f64) {
        let labels = ["publish", "in"];
        crate::until(|| self.labelled("saltern_port_messages_total", &labels) >= count).await;
    }

    pub fn metric(&self, name: &str) -> f64 {
        self.labelled(name, &[])
    }

    /// The sum of a metric's values, of those that have these label values.
    pub fn labelled(&self, name: &str, labels: &[&str]) -> f64 {
        let families = self.registry.gather();
        let family = families.iter().find(|family| family.name() == name);
        let metrics = family.map(|family| family.get_metric()).unwrap_or_default();
        let is_meant = |metric: &&prometheus::proto::Metric| {
            let found: Vec<&str> = metric.get_label().iter().map(|pair| pair.value()).collect();
            labels.iter().all(|label| found.contains(label))
        };
        metrics
            .iter()
            .filter(is_meant)
            .map(|metric| metric.get_counter().get_value() + metric.get_gauge().get_value())
            .sum()
    }
}

pub fn jid_of(answer: &Value) -> String {
    let load = answer.get("load").unwrap();
    load.get("jid").unwrap().as_str().unwrap().to_owned()
}

fn clear(load: Value) -> Bytes {
    let envelope = Value::map([
        ("enc", Value::from("clear")),
        ("load", load),
        ("version", Value::from(3_i64)),
    ]);
    encode(&envelope, Dialect::Raw).into()
}

fn random() -> String {
    let mut bytes = [0_u8; 16];
    getrandom::fill(&mut bytes).unwrap();
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A minion's key.
#[derive(Clone)]
pub struct Identity {
    pub id: MinionId,
    private: Arc<PrivateKey>,
}

/// A minion that has signed in.
pub struct Minion {
    pub identity: Identity,
    client: ReqClient,
    session: Crypticle,
    pub shared: Crypticle,
    pub shared_key: String,
    token: Bytes,
}

impl Identity {
    pub async fn sign_in(&self, running: &Running) -> Minion {
        let address = running.master.request_address();
        let mut client = ReqClient::connect(address, Some(self.id.as_str().as_bytes()))
            .await
            .unwrap();
        // A master that has only just started answers "later": minions ask again.
        let inner = loop {
            let reply = client.request(clear(self.auth_load())).await.unwrap();
            let outer = decode_wire(&reply, &Limits::WIRE).unwrap();
            let inner = outer.get("load").and_then(Value::as_bytes).unwrap();
            let inner = decode_wire(inner, &Limits::WIRE).unwrap();
            if inner.get("session").is_some() {
                break inner;
            }
            assert_eq!(inner.get("ret"), Some(&Value::Bool(true)), "it is refused");
            tokio::task::yield_now().await;
        };
        let key = |name: &str| {
            let sealed = inner.get(name).and_then(Value::as_bytes).unwrap();
            let opened = self.private.decrypt(EncAlgo::OaepSha1, sealed).unwrap();
            KeyString::parse(std::str::from_utf8(opened.expose()).unwrap()).unwrap()
        };
        Minion {
            identity: self.clone(),
            client,
            session: Crypticle::new(&key("session")),
            shared: Crypticle::new(&key("aes")),
            shared_key: key("aes").as_str().to_owned(),
            token: self.private.x931_sign(b"salt").unwrap().into(),
        }
    }

    fn auth_load(&self) -> Value {
        Value::map([
            ("cmd", Value::from("_auth")),
            ("id", Value::from(self.id.as_str())),
            ("nonce", Value::from(random().as_str())),
            ("enc_algo", Value::from(EncAlgo::OaepSha1.wire_name())),
            ("sig_algo", Value::from(SigAlgo::Pkcs1v15Sha1.wire_name())),
            ("pub", Value::from(self.private.public().pem())),
        ])
    }
}

impl Minion {
    pub fn id(&self) -> &str {
        self.identity.id.as_str()
    }

    /// The fields of a return.
    pub fn return_of(jid: &str) -> Vec<(&'static str, Value)> {
        vec![
            ("cmd", Value::from("_return")),
            ("jid", Value::from(jid)),
            ("fun", Value::from("test.ping")),
            ("fun_args", Value::Array(Vec::new())),
            ("return", Value::Bool(true)),
            ("retcode", Value::from(0_i64)),
            ("success", Value::Bool(true)),
        ]
    }

    /// Sends a request on this minion's one connection; gives the answer, if it could be
    /// decrypted.
    pub async fn send(&mut self, fields: Vec<(&'static str, Value)>) -> Result<Value, Bytes> {
        self.try_send(fields).await.expect("the connection holds")
    }

    /// The same; `None` when the connection ends.
    pub async fn try_send(
        &mut self,
        fields: Vec<(&'static str, Value)>,
    ) -> Option<Result<Value, Bytes>> {
        let nonce = random();
        let mut load = fields;
        load.push(("nonce", Value::from(nonce.as_str())));
        load.push(("ts", Value::from(Clock::system().unix())));
        load.push(("tok", Value::Bin(self.token.clone())));
        load.push(("id", Value::from(self.id())));
        let load = encode(&Value::map(load), Dialect::Raw);
        let envelope = Value::map([
            ("enc", Value::from("aes")),
            ("load", Value::Bin(self.session.dumps(&load, None).into())),
            ("version", Value::from(3_i64)),
            ("id", Value::from(self.id())),
            ("enc_algo", Value::from(EncAlgo::OaepSha1.wire_name())),
            ("sig_algo", Value::from(SigAlgo::Pkcs1v15Sha1.wire_name())),
        ]);
        let request = encode(&envelope, Dialect::Raw).into();
        let reply = self.client.request(request).await.ok()?;
        let outer = decode_wire(&reply, &Limits::WIRE).unwrap();
        let opened = outer.as_bytes().and_then(|sealed| {
            let opened = self.session.loads_with_nonce(sealed, nonce.as_bytes());
            opened.ok()
        });
        Some(match opened {
            Some(plain) => Ok(decode_wire(&plain, &Limits::WIRE).unwrap()),
            None => Err(reply),
        })
    }

    /// Returns a job until it is acknowledged; gives the number of tries.
    pub async fn return_until_acknowledged(&mut self, jid: &str) -> usize {
        for tries in 1.. {
            match self.send(Self::return_of(jid)).await {
                Ok(answer) => {
                    assert!(answer.is_nil(), "{answer:?}");
                    return tries;
                }
                Err(reply) => assert_eq!(reply, NOT_HANDLED),
            }
        }
        unreachable!("tries are not counted that far")
    }

    /// A publication in clear.
    pub fn open(&self, payload: &[u8]) -> Option<Value> {
        let envelope = decode_wire(payload, &Limits::WIRE).unwrap();
        let load = envelope.get("load").and_then(Value::as_bytes).unwrap();
        let plain = self.shared.loads(load).ok()?;
        Some(decode_wire(&plain, &Limits::WIRE).unwrap())
    }
}

/// A listener of the event bus, as 3007 and 3008 read it: bare frames.
pub struct Listener {
    stream: UnixStream,
    buffer: BytesMut,
}

impl Listener {
    pub async fn connect(path: &Path) -> io::Result<Self> {
        Ok(Self {
            stream: UnixStream::connect(path).await?,
            buffer: BytesMut::new(),
        })
    }

    /// The next event; `None` when the master has closed the connection.
    pub async fn next(&mut self) -> Option<(String, Value)> {
        loop {
            if let Some(event) = self.take() {
                return Some(event);
            }
            if self.stream.read_buf(&mut self.buffer).await.ok()? == 0 {
                return None;
            }
        }
    }

    /// The next event whose tag is this one.
    pub async fn wait_for(&mut self, tag: &str) -> Value {
        loop {
            let (found, data) = self.next().await.expect("the bus is open");
            if found == tag {
                return data;
            }
        }
    }

    fn take(&mut self) -> Option<(String, Value)> {
        // {"head": {}, "body": bin}: 0x82 a4 head 80 a4 body, then a bin of 8, 16 or 32 bits.
        const START: usize = 12;
        let length = *self.buffer.get(START)?;
        let (header, size) = match length {
            0xc4 => (2, usize::from(*self.buffer.get(START + 1)?)),
            0xc5 => {
                let bytes = self.buffer.get(START + 1..START + 3)?;
                (
                    3,
                    usize::from(u16::from_be_bytes(bytes.try_into().unwrap())),
                )
            }
            0xc6 => {
                let bytes = self.buffer.get(START + 1..START + 5)?;
                (5, u32::from_be_bytes(bytes.try_into().unwrap()) as usize)
            }
            other => panic!("a bus frame goes on with {other:#x}"),
        };
        let end = START + header + size;
        if self.buffer.len() < end {
            return None;
        }
        let frame = self.buffer.split_to(end);
        let (tag, data) = saltern_wire::ipc::split_body(&frame[START + header..]).unwrap();
        Some((tag.to_owned(), decode_exact(data, &Limits::WIRE).unwrap()))
    }
}
