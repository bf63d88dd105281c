//! `saltern key rotate-master`: replaces the master's own key without a minion that has to be visited.
//!
//! A stock minion keeps the master's public key in `minion_master.pub` and accepts no other
//! (`verify_master` in `salt/crypt.py`). So the new key is handed over while the master accepts both:
//! by a job that writes it beside that file and renames it over it. Who has it, the minions say
//! themselves (`key.finger_master`). The files of the master are `saltern-store`'s.

use std::collections::BTreeMap;
use std::process::ExitCode;

use saltern_base::clock::{Clock, civil};
use saltern_base::{chain, escaped_for_terminal};
use saltern_client::control::{self, ControlError};
use saltern_client::{ClientConfig, ClientError, LocalClient, MinionOutcome, PublishRequest};
use saltern_config::MasterConfig;
use saltern_crypto::HashError;
use saltern_model::control::{ControlRequest, TaskStatus};
use saltern_store::master_keys::fingerprint;
use saltern_store::{MasterKeyRotation, RotationError, StoreError, StoreOptions, dropfile};
use saltern_wire::msgpack::Value;
use tokio::runtime;

use crate::account::{self, AccountError};
use crate::console::{complain, say};

/// The file in a minion's `pki_dir` that holds the master's key.
const KEY_FILE: &str = "minion_master.pub";

/// The file beside it that the new key is written to first.
const NEXT_FILE: &str = "minion_master.pub.next";

/// A step of a rotation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RotationStep {
    /// Make the new key, and accept the previous one for so many days.
    Begin(u32),
    /// Hand the present key over to connected minions.
    HandOver,
    /// List who has it.
    Status,
    /// Accept the previous key for so many days from now.
    Extend(u32),
    /// Return to the previous key; the new one is accepted for so many days.
    Revert(u32),
    /// Accept the previous key no longer.
    Finish {
        /// Also while minions are left with it, or nobody knows.
        force: bool,
    },
}

