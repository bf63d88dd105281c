//! Publishes here what a master above has published, through the gate through which all jobs come.
//!
//! One publication of a jid is looked for and published at a time, whichever master above it comes from. One for which
//! there is no room at this moment is tried again. The master above hears of what is not published here by a verdict.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use actix::Recipient;
use bytes::Bytes;
use futures_util::future::BoxFuture;
use saltern_base::chain;
use saltern_client::control::ControlError;
use saltern_client::{
    ClientConfig, ClientError, EventListener, LocalClient, MasterLink, PublishRequest,
};
use saltern_model::Jid;
use saltern_model::control::Account;
use saltern_requests::PathRefusal;
use saltern_store::StoreError;
use saltern_store::jobs::StoredJob;
use saltern_wire::msgpack::MapView;
use saltern_wire::port::{InsideListener, Standing};

use super::downward::{self, NotForUs, ReadAs, job_of};
use super::routes;
use super::uplink::Seed;
use crate::messages::Accept;

/// Pauses before a publication is tried again for which this master had no room, or whose job could not be read.
const RETRY_PAUSES: [Duration; 3] = [
    Duration::from_millis(500),
    Duration::from_secs(1),
    Duration::from_secs(2),
];

impl Seed {
    /// Has a publication published here.
    pub(super) async fn publish(&self, load: MapView, from: SocketAddr) {
        let jid = load.str("jid").unwrap_or_default().to_owned();
        let upper = self.upper.name();
        let result = match self.try_publish(&load, from).await {
            Ok(minions) => {
                tracing::debug!(upper, jid, minions, "published for a master above");
                if let Ok(jid) = Jid::parse(&jid) {
                    self.verdicts.published(&jid, downward::minions_of(&load));
                }
                "published"
            }
            Err(NotPublished::NoMinions) => "no_minions",
            Err(error) => {
                tracing::warn!(
                    upper,
                    jid,
                    error = chain(&error),
                    "a publication of a master above is not published here"
                );
                // One that came a second time may run here all the same.
                let is_loop = matches!(error, NotPublished::NotForUs(NotForUs::Loop));
                if let (Ok(jid), false) = (Jid::parse(&jid), is_loop) {
                    let minions = downward::minions_of(&load);
                    let minions = minions.map(|minions| self.minions_below(minions));
                    self.verdicts
                        .not_published(&jid, minions.as_deref(), &chain(&error));
                }
                error.label()
            }
        };
        let counter = &self.metrics.publications;
        counter.with_label_values(&[upper, result]).inc();
    }

    /// Those of these minions that are below this master. Of others the master above takes no verdict.
    fn minions_below(&self, mut minions: Vec<String>) -> Vec<String> {
        match self.services.keys.pki.accepted() {
            Ok(accepted) => {
                let below = self.services.minions.inventories.ids();
                minions.retain(|name| accepted.contains(name) || below.contains(name));
            }
            Err(error) => tracing::error!(%error, "accepted keys cannot be listed"),
        }
        minions
    }

    async fn try_publish(&self, load: &MapView, from: SocketAddr) -> Result<usize, NotPublished> {
        let config = &self.services.config;
        let reading = ReadAs {
            upper: self.upper.name(),
            master_id: config.master_id(),
            timeout: config.timeout,
        };
        match self.services.paths.refusal(self.upper.name()) {
            Some(PathRefusal::Loop) => return Err(NotForUs::Loop.into()),
            Some(PathRefusal::TooDeep) => return Err(NotForUs::TooDeep.into()),
            None => {}
        }
        let request = job_of(load, &reading)?;
        let jid = Jid::parse(&request.jid).map_err(|_| NotForUs::Malformed("jid"))?;
        // The same job may come from another master above at the same time.
        let _alone = self.identity.turn_of(&jid).lock().await;
        let mut attempts = Attempts::default();
        let mut pauses = RETRY_PAUSES.into_iter();
        loop {
            let result = self.publish_once(&request, &jid, from, &mut attempts).await;
            match (result, pauses.next()) {
                (Err(error), Some(pause)) if attempts.may_go_on(&error) => {
                    tracing::debug!(%jid, error = chain(&error), "a publication is tried again");
                    tokio::time::sleep(pause).await;
                }
                (result, _) => return result,
            }
        }
    }

    /// Publishes a job, of which an attempt before may have come through all the same.
    async fn publish_once(
        &self,
        request: &PublishRequest,
        jid: &Jid,
        from: SocketAddr,
        attempts: &mut Attempts,
    ) -> Result<usize, NotPublished> {
        let known = self.reader.load(jid)?;
        if let Some(known) = &known {
            if routes::has_gone_in_a_circle(known, self.upper.name()) {
                return Err(NotForUs::Loop.into());
            }
            if attempts.is_published(known) {
                let is_early = routes::was_returned_early(None, jid, &*self.reader);
                self.end_publication(jid, is_early);
                return Ok(known.record.minions.len());
            }
            if known.reporter.is_some() {
                self.note_early(jid, self.upper.early.begin(jid).map(|()| true));
            }
        }
        attempts.begin(known.as_ref());
        let link = Gate {
            router: self.router.clone(),
            from,
        };
        let config = ClientConfig::from(&*self.services.config);
        let client = LocalClient::inside(config, Arc::new(link));
        let published = client.publish(request).await;
        // Looked for afterwards, with an error of the gate, too: it may have been published all the same.
        let is_early = routes::was_returned_early(known.as_ref(), jid, &*self.reader);
        self.end_publication(jid, is_early);
        match published {
            Ok(published) => Ok(published.minions.len()),
            Err(ClientError::NoMinions) => Err(NotPublished::NoMinions),
            Err(error) => Err(error.into()),
        }
    }

