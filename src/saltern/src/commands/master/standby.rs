//! A master of a cluster (`saltern_cluster`) before it is the active one, and its end.
//!
//! It is alive and not ready: its ports are closed, its status port says why. With a `member_port` they are
//! open, and it relays their connections to the active one. Everything that may fail at
//! the start is tried before the cluster is joined, so that no name and no lease is taken for nothing;
//! whatever fails later gives the lease back at once.
//!
//! A master that takes over makes its files those of the cluster (`secret_file`) before it opens a port.

use std::io;
use std::path::Path;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use saltern_actors::{StandbyPort, StandbyState, StartError, open_relay, remove_sockets};
use saltern_base::clock::Clock;
use saltern_base::exit::Exit;
use saltern_base::hex;
use saltern_base::metrics::Registry;
use saltern_config::{ClusterConfig, MasterConfig};
use saltern_crypto::StateCipher;
use saltern_model::{KeyState, MinionId};
use saltern_requests::{SiteOptions, Stores};
use saltern_sql::{ClusterError, MemberIdentity, Membership, Standing, register_cluster_metrics};
use saltern_store::files::{self, Create, Version};
use saltern_store::jobs::Engine;
use saltern_store::minion_data::DataKind;
use saltern_store::shared_state::minion_data::{DataSyncParts, KeyLookup, MinionDataSync};
use saltern_store::shared_state::minion_keys::{KeySyncParts, MinionKeySync};
use saltern_store::shared_state::{Report, StatePlaces, restore};
use saltern_store::{
    Dropfile, MasterKeys, MinionDataStore, PkiTree, SharedState, StoreError, dropfile,
};
use saltern_wire::member::{BeforeAnswers, MemberTls};
use saltern_wire::port::{Inherited, Relay, RelayAsker, RelayTarget};
use tokio::sync::oneshot;
use tokio::time::sleep;

use super::standby_jobs::StandbyJobs;
use super::{Signals, chain, complain, exit_of, exit_of_start, make_directories, write_pidfile};
use crate::commands::cluster::{ABOUT_DATA, ABOUT_KEYS, cipher_of};
use crate::service_manager::ServiceManager;

/// Interval at which the standing is looked at.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// How long the last log lines of a process that lost its lease may take: a disk or a reader that hangs
/// must not keep it.
const LOG_GRACE: Duration = Duration::from_secs(1);

/// How long the end of a process waits for the database to take the lease back.
const LEAVE: Duration = Duration::from_secs(30);

/// Interval at which the watchdog may be fed.
const FEED_INTERVAL: Duration = Duration::from_secs(1);

/// Longest time for which the watchdog is fed during a takeover, beyond a lease.
const TAKEOVER: Duration = Duration::from_secs(180);

/// Interval at which a dropfile is looked for.
const DROPFILE_INTERVAL: Duration = Duration::from_secs(1);

/// Longest text of an instance.
const INSTANCE: usize = 100;

/// A member that has the lease.
pub(super) struct ActiveMember {
    pub(super) membership: Arc<Membership>,
    /// Opens and seals what the members share, if they do.
    cipher: Option<Arc<StateCipher>>,
    /// Shares the keys of minions, if the members do (`share_keys`).
    pub(super) keys: MinionKeySync,
    /// Shares grains and mines, under a secret.
    pub(super) data: SharedData,
    /// For the member port, if it has one.
    pub(super) tls: Option<MemberTls>,
    /// Until it serves.
    feeder: Option<TakeoverFeeder>,
}

impl ActiveMember {
    /// Ends the time in which the watchdog is fed for a takeover.
    pub(super) fn has_taken_over(&mut self) {
        self.feeder = None;
    }

    /// Becomes the owner of the jobs, and makes the files of this machine those that the members share.
    ///
    /// # Errors
    /// The lease is lost, or the database does not answer: nothing may be served then.
    pub(super) fn take_over(
        &self,
        config: &MasterConfig,
    ) -> Result<(Engine, SharedState), StoreError> {
        let engine = self.membership.open_engine()?;
        self.data.sync.begin_takeover();
        let Some(cipher) = &self.cipher else {
            return Ok((engine, SharedState::default()));
        };
        let shared = self.membership.state_table()?;
        let limits = (shared.place.as_path(), shared.patience);
        let state = SharedState::start(shared.table.clone(), cipher.clone(), limits)?;
        let places = StatePlaces::from(config);
        let restored = restore(&*shared.table, cipher, (&places, &state))?;
        self.keys.take_over()?;
        self.data.sync.finish_takeover();
        tracing::info!(
            rows = restored.rows,
            written = restored.written,
            removed = restored.removed,
            unusable = restored.unusable,
            shared = restored.shared,
            "keys of sessions and tokens are those of the cluster"
        );
        Ok((engine, state))
    }
}

