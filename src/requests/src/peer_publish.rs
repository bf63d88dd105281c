//! `minion_pub` and `minion_publish`: a minion has the master start a job on other minions, as far
//! as the option `peer` allows (`AESFuncs` in `salt/master.py`, `RemoteFuncs` in
//! `salt/daemons/masterapi.py`).
//!
//! The first answers with the job's id, and the minion then asks for the returns (`pub_ret`); the
//! second answers with the returns. The publisher is the minion of the channel, whatever the load
//! claims. The rules are applied to what the minions will receive: functions one by one, arguments
//! as they are parsed, the target as it is resolved. A job that publishes in its turn is refused.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use saltern_model::{Jid, MinionId, Target, TargetType};
use saltern_policy::acl::{AskedJob, Whom};
use saltern_policy::matching::MatchOptions;
use saltern_policy::target::Resolved;
use saltern_wire::msgpack::{Dialect, Value, decode_wire, pack};
use serde::Serialize;

use crate::audit::AuditNote;
use crate::envelope::{LOAD_LIMITS, ReplyEncryption, Sealed};
use crate::job::{self, Recipients, Request, SentAs, load};
use crate::outcome::{JobRelation, PeerCall, PeerCallWork, StartJob};

use crate::{Effect, Finished, Later, Outcome, Services, pub_ret, targets, typed_arguments};

/// The longest wait of a minion. Stock's minion repeats the request after a minute
/// (`salt/channel/client.py`), which would start the job, or run the function, a second time.
pub(crate) const MAX_WAIT: Duration = Duration::from_secs(55);

/// The commands, named as on the wire.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum PeerPublish {
    /// Answers with the job's id.
    Begin,
    /// Answers with the returns.
    Wait,
}

/// Error of a job that is not started.
enum Refused {
    /// The rules do not allow it, or something is missing: stock answers with an empty map.
    NotAllowed(&'static str),
    /// Stock's handler would have raised: its answer is an empty text.
    Failed(&'static str),
}

/// Starts the job, or answers with a refusal.
pub(crate) fn handle(command: PeerPublish, sealed: Sealed, services: &Arc<Services>) -> Outcome {
    let wish = decode_wire(&sealed.load.pack(), &LOAD_LIMITS)
        .map_err(|_| Refused::Failed("the load cannot be decoded"))
        .and_then(|load| PeerJob::read(&load, services).map(|wish| (load, wish)));
    let started = wish.and_then(|(load, wish)| {
        let sent_as = wish.check(&sealed.minion, services)?;
        let wish = wish.without_syndics(sent_as, services);
        match command {
            PeerPublish::Begin => wish.begin(&sealed, services),
            PeerPublish::Wait => wish.wait(&load, &sealed, services),
        }
    });
    started.unwrap_or_else(|refused| refusal(&refused, &sealed, services))
}

fn refusal(refused: &Refused, sealed: &Sealed, services: &Services) -> Outcome {
    let cmd = sealed.command_name();
    let (reason, answer) = match refused {
        Refused::NotAllowed(reason) => (reason, Value::Map(Vec::new())),
        Refused::Failed(reason) => (reason, Value::from("")),
    };
    services.metrics.refuse("peer");
    complain!(services, cmd, minion = %sealed.minion, reason, "request refused");
    Outcome::refused(seal(&sealed.answer, &answer), *reason)
}

fn seal(answer: &ReplyEncryption, value: &impl Serialize) -> Bytes {
    answer.seal(&pack(value, Dialect::Raw))
}

/// Answer to a peer that does not wait for returns.
#[derive(Serialize)]
struct Begun<'a> {
    jid: PeerJid<'a>,
    minions: &'a [MinionId],
}

#[derive(Serialize)]
#[serde(untagged)]
enum PeerJid<'a> {
    /// Stock's for no job: 0.
    None(u8),
    Some(&'a Jid),
}

/// Target of a peer's job.
struct PeerTarget {
    /// The target as it is resolved here.
    target: Target,
    /// The target as it is sent to the minions.
    tgt: Value,
    kind: TargetType,
}

/// Job that a minion asks for.
struct PeerJob {
    functions: Vec<String>,
    /// The arguments as minions get them: of several functions, a list for each.
    arguments: Vec<Value>,
    aim: PeerTarget,
    ret: String,
    resolved: Resolved,
    sent_as: SentAs,
}

impl PeerJob {
    fn read(load: &Value, services: &Services) -> Result<Self, Refused> {
        let part = |name| {
            let part = load.get(name);
            part.ok_or(Refused::NotAllowed("the request is incomplete"))
        };
        let (fun, arg, tgt, ret) = (part("fun")?, part("arg")?, part("tgt")?, part("ret")?);
        if services.users.rules().peers.is_empty() {
            return Err(Refused::NotAllowed("no minion may publish"));
        }
        let fun = fun.as_str();
        let fun = fun.ok_or(Refused::Failed("the function is no text"))?;
        let functions: Vec<String> = fun.split(',').map(str::to_owned).collect();
        let arg = arg.as_array();
        let arg = arg.ok_or(Refused::Failed("the arguments are no list"))?;
        let arguments = match functions.len() {
            1 => typed_arguments(arg.iter().cloned(), &verbatim(load)),
            // The lists of several functions are split at spaces and not read as YAML.
            _ => arg
                .iter()
                .map(words)
                .collect::<Option<_>>()
                .ok_or(Refused::Failed(
                    "the arguments of several functions are no texts",
                ))?,
        };
        if functions.len() > 1 && functions.len() != arguments.len() {
            return Err(Refused::Failed("not every function has its arguments"));
        }
        let aim = aim(tgt, load.get("tgt_type"), services)?;
        let nothing = Value::Map(Vec::new());
        let options = job::match_options(&nothing, &functions);
        let resolved = job::resolve_with(&aim.target, &options, services)
            .map_err(|_| Refused::Failed("the accepted keys cannot be listed"))?;
        let ret = ret.as_str();
        let ret = ret.ok_or(Refused::Failed("the returner is no text"))?;
        Ok(Self {
            functions,
            arguments,
            aim,
            ret: job::with_job_cache(ret, services),
            resolved,
            sent_as: SentAs::Target,
        })
    }

