//! Returns a second while a given number of jobs is open: as soon as one of them is complete the
//! next is published, so that there are always as many. One listener on the event bus sees all of
//! them, as a returner or an API would.

use std::collections::HashMap;
use std::time::Duration;

use saltern_client::{ClientError, EventListener, LocalClient, PublishRequest};
use saltern_wire::msgpack::Value;
use tokio::time::Instant;

/// How long the answers to a job may be silent before the load is given up.
const PATIENCE: Duration = Duration::from_secs(60);

/// Why the jobs could not be kept open.
#[derive(Debug, thiserror::Error)]
pub(super) enum OpenJobsError {
    #[error(transparent)]
    Client(#[from] ClientError),
    #[error("the master closed its event socket")]
    Closed,
    #[error("no return for {} s while {missing} are missing", PATIENCE.as_secs())]
    Silent { missing: usize },
}

/// What was measured.
pub(super) struct Figures {
    pub(super) returns: usize,
    pub(super) jobs: usize,
    pub(super) seconds: f64,
}

/// Keeps `open` jobs open for `limit`, then waits for the last ones.
pub(super) async fn measure(
    client: &LocalClient,
    open: usize,
    limit: Duration,
) -> Result<Figures, OpenJobsError> {
    let mut events = EventListener::connect(&client.config().sock_dir)
        .await?
        .with_prefix("salt/job/");
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
        let event = tokio::time::timeout(PATIENCE, events.next()).await;
        let event = event.map_err(|_| OpenJobsError::Silent {
            missing: missing.values().sum(),
        })?;
        let event = event?.ok_or(OpenJobsError::Closed)?;
        let Some(jid) = returned_job(&event.tag) else {
            continue;
        };
        if let Some(left) = missing.get_mut(jid) {
            returns += 1;
            *left -= 1;
            if *left == 0 {
                missing.remove(jid);
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

/// A job for everybody: its id, and how many shall return.
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
