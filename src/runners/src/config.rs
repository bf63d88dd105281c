//! `config.get`: an option of the master (`salt/runners/config.py`).
//!
//! Secrets and this master's own options are not among them, and addresses that begin with
//! `sdb://` are not looked up.

use saltern_content::pillar::master_options;
use saltern_content::render::modules::traverse;

use crate::call::{Bound, CallResult, Function, Parameter, RunnerError, function};
use crate::notices::Notices;
use crate::registry::RunnerContext;
use Parameter::{Needed, Optional};

/// The functions of the module.
pub(crate) const FUNCTIONS: &[Function] = &[function(
    "get",
    &[Needed("key"), Optional("default"), Optional("delimiter")],
    get,
)];

fn get(context: &RunnerContext, bound: &Bound<'_>, _: &mut Notices<'_>) -> CallResult {
    let key = bound.text("key")?.unwrap_or_default();
    let delimiter = bound.text("delimiter")?.unwrap_or_else(|| ":".to_owned());
    let options = master_options(&context.config);
    match traverse(&options, &key, &delimiter) {
        None => Ok(bound.get("default").cloned().unwrap_or_else(|| "".into())),
        Some(value) if value.as_str().is_some_and(|it| it.starts_with("sdb://")) => {
            let text = format!("\"{key}\" is an address that begins with \"sdb://\"");
            Err(RunnerError::Refused(format!(
                "{text}, and is not looked up"
            )))
        }
        Some(value) => Ok(value.clone()),
    }
}

#[cfg(test)]
mod tests {
    use saltern_model::Compat;
    use saltern_wire::msgpack::Value;

    use crate::testing::{TestSite, list};

    #[test]
    fn options_are_found_by_their_paths() {
        let site = TestSite::new(
            Compat::V3008,
            "peer: {'.*': [test.ping]}\nkey_pass: secret\nsharedsecret: secret\n",
        );
        let get = |key: &str, more: &[(&str, Value)]| {
            site.runner_value("config.get", &[key.into()], more)
        };
        assert_eq!(get("id", &[]), "host_master".into());
        assert_eq!(get("peer:.*", &[]), list(&["test.ping"]));
        assert_eq!(
            get("peer,.*", &[("delimiter", ",".into())]),
            list(&["test.ping"])
        );
        assert_eq!(get("peer:none", &[("default", 5.into())]), 5.into());
        assert_eq!(get("none", &[]), "".into());
        assert_eq!(get("key_pass", &[]), Value::Nil);
        assert_eq!(get("sharedsecret", &[]), "".into());
    }
}
