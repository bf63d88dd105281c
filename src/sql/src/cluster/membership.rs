//! A master's part in its cluster: it stands by until it gets the lease of the jobs, renews it, and gives
//! it up at its end.
//!
//! Two threads. The *keeper* asks the database; it may be held up by it. The *watcher* asks nothing: it
//! reports the loss of the lease at two thirds of its length by the monotonic clock, however long an
//! answer is awaited.
//!
//! Of the database's statements each has a transaction of its own with one row, so that no two members
//! wait for each other. Only opening the engine locks two rows, the lease first.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use saltern_base::chain;
use saltern_base::log_throttle::LogThrottle;
use saltern_config::ClusterConfig;
use saltern_store::StoreError;
use saltern_store::jobs::{Engine, JobQueries};
use saltern_store::shared_state::StateTable;
use saltern_store::shared_state::minion_data::DataTable;
use saltern_store::shared_state::minion_keys::KeyTable;
use tokio::time::Instant;
use tokio_postgres::error::SqlState;

use super::data_table::SealedData;
use super::engine::{ClusterOptions, EngineSigns, Target, open_engine};
use super::error::ClusterError;
use super::key_table::SealedKeys;
use super::layout::{self, LayoutError, VERSION};
use super::lease::{LeaseAction, LeaseHolder};
use super::lease_table::{Fence, LeaseTable};
use super::members::{self, ClusterState, JOBS, MemberIdentity, MemberReport, TablesError};
use super::reader::ClusterReader;
use super::state_table::SealedTable;
use crate::error::SqlError;

/// Looks at the lease of others in the time of a lease, and the shortest and longest time between two.
const LOOKS_A_LEASE: u32 = 30;
const MIN_PAUSE: Duration = Duration::from_millis(100);
const MAX_PAUSE: Duration = Duration::from_millis(500);

/// Longest time between two looks of the active member at the others.
const ACTIVE_LOOK: Duration = Duration::from_secs(5);

/// Interval of the watcher.
const WATCH_INTERVAL: Duration = Duration::from_millis(50);

/// Longest time that a batch waits for a database that is away.
const PATIENCE: Duration = Duration::from_secs(5);

/// Longest wait for a change of the shared state, which keeps one actor waiting.
const MAX_STATE_PATIENCE: Duration = Duration::from_secs(10);

/// Minimum time between two log lines about failures.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// The active master of a cluster, as another member sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ActiveMaster {
    /// Its name.
    pub name: String,
    /// Where it is reached.
    pub address: String,
    /// The epoch of its lease.
    pub epoch: i64,
}

/// A member's standing.
#[derive(Clone, Debug)]
pub enum Standing {
    /// The database has not answered yet, or does not any more.
    Waiting {
        /// Why.
        reason: String,
    },
    /// Another master is active, or none.
    Standby {
        /// The active one.
        active: Option<ActiveMaster>,
    },
    /// This master has the lease.
    Active {
        /// The lease's epoch.
        epoch: i64,
    },
}

impl fmt::Display for Standing {
    /// For people.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Waiting { reason } => write!(out, "standing by without a database: {reason}"),
            Self::Standby { active: Some(one) } => {
                write!(
                    out,
                    "standing by: the active master of the cluster is \"{}\"",
                    one.name
                )
            }
            Self::Standby { active: None } => {
                write!(out, "standing by: no master of the cluster is active")
            }
            Self::Active { epoch } => write!(out, "active, by epoch {epoch} of the lease"),
        }
    }
}

/// Numbers about a member, for metrics.
#[derive(Clone, Copy, Debug, Default)]
pub struct ClusterFigures {
    /// It is the active one.
    pub is_active: bool,
    /// The epoch of the lease as it was seen last.
    pub epoch: i64,
    /// Seconds since the last renewal that was granted; none without one.
    pub since_renewal: Option<u64>,
    /// Leases that it took although their owner had not given them up.
    pub takeovers: u64,
    /// Live members that stand by, as they were seen last.
    pub standbys: usize,
}

