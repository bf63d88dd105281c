//! The members of a cluster in its database: each has a row, which it refreshes while it lives.
//!
//! A name belongs to one *instance*, a random text that a master keeps beside its caches: a restart has
//! the same one, a copy of a configuration on another machine has not.

use std::time::Duration;

use saltern_base::clock::Clock;
use saltern_base::hex;
use sha2::{Digest as _, Sha256};
use tokio_postgres::Row;

use super::layout::{self, Layout, SECRET_CHECK, VERSION, WRITER};
use super::lease_table::{FAR, LeaseTable, micros};
use super::session::Session;
use crate::error::SqlError;

/// The first layout whose release writes the note of its row.
const FIRST_WITH_NOTE: i64 = 5;

/// The lease of the jobs, whose owner is the active master.
pub(super) const JOBS: &str = "jobs";

/// No row of a live member ends later than this, as no lease does: it is refreshed for two leases.
const ROW_FAR: Duration = FAR.saturating_mul(2);

/// A live member has the name only if it is this instance.
const ENTER: &str = "INSERT INTO member (name, instance, address, version, master_key, role, seen, until, layout, note) \
     VALUES ($1, $2, $3, $4, $5, $6, clock_timestamp(), \
     clock_timestamp() + $7 * interval '1 microsecond', $9, $10) \
     ON CONFLICT (name) DO UPDATE SET instance = EXCLUDED.instance, address = EXCLUDED.address, \
     version = EXCLUDED.version, master_key = EXCLUDED.master_key, role = EXCLUDED.role, \
     seen = EXCLUDED.seen, until = EXCLUDED.until, layout = EXCLUDED.layout, note = EXCLUDED.note \
     WHERE member.instance = EXCLUDED.instance OR member.until <= clock_timestamp() \
     OR member.until > clock_timestamp() + $8 * interval '1 microsecond'";

const LEAVE: &str = "DELETE FROM member WHERE name = $1 AND instance = $2";

const FORGET: &str = "WITH gone AS (DELETE FROM member WHERE name = $1 AND instance = $2 AND NOT \
     (until > clock_timestamp() AND until <= clock_timestamp() + $3 * interval '1 microsecond') RETURNING name), \
     report AS (DELETE FROM member_report WHERE name IN (SELECT name FROM gone)) SELECT name FROM gone";

const MEMBERS: &str = "SELECT name, instance, address, version, master_key, role, \
     (extract(epoch FROM clock_timestamp() - seen) * 1000)::bigint, until > clock_timestamp() \
     AND until <= clock_timestamp() + $1 * interval '1 microsecond', layout, left(note, 4096) FROM member ORDER BY name";

const LEASE: &str = "SELECT owner, epoch, \
     (extract(epoch FROM until - clock_timestamp()) * 1000)::bigint FROM lease WHERE name = $1";

const WRITER_ROW: &str = "SELECT epoch, head FROM writer WHERE writer = $1";

/// A member's description of itself.
#[derive(Clone, Debug)]
pub struct MemberIdentity {
    /// Its name, the `id` of the master.
    pub name: String,
    /// A random text that stays over restarts.
    pub instance: String,
    /// Where it is reached, for people.
    pub address: String,
    /// Its release.
    pub version: String,
    /// The public key of the master, which all members share.
    pub master_key: String,
    /// The check value of the cluster's secret, if this member has one.
    pub secret_check: Option<String>,
}

impl MemberIdentity {
    /// The key, short enough to compare by eye.
    pub(super) fn fingerprint(&self) -> String {
        hex(&Sha256::digest(self.master_key.trim().as_bytes()))
    }
}

/// The state of a cluster in its database.
#[derive(Clone, Debug, Default)]
pub struct ClusterState {
    /// The lease of the jobs, once somebody had it.
    pub lease: Option<LeaseState>,
    /// The epoch of the last owner that opened the job database.
    pub epoch: i64,
    /// Batches that were committed.
    pub head: i64,
    /// The layout of the tables.
    pub layout: Option<Layout>,
    /// All members that have a row, by name.
    pub members: Vec<Member>,
}

/// A lease at one moment.
#[derive(Clone, Debug)]
pub struct LeaseState {
    /// The member that has it or had it last; empty when it was released.
    pub owner: String,
    /// Its epoch.
    pub epoch: i64,
    /// Milliseconds until it ends, by the database's clock; negative when it is over, and later than any
    /// lease ends when that clock was set back.
    pub remaining: i64,
}

