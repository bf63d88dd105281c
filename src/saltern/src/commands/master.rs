//! `saltern master`: opens everything, starts the master, and waits for its end.
//!
//! Everything that can be wrong is found before the first port is bound, and each kind of failure
//! has an exit code of its own.

mod arguments;
mod background;
mod standby;
mod standby_jobs;

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use saltern_actors::{Diagnose, Master, MasterParts, StartError};
use saltern_automation::reactor::Reactions;
use saltern_base::clock::Clock;
use saltern_base::exit::Exit;
use saltern_base::metrics::Registry;
use saltern_config::{Finding, LogLevel, MasterConfig, Severity};
use saltern_requests::{OpenError, Stores};
use saltern_sql::register_cluster_metrics;
use saltern_store::jobs::Engine;
use saltern_store::shared_state::minion_data::MinionDataSync;
use saltern_store::shared_state::minion_keys::MinionKeySync;
use saltern_store::sqlite::{is_lost, note_incident};
use saltern_store::{MinionDataStore, SharedState, StoreError, open_engine};
use saltern_wire::port::Inherited;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::Instant;

pub(crate) use self::arguments::Arguments;
use super::{chain, complain, doctor, load_config};
use crate::logging::Levels;
use crate::reload::{Reloader, admits_users};
use crate::service_manager::{self, ServiceManager};
use crate::{logging, preflight, privileges};

pub(crate) fn run(arguments: &Arguments) -> Exit {
    if arguments.daemon {
        return background::start(arguments);
    }
    if arguments.in_background
        && let Err(error) = background::begin_session()
    {
        complain(&format!("cannot begin a session: {error}"));
        return Exit::Failure;
    }
    let inherited = match service_manager::inherited() {
        Ok(inherited) => inherited,
        Err(error) => {
            complain(&format!(
                "cannot use the sockets of the service manager: {error}"
            ));
            return Exit::Unavailable;
        }
    };
    let mut loaded = match load_config(&arguments.config) {
        Ok(loaded) => loaded,
        Err(exit) => return exit,
    };
    arguments.apply(&mut loaded.config);
    saltern_base::open_files::raise(loaded.config.max_open_files);
    privileges::restrict_umask(admits_users(&loaded.config));
    if let Err(error) = make_first_directories(&loaded.config) {
        complain(&format!("cannot make the master's directories: {error}"));
        return Exit::CannotCreate;
    }
    if let Err(error) = privileges::become_user(&loaded.config.user) {
        complain(&chain(&error));
        return Exit::NoPermission;
    }
    let levels = match logging::start(
        &loaded.config.log,
        &arguments.levels(&loaded.config.followed().log_levels),
        arguments.log_level,
    ) {
        Ok(levels) => levels,
        Err(error) => {
            complain(&format!(
                "cannot open the log file \"{}\": {error}",
                loaded.config.log.file
            ));
            return Exit::CannotCreate;
        }
    };
    let held: Vec<SocketAddr> = inherited.unclaimed().collect();
    let parts = preflight::parts(&loaded.config).into_iter();
    let parts = parts.filter(|finding| !is_held(finding, &loaded.config, &held));
    let parts: Vec<Finding> = parts.collect();
    loaded.findings.extend(parts);
    let mut refusals = loaded.findings.iter().filter(|it| it.refuses_start());
    if let Some(first) = refusals.next() {
        let exit = preflight::exit_of(first);
        for refusal in std::iter::once(first).chain(refusals) {
            complain(&refusal.to_string());
        }
        return exit;
    }
    let (of_python, others): (Vec<Finding>, Vec<Finding>) =
        loaded.findings.into_iter().partition(|it| it.needs_python);
    log_findings(&others);
    let config = Arc::new(loaded.config);
    look_for_python(&config, of_python);
    let reloader = Reloader::new(
        arguments.config.config.clone(),
        config.clone(),
        levels.clone(),
    );
    // Held until the process ends.
    let _claim = match claim(&config.cachedir) {
        Ok(claim) => claim,
        Err(exit) => return exit,
    };
    // Before a member that stands by writes there.
    remove_temporary_caches(&config);
    let (mut member, signals) = match standby::stand_by(&config, &inherited) {
        Ok(joined) => joined.unzip(),
        Err(exit) => return exit,
    };
    let path = arguments.config.config.clone();
    let diagnose: Diagnose = Arc::new(move || doctor::of_this_master(&path));
    let opened = open(&config, inherited, (levels, diagnose), member.as_ref());
    if let Some(member) = &mut member {
        member.has_taken_over();
    }
    let state = opened.as_ref().ok().map(|parts| parts.stores.state.clone());
    let exit = match opened {
        Ok(parts) => {
            let runtime =
                || saltern_supervise::runtime("saltern").expect("the system gives an event loop");
            actix_rt::System::with_tokio_rt(runtime).block_on(serve(parts, reloader, signals))
        }
        Err(OpenError::Store(error)) => {
            complain(&format!("{}{}", chain(&error), advice(&error)));
            exit_of(&error)
        }
        Err(error) => {
            complain(&chain(&error));
            Exit::Usage
        }
    };
    // After the last commit, and also when nothing was committed.
    if let Some(state) = state {
        standby::finish(&state);
    }
    if let Some(member) = member {
        // The other members wait for both.
        let stop_data = || member.data.sync.stop();
        std::thread::scope(|threads| {
            let thread = std::thread::Builder::new().name("stop-data".to_owned());
            let started = thread.spawn_scoped(threads, stop_data);
            member.keys.stop();
            if started.is_err() {
                stop_data();
            }
        });
        standby::leave(member.membership);
    }
    exit
}

