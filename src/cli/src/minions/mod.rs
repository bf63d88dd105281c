//! The inventory of minions, without a job: whom a target means and which of them a condition keeps, by
//! cached grains, presence and last job.
//!
//! A running master answers by its control socket; without one the files of the cache and the job
//! database are read, and nobody is known to be connected.

mod cell;
mod condition;
mod field;
mod last_job;
mod print;

use std::cmp::Ordering;
use std::thread::{self, ScopedJoinHandle};

use saltern_base::clock::Clock;
use saltern_client::control::{self, ControlError};
use saltern_config::MasterConfig;
use saltern_model::control::{Inventory, InventoryRequest, InventoryRow};
use saltern_requests::{InventoryError, MasterFleet};
use saltern_store::StoreError;
use serde_json::Value as Json;

pub use print::Form;
pub(crate) use print::span;

use cell::Cell;
use condition::Condition;
pub use condition::ConditionError;
use field::{Field, Fields};
use last_job::{LastJob, LastJobs, WantedMinions};

/// The columns where nobody names others.
pub const COLUMNS: [&str; 8] = [
    "id",
    "present",
    "last_seen",
    "saltversion",
    "os",
    "osrelease",
    "job.function",
    "job.result",
];

/// A query of the inventory.
#[derive(Debug, Clone)]
pub struct MinionsQuery {
    /// A compound target.
    pub target: String,
    /// Conditions that all have to hold.
    pub conditions: Vec<String>,
    /// The columns, in their order.
    pub columns: Vec<String>,
    /// The columns to sort by, those with a hyphen in front from high to low.
    pub sort: Vec<String>,
    /// A wildcard: only jobs of such functions count as last jobs.
    pub job: Option<String>,
}

