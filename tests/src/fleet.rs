//! A fleet: many native minions in one process (`saltern-lab swarm`) that write down what their master
//! acknowledged, and the comparison of that with what the master has stored.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::logs;
use crate::process::{Daemon, peer, run, wait_until};
use crate::release::{Release, lab_program};
use crate::site::{SOON, Site};

/// Running minions.
pub struct Fleet {
    daemon: Daemon,
    ledger: PathBuf,
    /// Lines of the ledger up to here were counted.
    place: u64,
    count: usize,
}

impl Site {
    /// Starts so many minions `NAME-0`, `NAME-1`, …, and waits until all are signed in. Their keys
    /// must be accepted without anybody's help (`auto_accept`).
    ///
    /// # Errors
    /// When they are not signed in in time.
    pub fn start_fleet(&self, name: &str, minions: usize, arguments: &[&str]) -> Result<Fleet> {
        let ledger = self.path(format!("log/{name}.ledger"));
        let mut command = Command::new(lab_program());
        command
            .args(["swarm", "--prefix", name, "--minions", &minions.to_string()])
            .args(["--master", &format!("127.0.0.1:{}", self.ret_port())])
            // What a killed master did not know of yet is soon tried again.
            .args(["--reconnect", "50"])
            .arg("--acknowledged")
            .arg(&ledger)
            .args(arguments);
        let output = self.path(format!("log/{name}.out"));
        let mut daemon = Daemon::start(name, &mut command, &output)?;
        wait_until("the fleet to sign in", SOON, || {
            if daemon.ended().is_some() {
                return Some(false);
            }
            logs::read(&output)
                .contains("are signed in")
                .then_some(true)
        })?
        .then_some(())
        .with_context(|| format!("the fleet ended: {}", logs::read(&output)))?;
        Ok(Fleet {
            daemon,
            ledger,
            place: 0,
            count: 0,
        })
    }

    /// Compares what a fleet was acknowledged with the job database of the running master.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub fn accounts(&self, ledger: &Path) -> Result<Accounts> {
        let mut command = Command::new(Release::V3008.program("python"));
        command
            .arg(peer("accounts.py"))
            .arg(self.job_database())
            .arg(ledger);
        let run = run(&mut command, SOON)?;
        run.expect_code(0)?;
        Ok(Accounts(serde_json::from_str(&run.stdout)?))
    }

    /// The path of the job database.
    pub fn job_database(&self) -> PathBuf {
        self.path("cache/saltern/jobs.sqlite")
    }
}

impl Fleet {
    /// How many returns were acknowledged so far.
    ///
    /// # Errors
    /// When the ledger cannot be read.
    pub fn acknowledged(&mut self) -> Result<usize> {
        let mut file = File::open(&self.ledger)?;
        file.seek(SeekFrom::Start(self.place))?;
        let mut text = Vec::new();
        self.place += file.read_to_end(&mut text)? as u64;
        self.count += text.iter().filter(|byte| **byte == b'\n').count();
        Ok(self.count)
    }

    /// Waits until so many more returns are acknowledged than at this moment.
    ///
    /// # Errors
    /// When they are not, in time.
    pub fn wait_for_more(&mut self, more: usize) -> Result<()> {
        let before = self.acknowledged()?;
        let what = format!("{more} more returns to be acknowledged than {before}");
        wait_until(&what, SOON, || {
            (self.acknowledged().ok()? >= before + more).then_some(())
        })
    }

    /// The file of the acknowledged returns.
    pub fn ledger(&self) -> &Path {
        &self.ledger
    }

    /// Asks the minions to stop, which lets them finish what is under way; gives the ledger.
    ///
    /// # Errors
    /// When they do not.
    pub fn stop(self) -> Result<PathBuf> {
        let status = self.daemon.stop(SOON)?;
        ensure!(status.success(), "the fleet ended with {status}");
        Ok(self.ledger)
    }
}

/// A ledger and a store, compared (`peers/accounts.py`).
pub struct Accounts(Value);

impl Accounts {
    /// Fails unless all is well: nothing that was acknowledged is lost, nothing is stored twice, and
    /// what is stored is what was returned.
    ///
    /// # Errors
    /// Names the first of each kind.
    pub fn expect_balance(&self) -> Result<&Self> {
        for fault in ["lost", "doubled", "changed", "foreign"] {
            let list = self.list(fault)?;
            ensure!(
                list.is_empty(),
                "{} of {} acknowledged and {} stored returns are {fault}, such as {:?}",
                list.len(),
                self.number("acknowledged")?,
                self.number("stored")?,
                list.iter().take(3).collect::<Vec<_>>()
            );
        }
        Ok(self)
    }

    /// One of the counts: `acknowledged`, `stored`, `open`.
    ///
    /// # Errors
    /// When there is no such count.
    pub fn number(&self, name: &str) -> Result<u64> {
        self.0[name]
            .as_u64()
            .with_context(|| format!("no count {name:?}"))
    }

    /// The ids of all jobs in the store.
    ///
    /// # Errors
    /// When the comparison did not list them.
    pub fn jobs(&self) -> Result<BTreeSet<&str>> {
        Ok(self.list("jobs")?.into_iter().collect())
    }

    fn list(&self, name: &str) -> Result<Vec<&str>> {
        let list = self.0[name].as_array();
        let list = list.with_context(|| format!("no list {name:?}"))?;
        Ok(list.iter().filter_map(Value::as_str).collect())
    }
}