struct State {
    holder: LeaseHolder,
    standing: Standing,
    /// It had the lease at some time: without it, it ends.
    was_active: bool,
    /// It gives the lease up: nothing is reported any more.
    is_leaving: bool,
    /// Why it cannot be a member.
    refusal: Option<ClusterError>,
    renewed: Option<Instant>,
    entered: Option<Instant>,
    looked: Option<Instant>,
    figures: ClusterFigures,
    last_error: String,
    /// Signs of the engine that it appends nothing any more.
    signs: Option<Arc<EngineSigns>>,
    /// Reasons for what it does not share as it should, by what they are about.
    notes: BTreeMap<&'static str, String>,
    /// The same as its row has it.
    noted: String,
}

/// The shared state of a cluster in its database.
pub struct SharedTable {
    /// Its rows.
    pub table: Arc<dyn StateTable>,
    /// Where it is, for people.
    pub place: PathBuf,
    /// How long one waits for a change to be in it.
    pub patience: Duration,
}

/// Membership of a cluster, until it is left.
pub struct Membership {
    target: Arc<Target>,
    table: LeaseTable,
    me: MemberIdentity,
    length: Duration,
    began: Instant,
    state: Mutex<State>,
    /// Notified when it leaves.
    leaving: Condvar,
    failures: LogThrottle,
}

/// The options of the engine of a cluster.
pub(super) fn target_of(config: &ClusterConfig) -> Result<Arc<Target>, StoreError> {
    let options = ClusterOptions {
        name: config.name.clone(),
        patience: PATIENCE.min(config.lease / 3),
        idle_limit: config.lease / 3,
    };
    Ok(Arc::new(Target::new(config.servers.clone(), options)?))
}

/// The leases of a cluster. A statement has so much time that a renewal can be tried again.
fn table_of(target: &Arc<Target>, lease: Duration) -> Result<LeaseTable, StoreError> {
    let limit = (lease / 4).max(Duration::from_secs(1));
    LeaseTable::on(target.clone(), limit)
}

/// Outcome of [`init_cluster`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tables {
    /// None: they are made.
    Made,
    /// Those of an older release, or without the row of a head: what they lacked is added.
    Upgraded,
    /// All of them.
    Present,
}

/// Makes the tables of a cluster, or what they lack.
///
/// # Errors
/// The database is away or refuses, or a newer release made them.
pub fn init_cluster(config: &ClusterConfig) -> Result<Tables, ClusterError> {
    let target = target_of(config)?;
    let table = table_of(&target, config.lease)?;
    let failed = |error| ClusterError::Store(target.error("make tables in", error));
    let outcome = match members::check_tables(&table) {
        Ok(()) => {
            let put = table.ask(async |session| layout::put_heads(session).await);
            return Ok(match put.map_err(failed)? {
                true => Tables::Upgraded,
                false => Tables::Present,
            });
        }
        Err(TablesError::Missing) => Tables::Made,
        Err(TablesError::Older(_)) => Tables::Upgraded,
        Err(error) => return Err(of_tables(&target, error)),
    };
    let name = config.name.clone();
    let made = table.ask(async |session| Ok(layout::make(session, &name).await));
    match made.map_err(failed)? {
        Ok(()) => Ok(outcome),
        Err(LayoutError::Sql(error)) if error.has_code(&SqlState::LOCK_NOT_AVAILABLE) => {
            Err(ClusterError::TablesInUse {
                place: target.place.display().to_string(),
                source: error,
            })
        }
        Err(LayoutError::Sql(error)) => Err(failed(error)),
        Err(LayoutError::Newer(found)) => Err(of_tables(&target, TablesError::Newer(found))),
        Err(LayoutError::NotOwner) => Err(target.not_owner().into()),
    }
}

/// The check value of the secret that the members of a cluster have, if they have one.
///
/// # Errors
/// The database is away or refuses, or there is no cluster.
pub fn cluster_secret(config: &ClusterConfig) -> Result<Option<String>, ClusterError> {
    let target = target_of(config)?;
    let table = table_of(&target, config.lease)?;
    members::check_tables(&table).map_err(|error| of_tables(&target, error))?;
    let check = members::secret_check(&table);
    Ok(check.map_err(|error| target.error("read", error))?)
}