    fn end_publication(&self, jid: &Jid, is_early: bool) {
        let noted = match is_early {
            true => self.upper.returned_early(jid),
            false => self.upper.early.end(jid, false).map(|_| true),
        };
        self.note_early(jid, noted);
    }

    /// Says that the outbox does not go back for a job that minions had returned before, or may not after a crash.
    fn note_early(&self, jid: &Jid, has_room: Result<bool, StoreError>) {
        let upper = self.upper.name();
        match has_room {
            Ok(true) => {}
            Ok(false) => {
                let dropped = &self.metrics.early_jobs_dropped;
                dropped.with_label_values(&[upper]).inc();
                if let Some(times) = self.problems.record() {
                    tracing::warn!(
                        upper,
                        %jid,
                        times,
                        "too many jobs were returned before they were published: early returns of some do not go up"
                    );
                }
            }
            Err(error) => {
                if let Some(times) = self.problems.record() {
                    tracing::error!(
                        upper,
                        %jid,
                        error = chain(&error),
                        times,
                        "a job that was returned before it was published is not on the disk: a crash would forget its returns"
                    );
                }
            }
        }
    }
}

/// Why a publication from above is not published.
#[derive(Debug, thiserror::Error)]
enum NotPublished {
    /// It is not for this master.
    #[error(transparent)]
    NotForUs(#[from] NotForUs),
    /// No minion of its target is here.
    #[error("no minion of its target is here")]
    NoMinions,
    /// The job database.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The gate refused it.
    #[error("it is refused")]
    Refused(#[from] ClientError),
}

impl NotPublished {
    /// The result in metrics.
    fn label(&self) -> &'static str {
        match self {
            Self::NotForUs(NotForUs::Loop) => "loop",
            Self::NotForUs(NotForUs::TooDeep) => "too_deep",
            Self::NotForUs(NotForUs::Malformed(_)) => "malformed",
            Self::NoMinions => "no_minions",
            Self::Store(_) | Self::Refused(_) => "refused",
        }
    }
}

/// Attempts to publish one job.
#[derive(Default)]
struct Attempts {
    /// The gate was asked, when no publication of the job was there.
    is_first: bool,
    /// It was asked for a further part of a job.
    is_part: bool,
}

impl Attempts {
    fn begin(&mut self, known: Option<&StoredJob>) {
        match routes::is_unpublished(known) {
            true => self.is_first = true,
            false => self.is_part = true,
        }
    }

    /// Whether an attempt has come through whose answer was lost.
    fn is_published(&self, known: &StoredJob) -> bool {
        self.is_first && known.reporter.is_none()
    }

    /// Whether to try once more: the job cannot be on its way yet, or that can be seen.
    fn may_go_on(&self, error: &NotPublished) -> bool {
        let may_pass = matches!(
            error,
            NotPublished::Store(_) | NotPublished::Refused(ClientError::Overloaded)
        );
        may_pass && !self.is_part
    }
}

/// The gate of this master, for the master above at this address.
struct Gate {
    router: Recipient<Accept>,
    from: SocketAddr,
}

impl MasterLink for Gate {
    fn check(&self) -> Result<(), ClientError> {
        Ok(())
    }

    fn request(&self, payload: Bytes) -> BoxFuture<'_, Result<Bytes, ClientError>> {
        let sender = (InsideListener::Syndic, self.from);
        let reply = Accept::deliver(&self.router, sender, Standing::Known, payload);
        Box::pin(async move { reply.await.ok_or(ClientError::Overloaded) })
    }

    fn listen(&self) -> BoxFuture<'_, Result<EventListener, ClientError>> {
        Box::pin(std::future::ready(Err(ClientError::NoTransport)))
    }

    fn has_tracker(&self) -> bool {
        true
    }

    fn account(&self, _jid: Jid) -> BoxFuture<'_, Result<Option<Account>, ControlError>> {
        Box::pin(std::future::ready(Ok(None)))
    }
}

#[cfg(test)]
mod tests {
    use super::super::routes::tests::job;
    use super::*;

    /// Before each attempt there is nothing, a report of minions, or a publication by the master above.
    #[test]
    fn publication_is_tried_again_while_it_cannot_have_come_through_unseen() {
        let reported = || Some(job(None, Some("m")));
        let published = || Some(job(Some("top:4506"), None));
        for (before, after, may_go_on, is_published) in [
            (None, None, true, false),
            (reported(), reported(), true, false),
            (None, published(), true, true),
            (reported(), published(), true, true),
            (published(), published(), false, false),
        ] {
            let mut attempts = Attempts::default();
            assert!(
                !before
                    .as_ref()
                    .is_some_and(|known| attempts.is_published(known))
            );
            attempts.begin(before.as_ref());
            let overloaded = NotPublished::Refused(ClientError::Overloaded);
            assert_eq!(attempts.may_go_on(&overloaded), may_go_on, "{before:?}");
            let has_come = after
                .as_ref()
                .is_some_and(|known| attempts.is_published(known));
            assert_eq!(has_come, is_published, "{before:?} {after:?}");
            let refused = NotPublished::Refused(ClientError::Publish("no".to_owned()));
            for error in [refused, NotPublished::NoMinions, NotForUs::Loop.into()] {
                assert!(!attempts.may_go_on(&error), "{error}");
            }
        }
    }
}
