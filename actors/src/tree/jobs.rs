//! Start of the job actors: store, tracker, mirror, returners' followers, batches.

use std::sync::Arc;
use std::time::Duration;

use actix::{Addr, Recipient};
use parking_lot::Mutex;
use saltern_config::{LocalCacheMirror, PythonBridge};
use saltern_requests::Services;
use saltern_sql::SqlWriter;
use saltern_store::jobs::{Engine, JobQueries, wait};
use saltern_store::{
    BatchFiles, Housekeeping, JobCacheReader, JobFiles, JobFollower, Mirror, StoreError,
};
use saltern_supervise::{Reserved, Restart, Work};
use tokio::time::Instant;

use super::syndic::SyndicParts;
use super::{MasterParts, Plan};
use crate::events::event_publisher::EventPublisher;
use crate::events::publisher::Publisher;
use crate::jobs::batches::{self, BatchMetrics, Batches};
use crate::jobs::job_cache::{self, JobCache, JobCacheMetrics, Purpose, Target};
use crate::jobs::job_checkpointer::{self, JobCheckpointer};
use crate::jobs::job_import::{self, JobImport};
use crate::jobs::job_mirror::{self, JobMirror};
use crate::jobs::job_store::{self, DurableEvents, JobStore};
use crate::jobs::job_tracker::{self, JobTracker};
use crate::messages::RowsCommitted;

/// The least time that the job store has for its end: it may have to write a displaced database to
/// its place, all of which is lost else. Less than `TimeoutStopSec` of the unit.
const LAST_RESTORE: Duration = Duration::from_secs(100);

/// The ends of the stores that the actors hold.
pub(super) struct Stored {
    pub(super) jobs: StoredJobs,
    pub(super) requests: Arc<dyn JobQueries>,
    pub(super) upkeep: Arc<dyn Housekeeping>,
    pub(super) batches: (Arc<dyn JobQueries>, BatchFiles),
    pub(super) syndic: Option<SyndicParts>,
}

pub(super) struct StoredJobs {
    pub(super) reader: Arc<dyn JobQueries>,
    pub(super) job_files: Option<Arc<JobFiles>>,
    pub(super) mirror: Option<Mirror>,
    pub(super) followers: Vec<(Purpose, String, JobFollower)>,
    /// Outboxes of the syndic, once they are started.
    pub(super) outboxes: Vec<Recipient<RowsCommitted>>,
    /// Stock's job cache, unless the database has its jobs.
    pub(super) cached: Option<JobCacheReader>,
}

impl Stored {
    pub(super) fn open(parts: &mut MasterParts) -> Result<Self, StoreError> {
        let cached = job_cache_to_read(parts)?;
        let config = &parts.config;
        let (job_files, mirror) = match config.local_cache_mirror {
            LocalCacheMirror::Off => (None, None),
            LocalCacheMirror::Full | LocalCacheMirror::Loads => (
                Some(Arc::new(JobFiles::open(config)?)),
                Some(Mirror::open(config, parts.database.queries.another()?)?),
            ),
        };
        Ok(Self {
            jobs: StoredJobs {
                cached,
                reader: parts.database.queries.another()?,
                job_files,
                mirror,
                followers: followers(parts)?,
                outboxes: Vec::new(),
            },
            requests: parts.database.queries.another()?,
            upkeep: parts.database.housekeeping.clone(),
            batches: (parts.database.queries.another()?, BatchFiles::open(config)?),
            syndic: SyndicParts::open(parts)?,
        })
    }
}

/// Stock's job cache, if there is one and the database does not have its jobs. Where there is none,
/// what will be there is this master's own.
fn job_cache_to_read(parts: &mut MasterParts) -> Result<Option<JobCacheReader>, StoreError> {
    let config = &parts.config;
    if parts.database.queries.another()?.has_imported()? {
        return Ok(None);
    }
    if JobCacheReader::is_empty(config) {
        wait(parts.database.log.finish_import())?;
        return Ok(None);
    }
    let now = parts.clock.unix_micros();
    let keep = config.keep_jobs.filter(|keep| !keep.is_zero());
    let keep = keep.map(|keep| i64::try_from(keep.as_micros()).unwrap_or(i64::MAX));
    let since = keep.map(|keep| now.saturating_sub(keep));
    Ok(Some(JobCacheReader::new(config, since)))
}

