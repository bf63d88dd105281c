//! Ends a job: as stock's operators do by hand, `saltutil.term_job` or `saltutil.kill_job` is
//! published to those of its minions that have not returned.

use std::sync::Arc;

use saltern_base::chain;
use saltern_client::{ClientConfig, ClientError, LocalClient, PublishRequest};
use saltern_config::MasterConfig;
use saltern_model::{Jid, MinionId};
use saltern_sql::open_reader;
use saltern_store::StoreError;
use saltern_wire::msgpack::Value;

/// How a job is ended on its minions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Signal {
    /// `SIGTERM`.
    Terminate,
    /// `SIGKILL`.
    Kill,
}

impl Signal {
    /// The function that sends it.
    pub(super) const fn function(self) -> &'static str {
        match self {
            Self::Terminate => "saltutil.term_job",
            Self::Kill => "saltutil.kill_job",
        }
    }
}

#[derive(Debug, thiserror::Error)]
enum KillError {
    #[error("no minion of job {0} is left to signal")]
    Nobody(Jid),
    #[error("the minions of the job cannot be read")]
    Store(#[from] StoreError),
    #[error("the signal could not be published to the minions of the job")]
    Client(#[from] ClientError),
    #[error("reading the minions of the job was interrupted")]
    Broken,
}

/// Signals the job's minions; returns the notice for the operator.
pub(super) async fn end(config: Arc<MasterConfig>, jid: Jid, signal: Signal) -> String {
    match publish(config, &jid, signal).await {
        Ok(text) => text,
        Err(error) => chain(&error),
    }
}

async fn publish(
    config: Arc<MasterConfig>,
    jid: &Jid,
    signal: Signal,
) -> Result<String, KillError> {
    let client = LocalClient::new(ClientConfig::from(&*config));
    let job = jid.clone();
    let missing = saltern_base::blocking::run(move || missing(&config, &job));
    let missing = missing.await.map_err(|_| KillError::Broken)??;
    if missing.is_empty() {
        return Err(KillError::Nobody(jid.clone()));
    }
    let count = missing.len();
    let ids = missing.iter().map(|id| Value::from(id.as_str()));
    let request = PublishRequest::new(
        Value::Array(ids.collect()),
        "list",
        signal.function(),
        vec![Value::from(jid.as_str())],
    );
    let published = client.publish(&request).await?;
    Ok(format!(
        "{} {jid} was sent to {count} minions as job {}",
        signal.function(),
        published.jid
    ))
}

/// The minions of a job that have not returned; none when there is no such job.
fn missing(config: &MasterConfig, jid: &Jid) -> Result<Vec<MinionId>, StoreError> {
    let reader = open_reader(config)?;
    let Some(job) = reader.load(jid)? else {
        return Ok(Vec::new());
    };
    let returned = reader.returned_minions(jid)?;
    let mut minions = job.record.minions;
    minions.retain(|minion| returned.binary_search(minion).is_err());
    Ok(minions)
}