/// Makes a secret that of all members; `check` is its check value.
///
/// # Errors
/// The database is away or refuses, or the members have another one.
pub fn set_cluster_secret(config: &ClusterConfig, check: &str) -> Result<(), ClusterError> {
    let target = target_of(config)?;
    let table = table_of(&target, config.lease)?;
    let noted = members::note_secret(&table, check);
    noted.map_err(|error| target.error("write", error))?;
    let found = members::secret_check(&table).map_err(|error| target.error("read", error))?;
    compare_secrets(&config.name, found.as_deref(), Some(check))
}

/// Whether a member with this secret belongs to the others.
fn compare_secrets(
    name: &str,
    theirs: Option<&str>,
    own: Option<&str>,
) -> Result<(), ClusterError> {
    let name = name.to_owned();
    match (theirs, own) {
        (Some(_), None) => Err(ClusterError::NoSecret { name }),
        (None, Some(_)) => Err(ClusterError::NewSecret { name }),
        (theirs, own) if theirs != own => Err(ClusterError::OtherSecret { name }),
        _ => Ok(()),
    }
}

/// Reads the state of a cluster.
///
/// # Errors
/// The database is away or refuses, or there is no cluster.
pub fn cluster_state(config: &ClusterConfig) -> Result<ClusterState, ClusterError> {
    let target = target_of(config)?;
    let table = table_of(&target, config.lease)?;
    members::check_tables(&table).map_err(|error| of_tables(&target, error))?;
    let state = members::look(&table);
    Ok(state.map_err(|error| target.error("read", error))?)
}

/// Ends the time in which members of the release before take part, after an upgrade of all.
///
/// # Errors
/// A member of a release before lives, or the database is away or refuses.
pub fn contract_cluster(config: &ClusterConfig) -> Result<(), ClusterError> {
    let target = target_of(config)?;
    let table = table_of(&target, config.lease)?;
    members::check_tables(&table).map_err(|error| of_tables(&target, error))?;
    loop {
        let state = members::look(&table).map_err(|error| target.error("read", error))?;
        if let Some(newer) = state.layout.filter(|found| found.version > VERSION) {
            // Only the release that has added to them knows what its members need.
            return Err(ClusterError::Expanded {
                place: target.place.display().to_string(),
                found: newer.version,
                known: VERSION,
            });
        }
        let mut members = state.members.iter();
        if let Some(older) = members.find(|member| member.is_alive && member.layout < VERSION) {
            return Err(ClusterError::NotUpgraded {
                name: older.name.clone(),
                version: older.version.clone(),
            });
        }
        if members::contract(&table).map_err(|error| target.error("write", error))? {
            return Ok(());
        }
        // A member has come since it was looked for.
    }
}

/// The tables that are missing, as after somebody removed one.
///
/// # Errors
/// The database is away or refuses, or there is no cluster that this release works with.
pub fn missing_tables(config: &ClusterConfig) -> Result<Vec<&'static str>, ClusterError> {
    let target = target_of(config)?;
    let table = table_of(&target, config.lease)?;
    let missing = table.ask(async |session| layout::missing(session).await);
    let missing = missing.map_err(|error| target.error("read", error))?;
    let has_layout = !missing.contains(&"meta");
    if has_layout || missing.len() == layout::names().count() {
        members::check_tables(&table).map_err(|error| of_tables(&target, error))?;
    }
    Ok(missing)
}

/// Facts of the database about a cluster, for a comparison of its members.
pub struct ClusterCheck {
    /// The cluster's state.
    pub state: ClusterState,
    /// The accounts of the members, by name.
    pub reports: Vec<MemberReport>,
    /// Milliseconds that this machine's clock is ahead of the database's; half the time of the question is
    /// uncertain.
    pub clock_ahead: i64,
}

