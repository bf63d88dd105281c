//! `mk_token`, clear: a user logs in and gets a token (`LoadAuth.mk_token` in
//! `salt/auth/__init__.py`).

use std::time::Duration;

use saltern_store::{Claims, Token};
use saltern_wire::msgpack::Value;

use crate::credentials::{LoggedIn, NotProved};
use crate::refusal_log::excerpt;
use crate::rules::ExpireOverride;
use crate::{Context, Outcome, Users, reply};

/// The longest lifetime that a user may ask for; more would overflow a clock.
const MAX_TOKEN_LIFETIME: Duration = Duration::from_secs(10 * 365 * 86_400);

/// Answers with the token, or with an empty text.
pub(crate) fn handle(
    load: &Value,
    known: Result<LoggedIn, NotProved>,
    context: &Context,
    users: &Users,
) -> Outcome {
    if let Err(refused) = &known {
        refuse(load, &refused.why, context);
        return Outcome::refused(nothing().reply, refused.why.as_str());
    }
    match make(load, known, context, users) {
        Some(token) => Outcome::reply(reply::clear(token.to_value())),
        None => Outcome::refused(nothing().reply, "no token was made"),
    }
}

/// Makes a token for a user who logs in; on failure logs why and returns `None`.
pub(crate) fn make(
    load: &Value,
    known: Result<LoggedIn, NotProved>,
    context: &Context,
    users: &Users,
) -> Option<Token> {
    let known = match known {
        Ok(known) => known,
        Err(refused) => {
            refuse(load, &refused.why, context);
            return None;
        }
    };
    let Some(lasts) = lasts(load, &known, users) else {
        refuse(load, "\"token_expire\" is no number of seconds", context);
        return None;
    };
    // A Python module is asked for its rules here and not again with each request.
    let site_rules = users.rules();
    let is_in_python = site_rules.external_auth.is_in_python(&known.eauth);
    let auth_list = site_rules.keep_acl_in_token || is_in_python;
    let auth_list = auth_list.then(|| known.rules(users).to_value());
    let made = users.tokens.create(Claims {
        auth_list,
        lasts,
        name: known.name,
        eauth: known.eauth,
        groups: known.groups,
    });
    match made {
        Ok(token) => {
            tracing::info!(
                user = token.name(),
                eauth = token.eauth(),
                "a token was made"
            );
            Some(token)
        }
        Err(error) => {
            tracing::error!(%error, "a token cannot be kept");
            None
        }
    }
}

fn refuse(load: &Value, why: &str, context: &Context) {
    let user = load.get("username").and_then(Value::as_str).unwrap_or("?");
    let user = excerpt(user);
    complain!(context, cmd = "mk_token", user, why, "request refused");
    context.metrics.refuse("mk_token");
}

/// Stock's answer to an unknown user.
pub(crate) fn nothing() -> Outcome {
    Outcome::reply(reply::clear(&Value::from("")))
}

/// The lifetime of the token: the requested one where the site allows requests. `None` when the
/// request cannot be granted.
fn lasts(load: &Value, known: &LoggedIn, users: &Users) -> Option<Duration> {
    let rules = users.rules();
    let may_wish = match &rules.token_expire_override {
        ExpireOverride::Nobody => false,
        ExpireOverride::Everybody => true,
        ExpireOverride::Listed(lists) => lists
            .iter()
            .filter(|(eauth, _)| *eauth == known.eauth)
            .any(|(_, users)| users.contains(&known.name)),
    };
    match load.get("token_expire").filter(|_| may_wish) {
        None => Some(rules.token_expire),
        Some(wish) => Duration::try_from_secs_f64(wish.as_f64()?)
            .ok()
            .filter(|wish| *wish <= MAX_TOKEN_LIFETIME),
    }
}