/// Joins the cluster and waits for its lease; the signals that came meanwhile are kept. `None` for a
/// master without a cluster.
pub(super) fn stand_by(
    config: &Arc<MasterConfig>,
    inherited: &Inherited,
) -> Result<Option<(ActiveMember, Signals)>, Exit> {
    let Some(cluster) = &config.saltern_cluster else {
        return Ok(None);
    };
    if inherited.unclaimed().next().is_some() {
        complain(
            "the service manager holds the ports of a master that may stand by, and would take \
             connections for it: disable its socket unit (saltern_cluster)",
        );
        return Err(Exit::Usage);
    }
    let failed = |error: StoreError| {
        complain(&chain(&error));
        exit_of(&error)
    };
    let cipher = cipher_of(cluster).map_err(failed)?.map(Arc::new);
    let tls = member_tls(cluster, cipher.as_deref())?;
    let me = identity(config, (cluster, cipher.as_deref())).map_err(failed)?;
    if let Err(error) = Stores::open(config, &Clock::system()) {
        complain(&chain(&error));
        return Err(Exit::Usage);
    }
    let mut jobs = None;
    if tls.is_some() {
        make_directories(config).map_err(failed)?;
        jobs = StandbyJobs::start(config);
    }
    let (jobs, before_answers) = jobs.unzip();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let runtime = runtime.map_err(|error| {
        complain(&format!("no runtime: {error}"));
        Exit::Failure
    })?;
    let mut outcome = runtime.block_on(async {
        // Before it is seen as a member: whoever sees it may signal it.
        let Ok(mut signals) = Signals::register() else {
            complain("signals cannot be handled on this system");
            return Err(Exit::Failure);
        };
        let master_key = me.master_key.clone();
        let end = end_at_once(config.clone()).map_err(|error| {
            complain(&format!("no thread: {error}"));
            Exit::Failure
        })?;
        let joined = Membership::join(cluster, me, end);
        let membership = joined.map_err(failed)?;
        let secret = cipher.as_ref().filter(|_| cluster.share_keys);
        let keys = share_keys((config, master_key.clone()), &membership, secret);
        let keys = match keys {
            Ok(keys) => keys,
            Err(error) => {
                leave(membership);
                return Err(failed(error));
            }
        };
        let data = match share_data((config, master_key), &membership, cipher.as_ref()) {
            Ok(data) => data,
            Err(error) => {
                keys.stop();
                leave(membership);
                return Err(failed(error));
            }
        };
        let relaying = Relaying {
            tls: tls.as_ref(),
            before_answers,
            shared: (&keys, &data.sync),
        };
        match wait_for_lease((config, relaying), &membership, &mut signals).await {
            Ok(()) => {
                let member = ActiveMember {
                    membership,
                    cipher,
                    keys,
                    data,
                    tls,
                    feeder: None,
                };
                Ok(Some((member, signals)))
            }
            Err(exit) => {
                data.sync.stop();
                keys.stop();
                leave(membership);
                Err(exit)
            }
        }
    });
    // Before all that may wait while it has the lease.
    if let Ok(Some((member, _))) = &mut outcome {
        member.feeder = TakeoverFeeder::start(cluster);
    }
    // A look-up of a member's name that still waits must not keep a master that has the lease.
    runtime.shutdown_background();
    if let Some(jobs) = jobs {
        jobs.stop();
    }
    outcome
}

/// Shares the keys of minions from here on, if the members do, under their secret.
fn share_keys(
    (config, master_key): (&Arc<MasterConfig>, String),
    membership: &Arc<Membership>,
    cipher: Option<&Arc<StateCipher>>,
) -> Result<MinionKeySync, StoreError> {
    let Some(cipher) = cipher else {
        return Ok(MinionKeySync::default());
    };
    let parts = KeySyncParts {
        table: membership.key_table()?,
        master_key,
        cipher: cipher.clone(),
        is_admitted: is_admitted(membership),
        report: report(membership, ABOUT_KEYS),
    };
    MinionKeySync::start(config, parts)
}