    /// Whether this minion may have it, and how it is then sent.
    fn check(&self, minion: &MinionId, services: &Services) -> Result<SentAs, Refused> {
        let publishes = |function: &String| function.trim().starts_with("publish");
        if self.functions.iter().any(publishes) {
            return Err(Refused::NotAllowed("the job would publish in its turn"));
        }
        if self.aim.may_compare_pillars() && !self.is_exact(services) {
            return Err(Refused::NotAllowed(
                "the target compares pillars otherwise than exactly",
            ));
        }
        let arguments = Value::Array(self.arguments.clone());
        let rules = services.users.rules().peers.rules_of(minion);
        let allows = |minions: Whom<'_>| {
            let job = AskedJob {
                functions: &self.functions,
                in_list: self.functions.len() > 1,
                arguments: &arguments,
                minions,
            };
            let minions_of = |target: &str| targets::of_rule(services, target);
            services.users.acl.allows_peer(&rules, &job, minions_of)
        };
        if !allows(Whom::These(&self.resolved.minions)) {
            return Err(Refused::NotAllowed("the option \"peer\" does not allow it"));
        }
        // A range is expanded, so it is sent as ids in any case.
        if allows(Whom::Anybody) || self.aim.kind == TargetType::Range {
            return Ok(SentAs::Target);
        }
        let sent_as = SentAs::of_limited(&self.aim.target, &self.resolved, allows, services);
        sent_as.ok_or(Refused::NotAllowed(
            "the minions of the target are not certain, and the option \"peer\" allows it for some",
        ))
    }

    /// The job to publish once it is allowed.
    fn without_syndics(mut self, sent_as: SentAs, services: &Services) -> Self {
        self.sent_as = sent_as;
        self.resolved = job::without_syndics(self.resolved, services);
        self.aim.write_out_range(&self.resolved);
        self
    }