impl LeaseState {
    /// Whether nobody has it.
    pub fn is_free(&self) -> bool {
        self.remaining <= 0 || i128::from(self.remaining) > FAR.as_millis().cast_signed()
    }
}

/// A member at one moment.
#[derive(Clone, Debug, Default)]
pub struct Member {
    /// Its name.
    pub name: String,
    /// Its instance.
    pub(super) instance: String,
    /// Where it is reached.
    pub address: String,
    /// Its release.
    pub version: String,
    /// The fingerprint of the master's key.
    pub(super) master_key: String,
    /// `active` or `standby`, when it was seen last.
    pub role: String,
    /// Milliseconds since it was seen.
    pub age: i64,
    /// Whether it has refreshed its row in time.
    pub is_alive: bool,
    /// The layout of the tables that its release knows; 0 for one of a release that did not say so.
    pub layout: i64,
    /// Lines about what it does not share with the others as it should; empty when it does.
    pub note: String,
}

impl Member {
    /// Whether it lives and stands by, as it said itself: an active one that was killed does not, however
    /// short a time ago it was seen.
    pub fn is_standby(&self) -> bool {
        self.is_alive && self.role == "standby"
    }
}

impl ClusterState {
    /// The member that has the lease.
    pub fn active(&self) -> Option<&str> {
        let lease = self.lease.as_ref().filter(|lease| !lease.is_free())?;
        Some(&lease.owner)
    }

    /// Live members that stand by.
    pub fn standbys(&self) -> usize {
        let members = self.members.iter();
        members
            .filter(|member| member.is_standby() && Some(member.name.as_str()) != self.active())
            .count()
    }
}

/// Why a cluster's tables are not usable.
pub(super) enum TablesError {
    Sql(SqlError),
    Missing,
    Older(i64),
    Newer(i64),
}

impl From<SqlError> for TablesError {
    fn from(error: SqlError) -> Self {
        Self::Sql(error)
    }
}

/// Whether the tables are there, in a layout that this release works with.
pub(super) fn check_tables(table: &LeaseTable) -> Result<(), TablesError> {
    match table.ask(async |session: &mut Session| layout::found(session).await)? {
        Some(found) if found.is_usable() => Ok(()),
        Some(found) if found.version > VERSION => Err(TablesError::Newer(found.version)),
        Some(found) => Err(TablesError::Older(found.version)),
        None => Err(TablesError::Missing),
    }
}

/// The check value of the secret that the members have, if there is one.
pub(super) fn secret_check(table: &LeaseTable) -> Result<Option<String>, SqlError> {
    let sql = "SELECT value FROM meta WHERE name = $1";
    table.ask(async |session: &mut Session| {
        let rows = session.rows(sql, &[&SECRET_CHECK]).await?;
        Ok(rows.first().map(|row| row.try_get(0)).transpose()?)
    })
}

/// Notes the check value of the secret, unless there is one.
pub(super) fn note_secret(table: &LeaseTable, check: &str) -> Result<(), SqlError> {
    let sql = "INSERT INTO meta (name, value) VALUES ($1, $2) ON CONFLICT DO NOTHING";
    table.ask(async |session: &mut Session| {
        session
            .confirmed_rows(sql, &[&SECRET_CHECK, &check])
            .await?;
        Ok(())
    })
}

/// Refreshes the row of a member for a time; `false` when another live instance has its name.
pub(super) fn enter(
    table: &LeaseTable,
    member: &MemberIdentity,
    (role, note): (&str, &str),
    time: Duration,
) -> Result<bool, SqlError> {
    let (key, micros, far) = (member.fingerprint(), micros(time), micros(ROW_FAR));
    table.ask(async |session: &mut Session| {
        let values: [&(dyn tokio_postgres::types::ToSql + Sync); 10] = [
            &member.name,
            &member.instance,
            &member.address,
            &member.version,
            &key,
            &role,
            &micros,
            &far,
            &VERSION,
            &note,
        ];
        Ok(session.execute(ENTER, &values).await? == 1)
    })
}

/// Milliseconds that this machine's clock is ahead of the database's.
pub(super) fn clock_ahead(table: &LeaseTable) -> Result<i64, SqlError> {
    let sql = "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint";
    table.ask(async |session: &mut Session| {
        let now = || Clock::system().unix_micros() / 1000;
        let before = now();
        let rows = session.rows(sql, &[]).await?;
        let middle = before + (now() - before) / 2;
        let theirs: Option<i64> = rows.first().map(|row| row.try_get(0)).transpose()?;
        Ok(theirs.map_or(0, |theirs| middle - theirs))
    })
}