/// Grains and mines of this machine, and who shares them.
pub(super) struct SharedData {
    pub(super) store: Arc<MinionDataStore>,
    pub(super) sync: MinionDataSync,
}

/// Shares grains and mines from here on, as far as they are kept, under the members' secret.
fn share_data(
    (config, master_key): (&Arc<MasterConfig>, String),
    membership: &Arc<Membership>,
    cipher: Option<&Arc<StateCipher>>,
) -> Result<SharedData, StoreError> {
    let store = Arc::new(MinionDataStore::open(config));
    let site = SiteOptions::read(config);
    let kinds = [
        (DataKind::Grains, site.minion_data_cache),
        (DataKind::Mine, site.keeps_mine),
    ];
    let kinds = kinds.into_iter().filter(|(_, is_kept)| *is_kept);
    let kinds: Vec<DataKind> = kinds.map(|(kind, _)| kind).collect();
    let sync = match cipher.filter(|_| !kinds.is_empty()) {
        None => MinionDataSync::default(),
        Some(cipher) => {
            let parts = DataSyncParts {
                table: membership.data_table()?,
                cipher: cipher.clone(),
                instance: instance(&config.cachedir)?,
                store: store.clone(),
                kinds,
                keys: key_lookup((config, master_key), site.preserve_minion_cache),
                is_admitted: is_admitted(membership),
                report: report(membership, ABOUT_DATA),
            };
            MinionDataSync::start(&config.cachedir, parts)?
        }
    };
    Ok(SharedData { store, sync })
}

/// Looks for keys of minions whose data does not outlast them.
fn key_lookup(
    (config, master_key): (&MasterConfig, String),
    preserves_data: bool,
) -> Option<KeyLookup> {
    if preserves_data {
        return None;
    }
    let pki = Arc::new(PkiTree::existing(config, Clock::system()));
    let keys = pki.clone();
    let has = move |minion: &MinionId, state| !matches!(keys.version(minion, state), Ok(None));
    Some(KeyLookup {
        has_key: Box::new(move |minion| KeyState::ALL.into_iter().any(|state| has(minion, state))),
        are_here: Box::new(move || pki.is_of_master(&master_key).unwrap_or_default()),
    })
}

fn is_admitted(membership: &Arc<Membership>) -> Box<dyn Fn() -> bool + Send + Sync> {
    let member = membership.clone();
    Box::new(move || member.is_admitted())
}

fn report(membership: &Arc<Membership>, about: &'static str) -> Report {
    let member = membership.clone();
    Box::new(move |why| member.note(about, why))
}

/// The TLS of members that relay connections.
fn member_tls(
    cluster: &ClusterConfig,
    cipher: Option<&StateCipher>,
) -> Result<Option<MemberTls>, Exit> {
    let Some(cipher) = cipher.filter(|_| cluster.member_port.is_some()) else {
        return Ok(None);
    };
    let tls = MemberTls::new(cipher.member_key()).map_err(|error| {
        complain(&chain(&error));
        Exit::Failure
    })?;
    Ok(Some(tls))
}