/// Followers of the database for returners, by their options and names.
fn followers(parts: &MasterParts) -> Result<Vec<(Purpose, String, JobFollower)>, StoreError> {
    let options = &parts.config.returners;
    let wanted = [
        (Purpose::Master, &options.job_cache),
        (Purpose::External, &options.ext_job_cache),
    ];
    let wanted = wanted
        .into_iter()
        .filter_map(|(purpose, name)| Some((purpose, name.as_ref()?)));
    let followers = wanted.map(|(purpose, name)| {
        let owner = (purpose.option(), name.as_str());
        let follower = JobFollower::open(&parts.config, owner, parts.database.queries.another()?)?;
        Ok((purpose, name.clone(), follower))
    });
    followers.collect()
}

impl Plan {
    pub(super) fn start_store(
        &self,
        (store, tracker): (Reserved<JobStore>, Reserved<JobTracker>),
        (database, stored): (Engine, StoredJobs),
        services: &Arc<Services>,
        (bus, publisher): (&Addr<EventPublisher>, &Addr<Publisher>),
    ) -> (Option<Addr<JobMirror>>, Addr<JobStore>, Addr<JobTracker>) {
        let mirror = stored.mirror.map(|mirror| {
            let metrics = job_mirror::MirrorMetrics::new(&self.registry);
            self.readers.add("job files", metrics.lag().clone());
            let seed = job_mirror::Seed {
                mirror: Arc::new(Mutex::new(mirror)),
                keep: self.config.keep_jobs,
                clock: self.clock.clone(),
                maintenance_tasks: self.maintenance_tasks.clone(),
                store_writes: self.store_metrics.writes.clone(),
                metrics,
            };
            self.root
                .start_child(self.on_patient_thread("mirror"), seed, 0)
        });
        let caches = self.start_job_caches(stored.followers, services);
        let mut followers: Vec<_> = mirror.iter().cloned().map(Addr::recipient).collect();
        followers.extend(stored.outboxes);
        followers.extend(caches.iter().map(|(_, cache)| cache.clone().recipient()));
        let asked = caches
            .into_iter()
            .find(|(purpose, _)| *purpose == Purpose::Master);
        let seed = job_checkpointer::Seed {
            housekeeping: database.housekeeping.clone(),
            store: store.recipient(),
            metrics: job_checkpointer::CheckpointMetrics::new(&self.registry),
        };
        let folder: Addr<JobCheckpointer> =
            self.root
                .start_child(self.on_patient_thread("log"), seed, 0);
        let commits = Arc::new(Work::default());
        let seed = job_store::Seed {
            engine: database,
            job_files: stored.job_files,
            bus: bus.clone().recipient(),
            durable_events: self.event_feed.clone().map(|feed| DurableEvents {
                feed,
                bus: bus.clone().recipient(),
            }),
            publisher: publisher.clone().recipient(),
            followers,
            job_cache: asked.map(|(_, cache)| cache.recipient()),
            cleaner: mirror.clone().map(Addr::recipient),
            folder: folder.recipient(),
            tracker: tracker.recipient(),
            disk_low: self.config.saltern_disk_low as u64,
            compat: self.config.salt_compat,
            clock: self.clock.clone(),
            maintenance_tasks: self.maintenance_tasks.clone(),
            metrics: self.store_metrics.clone(),
            commits: commits.clone(),
        };
        let patience = self.config.saltern_stop_timeout.max(LAST_RESTORE);
        let spec = self.on_thread("jobs").with_shutdown(patience);
        let spec = spec.with_work(commits);
        let store = self.root.start_reserved(store, spec, seed, 0);
        if let Some(cached) = stored.cached {
            tracing::info!("reading the jobs of stock's job cache into the job database");
            let seed = job_import::Seed {
                jobs: Arc::new(Mutex::new(cached)),
                store: store.clone().recipient(),
            };
            let spec = self.on_patient_thread("mirror");
            let spec = spec.with_restart(Restart::Transient);
            let _: Addr<JobImport> = self.root.start_child(spec, seed, 0);
        }
        let seed = job_tracker::Seed {
            store: store.clone().recipient(),
            bus: bus.clone().recipient(),
            publisher: publisher.clone().recipient(),
            reader: stored.reader,
            batches: self.batches.clone(),
            ends: self.ends.clone(),
            deps: services.clone(),
            report_quota: job_tracker::QuotaLimits {
                reports: self.config.saltern_max_reports,
                bytes: self.config.saltern_max_report_bytes,
            },
            metrics: job_tracker::TrackerMetrics::new(&self.registry),
        };
        let spec = self.on_thread("jobs");
        let tracker = self.root.start_reserved(tracker, spec, seed, 0);
        (mirror, store, tracker)
    }

