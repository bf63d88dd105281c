//! The main loop of a minion: sign in, subscribe, run matching publications, send the returns.
//!
//! One task reads publications; every job runs in a task of its own, and at most
//! `process_count_max` of them do more than answer at once. The request channel is shared and has
//! one request under way at a time, as in stock.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use bytes::Bytes;
use saltern_base::clock::Clock;
use saltern_base::{blocking, chain};
use saltern_channel::{
    Backoff, Identity, KeyError, MasterKeyStore, MinionConfig, PkiDir, Session, SignInError,
    between, resolve,
};
use saltern_model::{Compat, stamp};
use saltern_wire::client::{ClientError, SubClient};
use saltern_wire::msgpack::Value;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{debug, error, info, warn};

use crate::error::MinionError;
use crate::events::{Introduction, fire, introduce};
use crate::functions::{self, Context, FunctionReturn};
use crate::history::What;
use crate::jobs::{JobTable, RunningJob};
use crate::publication::{Functions, Outcome, Publication};
use crate::stats::{Channel, Subscribed};
use crate::swarm::Slow;

/// How many jobs may run or wait; a master that sends more is not obeyed.
const MAX_JOBS: usize = 1024;

/// A minion that is not running yet.
pub struct Minion {
    config: Arc<MinionConfig>,
    clock: Clock,
}

impl Minion {
    /// A minion with this configuration. Nothing is opened yet.
    #[must_use]
    pub fn new(config: MinionConfig) -> Self {
        Self {
            config: Arc::new(config),
            clock: Clock::system(),
        }
    }

    /// Runs until `stop` is cancelled; jobs that run then are ended. Without `stop` it returns
    /// only for what cannot get better by waiting: a key that the master rejected, a master whose
    /// key is not the trusted one, unusable key files. Must run on a current-thread or larger
    /// tokio runtime with I/O and time.
    pub async fn run(self, stop: CancellationToken) -> Result<(), MinionError> {
        tokio::select! {
            biased;
            () = stop.cancelled() => Ok(()),
            result = self.live() => result,
        }
    }

    async fn live(self) -> Result<(), MinionError> {
        let Self { config, clock } = self;
        let opened = Arc::clone(&config);
        // Making a key pair takes a good part of a second; grains read files.
        let prepared = blocking::run(move || {
            let pki = PkiDir::open(&opened.pki_dir)?;
            let keys = pki.keys(opened.keysize)?;
            Ok::<_, KeyError>((pki, keys, functions::grains::collect(&opened)))
        });
        let (pki, keys, grains) = prepared
            .await
            .map_err(|error| KeyError::Generate(chain(&error)))??;
        let address = resolve(&config.master, config.master_port, &config)
            .await
            .ok_or_else(|| MinionError::Address(config.master.clone()))?;
        let route = config.route(&config.master, address).await?;
        let store: Arc<dyn MasterKeyStore> = Arc::new(pki);
        let identity = Identity {
            id: config.id.clone(),
            config: Arc::clone(&config),
            keys: Arc::new(keys),
            store: Arc::clone(&store),
            clock,
        };
        let jobs = Arc::new(JobTable::default());
        let mut life = Life {
            channel: Arc::new(Channel::new(identity, route, Arc::default())),
            context: Arc::new(Context {
                grains: Arc::new(grains),
                jobs,
                master_key: store,
            }),
            turns: Arc::new(Semaphore::new(config.process_count_max)),
            tasks: JoinSet::new(),
            seen: VecDeque::new(),
            answer_at_once: false,
            introduction: Introduction {
                grains: true,
                start_events: true,
            },
            renews_grains: true,
            lacks_grains: Arc::default(),
            slow: None,
        };
        let session = life.sign_in_at_last().await?;
        life.listen(session).await
    }
}

/// A running minion.
pub(crate) struct Life {
    pub(crate) channel: Arc<Channel>,
    pub(crate) context: Arc<Context>,
    /// Jobs that do more than answer wait here.
    pub(crate) turns: Arc<Semaphore>,
    pub(crate) tasks: JoinSet<()>,
    /// The jids that came last, so that a job that is sent twice runs once.
    pub(crate) seen: VecDeque<String>,
    /// Quick functions are answered before the next publication is read, without a task: a
    /// swarm's minions do so, of which there are thousands.
    pub(crate) answer_at_once: bool,
    /// Messages at the start that are not sent yet.
    pub(crate) introduction: Introduction,
    /// The grains go to the master again when it has given another session: it may have lost them.
    pub(crate) renews_grains: bool,
    /// The master has not taken the grains.
    pub(crate) lacks_grains: Arc<AtomicBool>,
    /// Only in swarms.
    pub(crate) slow: Option<Slow>,
}