/// Why a step is not done.
#[derive(Debug, thiserror::Error)]
enum StepError {
    #[error(transparent)]
    Rotation(#[from] RotationError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Account(#[from] AccountError),
    #[error(transparent)]
    Control(#[from] ControlError),
    #[error(transparent)]
    Client(#[from] ClientError),
    #[error(transparent)]
    Fingerprint(#[from] HashError),
    #[error("no event loop: {0}")]
    Runtime(#[from] std::io::Error),
    #[error(
        "with \"saltern_cluster\" the master's key is not rotated: a member that read the key \
         before would take over with the previous one alone"
    )]
    Cluster,
    #[error("the running master does not use this key yet; restart it first")]
    NotRestarted,
    #[error("the shared key is not rotated: {0}")]
    SharedKey(String),
    #[error(
        "minions are left with the previous key; they refuse the master after \"finish --force\""
    )]
    MinionsLeft,
}

/// Runs a step; the exit code is 1 where a minion is left without the present key.
#[must_use]
pub fn rotate_master(config: &MasterConfig, step: RotationStep) -> ExitCode {
    match run(config, step) {
        Ok(code) => code,
        Err(error) => {
            complain(&format!("Error: {}", chain(&error)));
            ExitCode::FAILURE
        }
    }
}

fn run(config: &MasterConfig, step: RotationStep) -> Result<ExitCode, StepError> {
    account::become_user(&config.user)?;
    let options = StoreOptions::from(config);
    let rotation = match step {
        RotationStep::Begin(days) => {
            refuse_cluster(config)?;
            let rotation = MasterKeyRotation::begin(&options, in_days(days))?;
            say("The master has a new key, and its previous key has signed it:\n");
            rotation
        }
        RotationStep::Revert(days) => {
            refuse_cluster(config)?;
            let rotation = MasterKeyRotation::revert(&options, in_days(days))?;
            say("The previous key is the master's key again:\n");
            rotation
        }
        RotationStep::Extend(days) => {
            let rotation = MasterKeyRotation::extend(&options, in_days(days))?;
            record(config);
            say(&described(&rotation)?);
            return Ok(ExitCode::SUCCESS);
        }
        RotationStep::HandOver | RotationStep::Status => {
            let survey = survey(config, step == RotationStep::HandOver)?;
            return Ok(ExitCode::from(u8::from(survey.print() > 0)));
        }
        RotationStep::Finish { force } => return finish(config, force),
    };
    record(config);
    say(&format!(
        "{}Restart the master; it accepts both keys then. Next:\n\
         \x20 saltern key rotate-master hand-over\n\
         Of a minion with several masters, each master needs the same key.\n",
        described(&rotation)?
    ));
    Ok(ExitCode::SUCCESS)
}

fn refuse_cluster(config: &MasterConfig) -> Result<(), StepError> {
    match config.saltern_cluster {
        Some(_) => Err(StepError::Cluster),
        None => Ok(()),
    }
}

fn in_days(days: u32) -> i64 {
    Clock::system().unix() + i64::from(days) * 86_400
}

fn finish(config: &MasterConfig, force: bool) -> Result<ExitCode, StepError> {
    if !force {
        let survey = survey(config, false)?;
        if survey.print() > 0 {
            return Err(StepError::MinionsLeft);
        }
    }
    MasterKeyRotation::finish(&StoreOptions::from(config))?;
    record(config);
    say("The previous key is not accepted any more.\n");
    Ok(ExitCode::SUCCESS)
}

/// Has a running master look at its key, which writes the row of the audit trail. One that starts
/// later looks then.
fn record(config: &MasterConfig) {
    let _ = task(config, "master_key");
}

fn described(rotation: &MasterKeyRotation) -> Result<String, StepError> {
    let mut text = format!("  present key   {}\n", fingerprint(&rotation.current)?);
    if let Some(previous) = &rotation.previous {
        let until = civil(rotation.until.saturating_mul(1_000_000));
        text += &format!(
            "  previous key  {}\n  accepted until {} UTC\n",
            fingerprint(previous)?,
            until.strftime("%Y-%m-%d %H:%M")
        );
    }
    Ok(text)
}

/// The keys of a rotation, and the minions by the key that they have.
struct Survey {
    described: String,
    minions: Holders,
}

/// Asks the minions, and hands the present key over where that is wanted.
fn survey(config: &MasterConfig, hands_over: bool) -> Result<Survey, StepError> {
    let rotation = MasterKeyRotation::of(&StoreOptions::from(config))?;
    if let Some(step) = rotation.interrupted {
        return Err(RotationError::Interrupted(step).into());
    }
    let Some(previous) = &rotation.previous else {
        return Err(RotationError::NotBegun.into());
    };
    if !task(config, "master_key")?.is_ok {
        return Err(StepError::NotRestarted);
    }
    let runtime = runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let fleet = Fleet {
        config,
        client: LocalClient::new(ClientConfig::from(config)),
        present_key: &rotation.current,
        present_finger: fingerprint(&rotation.current)?,
        previous_finger: fingerprint(previous)?,
    };
    let minions = runtime.block_on(async {
        let minions = fleet.holders(None).await?;
        match hands_over {
            true => fleet.hand_over(minions).await,
            false => Ok(minions),
        }
    })?;
    Ok(Survey {
        described: described(&rotation)?,
        minions,
    })
}

impl Survey {
    /// Prints who is left, and why; gives how many.
    fn print(&self) -> usize {
        let is_left = |holder: &&Holder| **holder != Holder::Present;
        let left = self.minions.values().filter(is_left).count();
        say(&format!(
            "{}{} with the present key, {left} left\n",
            self.described,
            self.minions.len() - left
        ));
        for (id, holder) in &self.minions {
            let reason = match holder {
                Holder::Present => continue,
                Holder::Previous => "has the previous key",
                Holder::Left(reason) => reason,
            };
            say(&escaped_for_terminal(&format!("  {id}: {reason}")));
            say("\n");
        }
        left
    }
}

fn task(config: &MasterConfig, name: &str) -> Result<TaskStatus, ControlError> {
    let request = ControlRequest::RunMaintenanceTask(name.to_owned());
    control::ask(&config.sock_dir, &request)
}

/// The key of the master that a minion has.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Holder {
    Present,
    Previous,
    /// Neither, or the present one cannot be handed over, for this reason.
    Left(String),
}

type Holders = BTreeMap<String, Holder>;

/// A function without a result: it failed on the minion, or nothing came back.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct NoResult(String);

/// Results of a job, by minion.
type Returned = BTreeMap<String, Result<Value, NoResult>>;

struct Fleet<'a> {
    config: &'a MasterConfig,
    client: LocalClient,
    present_key: &'a str,
    present_finger: String,
    previous_finger: String,
}