/// Writes a member's account of what it has, and reads those of all.
///
/// # Errors
/// The database is away or refuses, or there is no cluster.
pub fn check_cluster(
    config: &ClusterConfig,
    name: &str,
    report: &str,
) -> Result<ClusterCheck, ClusterError> {
    let target = target_of(config)?;
    let table = table_of(&target, config.lease)?;
    members::check_tables(&table).map_err(|error| of_tables(&target, error))?;
    let failed = |error| ClusterError::Store(target.error("read", error));
    let written = members::report(&table, name, report);
    written.map_err(|error| target.error("write", error))?;
    Ok(ClusterCheck {
        state: members::look(&table).map_err(failed)?,
        reports: members::reports(&table).map_err(failed)?,
        clock_ahead: members::clock_ahead(&table).map_err(failed)?,
    })
}

/// Removes the row of a member that does not live any more; whether there was one.
///
/// # Errors
/// It lives, or the database is away or refuses.
pub fn forget_member(config: &ClusterConfig, name: &str) -> Result<bool, ClusterError> {
    let state = cluster_state(config)?;
    let mut members = state.members.iter();
    let Some(member) = members.find(|member| member.name == name) else {
        return Ok(false);
    };
    if member.is_alive {
        return Err(ClusterError::Lives {
            name: name.to_owned(),
            seconds: member.age / 1000,
        });
    }
    let target = target_of(config)?;
    let table = table_of(&target, config.lease)?;
    let forgotten = members::forget(&table, member);
    Ok(forgotten.map_err(|error| target.error("write", error))?)
}

/// The database of a cluster, for people; it has no password.
pub fn cluster_place(config: &ClusterConfig) -> Result<String, ClusterError> {
    Ok(target_of(config)?.place.display().to_string())
}

/// A reader of the jobs of a cluster, whoever is active.
pub(crate) fn open_cluster_reader(
    config: &ClusterConfig,
) -> Result<Arc<dyn JobQueries>, StoreError> {
    let target = target_of(config)?;
    let runtime = Arc::new(target.runtime()?);
    Ok(Arc::new(ClusterReader::new(target, runtime)))
}

fn active_of(found: &ClusterState) -> Option<ActiveMaster> {
    let name = found.active()?;
    let row = found.members.iter().find(|one| one.name == name);
    Some(ActiveMaster {
        name: name.to_owned(),
        address: row.map_or(String::new(), |row| row.address.clone()),
        epoch: found.lease.as_ref().map_or(0, |lease| lease.epoch),
    })
}

fn of_tables(target: &Target, error: TablesError) -> ClusterError {
    let place = target.place.display().to_string();
    match error {
        TablesError::Sql(error) => target.error("open", error).into(),
        TablesError::Missing => ClusterError::NotInitialised {
            name: target.options.name.clone(),
            place,
        },
        TablesError::Older(found) => ClusterError::Older {
            place,
            found,
            known: VERSION,
        },
        TablesError::Newer(found) => ClusterError::Newer {
            place,
            found,
            known: VERSION,
        },
    }
}

impl Membership {
    /// Begins to stand by. `lost` is called once, when the lease is lost after it was had: by then
    /// nothing may be done any more that only the active master does.
    ///
    /// # Errors
    /// No threads, or a name that no schema can have.
    pub fn join(
        config: &ClusterConfig,
        me: MemberIdentity,
        lost: impl FnOnce(ClusterError) + Send + 'static,
    ) -> Result<Arc<Self>, StoreError> {
        let target = target_of(config)?;
        let membership = Arc::new(Self {
            table: table_of(&target, config.lease)?,
            me,
            length: config.lease,
            began: Instant::now(),
            state: Mutex::new(State {
                holder: LeaseHolder::new(config.lease),
                standing: Standing::Waiting {
                    reason: "the database has not answered yet".to_owned(),
                },
                was_active: false,
                is_leaving: false,
                refusal: None,
                renewed: None,
                entered: None,
                looked: None,
                figures: ClusterFigures::default(),
                last_error: String::new(),
                signs: None,
                notes: BTreeMap::new(),
                noted: String::new(),
            }),
            leaving: Condvar::new(),
            failures: LogThrottle::new(LOG_INTERVAL),
            target,
        });
        let path = membership.target.place.clone();
        let failed = |error| StoreError::io("start a thread for", &path, error);
        let (keeper, watcher) = (membership.clone(), membership.clone());
        let thread = |name: &str| thread::Builder::new().name(name.to_owned());
        thread("lease")
            .spawn(move || keeper.keep())
            .map_err(failed)?;
        let watched = thread("lease-watch").spawn(move || watcher.watch(lost));
        watched.map_err(failed)?;
        Ok(membership)
    }

