//! Publication of a job to the minions: its load with the target as the user gave it, or with the
//! ids that this master resolved.

use saltern_base::trace;
use saltern_model::{MinionId, Target, TargetType};
use saltern_policy::acl::Whom;
use saltern_policy::expression::PlainWildcard;
use saltern_policy::target::Resolved;
use saltern_wire::msgpack::{Dialect, Encoder, Value};

use crate::Services;
use crate::outcome::{Publication, Topics};

/// Form in which the target of a job is sent to the minions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SentAs {
    /// The target as given: each minion evaluates it again and decides for itself.
    Target,
    /// The list of the minions that this master resolved: its decision holds, however a minion
    /// would evaluate the target.
    Ids,
    /// The target as given, by name alone: a wildcard that every minion reads as this master does,
    /// all of whose present and future matches the sender may target. Sent in place of a long list,
    /// and above syndics.
    Wildcard,
    /// The list of the one name that a wildcard target without wildcards is.
    Name,
}

/// The longest list of ids, in bytes, that is sent where a wildcard would be equivalent. Every
/// subscriber gets every publication, so its size is multiplied by the number of minions.
const MAX_LIST: usize = 4_096;

/// The entry of a stored load that records how the job was sent.
pub(crate) const SENT_AS: &str = "saltern_sent_as";

impl SentAs {
    /// For a sender whose rules name minions; `may` says whether they allow the job on others.
    ///
    /// It is the list, or a wildcard in its place. Minions below syndics are not known here, so above
    /// syndics names or a wildcard are sent as they are given; masters below apply the rules to them
    /// once more. `None` for what minions may read otherwise than this master: 3008's match all
    /// their resources by any expression, and those on Windows ignore case.
    pub(crate) fn of_limited(
        target: &Target,
        resolved: &Resolved,
        may: impl Fn(Whom<'_>) -> bool,
        services: &Services,
    ) -> Option<Self> {
        if resolved.may_mean_more {
            return None;
        }
        let wildcard = Self::wildcard(target, resolved, services);
        if wildcard.is_some_and(|pattern| may(Whom::Matching(&pattern))) {
            return Some(Self::Wildcard);
        }
        if !services.site.order_masters {
            return Some(Self::Ids);
        }
        match target {
            Target::List(_) | Target::Expression(TargetType::List, _) => Some(Self::Target),
            Target::Expression(TargetType::Glob, text) if is_one_name(text) => Some(Self::Name),
            _ => None,
        }
    }

    /// The wildcard of a target, when it may be sent in place of these minions to a sender allowed
    /// every match of it: the list is long or may lack minions below syndics, and each accepted
    /// minion reads it as this master did. A master above may have made it a compound target.
    fn wildcard(
        target: &Target,
        resolved: &Resolved,
        services: &Services,
    ) -> Option<PlainWildcard> {
        let Target::Expression(TargetType::Glob | TargetType::Compound, text) = target else {
            return None;
        };
        let bytes: usize = resolved.minions.iter().map(|id| id.as_str().len()).sum();
        if bytes <= MAX_LIST && !services.site.order_masters {
            return None;
        }
        let pattern = PlainWildcard::parse(text)?;
        let accepted = services.keys.pki.accepted().ok()?;
        let mut ids = accepted.sorted().iter();
        // 3008's minions match no resource by such a word, so a resource that is meant needs the
        // list.
        let has_resources = has_resources(&resolved.minions, services);
        let is_alike = !has_resources && ids.all(|id| pattern.is_read_alike_by(id.as_str()));
        is_alike.then_some(pattern)
    }

    /// Its mark in a stored load, if it has one.
    pub(crate) fn mark(self) -> Option<&'static str> {
        match self {
            Self::Target => None,
            Self::Ids => Some("ids"),
            Self::Wildcard => Some("wildcard"),
            Self::Name => Some("name"),
        }
    }

    /// How a stored job was sent.
    pub(crate) fn of_stored(load: &Value) -> Self {
        match load.get(SENT_AS).and_then(Value::as_str) {
            Some("ids") => Self::Ids,
            Some("wildcard") => Self::Wildcard,
            Some("name") => Self::Name,
            _ => Self::Target,
        }
    }
}

/// Builds the publication for these minions: the entries, with the ids in place of the target where
/// the job is sent as ids.
pub(crate) fn publication(
    mut entries: Vec<(Value, Value)>,
    target: &Target,
    (minions, sent_as): (&[MinionId], SentAs),
    services: &Services,
) -> Publication {
    if let Some((kind, tgt)) = in_place_of_target(target, minions, sent_as) {
        entries.retain(|(name, _)| !matches!(name.as_str(), Some("tgt" | "tgt_type")));
        entries.push(("tgt".into(), tgt));
        entries.push(("tgt_type".into(), kind.wire_name().into()));
    }
    let mut packed = Vec::new();
    let mut encoder = Encoder::new(&mut packed, Dialect::Raw);
    for (name, value) in &entries {
        encoder.value(name).value(value);
    }
    // A resource has no subscription of its own.
    let has_resources = has_resources(minions, services);
    let is_by_ids = match target.kind() {
        TargetType::Glob | TargetType::List | TargetType::Pcre => true,
        _ => sent_as != SentAs::Target,
    };
    let topics = match is_by_ids && !has_resources {
        true => Topics::Minions(minions.to_vec()),
        false => Topics::Broadcast,
    };
    Publication {
        entries: entries.len(),
        packed: packed.into(),
        topics,
        trace: trace::current(),
    }
}

/// The target as minions get it, where it differs from the one given. A wildcard becomes a compound
/// target of one word: 3008's minions also match all their resources, whatever their names, by a
/// plain wildcard (`_resolve_resource_targets` in `salt/minion.py`).
fn in_place_of_target(
    target: &Target,
    minions: &[MinionId],
    sent_as: SentAs,
) -> Option<(TargetType, Value)> {
    match (sent_as, target) {
        (SentAs::Target, _) => None,
        (SentAs::Wildcard, Target::Expression(TargetType::Glob | TargetType::Compound, text)) => {
            Some((TargetType::Compound, text.as_str().into()))
        }
        (SentAs::Name, Target::Expression(TargetType::Glob, text)) => {
            Some((TargetType::List, Value::Array(vec![text.as_str().into()])))
        }
        (SentAs::Ids | SentAs::Wildcard | SentAs::Name, _) => {
            let ids = minions.iter().map(|id| id.as_str().into());
            Some((TargetType::List, Value::Array(ids.collect())))
        }
    }
}

/// Whether a wildcard target is the name of one minion. By a comma 3008's master means several.
fn is_one_name(text: &str) -> bool {
    !text.contains(['*', '?', '[', ','])
}

/// Whether some of these are resources, or not certainly minions.
fn has_resources(minions: &[MinionId], services: &Services) -> bool {
    services.keys.pki.accepted().is_ok_and(|accepted| {
        let mut minions = minions.iter();
        !minions.all(|id| accepted.contains(id.as_str()))
    })
}
