//! Statements of a lease, in the time of PostgreSQL.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use saltern_config::{MAX_LEASE, SqlStore};
use saltern_store::Result;

use super::engine::{ClusterOptions, Target};
use super::lease::LeaseAction;
use super::runtime::RuntimeThread;
use super::session::Session;
use super::writer::DURABLE;
use crate::error::SqlError;

/// Longest time of a statement.
const STATEMENT: Duration = Duration::from_secs(30);

/// No lease ends later than this: one that does was taken before the clock of the database was set back,
/// as by another machine that became the primary. With time for small corrections of that clock.
pub(super) const FAR: Duration = MAX_LEASE.saturating_add(Duration::from_secs(60));

const TAKE: &str = "INSERT INTO lease (name, owner, epoch, until) \
     VALUES ($1, $2, 1, clock_timestamp() + $3 * interval '1 microsecond') \
     ON CONFLICT (name) DO UPDATE SET owner = EXCLUDED.owner, epoch = lease.epoch + 1, \
     until = EXCLUDED.until WHERE lease.until <= clock_timestamp() \
     OR lease.until > clock_timestamp() + $4 * interval '1 microsecond' RETURNING epoch";

const RENEW: &str = "UPDATE lease SET until = clock_timestamp() + $3 * interval '1 microsecond' \
     WHERE name = $1 AND owner = $2 AND epoch = $4 RETURNING epoch";

/// The next epoch begins, so a renewal that comes late finds nothing.
const RELEASE: &str = "UPDATE lease SET owner = '', epoch = epoch + 1, until = clock_timestamp() \
     WHERE name = $1 AND owner = $2 AND epoch = $3";

/// Ownership of a lease, as a condition of a transaction.
#[derive(Clone, Debug)]
pub(super) struct Fence {
    pub(super) lease: &'static str,
    pub(super) member: String,
    pub(super) epoch: i64,
}

/// Bits of a version below the epoch: each owner writes fewer rows.
const EPOCH_SHIFT: u32 = 40;

impl Fence {
    /// The first version of rows that this owner writes, above all of the owners before.
    pub(super) const fn first_version(&self) -> i64 {
        self.epoch << EPOCH_SHIFT
    }

    /// Whether the lease is still held, and stays so until the transaction ends.
    pub(super) async fn holds(&self, session: &mut Session) -> std::result::Result<bool, SqlError> {
        let sql = "SELECT 1 FROM lease WHERE name = $1 AND owner = $2 AND epoch = $3 FOR SHARE";
        let values = [&self.lease as _, &self.member as _, &self.epoch as _];
        Ok(!session.rows(sql, &values).await?.is_empty())
    }
}

/// The leases of a cluster, over a connection of their own. Blocks.
pub struct LeaseTable {
    target: Arc<Target>,
    runtime: RuntimeThread,
    session: Mutex<Option<Session>>,
    /// Longest time of a statement.
    limit: Duration,
}

impl LeaseTable {
    /// The leases of a cluster whose tables are there ([`open_cluster`](super::open_cluster)); without a
    /// connection until the first statement.
    ///
    /// # Errors
    /// A name that no schema can have, or no thread.
    pub fn new(store: SqlStore, options: ClusterOptions) -> Result<Self> {
        Self::on(Arc::new(Target::new(vec![store], options)?), STATEMENT)
    }

    pub(super) fn on(target: Arc<Target>, limit: Duration) -> Result<Self> {
        let runtime = target.runtime()?;
        Ok(Self {
            target,
            runtime,
            session: Mutex::new(None),
            limit,
        })
    }

    /// Carries an action out for a member; the epoch that is granted, none of a refusal and of a release.
    ///
    /// # Errors
    /// Nobody knows whether it was carried out.
    pub fn carry_out(
        &self,
        (lease, member): (&str, &str),
        length: Duration,
        action: LeaseAction,
    ) -> Result<Option<i64>> {
        let (micros, far) = (micros(length), micros(FAR));
        let asked = async |session: &mut Session| {
            // The answer to a commit that no standby has confirmed is none.
            session.run("BEGIN").await?;
            let rows = match action {
                LeaseAction::Take => {
                    let values = [&lease as _, &member as _, &micros as _, &far as _];
                    session.rows(TAKE, &values).await
                }
                LeaseAction::Renew(epoch) => {
                    let values = [&lease as _, &member as _, &micros as _, &epoch as _];
                    session.rows(RENEW, &values).await
                }
                LeaseAction::Release(epoch) => {
                    session.rows(RELEASE, &[&lease, &member, &epoch]).await
                }
            };
            if rows.is_err() {
                session.run("ROLLBACK").await?;
            }
            let rows = rows?;
            session.commit().await?;
            Ok(rows.first().map(|row| row.try_get(0)).transpose()?)
        };
        let answer = self.ask(asked);
        answer.map_err(|error| self.target.error("ask for a lease in", error))
    }

    /// Asks something on the connection, which is made anew after it was lost.
    pub(super) fn ask<T>(
        &self,
        question: impl AsyncFnOnce(&mut Session) -> std::result::Result<T, SqlError>,
    ) -> std::result::Result<T, SqlError> {
        let mut open = self.session.lock();
        let answer = self.try_ask(&mut open, question);
        if answer
            .as_ref()
            .is_err_and(|error| !error.keeps_connection())
        {
            let late = matches!(answer, Err(SqlError::Timeout(_)));
            if let Some(session) = open.take().filter(|_| late) {
                self.runtime.handle().spawn(session.cancel());
            }
        }
        answer
    }

    fn try_ask<T>(
        &self,
        open: &mut Option<Session>,
        question: impl AsyncFnOnce(&mut Session) -> std::result::Result<T, SqlError>,
    ) -> std::result::Result<T, SqlError> {
        let session = match open {
            Some(session) => session,
            None => open.insert(self.target.connect(&self.runtime, DURABLE)?),
        };
        let answer = self.runtime.wait(self.limit, question(session));
        answer.unwrap_or(Err(SqlError::Timeout(self.limit.as_secs())))
    }
}

/// Microseconds, by which an interval is multiplied.
pub(super) fn micros(length: Duration) -> f64 {
    let micros = i64::try_from(length.as_micros()).unwrap_or(i64::MAX);
    #[allow(
        clippy::cast_precision_loss,
        reason = "an interval is multiplied by a float"
    )]
    let micros = micros as f64;
    micros
}
