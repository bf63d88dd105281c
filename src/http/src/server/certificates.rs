//! Certificates of a server, which are read again when their files change.
//!
//! The files are looked at when a connection comes, at most once per `CHECK_INTERVAL`. What cannot
//! be used is logged, and the former certificate stays: a renewal writes two files, and is seen
//! between them.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use saltern_base::blocking;
use saltern_base::log_throttle::LogThrottle;
use saltern_wire::port::{Tls, TlsOptions};
use tokio::time::Instant;
use tokio_rustls::rustls::ServerConfig;

use super::LOG_INTERVAL;
use super::metrics::{HttpMeters, Reload};

/// The files are looked at at most once in this time.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// The protocols offered in the handshake, best first.
const PROTOCOLS: [&[u8]; 2] = [b"h2", b"http/1.1"];

/// See the head of this file.
pub(super) struct Certificates {
    options: TlsOptions,
    state: Mutex<State>,
    failures: LogThrottle,
    meters: HttpMeters,
}

struct State {
    config: Arc<ServerConfig>,
    stamps: Vec<Stamp>,
    checked: Instant,
}

/// Identity and time of a file, by which a replaced one is noticed; `None` if it cannot be read.
type Stamp = Option<(u64, u64, i64, i64)>;

impl Certificates {
    pub(super) fn new(tls: &Tls, meters: HttpMeters) -> Arc<Self> {
        let options = tls.options().clone();
        // Read once more, so that a change since the first time is not missed.
        let stamps = stamps(&options);
        let (config, stamps) = match Tls::new(&options) {
            Ok(tls) => (configured(&tls), stamps),
            Err(_) => (configured(tls), Vec::new()),
        };
        let state = State {
            config,
            stamps,
            checked: Instant::now(),
        };
        Arc::new(Self {
            options,
            state: Mutex::new(state),
            failures: LogThrottle::new(LOG_INTERVAL),
            meters,
        })
    }

    /// The configuration for a new connection.
    pub(super) async fn current(self: &Arc<Self>) -> Arc<ServerConfig> {
        if self.is_check_due() {
            let this = Arc::clone(self);
            // A failed check has no effect.
            let _ = blocking::run(move || this.check()).await;
        }
        Arc::clone(&self.state.lock().config)
    }

    fn is_check_due(&self) -> bool {
        let mut state = self.state.lock();
        let is_due = state.checked.elapsed() >= CHECK_INTERVAL;
        if is_due {
            state.checked = Instant::now();
        }
        is_due
    }

    /// Reads changed files. Their stamps are taken before, so that a change meanwhile is seen.
    fn check(&self) {
        let stamps = stamps(&self.options);
        if self.state.lock().stamps == stamps {
            return;
        }
        match Tls::new(&self.options) {
            Ok(tls) => {
                let mut state = self.state.lock();
                state.config = configured(&tls);
                state.stamps = stamps;
                drop(state);
                self.meters.reloaded(Reload::Loaded);
                let server = self.meters.server();
                tracing::info!(server, "a changed certificate is in use");
            }
            Err(error) => self.failed(&error),
        }
    }

    fn failed(&self, error: &dyn std::error::Error) {
        self.meters.reloaded(Reload::Failed);
        if let Some(times) = self.failures.record() {
            let server = self.meters.server();
            let error = saltern_base::chain(error);
            tracing::warn!(%error, server, times, "a changed certificate cannot be used");
        }
    }
}

fn configured(tls: &Tls) -> Arc<ServerConfig> {
    let mut config = ServerConfig::clone(&tls.server_config());
    config.alpn_protocols = PROTOCOLS.map(<[u8]>::to_vec).to_vec();
    Arc::new(config)
}

fn stamps(options: &TlsOptions) -> Vec<Stamp> {
    let files = [&options.certificate, &options.key].into_iter();
    let files = files.chain(&options.authorities);
    files.map(|path| stamp(path)).collect()
}

fn stamp(path: &Path) -> Stamp {
    let data = fs::metadata(path).ok()?;
    Some((data.ino(), data.len(), data.mtime(), data.mtime_nsec()))
}
