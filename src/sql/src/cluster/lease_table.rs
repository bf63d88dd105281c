//! Statements of a lease, in the time of PostgreSQL.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use saltern_config::SqlStore;
use saltern_store::Result;

use super::engine::{ClusterOptions, Target};
use super::lease::LeaseAction;
use super::runtime::RuntimeThread;
use super::session::Session;
use super::writer::DURABLE;
use crate::error::SqlError;

/// Longest time of a statement.
const STATEMENT: Duration = Duration::from_secs(30);

const TAKE: &str = "INSERT INTO lease (name, owner, epoch, until) \
     VALUES ($1, $2, 1, clock_timestamp() + $3 * interval '1 microsecond') \
     ON CONFLICT (name) DO UPDATE SET owner = EXCLUDED.owner, epoch = lease.epoch + 1, \
     until = EXCLUDED.until WHERE lease.until <= clock_timestamp() RETURNING epoch";

const RENEW: &str = "UPDATE lease SET until = clock_timestamp() + $3 * interval '1 microsecond' \
     WHERE name = $1 AND owner = $2 AND epoch = $4 RETURNING epoch";

/// The next epoch begins, so a renewal that comes late finds nothing.
const RELEASE: &str = "UPDATE lease SET owner = '', epoch = epoch + 1, until = clock_timestamp() \
     WHERE name = $1 AND owner = $2 AND epoch = $3";

/// The leases of a cluster, over a connection of their own. Blocks.
pub struct LeaseTable {
    target: Arc<Target>,
    runtime: RuntimeThread,
    session: Mutex<Option<Session>>,
}

impl LeaseTable {
    /// The leases of a cluster whose tables are there ([`open_cluster`](super::open_cluster)); without a
    /// connection until the first statement.
    ///
    /// # Errors
    /// A name that no schema can have, or no thread.
    pub fn new(store: SqlStore, options: ClusterOptions) -> Result<Self> {
        let target = Target::new(store, options)?;
        let runtime = target.runtime()?;
        Ok(Self {
            target: Arc::new(target),
            runtime,
            session: Mutex::new(None),
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
        let mut open = self.session.lock();
        let done = self.try_carry_out(&mut open, (lease, member), length, action);
        if done.as_ref().is_err_and(|error| !error.keeps_connection()) {
            *open = None;
        }
        done.map_err(|error| self.target.error("ask for a lease in", error))
    }

    fn try_carry_out(
        &self,
        open: &mut Option<Session>,
        (lease, member): (&str, &str),
        length: Duration,
        action: LeaseAction,
    ) -> std::result::Result<Option<i64>, SqlError> {
        let session = match open {
            Some(session) => session,
            None => open.insert(self.target.connect(&self.runtime, DURABLE)?),
        };
        let micros = i64::try_from(length.as_micros()).unwrap_or(i64::MAX);
        #[allow(
            clippy::cast_precision_loss,
            reason = "an interval is multiplied by a float"
        )]
        let micros = micros as f64;
        let asked = async {
            // The answer to a commit that no standby has confirmed is none.
            session.run("BEGIN").await?;
            let rows = match action {
                LeaseAction::Take => session.rows(TAKE, &[&lease, &member, &micros]).await,
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
        let answer = self.runtime.wait(STATEMENT, asked);
        answer.unwrap_or(Err(SqlError::Timeout(STATEMENT.as_secs())))
    }
}