/// Says in the log what only Python runs, and whether nothing runs it; looking for a Python takes
/// up to a minute where one hangs.
fn look_for_python(config: &Arc<MasterConfig>, mut findings: Vec<Finding>) {
    let config = config.clone();
    let thread = std::thread::Builder::new().name("look-for-python".to_owned());
    let started = thread.spawn(move || {
        preflight::python(&config, &mut findings);
        log_findings(&findings);
    });
    if let Err(error) = started {
        tracing::warn!(%error, "no thread for looking for a Python");
    }
}

/// Says in the log what the check found.
pub(crate) fn log_findings(findings: &[Finding]) {
    for finding in findings {
        match finding.severity {
            Severity::Error => tracing::error!("{finding}"),
            Severity::Warning => tracing::warn!("{finding}"),
            Severity::Info => tracing::info!("{finding}"),
        }
    }
}

/// Locks the cache directory against a second master, whatever its ports: two would write one job
/// database and count up one serial. The system gives the lock back however this process ends.
pub(super) fn claim(cachedir: &Path) -> Result<File, Exit> {
    let directory = cachedir.join("saltern");
    saltern_store::files::ensure_dir(&directory, 0o700).map_err(|error| {
        complain(&chain(&error));
        exit_of(&error)
    })?;
    let path = directory.join("lock");
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(false).mode(0o600);
    let locked = options
        .open(&path)
        .and_then(|file| file.try_lock().map_err(io::Error::from).map(|()| file));
    locked.map_err(|error| match error.kind() {
        ErrorKind::WouldBlock => {
            let cachedir = cachedir.display();
            complain(&format!("another master is using \"{cachedir}\""));
            Exit::Unavailable
        }
        ErrorKind::PermissionDenied => {
            complain(&format!("cannot lock \"{}\": {error}", path.display()));
            Exit::NoPermission
        }
        _ => {
            complain(&format!("cannot lock \"{}\": {error}", path.display()));
            Exit::CannotCreate
        }
    })
}

/// Creates, as root, the directories under `/etc` and `/var` for the user of the master.
fn make_first_directories(config: &MasterConfig) -> io::Result<()> {
    let parent = |path: &'_ Path| path.parent().unwrap_or(Path::new("")).to_owned();
    let log = parent(Path::new(&config.log.file));
    let pid = parent(&config.pidfile);
    let mut directories = vec![
        (config.pki_dir.as_path(), 0o700),
        (&config.cachedir, 0o755),
        (&config.sock_dir, 0o755),
        (&pid, 0o755),
    ];
    if config.followed().log_levels.file_level != LogLevel::Quiet {
        directories.push((&log, 0o755));
    }
    privileges::make_directories_for(&config.user, &directories)
}