fn identity(
    config: &MasterConfig,
    (cluster, cipher): (&ClusterConfig, Option<&StateCipher>),
) -> Result<MemberIdentity, StoreError> {
    Ok(MemberIdentity {
        name: config.id.clone(),
        instance: instance(&config.cachedir)?,
        address: cluster.address(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        master_key: MasterKeys::load_or_create(config)?.public_pem,
        secret_check: cipher.map(|cipher| hex(cipher.check())),
    })
}

/// The random text of this installation, which the lock on its cache directory keeps to one process.
fn instance(cachedir: &Path) -> Result<String, StoreError> {
    let path = cachedir.join("saltern").join("cluster_instance");
    if let Some(text) = files::read_text(&path, INSTANCE)? {
        return Ok(text.trim().to_owned());
    }
    let text = hex(&saltern_crypto::public_random());
    files::write_atomic(&path, text.as_bytes(), Create::PRIVATE)?;
    Ok(text)
}

/// Ends a process that lost its lease, whatever its other threads wait for.
fn end_at_once(config: Arc<MasterConfig>) -> io::Result<impl FnOnce(ClusterError) + Send> {
    let report = reporter(thread::Builder::new(), move |error| {
        say_loss(&config, &error)
    })?;
    Ok(move |error| {
        report(error);
        end(Exit::GaveUp)
    })
}

/// Reports a loss on a thread that waits for it from now on, within [`LOG_GRACE`]: none may start then.
fn reporter(
    thread: thread::Builder,
    say: impl FnOnce(ClusterError) + Send + 'static,
) -> io::Result<impl FnOnce(ClusterError) + Send> {
    let (lost, losses) = mpsc::channel();
    let (said, heard) = mpsc::channel();
    thread.name("lease-lost".to_owned()).spawn(move || {
        // Without a loss, the member has left.
        if let Ok(error) = losses.recv() {
            say(error);
            let _ = said.send(());
        }
    })?;
    Ok(move |error| {
        let _ = lost.send(error);
        // Said or not.
        let _ = heard.recv_timeout(LOG_GRACE);
    })
}

fn say_loss(config: &MasterConfig, error: &ClusterError) {
    let error = chain(error);
    tracing::error!("{error}; it ends, and stands by when it is started again");
    complain(&format!("the master gives up: {error}"));
    remove_sockets(&config.sock_dir);
    let _ = std::fs::remove_file(&config.pidfile);
}

#[allow(
    unsafe_code,
    reason = "an ordinary exit waits for locks that other threads may hold"
)]
fn end(exit: Exit) {
    // SAFETY: it ends the process, and touches no memory of it.
    unsafe { nix::libc::_exit(exit as i32) }
}

/// Has the members know what is still to be written, before the lease is given up.
pub(super) fn finish(state: &SharedState) {
    if let Err(error) = state.flush() {
        tracing::warn!(
            error = chain(&error),
            "some of the shared state is not in the database"
        );
    }
    state.close();
}

/// Gives the lease up and leaves the cluster, within bounds.
pub(super) fn leave(membership: Arc<Membership>) {
    let (left, is_over) = mpsc::channel();
    let thread = thread::Builder::new().name("leave".to_owned());
    // Where no thread starts, the answer fails at once.
    let _ = thread.spawn(move || {
        membership.leave();
        let _ = left.send(());
    });
    if is_over.recv_timeout(LEAVE).is_err() {
        tracing::warn!("the cluster could not be left in time, so the lease ends by its time");
    }
}

/// Feeds the watchdog of the service manager while a master takes over, until it is dropped: the main
/// thread waits for the database then.
struct TakeoverFeeder {
    /// Its end ends the thread.
    _end: oneshot::Sender<()>,
}

impl TakeoverFeeder {
    /// Begins for a master of a cluster, for no longer than opening its jobs may take.
    fn start(cluster: &ClusterConfig) -> Option<Self> {
        let limit = cluster.lease + TAKEOVER;
        let (end, ended) = oneshot::channel::<()>();
        let feed = async move {
            let manager = ServiceManager::find(String::new());
            manager.status("taking over").await;
            tokio::select! {
                // The sender says nothing, it goes.
                _ = ended => {}
                () = sleep(limit) => {}
                () = manager.feed_watchdog(async || sleep(FEED_INTERVAL).await) => {}
            }
        };
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        let started = runtime.and_then(|runtime| {
            let thread = thread::Builder::new().name("takeover".to_owned());
            thread.spawn(move || runtime.block_on(feed))
        });
        if let Err(error) = started {
            tracing::warn!(%error, "the watchdog is not fed while this master takes over");
            return None;
        }
        Some(Self { _end: end })
    }
}

/// The parts of a member that relays.
struct Relaying<'a> {
    /// `None` for one that does not.
    tls: Option<&'a MemberTls>,
    before_answers: Option<Arc<dyn BeforeAnswers>>,
    shared: (&'a MinionKeySync, &'a MinionDataSync),
}