    /// Its standing now.
    ///
    /// # Errors
    /// It cannot be a member; given once.
    pub fn standing(&self) -> Result<Standing, ClusterError> {
        let mut state = self.state.lock();
        match state.refusal.take() {
            Some(refusal) => Err(refusal),
            None => Ok(state.standing.clone()),
        }
    }

    /// Why it is not ready, for people.
    pub fn reason(&self) -> String {
        self.state.lock().standing.to_string()
    }

    /// Its numbers now.
    pub fn figures(&self) -> ClusterFigures {
        let state = self.state.lock();
        let since_renewal = state.renewed.map(|renewed| renewed.elapsed().as_secs());
        ClusterFigures {
            is_active: state.holder.epoch(self.now()).is_some(),
            since_renewal,
            ..state.figures
        }
    }

    /// Becomes the owner of the jobs, under the lease.
    ///
    /// # Errors
    /// Without the lease, or when another master got it meanwhile.
    pub fn open_engine(&self) -> Result<Engine, StoreError> {
        let opened = open_engine(self.target.clone(), Some(self.fence()?))?;
        self.state.lock().signs = Some(opened.signs);
        Ok(opened.engine)
    }

    /// The shared state of the cluster, as the active master reads and writes it.
    ///
    /// # Errors
    /// Without the lease, or no thread.
    pub fn state_table(&self) -> Result<SharedTable, StoreError> {
        let limit = (self.length / 3).max(Duration::from_secs(1));
        let table = SealedTable::new(self.target.clone(), self.fence()?, limit)?;
        Ok(SharedTable {
            place: table.place().to_owned(),
            table: Arc::new(table),
            patience: MAX_STATE_PATIENCE.min(self.length / 3),
        })
    }

    /// The keys of minions of the cluster, as every member reads and writes them.
    ///
    /// # Errors
    /// No thread.
    pub fn key_table(&self) -> Result<Arc<dyn KeyTable>, StoreError> {
        let limit = (self.length / 3).max(Duration::from_secs(1));
        Ok(Arc::new(SealedKeys::new(self.target.clone(), limit)?))
    }

    /// The grains and mines of the cluster, as every member reads them, and this one writes them while it has the lease.
    ///
    /// # Errors
    /// No thread.
    pub fn data_table(self: &Arc<Self>) -> Result<Arc<dyn DataTable>, StoreError> {
        let limit = (self.length / 3).max(Duration::from_secs(1));
        let table = SealedData::new(self.target.clone(), self.clone(), limit)?;
        Ok(Arc::new(table))
    }

    /// Has the other members read in its row why something is not shared; `None` when it is.
    pub fn note(&self, about: &'static str, why: Option<String>) {
        let notes = &mut self.state.lock().notes;
        match why {
            Some(why) => _ = notes.insert(about, why),
            None => _ = notes.remove(about),
        }
    }

    /// Whether it has been a member: key, secret and name were accepted, and the tables are there.
    pub fn is_admitted(&self) -> bool {
        let state = self.state.lock();
        state.entered.is_some() || state.was_active
    }

    /// The lease that this member has.
    pub(super) fn fence(&self) -> Result<Fence, StoreError> {
        let epoch = self.state.lock().holder.epoch(self.now());
        Ok(Fence {
            lease: JOBS,
            member: self.me.name.clone(),
            epoch: epoch.ok_or_else(|| self.target.not_owner())?,
        })
    }

    /// Gives the lease up, if it is had, and leaves the cluster. Waits for the database, but not for
    /// long.
    pub fn leave(&self) {
        let request = {
            let mut state = self.state.lock();
            state.is_leaving = true;
            let now = self.now();
            state.holder.release(now)
        };
        self.leaving.notify_all();
        if let Some(request) = request {
            let names = (JOBS, self.me.name.as_str());
            match self.table.carry_out(names, self.length, request.action) {
                Ok(_) => tracing::info!("the lease of the cluster is given up"),
                Err(error) => tracing::warn!(
                    error = chain(&error),
                    "the lease of the cluster could not be given up, so it ends by its time"
                ),
            }
        }
        if let Err(error) = members::leave(&self.table, &self.me) {
            tracing::debug!(%error, "the cluster could not be left");
        }
    }