/// Whether a finding is about an address on which a service manager listens already: this process
/// need not be able to.
fn is_held(finding: &Finding, config: &MasterConfig, held: &[SocketAddr]) -> bool {
    let holds = |port| held.contains(&SocketAddr::new(config.interface, port));
    match finding.option.as_str() {
        "interface" => holds(config.ret_port) && holds(config.publish_port),
        "ret_port" => holds(config.ret_port),
        "publish_port" => holds(config.publish_port),
        _ => false,
    }
}

fn open(
    config: &Arc<MasterConfig>,
    inherited: Inherited,
    (levels, diagnose): (Arc<Levels>, Diagnose),
    member: Option<&standby::ActiveMember>,
) -> Result<MasterParts, OpenError> {
    let clock = Clock::system();
    remove_temporary_keys(config);
    let (engine, state) = match member {
        Some(member) => {
            let (engine, state) = member.take_over(config)?;
            (Some(engine), state)
        }
        None => (None, SharedState::default()),
    };
    let data = member.map_or_else(
        || Arc::new(MinionDataStore::open(config)),
        |member| member.data.store.clone(),
    );
    let stores = Stores::open_shared(config, &clock, (&state, data))?;
    let reactions = Arc::new(Reactions::open(config, &clock, &stores)?);
    make_directories(config)?;
    let database = match engine {
        Some(engine) => engine,
        None => open_database(config, &clock)?,
    };
    let registry = Registry::new();
    let membership = member.map(|member| &member.membership);
    let keys = member.map_or_else(MinionKeySync::default, |member| member.keys.clone());
    let data = member.map_or_else(MinionDataSync::default, |member| member.data.sync.clone());
    register_cluster_metrics(&registry, membership, (&state, &keys, &data));
    Ok(MasterParts {
        config: config.clone(),
        clock,
        stores,
        reactions,
        database,
        registry,
        inherited,
        member_tls: member.and_then(|member| member.tls.clone()),
        log_levels: Some(levels),
        diagnose: Some(diagnose),
    })
}

/// Maximum time that a start spends on the recovery of a damaged database.
const RECOVERY: Duration = Duration::from_secs(30);

fn open_database(config: &MasterConfig, clock: &Clock) -> Result<Engine, StoreError> {
    let path = &config.saltern_job_database;
    if is_lost(config) {
        let what = format!(
            "there was no job database \"{}\" at the start, though this master had one: a new one \
             was made, and jobs are read back from the job cache in \"{}\" as far as it has them",
            path.display(),
            config.cachedir.join("jobs").display(),
        );
        tracing::error!("{what}");
        if let Err(error) = note_incident(path, clock.unix(), &what) {
            tracing::warn!(
                error = chain(&error),
                "the incident cannot be recorded for saltern doctor"
            );
        }
    }
    let until = Instant::now() + RECOVERY;
    let is_enough = || Instant::now() >= until;
    let (engine, recovered) = open_engine(config, clock.unix(), &is_enough)?;
    if let Some(recovered) = recovered {
        let set_aside = recovered.set_aside.display();
        let rest = if recovered.is_cut_short {
            "; it took too long, so older ones are still only there"
        } else {
            ""
        };
        tracing::error!(
            "the job database was damaged ({}) and is now \"{set_aside}\"; {} jobs and {} returns \
             of it could be read and are in a new one{rest}",
            recovered.damage,
            recovered.jobs,
            recovered.returns,
        );
    }
    Ok(engine)
}