    /// Whether the target matches no more minions than it would if pillars were compared exactly.
    fn is_exact(&self, services: &Services) -> bool {
        let options = MatchOptions {
            exact_pillar: true,
            ..MatchOptions::default()
        };
        let exact = targets::resolve(services, &self.aim.target, &options);
        exact.is_ok_and(|exact| {
            let is_there = |id| exact.minions.contains(id);
            self.resolved.minions.iter().all(is_there)
        })
    }

    /// Whether the job has no recipient. Minions below syndics are not known here.
    fn means_nobody(&self, services: &Services) -> bool {
        self.resolved.minions.is_empty() && !services.site.order_masters
    }

    fn begin(self, sealed: &Sealed, services: &Services) -> Result<Outcome, Refused> {
        if self.means_nobody(services) {
            let no_job = Begun {
                jid: PeerJid::None(0),
                minions: &[],
            };
            return Ok(Outcome::reply(seal(&sealed.answer, &no_job)));
        }
        let jid = services.minter.mint();
        let reply = seal(
            &sealed.answer,
            &Begun {
                jid: PeerJid::Some(&jid),
                minions: &self.resolved.minions,
            },
        );
        let start = self.start(jid, &sealed.minion, services)?;
        Ok(Outcome {
            reply,
            reply_if_not_stored: seal(&sealed.answer, &Value::from("")),
            effects: vec![Effect::StartJob(Box::new(start))],
            later: None,
            audit: AuditNote::default(),
        })
    }

    fn wait(
        self,
        load: &Value,
        sealed: &Sealed,
        services: &Arc<Services>,
    ) -> Result<Outcome, Refused> {
        let wait = patience(load, services)?;
        let form = match load.get("form").and_then(Value::as_str) {
            Some("full") => pub_ret::Form::Full,
            _ => pub_ret::Form::Clean,
        };
        if self.means_nobody(services) {
            return Err(Refused::Failed("the target matches no minion"));
        }
        let jid = services.minter.mint();
        let failed = seal(&sealed.answer, &Value::from(""));
        let (answer, about) = (sealed.answer.clone(), jid.clone());
        let start = self.start(jid, &sealed.minion, services)?;
        let services = Arc::clone(services);
        let returned = move || {
            let returned = pub_ret::returned(&about, form, &services);
            Finished {
                reply: seal(&answer, &returned.unwrap_or_else(|| Value::from(""))),
                events: Vec::new(),
            }
        };
        let call = PeerCall {
            minion: sealed.minion.clone(),
            wait,
            work: PeerCallWork::Job {
                start: Box::new(start),
                returned: Later::new(returned),
            },
        };
        Ok(Outcome {
            reply: failed.clone(),
            reply_if_not_stored: failed,
            effects: vec![Effect::RunPeerCall(Box::new(call))],
            later: None,
            audit: AuditNote::default(),
        })
    }

    /// The job as the master's own client would publish it. Syndics get the rules of the minion
    /// along: below them they hold as they do here.
    fn start(self, jid: Jid, minion: &MinionId, services: &Services) -> Result<StartJob, Refused> {
        let fun = match self.functions.as_slice() {
            [one] => Value::from(one.as_str()),
            several => Value::Array(several.iter().map(|one| one.as_str().into()).collect()),
        };
        let load = Value::map([
            ("cmd", Value::from("publish")),
            ("tgt", self.aim.tgt),
            ("fun", fun),
            ("arg", Value::Array(self.arguments)),
            ("tgt_type", self.aim.kind.wire_name().into()),
            ("ret", self.ret.as_str().into()),
            ("jid", "".into()),
            ("kwargs", Value::map([("id", minion.as_str())])),
            ("user", services.config.user.as_str().into()),
        ]);
        let rights = services.users.rules().peers.rules_of(minion).to_value();
        let load = &*load::with_rights(&load, rights, services);
        let request = Request::read(load, services.config.salt_compat)
            .map_err(|_| Refused::Failed("the job cannot be published"))?;
        if request.is_barred(&services.users) {
            return Err(Refused::Failed("\"publisher_acl_blacklist\" bars it"));
        }
        let recipients = Recipients::own(self.resolved, self.sent_as);
        let target = &self.aim.target;
        let mut start = job::job(load, &request, target, jid, recipients, services);
        start.publisher = Some(minion.clone());
        // Answers to waiting clients' probes go to them alone; this one's returns are kept.
        start.about = start
            .about
            .filter(|about| !matches!(about, JobRelation::Running(_)));
        Ok(start)
    }
}

