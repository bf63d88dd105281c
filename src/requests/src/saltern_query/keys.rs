//! `keys.page`: keys of minions with fingerprint, age and last sign of their minions.

use bytes::Bytes;
use saltern_crypto::{HashType, pem_finger};
use saltern_model::query::{KeyRow, KeysPage};
use saltern_model::{KeyState, MinionId};

use super::arguments::QueryArguments;
use super::{QueryError, answer};
use crate::{MasterFleet, Services};

const STATES: [(&str, KeyState); 4] = [
    ("accepted", KeyState::Accepted),
    ("pending", KeyState::Pending),
    ("rejected", KeyState::Rejected),
    ("denied", KeyState::Denied),
];

pub(super) fn page(
    arguments: &QueryArguments<'_>,
    services: &Services,
) -> Result<Bytes, QueryError> {
    let pattern = arguments.glob("match")?;
    let state = arguments.one_of("state", &STATES)?;
    let after = arguments.text("after")?;
    let limit = arguments.rows()?;
    let mut found: Vec<(MinionId, &str, KeyState)> = Vec::new();
    for (word, known) in STATES {
        if state.is_some_and(|state| state != known) {
            continue;
        }
        let ids = services.keys.pki.list(known)?.into_iter();
        let is_meant = |id: &MinionId| {
            after.is_none_or(|after| id.as_str() > after)
                && pattern
                    .as_ref()
                    .is_none_or(|pattern| pattern.matches(id.as_str()))
        };
        found.extend(ids.filter(is_meant).map(|id| (id, word, known)));
    }
    found.sort_by(|(one, ..), (other, ..)| one.cmp(other));
    // The cursor is an id, so all keys of one stand on one page.
    let last = found
        .get(limit.saturating_sub(1))
        .map(|(id, ..)| id.clone());
    let end = match &last {
        Some(last) => found.partition_point(|(id, ..)| id <= last),
        None => found.len(),
    };
    let has_more = end < found.len();
    found.truncate(end);
    let fleet = MasterFleet::of_services(services);
    let rows = found.into_iter().map(|key| row(key, &fleet, services));
    Ok(answer(&KeysPage {
        keys: rows.collect::<Result<_, _>>()?,
        next: last.filter(|_| has_more).map(|last| last.to_string()),
    }))
}

fn row(
    (minion, word, state): (MinionId, &str, KeyState),
    fleet: &MasterFleet,
    services: &Services,
) -> Result<KeyRow, QueryError> {
    let pki = &services.keys.pki;
    let pem = pki.stored_pem(&minion, state)?;
    let hash_type = HashType::from_name(services.config.hash_type.name());
    let finger = pem.zip(hash_type);
    let finger = finger.and_then(|(pem, hash_type)| pem_finger(pem.as_bytes(), hash_type).ok());
    let written = pki
        .version(&minion, state)?
        .map(|version| version.modified_micros());
    let seen = (state == KeyState::Accepted).then(|| fleet.seen(minion.clone()));
    Ok(KeyRow {
        state: word.to_owned(),
        fingerprint: finger,
        written,
        last_heard: seen.as_ref().and_then(|seen| seen.last_heard),
        address: match &seen {
            Some(seen) => seen.address.map(|address| address.to_string()),
            None => services.keys.admission.origin(&minion, state),
        },
        is_present: seen.map(|seen| seen.is_present),
        minion,
    })
}
