//! Returns a second while a given number of jobs is open: as soon as one of them is complete the
//! next is published, so that there are always as many. One listener on the event bus sees all of
//! them, as a returner or an API would; the client's side has a thread of its own, for the master
//! drops events for a listener that does not keep up.

use std::collections::HashMap;
use std::time::Duration;

use saltern_client::{ClientConfig, ClientError, EventListener, LocalClient, PublishRequest};
use saltern_wire::msgpack::Value;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::BenchError;
use super::own_thread::on_own_thread;

/// Maximum time without a return before the load is given up.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(60);

/// Capacity of the queue of returns that are received and not counted yet.
const HEARD: usize = 1 << 20;

type Heard = mpsc::Receiver<Result<String, OpenJobsError>>;

/// Why the jobs could not be kept open.
#[derive(Debug, thiserror::Error)]
pub(super) enum OpenJobsError {
    #[error(transparent)]
    Client(#[from] ClientError),
    #[error("the master closed its event socket")]
    Closed,
    #[error("the master dropped events for the listener of the load")]
    Gap,
    #[error("no return for {} s while {missing} are missing", SILENCE_TIMEOUT.as_secs())]
    Silent { missing: usize },
}

/// Measured values.
pub(super) struct Figures {
    pub(super) returns: usize,
    pub(super) jobs: usize,
    pub(super) seconds: f64,
}

/// Keeps `open` jobs open for `limit`, then waits for the last ones.
pub(super) async fn measure(
    config: ClientConfig,
    open: usize,
    limit: Duration,
) -> Result<Figures, BenchError> {
    on_own_thread(move || async move {
        let client = LocalClient::new(config);
        let events = EventListener::connect(&client.config().sock_dir).await?;
        Ok(keep_open(&client, hear(events), open, limit).await?)
    })
    .await
}

async fn keep_open(
    client: &LocalClient,
    mut events: Heard,
    open: usize,
    limit: Duration,
) -> Result<Figures, OpenJobsError> {
    let mut missing = HashMap::new();
    let began = Instant::now();
    let (mut returns, mut jobs) = (0, 0);
    loop {
        while missing.len() < open && began.elapsed() < limit {
            let (jid, minions) = publish(client).await?;
            missing.insert(jid, minions);
        }
        if missing.is_empty() {
            break;
        }
        let received = tokio::time::timeout(SILENCE_TIMEOUT, events.recv()).await;
        let received = received.map_err(|_| OpenJobsError::Silent {
            missing: missing.values().sum(),
        })?;
        let jid = received.ok_or(OpenJobsError::Closed)??;
        if let Some(left) = missing.get_mut(&jid) {
            returns += 1;
            *left -= 1;
            if *left == 0 {
                missing.remove(&jid);
                jobs += 1;
            }
        }
    }
    Ok(Figures {
        returns,
        jobs,
        seconds: began.elapsed().as_secs_f64(),
    })
}

/// Subscribes to returns, also during a publish; sends their jids.
fn hear(mut events: EventListener) -> Heard {
    let (sender, receiver) = mpsc::channel(HEARD);
    tokio::task::spawn_local(async move {
        loop {
            let jid = match events.next().await {
                Ok(Some(event)) if event.is_gap() => Err(OpenJobsError::Gap),
                Ok(Some(event)) => match returned_job(&event.tag) {
                    Some(jid) => Ok(jid.to_owned()),
                    None => continue,
                },
                Ok(None) => return,
                Err(error) => Err(error.into()),
            };
            if sender.send(jid).await.is_err() {
                return;
            }
        }
    });
    receiver
}

/// Publishes a job to all minions: its id, and the number of expected returns.
async fn publish(client: &LocalClient) -> Result<(String, usize), OpenJobsError> {
    let request = PublishRequest::new(Value::from("*"), "glob", "test.ping", Vec::new());
    let published = client.publish(&request).await?;
    Ok((published.jid, published.minions.len()))
}

/// The jid of `salt/job/<jid>/ret/<minion>`.
fn returned_job(tag: &str) -> Option<&str> {
    let (jid, rest) = tag.strip_prefix("salt/job/")?.split_once('/')?;
    rest.starts_with("ret/").then_some(jid)
}