/// Why there is no inventory.
#[derive(Debug, thiserror::Error)]
pub enum MinionsError {
    /// A condition is none.
    #[error(transparent)]
    Condition(#[from] ConditionError),
    /// The running master does not answer.
    #[error(transparent)]
    Control(#[from] ControlError),
    /// The cache cannot be read, or the target not be used.
    #[error(transparent)]
    Inventory(#[from] InventoryError),
    /// The keys or the job database cannot be read.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A list of minions.
pub struct Minions {
    columns: Vec<String>,
    rows: Vec<Vec<Cell>>,
    now: i64,
    /// Whether a master answered.
    pub has_master: bool,
}

/// One minion while it is looked at.
struct Minion {
    row: InventoryRow<Json>,
    job: Option<LastJob>,
    /// The values of its columns; those of its job only once that is known.
    cells: Vec<Cell>,
}

impl Minion {
    fn without_job(row: InventoryRow<Json>, columns: &[Field]) -> Self {
        let mut minion = Self {
            row,
            job: None,
            cells: Vec::new(),
        };
        minion.cells = columns.iter().map(|field| field.of(&minion)).collect();
        minion
    }

    fn set_job(&mut self, job: Option<LastJob>, columns: &[Field]) {
        if job.is_none() {
            return;
        }
        self.job = job;
        for (at, field) in columns.iter().enumerate() {
            if field.is_of_job() {
                let cell = field.of(self);
                if let Some(place) = self.cells.get_mut(at) {
                    *place = cell;
                }
            }
        }
    }
}

impl Minions {
    /// Finds the minions of a query.
    ///
    /// # Errors
    /// [`MinionsError`].
    pub fn find(config: &MasterConfig, query: &MinionsQuery) -> Result<Self, MinionsError> {
        let mut fields = Fields::default();
        let conditions: Result<Vec<Condition>, ConditionError> = query
            .conditions
            .iter()
            .map(|text| Condition::parse(text, &mut fields))
            .collect();
        let conditions = conditions?;
        let columns: Vec<Field> = query
            .columns
            .iter()
            .map(|name| fields.field(name))
            .collect();
        let order: Vec<(Field, bool)> = query
            .sort
            .iter()
            .map(|name| match name.strip_prefix('-') {
                Some(name) => (fields.field(name), true),
                None => (fields.field(name), false),
            })
            .collect();
        let request = InventoryRequest {
            target: query.target.clone(),
            grains: fields.grains(),
            last_jobs: fields.needs_jobs() && query.job.is_none(),
        };
        let wanted = WantedMinions::default();
        let function = query.job.as_deref();
        let read_jobs = || LastJobs::read(config, &wanted, function);
        let (found, jobs) = thread::scope(|scope| {
            // Both at the same time: neither needs the other but for its end.
            let is_read = fields.needs_jobs() && !request.last_jobs;
            let jobs = is_read.then(|| thread::Builder::new().spawn_scoped(scope, read_jobs));
            let found = inventory(config, &request);
            let rows = found.as_ref().map(|(found, _)| found.minions.as_slice());
            wanted.set(rows.unwrap_or_default().iter().map(|row| &row.minion.id));
            let found = found.map(|(found, has_master)| {
                let minions = found.minions.into_iter();
                let minions = minions.map(|row| Minion::without_job(row, &columns));
                let named = found.last_jobs.map(last_job::of_master);
                (minions.collect::<Vec<Minion>>(), named, has_master)
            });
            // Where no thread starts, one after the other.
            let jobs = jobs.map(|jobs| jobs.map_or_else(|_| read_jobs(), joined));
            (found, jobs)
        });
        let (mut kept, named, has_master) = found?;
        let jobs = match (jobs, named) {
            (Some(read), _) => read?.of(&kept),
            (None, Some(named)) => named,
            (None, None) if request.last_jobs => read_jobs()?.of(&kept),
            (None, None) => Vec::new(),
        };
        for (minion, job) in kept.iter_mut().zip(jobs) {
            minion.set_job(job, &columns);
        }
        let now = Clock::system().unix_micros();
        kept.retain(|minion| conditions.iter().all(|one| one.holds(minion, now)));
        if !order.is_empty() {
            // Stable: what is equal stays in the order of the ids.
            kept.sort_by_cached_key(|minion| SortKey::of(minion, &order));
        }
        Ok(Self {
            rows: kept.into_iter().map(|minion| minion.cells).collect(),
            columns: query.columns.clone(),
            now,
            has_master,
        })
    }

    /// How many there are.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether there are none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }
}

/// Result of a thread; a panic goes on in this one.
fn joined<T>(thread: ScopedJoinHandle<'_, T>) -> T {
    let given = thread.join();
    given.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// From the running master, or from the files; whether there is a master.
pub(crate) fn inventory(
    config: &MasterConfig,
    request: &InventoryRequest,
) -> Result<(Inventory<Json>, bool), MinionsError> {
    match control::inventory(&config.sock_dir, request) {
        Ok(inventory) => Ok((inventory, true)),
        Err(error) if error.is_no_master() => {
            let fleet = MasterFleet::without_master(config)?;
            Ok((fleet.inventory(request)?, false))
        }
        Err(error) => Err(error.into()),
    }
}

/// Sort key of a minion.
struct SortKey(Vec<(Cell, bool)>);

impl SortKey {
    fn of(minion: &Minion, order: &[(Field, bool)]) -> Self {
        let keys = order.iter();
        Self(
            keys.map(|(field, is_reversed)| (field.of(minion), *is_reversed))
                .collect(),
        )
    }
}

impl Ord for SortKey {
    fn cmp(&self, other: &Self) -> Ordering {
        let pairs = self.0.iter().zip(&other.0);
        let mut orders = pairs.map(|((one, is_reversed), (other, _))| {
            let order = one.compare(other);
            // What is not known stands last either way.
            match *is_reversed && !one.is_absent() && !other.is_absent() {
                true => order.reverse(),
                false => order,
            }
        });
        orders
            .find(|order| order.is_ne())
            .unwrap_or(Ordering::Equal)
    }
}

impl PartialOrd for SortKey {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for SortKey {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for SortKey {}