impl Fleet<'_> {
    /// The key that each minion has, by itself; of all minions where none are named.
    async fn holders(&self, ids: Option<&[String]>) -> Result<Holders, StepError> {
        let named = Value::map([
            ("__kwarg__", Value::from(true)),
            ("hash_type", Value::from("sha256")),
        ]);
        let returned = self.job(ids, "key.finger_master", vec![named]).await?;
        let holders = returned.into_iter().map(|(id, finger)| {
            let holder = match finger {
                Ok(finger) if finger.as_str() == Some(&self.present_finger) => Holder::Present,
                Ok(finger) if finger.as_str() == Some(&self.previous_finger) => Holder::Previous,
                Ok(_) => Holder::Left("has a key of another master".to_owned()),
                Err(NoResult(reason)) => Holder::Left(reason),
            };
            (id, holder)
        });
        Ok(holders.collect())
    }

    /// Gives the present key to those with the previous one, and asks all of these again.
    async fn hand_over(&self, mut minions: Holders) -> Result<Holders, StepError> {
        let behind: Vec<String> = minions
            .iter()
            .filter(|(_, holder)| **holder == Holder::Previous)
            .map(|(id, _)| id.clone())
            .collect();
        if behind.is_empty() {
            return Ok(minions);
        }
        let wanted = self.checked(&mut minions, behind.clone()).await?;
        for (dir, ids) in self.directories(&mut minions, &wanted).await? {
            self.write(&mut minions, &dir, &ids).await?;
        }
        // With the next publication each minion authenticates anew, under the key that it has now:
        // until then its pillar would be signed by the previous one. Our own minions and syndics,
        // which lack the functions above, get the key in that authentication.
        dropfile::request(self.config)?;
        let rotated = task(self.config, "shared_key")?;
        if !rotated.is_ok {
            return Err(StepError::SharedKey(rotated.result));
        }
        for (id, holder) in self.holders(Some(&behind)).await? {
            let is_explained = matches!(minions.get(&id), Some(Holder::Left(_)));
            if !(is_explained && holder == Holder::Previous) {
                minions.insert(id, holder);
            }
        }
        Ok(minions)
    }

    /// Those of the minions that nothing speaks against.
    async fn checked(
        &self,
        minions: &mut Holders,
        mut wanted: Vec<String>,
    ) -> Result<Vec<String>, StepError> {
        for (function, argument, judge) in CHECKS {
            let arguments = argument.map(Value::from).into_iter().collect();
            let returned = self.job(Some(&wanted), function, arguments).await?;
            let refused = returned.into_iter().filter_map(|(id, returned)| {
                let reason = match returned {
                    Ok(value) => judge(&value).map(str::to_owned),
                    Err(NoResult(reason)) => Some(reason),
                };
                reason.map(|reason| (id, Holder::Left(reason)))
            });
            minions.extend(refused);
            wanted.retain(|id| minions.get(id) == Some(&Holder::Previous));
        }
        Ok(wanted)
    }

    /// The minions by their directories of keys.
    async fn directories(
        &self,
        minions: &mut Holders,
        ids: &[String],
    ) -> Result<BTreeMap<String, Vec<String>>, StepError> {
        let returned = self.job(Some(ids), "config.get", vec!["pki_dir".into()]);
        let mut directories: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (id, returned) in returned.await? {
            let dir = returned.map(|dir| dir.as_str().map(str::to_owned));
            match dir {
                Ok(Some(dir)) if is_absolute(&dir) => directories.entry(dir).or_default().push(id),
                Ok(_) => {
                    let reason = "does not say where its keys are".to_owned();
                    minions.insert(id, Holder::Left(reason));
                }
                Err(NoResult(reason)) => {
                    minions.insert(id, Holder::Left(reason));
                }
            }
        }
        Ok(directories)
    }

    /// Writes the key on minions that have it in the same place.
    async fn write(
        &self,
        minions: &mut Holders,
        dir: &str,
        ids: &[String],
    ) -> Result<(), StepError> {
        let (next, file) = (format!("{dir}/{NEXT_FILE}"), format!("{dir}/{KEY_FILE}"));
        let content = Value::map([
            ("__kwarg__", Value::from(true)),
            ("args", Value::Array(vec![self.present_key.into()])),
        ]);
        let steps = [
            ("file.write", vec![next.as_str().into(), content]),
            ("file.rename", vec![next.as_str().into(), file.into()]),
        ];
        let mut left = ids.to_vec();
        for (function, arguments) in steps {
            let returned = self.job(Some(&left), function, arguments).await?;
            let failed = returned.into_iter().filter_map(|(id, returned)| {
                let NoResult(reason) = returned.err()?;
                Some((id, Holder::Left(reason)))
            });
            minions.extend(failed);
            left.retain(|id| minions.get(id) == Some(&Holder::Previous));
        }
        Ok(())
    }

    /// Runs a function on minions, on all where none are named; nobody where the list is empty.
    async fn job(
        &self,
        ids: Option<&[String]>,
        function: &str,
        arguments: Vec<Value>,
    ) -> Result<Returned, StepError> {
        let request = match ids {
            Some([]) => return Ok(Returned::new()),
            Some(ids) => {
                let ids = ids.iter().map(|id| Value::from(id.as_str()));
                PublishRequest::new(Value::Array(ids.collect()), "list", function, arguments)
            }
            None => PublishRequest::new("*".into(), "glob", function, arguments),
        };
        let mut job = match self.client.run(&request).await {
            Err(ClientError::NoMinions) => return Ok(Returned::new()),
            job => job?,
        };
        let mut returned = Returned::new();
        while let Some(outcome) = job.next().await? {
            let (id, result) = match outcome {
                MinionOutcome::Returned(minion) if minion.retcode == 0 => {
                    (minion.id, Ok(minion.value))
                }
                MinionOutcome::Returned(minion) => {
                    let text = minion.value.as_str().unwrap_or("no text").to_owned();
                    (
                        minion.id,
                        Err(NoResult(format!("{function} failed: {text}"))),
                    )
                }
                MinionOutcome::NoResponse { id, .. } => {
                    (id, Err(NoResult(format!("did not return {function}"))))
                }
            };
            returned.insert(id, result);
        }
        Ok(returned)
    }
}