/// The ports are closed when it has an outcome.
async fn wait_for_lease(
    (config, relaying): (&MasterConfig, Relaying<'_>),
    membership: &Arc<Membership>,
    signals: &mut Signals,
) -> Result<(), Exit> {
    let Relaying {
        tls,
        before_answers,
        shared: (keys, data),
    } = relaying;
    let registry = Registry::new();
    let shared = (&SharedState::default(), keys, data);
    register_cluster_metrics(&registry, Some(membership), shared);
    let target = RelayTarget::default();
    let (member, of_relay, relays) = (membership.clone(), target.clone(), tls.is_some());
    let state = move || {
        let is_ready = of_relay.is_reached();
        let mut text = member.reason();
        if relays && !is_ready {
            text += "; nothing is relayed to it: its member port has not answered";
        }
        StandbyState { is_ready, text }
    };
    let unavailable = |error: StartError| {
        complain(&chain(&error));
        exit_of_start(&error)
    };
    let port = StandbyPort::open(config, &registry, state).map_err(unavailable)?;
    // Behind all that may fail: nobody removes its sockets, else.
    let relay = tls.map(|tls| open_relay(config, &registry, (tls, target.clone()), before_answers));
    let relay = relay.transpose().map_err(unavailable)?;
    let asker = relay.as_ref().map(Relay::asker);
    let manager = ServiceManager::find(String::new());
    let waiting = async {
        tokio::select! {
            () = pass_dropfiles_on(config, asker) => Err(Exit::Failure),
            outcome = standings(config, membership, (&manager, tls.map(|_| &target))) => outcome,
            () = signals.stop_of_standby() => {
                manager.stopping("leaving the cluster").await;
                let _ = std::fs::remove_file(&config.pidfile);
                Err(Exit::Ok)
            }
            () = manager.feed_watchdog(async || sleep(FEED_INTERVAL).await) => Err(Exit::Failure),
        }
    };
    port.serve_while(async {
        let Some(relay) = relay else {
            return waiting.await;
        };
        let outcome = relay.serve_while(waiting).await;
        remove_sockets(&config.sock_dir);
        outcome
    })
    .await
}

/// Has the active member make a new shared key when a dropfile asks for one here, as after stock's
/// `salt-key` has deleted a key. Without an end.
async fn pass_dropfiles_on(config: &MasterConfig, asker: Option<RelayAsker>) {
    let Some(asker) = asker else {
        return std::future::pending().await;
    };
    let mut passed_on = PassedOn::default();
    let take = || dropfile::take(config).map(|_| ());
    loop {
        if let Err(error) = passed_on
            .look(config, || asker.request_rotation(), take)
            .await
        {
            let error = chain(&error);
            tracing::debug!(error, "the dropfile cannot be used");
        }
        sleep(DROPFILE_INTERVAL).await;
    }
}

/// The dropfile that the active member knows of, so that one which cannot be removed is passed on once.
#[derive(Default)]
struct PassedOn(Option<Version>);

impl PassedOn {
    /// Passes the dropfile on by `ask`, if there is one, and removes it by `take`.
    async fn look<A: Future<Output = io::Result<()>>>(
        &mut self,
        config: &MasterConfig,
        ask: impl FnOnce() -> A,
        take: impl FnOnce() -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let Some(version) = dropfile::version(config)? else {
            return Ok(());
        };
        if dropfile::check(config)? != Dropfile::Rotate {
            return Ok(());
        }
        let is_new = self.0 != Some(version);
        if is_new && let Err(error) = ask().await {
            tracing::debug!(%error, "the active member does not know of the dropfile yet");
            return Ok(());
        }
        self.0 = Some(version);
        if dropfile::version(config)? != self.0 {
            // Another one, which has its own turn.
            return Ok(());
        }
        // Taken only now: when this member takes over first, it is its own.
        let taken = take();
        if is_new && let Err(error) = &taken {
            let error = chain(error);
            tracing::warn!(
                error,
                "the dropfile has been passed on and cannot be removed"
            );
        }
        taken
    }
}

/// Reports each standing until there is the lease, to a relay, too, where there is one.
async fn standings(
    config: &MasterConfig,
    membership: &Membership,
    (manager, target): (&ServiceManager, Option<&RelayTarget>),
) -> Result<(), Exit> {
    let mut reported = String::new();
    loop {
        let standing = membership.standing().map_err(|error| {
            tracing::error!("{}", chain(&error));
            complain(&chain(&error));
            match error {
                ClusterError::NameTaken { .. } => Exit::Unavailable,
                _ => Exit::Usage,
            }
        })?;
        match &standing {
            Standing::Active { .. } => return Ok(()),
            Standing::Standby { active } => {
                let active = active.as_ref();
                let active = active.map(|one| (one.address.clone(), one.epoch));
                if let Some(target) = target {
                    target.set(active);
                }
            }
            // The active one may well be reached without a database.
            Standing::Waiting { .. } => {}
        }
        let reason = standing.to_string();
        if reason != reported {
            tracing::info!("{reason}");
            manager.ready_but(&reason).await;
            if reported.is_empty() {
                write_pidfile(&config.pidfile);
            }
            reported = reason;
        }
        sleep(LOOK_INTERVAL).await;
    }
}

impl Signals {
    /// Waits for a signal that ends the process; SIGHUP does not.
    async fn stop_of_standby(&mut self) {
        loop {
            tokio::select! {
                _ = self.terminate.recv() => return,
                _ = self.interrupt.recv() => return,
                _ = self.hangup.recv() => tracing::info!(
                    "a master that stands by does not read its configuration again: restart it"
                ),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::future::ready;

    use saltern_config::load_master;

    use super::*;

    #[test]
    fn loss_of_the_lease_is_said_by_a_thread_that_waits_for_it() {
        let place = tempfile::tempdir().expect("a directory");
        let pidfile = place.path().join("pid");
        let (root, pid) = (place.path().display(), pidfile.display());
        let text = format!("root_dir: {root}\npidfile: {pid}\n");
        std::fs::write(place.path().join("master"), text).expect("written");
        let config = load_master(place.path()).expect("a configuration").config;
        std::fs::write(&pidfile, "1").expect("written");
        let (name, named) = mpsc::channel();
        let say = move |error| {
            say_loss(&config, &error);
            let _ = name.send(thread::current().name().map(str::to_owned));
        };
        let report = reporter(thread::Builder::new(), say).expect("a thread");
        assert!(pidfile.exists(), "nothing is lost yet");
        report(ClusterError::TakenOver);
        assert!(!pidfile.exists(), "as after the log line");
        let name = named.recv().expect("it was said");
        assert_eq!(name.as_deref(), Some("lease-lost"));
    }

    /// As by a disk or a reader that hangs.
    #[test]
    fn loss_of_the_lease_is_reported_within_a_bound() {
        let (hang, hangs) = mpsc::channel::<()>();
        let say = move |_| _ = hangs.recv();
        let report = reporter(thread::Builder::new(), say).expect("a thread");
        report(ClusterError::TakenOver);
        drop(hang);
    }

    /// Before there is anything to lose.
    #[test]
    fn cluster_is_not_joined_where_no_thread_starts() {
        // There is no room for such a stack.
        let thread = thread::Builder::new().stack_size(1 << 60);
        assert!(reporter(thread, |_| {}).is_err());
    }

    #[test]
    fn thread_for_a_loss_ends_with_a_member_that_leaves() {
        let (held, ended) = mpsc::channel::<()>();
        let say = move |_| drop(held);
        drop(reporter(thread::Builder::new(), say).expect("a thread"));
        assert!(ended.recv().is_err(), "it holds nothing any more");
    }

    #[tokio::test]
    async fn dropfile_that_cannot_be_removed_is_passed_on_once() {
        let place = tempfile::tempdir().expect("a directory");
        let text = format!("root_dir: {}\n", place.path().display());
        std::fs::write(place.path().join("master"), text).expect("written");
        let config = load_master(place.path()).expect("a configuration").config;
        std::fs::create_dir_all(&config.cachedir).expect("made");
        let (mut passed_on, asked) = (PassedOn::default(), Cell::new(0));
        let ask = || {
            asked.set(asked.get() + 1);
            ready(Ok(()))
        };
        let away = || ready(Err(io::ErrorKind::NotConnected.into()));
        let stays = || {
            let denied = io::ErrorKind::PermissionDenied;
            Err(StoreError::io("remove", "dropfile", denied))
        };
        let none = passed_on.look(&config, ask, stays).await;
        none.expect("there is none");
        assert_eq!(asked.get(), 0);

        dropfile::request(&config).expect("a dropfile");
        let waits = passed_on.look(&config, away, stays).await;
        waits.expect("it waits for an active member");
        for _ in 0..3 {
            assert!(passed_on.look(&config, ask, stays).await.is_err());
            assert_eq!(asked.get(), 1);
        }

        dropfile::request(&config).expect("another one");
        let take = || dropfile::take(&config).map(|_| ());
        let taken = passed_on.look(&config, ask, take).await;
        taken.expect("removed");
        assert_eq!(asked.get(), 2);
        assert_eq!(dropfile::check(&config).expect("looked"), Dropfile::None);
    }
}