impl PeerTarget {
    fn may_compare_pillars(&self) -> bool {
        use TargetType::{Compound, Pillar, PillarExact, PillarPcre};
        let kind = self.target.kind();
        matches!(kind, Pillar | PillarPcre | PillarExact | Compound)
    }

    /// Minions usually cannot resolve ranges: they get the names.
    fn write_out_range(&mut self, resolved: &Resolved) {
        if self.kind == TargetType::Range {
            self.kind = TargetType::List;
            self.tgt = job::names(resolved);
        }
    }
}

/// Reads a target. Pillars are compared exactly by the minions too, and nodegroups are written out
/// for them.
fn aim(tgt: &Value, tgt_type: Option<&Value>, services: &Services) -> Result<PeerTarget, Refused> {
    const UNUSABLE: Refused = Refused::NotAllowed("the target cannot be used");
    let name = tgt_type.map_or(Some("glob"), Value::as_str);
    let name = name.ok_or(Refused::Failed("the type of the target is no text"))?;
    let words = if name.starts_with("node") {
        Some(vec![format!("N@{}", tgt.as_str().ok_or(UNUSABLE)?)])
    } else {
        None
    };
    let target = match &words {
        Some(words) => Some(Target::Words(words.clone())),
        None => targets::of_load(tgt, tgt_type, services.config.salt_compat),
    };
    let target = target.ok_or(UNUSABLE)?;
    let words = match &target {
        Target::Words(words) => Some(words.clone()),
        Target::Expression(TargetType::Compound, text) => {
            Some(text.split_whitespace().map(str::to_owned).collect())
        }
        _ => None,
    };
    if let Some(words) = words {
        let words = services.targeting.without_nodegroups(&words);
        let words = words
            .ok()
            .filter(|words| !words.is_empty())
            .ok_or(UNUSABLE)?;
        return Ok(PeerTarget {
            tgt: words.join(" ").as_str().into(),
            kind: TargetType::Compound,
            target: Target::Words(words),
        });
    }
    let kind = match target.kind() {
        TargetType::Pillar | TargetType::PillarPcre => TargetType::PillarExact,
        other => other,
    };
    Ok(PeerTarget {
        target,
        tgt: tgt.clone(),
        kind,
    })
}

/// The names of the arguments that are not read as YAML (`no_parse`).
pub(crate) fn verbatim(load: &Value) -> Vec<&str> {
    let names = load.get("no_parse").and_then(Value::as_array);
    let names = names.unwrap_or_default().iter();
    names.filter_map(Value::as_str).collect()
}

fn words(text: &Value) -> Option<Value> {
    let words = text.as_str()?.split_whitespace().map(Value::from);
    Some(Value::Array(words.collect()))
}

/// The wait that the minion asks for: `timeout`, else `tmo`, else the site's default for clients.
fn patience(load: &Value, services: &Services) -> Result<Duration, Refused> {
    const NO_NUMBER: &str = "the timeout is no number";
    let given = load.get("timeout").or_else(|| load.get("tmo"));
    let seconds = match given {
        None => return Ok(services.site.client_timeout.min(MAX_WAIT)),
        Some(Value::Str(text)) => {
            let number: Option<f64> = text.trim().parse::<i64>().ok().map(|number| number as f64);
            number.ok_or(Refused::NotAllowed(NO_NUMBER))?
        }
        Some(number) => number.as_f64().ok_or(Refused::Failed(NO_NUMBER))?,
    };
    let wait = Duration::try_from_secs_f64(seconds.max(0.0)).unwrap_or(MAX_WAIT);
    Ok(wait.min(MAX_WAIT))
}