/// A function that a minion is asked with its argument, and what its result has against handing the
/// key over.
type Check = (
    &'static str,
    Option<&'static str>,
    fn(&Value) -> Option<&'static str>,
);

const CHECKS: [Check; 4] = [
    ("config.get", Some("master_finger"), |finger| {
        let is_pinned = finger.as_str().is_some_and(|finger| !finger.is_empty());
        is_pinned.then_some("its option master_finger allows the previous key only")
    }),
    // Set for each master of several; `multimaster` is set with one master, too.
    ("config.get", Some("beacons_leader"), |leader| {
        (leader.as_bool() == Some(false)).then_some(SEVERAL)
    }),
    ("config.get", Some("master_type"), |kind| {
        let is_one = matches!(kind.as_str(), Some("" | "str"));
        (!is_one).then_some(SEVERAL)
    }),
    // Its pillar may be on its way, signed by the previous key.
    ("saltutil.running", None, |jobs| {
        let is_idle = matches!(jobs, Value::Array(jobs) if jobs.is_empty());
        (!is_idle).then_some("is running a job; hand over again when it is done")
    }),
];

const SEVERAL: &str = "has several masters, which share the file of their key";

/// Also of Windows.
fn is_absolute(path: &str) -> bool {
    let drive = path.as_bytes().get(..3);
    path.starts_with('/') || drive.is_some_and(|it| it[1] == b':' && matches!(it[2], b'\\' | b'/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checks_refuse_what_the_key_is_not_handed_over_to() {
        let judged = |at: usize, value: Value| {
            let (_, _, judge) = CHECKS.get(at).unwrap();
            judge(&value).is_some()
        };
        assert!(!judged(0, "".into()));
        assert!(judged(0, "ab:cd".into()));
        assert!(!judged(1, "".into()));
        assert!(!judged(1, true.into()));
        assert!(judged(1, false.into()));
        assert!(!judged(2, "str".into()));
        assert!(judged(2, "failover".into()));
        assert!(!judged(3, Value::Array(Vec::new())));
        assert!(judged(3, Value::Array(vec![Value::Nil])));
        assert!(judged(3, Value::Nil));
    }

    #[test]
    fn only_absolute_directories_are_written_to() {
        assert!(is_absolute("/etc/salt/pki/minion"));
        assert!(is_absolute("C:\\salt\\pki"));
        assert!(!is_absolute(""));
        assert!(!is_absolute("pki"));
        assert!(!is_absolute("é:"));
    }
}
