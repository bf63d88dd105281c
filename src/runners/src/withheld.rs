//! Functions of stock that this master refuses to run for anyone.
//!
//! A name that is not built in goes to Python, which would have these: so they are looked up by
//! name before. A site's own module of such a name is not run either.

use saltern_config::MasterConfig;

use crate::registry::Kind;

const CONFIGURATION: &str = "who writes the configuration may do anything on this machine (saltern_config_wheels allows it)";

/// Each with the reason.
const WITHHELD: [(Kind, &str, &str); 7] = [
    (Kind::Runner, "cache.cloud", "it takes salt-cloud"),
    (
        Kind::Runner,
        "cache.migrate",
        "the cache of this master is its own",
    ),
    (
        Kind::Runner,
        "mine.update",
        "it publishes jobs with the rights of the master",
    ),
    (Kind::Wheel, "config.apply", CONFIGURATION),
    (Kind::Wheel, "config.update_config", CONFIGURATION),
    (Kind::Wheel, "key.gen_keys", "use salt-key on the master"),
    (
        Kind::Wheel,
        "key.gen_signature",
        "use salt-key on the master",
    ),
];

/// Why this configuration withholds the function, if it does.
pub(crate) fn reason_with(config: &MasterConfig, kind: Kind, fun: &str) -> Option<&'static str> {
    let reason = reason(kind, fun)?;
    let is_allowed = reason == CONFIGURATION && config.saltern_config_wheels;
    (!is_allowed).then_some(reason)
}

/// Why the function is withheld by default, if it is.
pub(crate) fn reason(kind: Kind, fun: &str) -> Option<&'static str> {
    let mut functions = WITHHELD.iter();
    let (.., reason) = functions.find(|(of, name, _)| (*of, *name) == (kind, fun))?;
    Some(reason)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TestSite;

    #[test]
    fn withheld_function_is_not_run_by_python() {
        let site = TestSite::with_bridge("python_bridge: False");
        let run = |kind, fun: &str| {
            let (ran, _) = match kind {
                Kind::Runner => site.runner(fun, &[], &[]),
                Kind::Wheel => site.wheel(fun, &[]),
            };
            assert!(!ran.success, "{fun}");
            ran.value.as_str().expect("it is a text").to_owned()
        };
        for (kind, fun, reason) in WITHHELD {
            let expected = format!(
                "Exception occurred in {} {fun}: '{fun}' is not available on this master: {reason}",
                kind.name()
            );
            assert_eq!(run(kind, fun), expected);
        }
        // All others go to Python.
        for (kind, fun) in [(Kind::Runner, "key.gen_keys"), (Kind::Wheel, "no.such")] {
            assert!(run(kind, fun).contains("\"python_bridge\""), "{fun}");
        }
    }
}