    /// The monotonic clock.
    fn now(&self) -> Duration {
        self.began.elapsed()
    }

    fn keep(&self) {
        let mut has_tables = false;
        loop {
            if let Err(error) = self.round(&mut has_tables) {
                // Whatever held it up may have lasted until the others were upgraded.
                has_tables = false;
                match error {
                    RoundError::Sql(error) => self.failed(&chain(&error)),
                    RoundError::Store(error) => self.failed(&chain(&error)),
                    RoundError::Refused(refusal) => {
                        let mut state = self.state.lock();
                        // An active one is not asked for it, and loses its lease.
                        state.last_error = chain(&refusal);
                        state.refusal = Some(refusal);
                        // The watcher has nothing to report then.
                        state.is_leaving = !state.was_active;
                        return;
                    }
                }
            }
            let pause = (self.length / LOOKS_A_LEASE).clamp(MIN_PAUSE, MAX_PAUSE);
            let mut state = self.state.lock();
            if !state.is_leaving {
                self.leaving.wait_for(&mut state, pause);
            }
            if state.is_leaving {
                return;
            }
        }
    }

    /// The database did not do what it was asked.
    fn failed(&self, reason: &str) {
        let mut state = self.state.lock();
        state.last_error = reason.to_owned();
        if !state.was_active {
            state.standing = Standing::Waiting {
                reason: format!("the database of the cluster: {reason}"),
            };
        }
        drop(state);
        if let Some(times) = self.failures.record() {
            let place = self.target.place.display();
            tracing::warn!(reason, times, %place, "the database of the cluster does not answer");
        }
    }

    /// One round of questions.
    fn round(&self, has_tables: &mut bool) -> Result<(), RoundError> {
        if !*has_tables || self.was_gone() {
            members::check_tables(&self.table).map_err(|error| match error {
                TablesError::Sql(error) => RoundError::Sql(error),
                error => RoundError::Refused(of_tables(&self.target, error)),
            })?;
            *has_tables = true;
        }
        self.renew()?;
        self.enter()?;
        let is_due = {
            let state = self.state.lock();
            let interval = (self.length / 3).min(ACTIVE_LOOK);
            let looked = state.looked.filter(|looked| looked.elapsed() < interval);
            !state.was_active || looked.is_none()
        };
        match is_due {
            true => self.look(),
            false => Ok(()),
        }
    }

    /// Whether its row ended without being refreshed, as while this process stood still.
    fn was_gone(&self) -> bool {
        let entered = self.state.lock().entered;
        entered.is_some_and(|at| at.elapsed() >= self.length * 2)
    }

    /// Renews the lease, if it is had and a renewal is due.
    fn renew(&self) -> Result<(), RoundError> {
        let request = {
            let mut state = self.state.lock();
            let now = self.now();
            match state.holder.epoch(now) {
                Some(_) if !state.is_leaving => state.holder.due(now),
                _ => None,
            }
        };
        match request {
            Some(request) => self.ask(request.number, request.action, None),
            None => Ok(()),
        }
    }

    /// Refreshes the own row; the first time when all else of the start has succeeded.
    fn enter(&self) -> Result<(), RoundError> {
        let (role, note, is_first) = {
            let state = self.state.lock();
            let notes = state.notes.iter();
            let lines: Vec<String> = notes
                .map(|(about, why)| format!("{about}: {why}"))
                .collect();
            let note = lines.join("\n");
            let is_fresh = state
                .entered
                .is_some_and(|at| at.elapsed() < self.length / 3);
            if is_fresh && state.noted == note {
                return Ok(());
            }
            let role = match state.was_active {
                true => "active",
                false => "standby",
            };
            let is_first = state.entered.is_none() && !state.was_active;
            (role, note, is_first)
        };
        if is_first {
            self.check_secret()?;
            self.check_key()?;
        }
        // Twice the time, so that a member that is slow once is not taken for dead.
        if !members::enter(&self.table, &self.me, (role, &note), self.length * 2)? {
            return Err(RoundError::Refused(self.name_taken()?));
        }
        let mut state = self.state.lock();
        (state.entered, state.noted) = (Some(Instant::now()), note);
        Ok(())
    }

