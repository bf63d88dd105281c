//! Returns a second while a given number of jobs is open: as soon as one of them is complete the
//! next is published, so that there are always as many. One listener on the event bus sees all of
//! them, as a returner or an API would; it has a thread of its own, for the master drops events for
//! a listener that does not keep up.

use std::collections::HashMap;
use std::time::Duration;

use saltern_client::{ClientError, EventListener, LocalClient, PublishRequest};
use saltern_wire::msgpack::Value;
use tokio::runtime::Builder;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

/// How long the answers to a job may be silent before the load is given up.
const PATIENCE: Duration = Duration::from_secs(60);

/// Returns that were heard and not counted yet, at most.
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
    #[error("no thread for the listener of the load")]
    Thread(#[source] std::io::Error),
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
    let mut events = listen(client).await?;
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
        let heard = tokio::time::timeout(PATIENCE, events.recv()).await;
        let heard = heard.map_err(|_| OpenJobsError::Silent {
            missing: missing.values().sum(),
        })?;
        let jid = heard.ok_or(OpenJobsError::Closed)??;
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

/// Hears returns on a thread of its own from the moment this resolves; gives their jids.
async fn listen(client: &LocalClient) -> Result<Heard, OpenJobsError> {
    let (says, heard) = mpsc::channel(HEARD);
    let (is_there, there) = oneshot::channel();
    let sock_dir = client.config().sock_dir.clone();
    let runtime = Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(OpenJobsError::Thread)?;
    let hear = async move {
        let mut events = match EventListener::connect(&sock_dir).await {
            Ok(events) => events,
            Err(error) => return drop(says.send(Err(error.into())).await),
        };
        let _ = is_there.send(());
        loop {
            let heard = match events.next().await {
                Ok(Some(event)) if event.tag == "saltern/bus/gap" => Err(OpenJobsError::Gap),
                Ok(Some(event)) => match returned_job(&event.tag) {
                    Some(jid) => Ok(jid.to_owned()),
                    None => continue,
                },
                Ok(None) => return,
                Err(error) => Err(error.into()),
            };
            if says.send(heard).await.is_err() {
                return;
            }
        }
    };
    std::thread::Builder::new()
        .name("listener".to_owned())
        .spawn(move || runtime.block_on(hear))
        .map_err(OpenJobsError::Thread)?;
    // Dropped without a word when there is no connection: then the channel says why.
    let _ = there.await;
    Ok(heard)
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