/// A directory of keys and sockets into which everybody may write is closed to them: earlier
/// releases made it so under an umask of 0. One with the sticky bit is everybody's.
fn close_to_writers(directory: &Path) -> Result<(), StoreError> {
    use std::os::unix::fs::PermissionsExt;
    const OTHERS_WRITE: u32 = 0o002;
    const STICKY: u32 = 0o1000;
    let failed = |source| StoreError::io("restrict access to", directory, source);
    let mode = std::fs::metadata(directory)
        .map_err(failed)?
        .permissions()
        .mode()
        & 0o7777;
    if mode & OTHERS_WRITE == 0 || mode & STICKY != 0 {
        return Ok(());
    }
    let closed = std::fs::Permissions::from_mode(mode & !OTHERS_WRITE);
    std::fs::set_permissions(directory, closed).map_err(failed)?;
    tracing::warn!(
        path = %directory.display(),
        "everybody could write in this directory, and nobody but its owner and group can now"
    );
    Ok(())
}

/// The directories that stock's tools expect a master to have made (`verify_env` in
/// `salt/utils/verify.py`), and the one of the job database.
fn make_directories(config: &MasterConfig) -> Result<(), StoreError> {
    use saltern_store::files::ensure_dir;
    for name in ["jobs", "proc"] {
        ensure_dir(&config.cachedir.join(name), 0o755)?;
    }
    for directory in [&config.syndic_dir, &config.sock_dir] {
        ensure_dir(directory, 0o755)?;
    }
    // Only a runner in Python wants it.
    if let Err(error) = ensure_dir(&config.sqlite_queue_dir, 0o755) {
        tracing::warn!(error = chain(&error), "sqlite_queue_dir cannot be made");
    }
    for directory in [&config.cachedir, &config.sock_dir] {
        // It may belong to somebody else: a mounted volume, for instance.
        if let Err(error) = close_to_writers(directory) {
            tracing::warn!(error = chain(&error), "everybody can write in a directory");
        }
    }
    match config.saltern_job_database.parent() {
        Some(directory) => ensure_dir(directory, 0o700),
        None => Ok(()),
    }
}

/// Removes keys that a master which was killed left half written, also in the directories in which earlier releases
/// wrote. Other members of a cluster may write there, too, but none that is active before this one is.
fn remove_temporary_keys(config: &MasterConfig) {
    let names = [
        "",
        "minions",
        "minions_pre",
        "minions_rejected",
        "minions_denied",
    ];
    remove_temporary_files(names.map(|name| config.pki_dir.join(name)));
}

/// The same of caches. Before this process writes anything there.
fn remove_temporary_caches(config: &MasterConfig) {
    let names = [
        "",
        "saltern",
        "tokens",
        "sessions",
        "syndics",
        "publish_auth",
        "grains",
        "pillar",
        "mine",
    ];
    remove_temporary_files(names.map(|name| config.cachedir.join(name)));
}

fn remove_temporary_files(directories: impl IntoIterator<Item = PathBuf>) {
    for directory in directories {
        // What cannot be removed does no harm.
        if let Err(error) = saltern_store::files::remove_stale(&directory) {
            tracing::warn!(
                error = chain(&error),
                "temporary files of an earlier process cannot be removed"
            );
        }
    }
}

/// The exit code of a master, or of one that stands by, that cannot start.
fn exit_of_start(error: &StartError) -> Exit {
    match error {
        StartError::Port { .. } | StartError::Listener(_) => Exit::Unavailable,
        StartError::Tls(_) => Exit::NoInput,
        StartError::Reactor(_) => Exit::Usage,
        StartError::Socket(error) if error.source.kind() == ErrorKind::AddrInUse => {
            Exit::Unavailable
        }
        StartError::Socket(_) | StartError::Control(_) => Exit::CannotCreate,
        StartError::Store(error) => exit_of(error),
    }
}