    /// Before it has a name: it could not read what the others share, or would not share what it has.
    fn check_secret(&self) -> Result<(), RoundError> {
        let theirs = members::secret_check(&self.table)?;
        let (name, own) = (&self.target.options.name, self.me.secret_check.as_deref());
        compare_secrets(name, theirs.as_deref(), own).map_err(RoundError::Refused)
    }

    /// Before it has a name: minions would refuse a master with another key than the others have.
    fn check_key(&self) -> Result<(), RoundError> {
        let key = self.me.fingerprint();
        let members = members::look(&self.table)?.members;
        let mut others = members
            .into_iter()
            .filter(|one| one.is_alive && one.instance != self.me.instance);
        match others.find(|one| one.master_key != key) {
            Some(other) => Err(RoundError::Refused(ClusterError::OtherKey {
                other: other.name,
            })),
            None => Ok(()),
        }
    }

    fn name_taken(&self) -> Result<ClusterError, SqlError> {
        let members = members::look(&self.table)?.members;
        let other = members.into_iter().find(|one| one.name == self.me.name);
        Ok(ClusterError::NameTaken {
            name: self.me.name.clone(),
            address: other
                .as_ref()
                .map_or(String::new(), |one| one.address.clone()),
            seconds: other.map_or(0, |one| one.age / 1000),
        })
    }

    /// Looks at the others, and takes the lease where nobody has it.
    fn look(&self) -> Result<(), RoundError> {
        let found = members::look(&self.table)?;
        let is_free = found.lease.as_ref().is_none_or(|lease| lease.is_free());
        let request = {
            let mut state = self.state.lock();
            state.looked = Some(Instant::now());
            state.figures.standbys = found.standbys();
            state.figures.epoch = found.lease.as_ref().map_or(0, |lease| lease.epoch);
            if !state.was_active {
                state.standing = Standing::Standby {
                    active: active_of(&found),
                };
            }
            let now = self.now();
            match is_free && !state.was_active && !state.is_leaving {
                true => state.holder.due(now),
                false => None,
            }
        };
        match request {
            Some(request) => {
                let former = found.lease.map(|lease| lease.owner);
                self.ask(request.number, request.action, former)
            }
            None => Ok(()),
        }
    }

    /// Has a request for the lease carried out; `former` is who had it before.
    fn ask(
        &self,
        number: u64,
        action: LeaseAction,
        former: Option<String>,
    ) -> Result<(), RoundError> {
        let sent = Instant::now();
        let names = (JOBS, self.me.name.as_str());
        let granted = self.table.carry_out(names, self.length, action);
        let granted = granted.map_err(RoundError::Store)?;
        let mut state = self.state.lock();
        state.holder.answered(number, granted);
        let Some(epoch) = state.holder.epoch(self.now()) else {
            return Ok(());
        };
        state.renewed = Some(sent);
        state.figures.epoch = epoch;
        if !state.was_active {
            state.was_active = true;
            state.entered = None;
            state.standing = Standing::Active { epoch };
            let former = former.filter(|former| !former.is_empty());
            state.figures.takeovers += u64::from(former.is_some());
            tracing::info!(epoch, former, "this master has the lease of the cluster");
        }
        Ok(())
    }

    /// Reports the loss of the lease.
    fn watch(&self, lost: impl FnOnce(ClusterError)) {
        loop {
            {
                let state = self.state.lock();
                if state.is_leaving {
                    return;
                }
                if let Some(loss) = self.loss(&state) {
                    drop(state);
                    return lost(loss);
                }
            }
            thread::sleep(WATCH_INTERVAL);
        }
    }