/// A member's account of what it has, for comparison with that of the others.
#[derive(Clone, Debug)]
pub struct MemberReport {
    /// Its name.
    pub name: String,
    /// Seconds since it was written.
    pub age: i64,
    /// The account.
    pub report: String,
}

/// Writes the account of a member, in place of its last one.
pub(super) fn report(table: &LeaseTable, name: &str, report: &str) -> Result<(), SqlError> {
    let sql = "INSERT INTO member_report (name, reported, report) \
               VALUES ($1, clock_timestamp(), $2) ON CONFLICT (name) \
               DO UPDATE SET reported = EXCLUDED.reported, report = EXCLUDED.report";
    table.ask(async |session: &mut Session| {
        session.execute(sql, &[&name, &report]).await?;
        Ok(())
    })
}

/// The accounts of all members that have written one, by name.
pub(super) fn reports(table: &LeaseTable) -> Result<Vec<MemberReport>, SqlError> {
    let sql = "SELECT name, extract(epoch FROM clock_timestamp() - reported)::bigint, report \
               FROM member_report ORDER BY name";
    table.ask(async |session: &mut Session| {
        let rows = session.rows(sql, &[]).await?;
        let report_of = |row: &Row| {
            Ok(MemberReport {
                name: row.try_get(0)?,
                age: row.try_get(1)?,
                report: row.try_get(2)?,
            })
        };
        rows.iter().map(report_of).collect()
    })
}

/// Ends the time in which members of the release before take part, unless one lives; whether it did.
pub(super) fn contract(table: &LeaseTable) -> Result<bool, SqlError> {
    let far = micros(ROW_FAR);
    table.ask(async |session: &mut Session| layout::contract(session, far).await)
}

/// Removes the row of a member.
pub(super) fn leave(table: &LeaseTable, member: &MemberIdentity) -> Result<(), SqlError> {
    table.ask(async |session: &mut Session| {
        session
            .execute(LEAVE, &[&member.name, &member.instance])
            .await?;
        Ok(())
    })
}

/// Removes the row of a member and its account, unless it has been refreshed meanwhile; whether it was there.
pub(super) fn forget(table: &LeaseTable, member: &Member) -> Result<bool, SqlError> {
    table.ask(async |session: &mut Session| {
        let values: [&(dyn tokio_postgres::types::ToSql + Sync); 3] =
            [&member.name, &member.instance, &micros(ROW_FAR)];
        Ok(!session.rows(FORGET, &values).await?.is_empty())
    })
}

/// Reads the state of a cluster.
pub(super) fn look(table: &LeaseTable) -> Result<ClusterState, SqlError> {
    table.ask(state_of)
}

/// The same, in a transaction of the caller.
pub(super) async fn state_of(session: &mut Session) -> Result<ClusterState, SqlError> {
    let lease = session.rows(LEASE, &[&JOBS]).await?;
    let writer = session.rows(WRITER_ROW, &[&WRITER]).await?;
    let members = session.rows(MEMBERS, &[&micros(ROW_FAR)]).await?;
    let members = members.iter().map(member_of);
    let number = |at| -> Result<i64, SqlError> {
        let number = writer.first().map(|row| row.try_get(at)).transpose()?;
        Ok(number.unwrap_or_default())
    };
    Ok(ClusterState {
        lease: lease.first().map(lease_of).transpose()?,
        epoch: number(0)?,
        head: number(1)?,
        layout: layout::found(session).await?,
        members: members.collect::<Result<_, _>>()?,
    })
}

fn lease_of(row: &Row) -> Result<LeaseState, SqlError> {
    Ok(LeaseState {
        owner: row.try_get(0)?,
        epoch: row.try_get(1)?,
        remaining: row.try_get(2)?,
    })
}

fn member_of(row: &Row) -> Result<Member, SqlError> {
    let layout = row.try_get(8)?;
    Ok(Member {
        name: row.try_get(0)?,
        instance: row.try_get(1)?,
        address: row.try_get(2)?,
        version: row.try_get(3)?,
        master_key: row.try_get(4)?,
        role: row.try_get(5)?,
        age: row.try_get(6)?,
        is_alive: row.try_get(7)?,
        layout,
        // A release before has left that of the one that it replaced.
        note: match layout >= FIRST_WITH_NOTE {
            true => row.try_get(9)?,
            false => String::new(),
        },
    })
}