/// `signals` are those of a master that stood by: one that came while it took over ends it now.
async fn serve(parts: MasterParts, reloader: Reloader, signals: Option<Signals>) -> Exit {
    // Before the first port is bound: whoever sees the master serve may signal it.
    let Ok(signals) = signals.map_or_else(Signals::register, Ok) else {
        complain("signals cannot be handled on this system");
        return Exit::Failure;
    };
    let config = parts.config.clone();
    let master = match Master::start(parts) {
        Ok(master) => master,
        Err(error) => {
            complain(&chain(&error));
            return exit_of_start(&error);
        }
    };
    write_pidfile(&config.pidfile);
    if config.fips_mode {
        let fips_provider = saltern_crypto::has_fips_provider();
        tracing::info!(
            fips_provider,
            "fips_mode: algorithms with SHA-1 are refused; RSA is OpenSSL's, of its FIPS provider \
             where openssl.cnf says so"
        );
    }
    let tls = config.ssl.is_some();
    for also in &config.saltern_also_listen {
        let (ret_port, publish_port) = (also.ret_port, also.publish_port);
        tracing::info!(transport = %also.transport, tls, ret_port, publish_port, "listening on a further transport");
    }
    tracing::info!(
        address = %config.interface,
        transport = %config.transport,
        tls,
        ret_port = config.ret_port,
        publish_port = config.publish_port,
        workers = config.worker_threads,
        salt_compat = %config.salt_compat,
        "the master is ready"
    );
    let manager = ServiceManager::find(format!(
        "serving on {} and {}",
        master.request_address(),
        master.publish_address()
    ));
    manager.ready().await;
    let exit = tokio::select! {
        exit = wait(&master, signals, reloader, &manager) => exit,
        () = manager.feed_watchdog(async || master.heartbeat().await) => Exit::Failure,
    };
    let _ = std::fs::remove_file(&config.pidfile);
    exit
}

/// The signals of a master; each is kept until it is waited for.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
}

impl Signals {
    fn register() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    /// Waits for a signal that ends the process.
    async fn stop(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

/// Waits for a signal or for the tree to give up. SIGHUP has the configuration read again; of the
/// others the first one stops in order, the second at once.
async fn wait(
    master: &Master,
    mut signals: Signals,
    mut reloader: Reloader,
    manager: &ServiceManager,
) -> Exit {
    loop {
        tokio::select! {
            failure = master.failed() => {
                complain(&format!("the master gives up: {failure}"));
                manager.stopping(&format!("gave up: {failure}")).await;
                return Exit::GaveUp;
            }
            _ = signals.terminate.recv() => break,
            _ = signals.interrupt.recv() => break,
            _ = signals.hangup.recv() => {
                manager.reloading().await;
                reloader.reload(master).await;
                manager.ready().await;
            }
        }
    }
    tracing::info!("stopping");
    manager.stopping("finishing what was begun").await;
    tokio::select! {
        () = master.shutdown() => {}
        () = async {
            signals.stop().await;
            master.shutdown().await;
        } => {}
    }
    tracing::info!("stopped");
    Exit::Ok
}

fn write_pidfile(path: &Path) {
    use std::os::unix::fs::PermissionsExt;
    let written = path
        .parent()
        .map_or(Ok(()), std::fs::create_dir_all)
        .and_then(|()| std::fs::write(path, std::process::id().to_string()))
        // For other users' monitoring, whatever the umask.
        .and_then(|()| std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o644)));
    if let Err(error) = written {
        tracing::warn!(path = %path.display(), %error, "the pid file cannot be written");
    }
}

fn exit_of(error: &StoreError) -> Exit {
    match error {
        StoreError::Corrupt { .. } | StoreError::Malformed { .. } | StoreError::Schema { .. } => {
            Exit::Data
        }
        StoreError::Key { .. } | StoreError::Missing { .. } | StoreError::TooLarge { .. } => {
            Exit::NoInput
        }
        StoreError::Option { .. } => Exit::Usage,
        StoreError::Io { source, .. } => match source.kind() {
            std::io::ErrorKind::PermissionDenied => Exit::NoPermission,
            std::io::ErrorKind::IsADirectory | std::io::ErrorKind::NotFound => Exit::NoInput,
            _ => Exit::Io,
        },
        _ => Exit::Io,
    }
}

fn advice(error: &StoreError) -> &'static str {
    match error {
        StoreError::Corrupt { .. } => "; a new one cannot be made in its place",
        StoreError::Full { .. } => "; nothing was changed: make room and start again",
        _ => "",
    }
}
