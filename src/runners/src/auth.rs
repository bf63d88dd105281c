//! `auth.*`: tokens of users who log in (`salt/runners/auth.py`).
//!
//! The process that runs the function authenticates the user ([`Notices::log_in`]).

use saltern_wire::msgpack::Value;

use crate::call::{Bound, CallResult, Function, Parameter, function};
use crate::notices::Notices;
use crate::registry::RunnerContext;
use Parameter::{Keywords, Needed};

/// The functions of the module.
pub(crate) const FUNCTIONS: &[Function] = &[
    function("del_token", &[Needed("token")], del_token),
    function("mk_token", &[Keywords], mk_token),
];

/// Returns the user's token; an empty text for an unknown user.
fn mk_token(_: &RunnerContext, bound: &Bound<'_>, notices: &mut Notices<'_>) -> CallResult {
    let load = Value::map(
        bound
            .own_keywords()
            .map(|(name, value)| (name, value.clone())),
    );
    notices.log_in(&load)
}

fn del_token(context: &RunnerContext, bound: &Bound<'_>, _: &mut Notices<'_>) -> CallResult {
    let token = bound.text("token")?.unwrap_or_default();
    Ok(context.master()?.tokens.remove(&token)?.into())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use saltern_model::Compat;
    use saltern_store::Claims;

    use super::*;
    use crate::testing::TestSite;

    #[test]
    fn del_token_revokes_a_token_once() {
        for compat in Compat::ALL {
            let site = TestSite::new(compat, "");
            let tokens = &site.master().tokens;
            let token = tokens.create(Claims {
                name: "ana".to_owned(),
                eauth: "pam".to_owned(),
                groups: Vec::new(),
                auth_list: None,
                lasts: Duration::from_secs(60),
            });
            let token = token.unwrap().to_value().get("token").unwrap().clone();
            let delete =
                |name: &Value| site.runner_value("auth.del_token", std::slice::from_ref(name), &[]);
            assert_eq!(delete(&"../pki/master.pem".into()), false.into());
            assert_eq!(delete(&token), true.into());
            assert_eq!(delete(&token), false.into());
            assert!(site.path("pki/master.pem").exists());
        }
    }

    #[test]
    fn mk_token_without_login_backend_is_refused() {
        let site = TestSite::new(Compat::V3008, "");
        let named = [("username", "ana".into()), ("password", "secret".into())];
        let (ran, notices) = site.runner("auth.mk_token", &[], &named);
        assert!(!ran.success && notices.is_empty());
        assert!(!ran.value.as_str().unwrap().contains("secret"));
    }
}
