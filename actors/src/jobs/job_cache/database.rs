//! A job cache whose returner is a SQL database that this process writes to.

use parking_lot::Mutex;
use saltern_base::chain;
use saltern_sql::{SqlWriter, Stored};
use saltern_store::Followed;
use saltern_wire::msgpack::{Limits, MapView};

use super::{Given, Purpose, Refused, Seed};

/// Rows per call: a few statements for all of them.
const ROWS: usize = 1000;

impl Seed {
    /// Writes the next rows; blocks.
    pub(super) fn give_database(&self, writer: &Mutex<SqlWriter>) -> Result<Given, Refused> {
        let rows = self.follower.lock().next(ROWS)?;
        let (written, wanted) = self.wanted(&rows);
        let Stored {
            done,
            skipped,
            marks,
            problem,
        } = match wanted.is_empty() {
            true => Stored::default(),
            false => writer.lock().store(&wanted),
        };
        let problem = problem.map(|error| chain(&error));
        // What is not wanted goes with what is before it.
        let passed = match written.get(done) {
            Some(next) => *next,
            None => rows.len(),
        };
        if let (0, Some(problem)) = (passed, &problem) {
            return Err(problem.clone().into());
        }
        let rows = rows.iter().take(passed);
        let jobs = rows.clone().filter_map(|row| match row {
            Followed::Job(job) => Some(job.record.jid.clone()),
            Followed::Return(_) => None,
        });
        let given = Given {
            jobs: jobs.collect(),
            given: (passed as u64).saturating_sub(skipped),
            passed_over: skipped,
            marks,
            problem,
        };
        self.pass(rows)?;
        Ok(given)
    }

    /// The rows that stock's master gives its returner, with their places among all.
    fn wanted<'r>(&self, rows: &'r [Followed]) -> (Vec<usize>, Vec<&'r Followed>) {
        let is_wanted = |row: &Followed| match (self.purpose, row) {
            (Purpose::Master, _) => true,
            // Minions bring their returns themselves, and with them the jobs that they report.
            (Purpose::External, Followed::Return(_)) => false,
            (Purpose::External, Followed::Job(job)) => {
                let load = MapView::parse(job.record.load.bytes().clone(), &Limits::WIRE);
                !load.is_ok_and(|load| load.contains("return"))
            }
        };
        let rows = rows.iter().enumerate();
        rows.filter(|(_, row)| is_wanted(row)).unzip()
    }
}