    pub(super) fn start_batches(
        &self,
        reserved: Reserved<Batches>,
        (reader, files): (Arc<dyn JobQueries>, BatchFiles),
        services: &Arc<Services>,
        (bus, store, tracker): (&Addr<EventPublisher>, &Addr<JobStore>, &Addr<JobTracker>),
    ) -> Addr<Batches> {
        let seed = batches::Seed {
            services: services.clone(),
            begin_job: tracker.clone().recipient(),
            tracker: tracker.clone().recipient(),
            store: store.clone().recipient(),
            bus: bus.clone().recipient(),
            reader,
            files,
            gathered: Instant::now() + self.config.saltern_batch_resume_delay,
            shows_states: self.config.local_cache_mirror != LocalCacheMirror::Off,
            feed: self.batches.clone(),
            metrics: BatchMetrics::new(&self.registry),
        };
        let spec = self.on_thread("batches");
        self.root.start_reserved(reserved, spec, seed, 0)
    }

    /// The writer of a returner's SQL database; `None` of a returner in Python.
    pub(super) fn sql_writer(&self, name: &str) -> Option<std::io::Result<SqlWriter>> {
        let store = self.config.returners.sql_store(name)?;
        Some(SqlWriter::new(store.clone(), &self.config.id))
    }

    /// Actors that feed jobs to returners, as far as there is a Python for those that need it.
    fn start_job_caches(
        &self,
        followers: Vec<(Purpose, String, JobFollower)>,
        services: &Services,
    ) -> Vec<(Purpose, Addr<JobCache>)> {
        let metrics = JobCacheMetrics::new(&self.registry);
        let caches = (1..).zip(followers).filter_map(|(instance, follower)| {
            let (purpose, name, follower) = follower;
            let target = match self.sql_writer(&name) {
                None => Target::Python(services.bridge.clone()),
                Some(Ok(writer)) => Target::Sql(Arc::new(Mutex::new(writer))),
                Some(Err(error)) => {
                    let option = purpose.option();
                    tracing::error!(option, %error, "the returner gets no jobs");
                    return None;
                }
            };
            let label = format!("{} {name}", purpose.option());
            self.readers.add(label, metrics.lag(purpose));
            let seed = job_cache::Seed {
                purpose,
                name,
                target,
                follower: Arc::new(Mutex::new(follower)),
                stores_endtime: self.config.job_cache_store_endtime,
                state: Arc::default(),
                metrics: metrics.clone(),
            };
            if let Some(error) = seed.refusal() {
                let option = purpose.option();
                tracing::error!(option, %error, "the returner gets no jobs");
                if self.config.python_bridge.python == PythonBridge::Off {
                    return None;
                }
            }
            // It blocks on reads of the database.
            let spec = self.on_patient_thread(&format!("jobs-{instance}"));
            Some((purpose, self.root.start_child(spec, seed, instance)))
        });
        caches.collect()
    }
}