impl Life {
    /// Signs in, however long the master is away.
    async fn sign_in_at_last(&self) -> Result<Arc<Session>, MinionError> {
        let most = self.channel.config().random_reauth_delay;
        loop {
            match self.channel.sign_in(None).await {
                Ok(session) => return Ok(session),
                Err(error @ (SignInError::NoAnswer(_) | SignInError::Full)) => {
                    let pause = between(most / 4, most);
                    warn!(pause = pause.as_secs_f64(), "not signed in yet: {error}");
                    tokio::time::sleep(pause).await;
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Subscribes and runs what comes, again and again when the connection breaks.
    pub(crate) async fn listen(&mut self, mut session: Arc<Session>) -> Result<(), MinionError> {
        let config = self.channel.config();
        let mut pauses = Backoff::new(
            config.recon_default,
            config.recon_max,
            config.recon_randomize,
        );
        let mut before: Option<Arc<Session>> = None;
        loop {
            match self.channel.subscribe(&session).await {
                Ok(mut publications) => {
                    info!("subscribed to the master's publications");
                    pauses.reset();
                    let before = before.replace(Arc::clone(&session));
                    self.introduce(before.is_some_and(|it| !Arc::ptr_eq(&it, &session)));
                    let subscribed = Subscribed::new(self.channel.stats());
                    let error = self.receive(&mut publications).await;
                    drop(subscribed);
                    warn!("the publish connection broke: {error}");
                    self.channel.disconnect().await;
                }
                Err(error) => debug!("the publish port is not to be reached: {error}"),
            }
            tokio::time::sleep(pauses.pause()).await;
            session = self.channel.session().unwrap_or(session);
        }
    }

    /// Sends what the master has not got of this minion, by a task.
    fn introduce(&mut self, is_new_session: bool) {
        let mut introduction = std::mem::take(&mut self.introduction);
        introduction.grains |= self.lacks_grains.swap(false, Relaxed);
        introduction.grains |= self.renews_grains && is_new_session;
        if introduction != Introduction::default() {
            let grains = Arc::clone(&self.context.grains);
            let channel = Arc::clone(&self.channel);
            let lacks_grains = Arc::clone(&self.lacks_grains);
            let introducing = introduce(channel, grains, introduction, lacks_grains);
            self.tasks.spawn(introducing);
        }
    }

    async fn receive(&mut self, publications: &mut SubClient) -> ClientError {
        loop {
            tokio::select! {
                frames = publications.next() => match frames {
                    // With and without a topic, the payload stands last.
                    Ok(mut frames) => if let Some(payload) = frames.pop() {
                        self.take(payload).await;
                    },
                    Err(error) => return error,
                },
                Some(ended) = self.tasks.join_next(), if !self.tasks.is_empty() => {
                    if let Err(error) = ended {
                        error!("a job's task ended badly: {error}");
                    }
                }
            }
        }
    }

    async fn take(&mut self, payload: Bytes) {
        let Some(load) = self.channel.open(payload).await else {
            return;
        };
        let id = self.channel.id();
        let Some(publication) = Publication::read(&load, id, &self.context.grains) else {
            return;
        };
        if self.seen.contains(&publication.jid) {
            return;
        }
        self.channel.stats().note_publication();
        let jid = Some(publication.jid.as_str());
        self.channel.stats().note(What::Received, id, jid);
        if publication.is_probe() {
            self.channel.stats().note_probe(&publication.jid);
        }
        self.seen.push_back(publication.jid.clone());
        while self.seen.len() > self.channel.config().minion_jid_queue_hwm {
            self.seen.pop_front();
        }
        if self.context.jobs.len() >= MAX_JOBS {
            error!(jid = %publication.jid, "too many jobs at once; this one is not run");
            return;
        }
        let Some(job) = self
            .context
            .jobs
            .start(&publication.jid, publication.load.clone())
        else {
            return;
        };
        info!(jid = %publication.jid, fun = %publication.functions, "running a job");
        let work = Work {
            channel: Arc::clone(&self.channel),
            context: Arc::clone(&self.context),
            turns: Arc::clone(&self.turns),
            publication,
            job,
        };
        let delay = self.delay(&work.publication);
        if !delay.is_zero() {
            self.tasks.spawn(async move {
                tokio::time::sleep(delay).await;
                work.run().await;
            });
        } else if self.answer_at_once && work.publication.is_quick() {
            Box::pin(work.run()).await;
        } else {
            self.tasks.spawn(work.run());
        }
    }

    /// How much later than others this minion turns to a publication.
    fn delay(&self, publication: &Publication) -> Duration {
        match self.slow {
            Some(slow) if publication.is_probe() => slow.probes,
            Some(slow) if !publication.is_quick() => slow.jobs,
            _ => Duration::ZERO,
        }
    }
}

/// One running job.
struct Work {
    channel: Arc<Channel>,
    context: Arc<Context>,
    turns: Arc<Semaphore>,
    publication: Publication,
    job: Arc<RunningJob>,
}

impl Work {
    async fn run(self) {
        let jid = self.publication.jid.clone();
        if self
            .publication
            .load
            .get("start_event")
            .is_some_and(Value::is_truthy)
        {
            self.fire_start_event().await;
        }
        let outcome = tokio::select! {
            biased;
            () = self.job.stop.cancelled() => None,
            outcome = self.execute() => Some(outcome),
        };
        self.context.jobs.finish(&jid);
        match outcome {
            Some(outcome) => {
                let stats = self.channel.stats();
                stats.note(What::Executed, self.channel.id(), Some(&jid));
                self.send_return(outcome).await;
            }
            // As a stock job that was killed, it says nothing.
            None => info!(%jid, "a job was ended"),
        }
    }

    async fn execute(&self) -> Outcome {
        match &self.publication.functions {
            Functions::One(name, arguments) => self.call(name, arguments).await.into(),
            Functions::Several(calls) => {
                let (mut values, mut codes, mut successes) = (Vec::new(), Vec::new(), Vec::new());
                for (name, arguments) in calls {
                    let answer = self.call(name, arguments).await;
                    values.push((Value::from(name.as_str()), answer.value));
                    codes.push((Value::from(name.as_str()), Value::from(answer.retcode)));
                    successes.push((Value::from(name.as_str()), Value::from(answer.success)));
                }
                Outcome {
                    value: Value::Map(values),
                    retcode: Value::Map(codes),
                    success: Value::Map(successes),
                    out: None,
                }
            }
        }
    }

    async fn call(&self, name: &str, arguments: &[Value]) -> FunctionReturn {
        let at_once = functions::find(name).is_none_or(|function| function.quick);
        let _turn = match at_once {
            true => None,
            false => Some(
                self.turns
                    .acquire()
                    .await
                    .expect("invariant: it is never closed"),
            ),
        };
        functions::call(
            Arc::clone(&self.context),
            Arc::clone(&self.job),
            name,
            arguments,
        )
        .await
    }

    async fn send_return(&self, outcome: Outcome) {
        let config = self.channel.config();
        let jid = &self.publication.jid;
        let now = stamp(Compat::V3008, self.channel.clock().unix_micros());
        let fields = self
            .publication
            .return_fields(self.channel.id(), outcome, now);
        for attempt in 1..=config.return_retry_tries {
            let longest = config.return_retry_timer_max.max(config.return_retry_timer);
            let limit = between(config.return_retry_timer, longest);
            let begin = Instant::now();
            match self.channel.send(&fields, limit).await {
                Ok(_) => return self.channel.stats().note_return(begin.elapsed(), &fields),
                Err(error) => warn!(%jid, attempt, "a return was not taken: {error}"),
            }
        }
        error!(%jid, "the return of a job was given up");
    }

    async fn fire_start_event(&self) {
        let load = &self.publication.load;
        let mut data = vec![(Value::from("id"), Value::from(self.channel.id()))];
        for name in [
            "jid",
            "fun",
            "tgt",
            "tgt_type",
            "user",
            "master_id",
            "metadata",
        ] {
            if let Some(value) = load.get(name) {
                data.push((Value::from(name), value.clone()));
            }
        }
        let tag = format!(
            "salt/job/{}/start/{}",
            self.publication.jid,
            self.channel.id()
        );
        fire(&self.channel, &tag, Value::Map(data)).await;
    }
}