    fn loss(&self, state: &State) -> Option<ClusterError> {
        if !state.was_active {
            return None;
        }
        if let Some(signs) = &state.signs {
            if signs.has_lost.load(Ordering::Acquire) {
                return Some(ClusterError::TakenOver);
            }
            if signs.has_ended.load(Ordering::Acquire) {
                return Some(ClusterError::WriterEnded);
            }
        }
        if state.holder.epoch(self.now()).is_some() {
            return None;
        }
        let since = state
            .renewed
            .map_or(Duration::ZERO, |renewed| renewed.elapsed());
        Some(match since < self.length * 2 / 3 {
            // Refused, not late.
            true => ClusterError::TakenOver,
            false => ClusterError::NotRenewed {
                seconds: since.as_secs(),
                reason: match state.last_error.as_str() {
                    "" => "nothing was answered, or this process stood still".to_owned(),
                    reason => reason.to_owned(),
                },
            },
        })
    }
}

/// Why a round ended early.
enum RoundError {
    Sql(SqlError),
    Store(StoreError),
    Refused(ClusterError),
}

impl From<SqlError> for RoundError {
    fn from(error: SqlError) -> Self {
        Self::Sql(error)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};

    use saltern_config::load_master;

    use super::*;
    use crate::cluster::engine::spawn_writer;

    /// A member whose database is away, with the losses that it reports.
    fn member() -> (Arc<Membership>, Receiver<ClusterError>) {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("master");
        let text = "id: a\nsaltern_cluster: {postgres: 'host=/nowhere user=salt', name: saltern, lease: 600}\n";
        std::fs::write(&path, text).expect("a file");
        let config = load_master(&path).expect("a configuration").config;
        let config = config.saltern_cluster.expect("a cluster");
        let me = MemberIdentity {
            name: "a".to_owned(),
            instance: "1".to_owned(),
            address: "a.example.com".to_owned(),
            version: "0".to_owned(),
            master_key: "key".to_owned(),
            secret_check: None,
        };
        let (lost, losses) = channel();
        let joined = Membership::join(&config, me, move |loss| drop(lost.send(loss)));
        (joined.expect("joined"), losses)
    }

    /// The same with the lease, and an engine whose writer does this.
    fn active(
        writing: impl Future<Output = ()> + Send + 'static,
    ) -> (Arc<Membership>, Receiver<ClusterError>) {
        let (member, losses) = member();
        let signs = Arc::<EngineSigns>::default();
        let runtime = member.target.runtime().expect("a runtime");
        {
            let mut state = member.state.lock();
            let now = member.now();
            let request = state.holder.due(now).expect("a request");
            state.holder.answered(request.number, Some(1));
            (state.was_active, state.signs) = (true, Some(signs.clone()));
        }
        let (ended, end) = channel();
        spawn_writer(runtime.handle(), signs, async move {
            let _ended: Sender<()> = ended;
            writing.await;
        });
        assert!(end.recv().is_err(), "the writer is over");
        // And with its thread all that it held.
        drop(runtime);
        (member, losses)
    }

    #[test]
    fn member_without_a_database_stands_by_with_the_cause() {
        let (member, _losses) = member();
        let reason = loop {
            match member.standing() {
                Ok(Standing::Waiting { reason }) if !reason.contains("not answered yet") => {
                    break reason;
                }
                _ => thread::sleep(WATCH_INTERVAL),
            }
        };
        assert!(reason.contains("No such file"), "{reason}");
        member.leave();
    }

    #[test]
    fn member_whose_writer_panics_reports_a_loss_although_it_has_the_lease() {
        let (member, losses) = active(async { panic!("a test of a panic") });
        let loss = losses.recv().expect("a loss");
        assert!(matches!(loss, ClusterError::WriterEnded), "{loss}");
        assert!(member.figures().is_active, "the lease goes on");
        member.leave();
    }

    #[test]
    fn member_whose_writer_is_asked_no_more_has_lost_nothing() {
        let (member, losses) = active(async {});
        let loss = losses.recv_timeout(WATCH_INTERVAL * 5);
        assert!(matches!(loss, Err(RecvTimeoutError::Timeout)), "{loss:?}");
        member.leave();
    }
}
