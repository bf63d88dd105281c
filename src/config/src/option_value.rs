//! The options whose form belongs to the part that uses them: each is a method that bears its name.
//!
//! Such a part parses the value when it is opened, and says what is wrong with it (the file server of
//! its roots, the reactor of its rules). Of flags and texts there is only one reading, so it is here.
//! All others are fields of [`MasterConfig`] and [`Followed`].

use crate::followed::Followed;
use crate::master::MasterConfig;
use crate::options;
use crate::yaml::{Mapping, Node};

/// The value of an option, with its name for messages.
#[derive(Clone, Copy)]
pub struct OptionValue<'a> {
    name: &'static str,
    written: Option<&'a Node>,
    default: Option<&'a Node>,
}

impl<'a> OptionValue<'a> {
    /// The name of the option.
    pub fn name(self) -> &'static str {
        self.name
    }

    /// The value as it was written in a file.
    pub fn written(self) -> Option<&'a Node> {
        self.written
    }

    /// The value as it was written, else the default; `None` if there is neither.
    pub fn node(self) -> Option<&'a Node> {
        self.written.or(self.default)
    }

    /// Whether Python would call the value true.
    pub fn is_set(self) -> bool {
        self.node().is_some_and(Node::is_truthy)
    }

    /// The text, if the value is one.
    pub fn as_str(self) -> Option<&'a str> {
        self.node().and_then(Node::as_str)
    }

    /// The flag, if the value is one.
    pub fn as_bool(self) -> Option<bool> {
        self.node().and_then(Node::as_bool)
    }

    /// The whole number, if the value is one.
    pub fn as_i64(self) -> Option<i64> {
        self.node().and_then(Node::as_i64)
    }

    /// The number, if the value is one.
    pub fn as_f64(self) -> Option<f64> {
        self.node().and_then(Node::as_f64)
    }

    /// The items, if the value is a list.
    pub fn as_seq(self) -> Option<&'a [Node]> {
        self.node().and_then(Node::as_seq)
    }

    /// The mapping, if the value is one.
    pub fn as_map(self) -> Option<&'a Mapping> {
        self.node().and_then(Node::as_map)
    }

    /// The texts among the items, if the value is a list.
    pub fn texts(self) -> impl Iterator<Item = &'a str> {
        let items = self.as_seq().unwrap_or_default();
        items.iter().filter_map(Node::as_str)
    }
}

/// The name of an option: that of its method, unless it is given.
macro_rules! name {
    ($method:ident) => {
        stringify!($method)
    };
    ($method:ident $name:literal) => {
        $name
    };
}

/// A method for each option.
macro_rules! methods {
    (
        $of:ty;
        flags: $($flag:ident)*;
        texts: $($text:ident $(= $text_name:literal)?),*;
        values: $($value:ident)*;
    ) => {
        impl $of {
            $(
                #[doc = concat!("Whether `", stringify!($flag), "` is on: a value that Python calls true.")]
                pub fn $flag(&self) -> bool {
                    self.value(stringify!($flag)).is_set()
                }
            )*
            $(
                #[doc = concat!("The text of `", name!($text $($text_name)?), "`, if it is one.")]
                pub fn $text(&self) -> Option<&str> {
                    self.value(name!($text $($text_name)?)).as_str()
                }
            )*
            $(
                #[doc = concat!("The value of `", stringify!($value), "`.")]
                pub fn $value(&self) -> OptionValue<'_> {
                    self.value(stringify!($value))
                }
            )*

            /// The options that have a method here.
            #[cfg(test)]
            pub(crate) const METHODS: &'static [&'static str] = &[
                $(stringify!($flag),)*
                $(name!($text $($text_name)?),)*
                $(stringify!($value),)*
            ];
        }
    };
}

methods! {
    MasterConfig;
    flags:
        enforce_mine_cache ext_pillar_first file_recv fileserver_events fileserver_followsymlinks
        fileserver_ignoresymlinks git_pillar_includes gpg_decrypt_must_succeed minion_data_cache
        order_masters pillar_cache pillar_includes_override_sls pillar_merge_lists pillar_opts
        pillar_safe_render_error pillarenv_from_saltenv preserve_minion_cache proxy_host
        runner_returns;
    texts:
        ca_bundle, default_include, ext_job_cache, extension_modules, key_cache, master_id,
        pillar_cache_backend, signing_algorithm;
    values:
        clean_dynamic_modules default_top engines env_order exclude_ext_pillar ext_pillar
        extmod_blacklist extmod_whitelist failhard file_buffer_size file_ignore_glob
        file_ignore_regex file_recv_max_size file_roots fileserver_backend
        fileserver_list_cache_time gitfs_remotes gitfs_saltenv gpg_keydir http_connect_timeout
        http_max_body http_request_timeout jinja_env jinja_lstrip_blocks jinja_sls_env
        jinja_trim_blocks master_tops mine_get minion_data_cache_events minionfs_blacklist
        minionfs_env minionfs_mountpoint minionfs_whitelist module_dirs nodegroups
        on_demand_ext_pillar pillar_cache_ttl pillar_roots pillar_source_merging_strategy
        pillar_version pillarenv publish_timeout reactor_worker_hwm reactor_worker_threads renderer
        renderer_blacklist renderer_whitelist roots_update_interval runner_dirs
        saltern_hook_secrets saltern_reactor_limits saltenv state_aggregate state_auto_order state_events state_top
        state_top_saltenv syndic_master syndic_wait top_file_merging_strategy verify_ssl;
}

methods! {
    Followed;
    flags:
        keep_acl_in_token permissive_acl sudo_acl;
    texts:
        auth_pam_service = "auth.pam.service", eauth_acl_module, sharedsecret;
    values:
        client_acl_verify external_auth peer peer_run publisher_acl publisher_acl_blacklist reactor
        saltern_api_event_acl saltern_audit_redact saltern_audit_redact_functions saltern_reactor_acl
        schedule token_expire token_expire_user_override;
}

/// Repositories whose parameters have options for all of them: `gitfs_base` is the `base` of those
/// of [`RemoteKind::Gitfs`] that have none of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RemoteKind {
    /// Remotes of `gitfs_remotes`.
    Gitfs,
    /// Remotes of the external pillar `git`.
    GitPillar,
}

impl RemoteKind {
    /// Prefix of the names of their options, without the underscore.
    pub fn name(self) -> &'static str {
        match self {
            RemoteKind::Gitfs => "gitfs",
            RemoteKind::GitPillar => "git_pillar",
        }
    }
}

impl MasterConfig {
    /// The value of a parameter for all remotes of a kind; `None` for a parameter that no option sets.
    pub fn of_all_remotes(&self, kind: RemoteKind, parameter: &str) -> Option<OptionValue<'_>> {
        let option = options::stock(&format!("{}_{parameter}", kind.name()))?;
        Some(self.value(option.name))
    }
}

/// The value of an option in what was written, and in the defaults.
pub(crate) fn value<'a>(
    name: &'static str,
    settings: &'a Mapping,
    defaults: &'a Mapping,
) -> OptionValue<'a> {
    OptionValue {
        name,
        written: settings.get(name),
        default: defaults.get(name),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use saltern_model::Compat;

    use super::*;
    use crate::master;
    use crate::options::{OURS, Reload, Status};
    use crate::reader::Reader;
    use crate::site_paths::SitePaths;

    /// The options that `read` asks for.
    fn asked(read: impl Fn(&mut Reader<'_>, Compat)) -> BTreeSet<String> {
        let settings = Mapping::default();
        let mut asked = BTreeSet::new();
        for compat in Compat::ALL {
            let defaults = master::defaults(compat);
            let mut reader = Reader::new(&settings, &defaults, Vec::new());
            read(&mut reader, compat);
            asked.extend(reader.asked());
        }
        asked
    }

    fn names(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    fn rows(is_in: impl Fn(&options::ConfigOption) -> bool) -> BTreeSet<String> {
        let rows = options::all().iter().chain(OURS);
        let rows = rows.filter(|option| is_in(option));
        rows.map(|option| option.name.to_owned()).collect()
    }

    #[test]
    fn every_honoured_row_has_its_field_and_no_other_has_one() {
        let mut fields = asked(|reader, compat| {
            master::take_all(reader, compat);
        });
        fields.extend(names(MasterConfig::METHODS));
        fields.extend(names(Followed::METHODS));
        // Read before all others.
        fields.extend(names(&["default_include", "include", "salt_compat"]));
        let is_of_remotes = |name: &str| {
            let kinds = [RemoteKind::Gitfs, RemoteKind::GitPillar];
            let mut names = kinds.iter().map(|kind| kind.name());
            names.any(|kind| {
                name.strip_prefix(kind)
                    .is_some_and(|rest| rest.starts_with('_'))
            })
        };
        let expected = rows(|option| {
            let is_read = option.status == Status::Honoured && !option.is_handed_on;
            is_read || option.reload == Reload::InEffect
        });
        let forgotten: Vec<_> = expected.difference(&fields).collect();
        let forgotten: Vec<_> = forgotten
            .iter()
            .filter(|name| !is_of_remotes(name))
            .collect();
        assert!(
            forgotten.is_empty(),
            "honoured, and nothing reads it: {forgotten:?}"
        );
        let others: Vec<_> = fields.difference(&expected).collect();
        assert!(
            others.is_empty(),
            "read, and no row says that it is honoured: {others:?}"
        );
    }

    #[test]
    fn what_sighup_takes_over_is_in_followed_and_nowhere_else() {
        let mut followed = asked(|reader, _| {
            Followed::take(reader, "/", "/var/log/salt/master");
        });
        followed.extend(names(Followed::METHODS));
        let rows = rows(|option| option.reload == Reload::InEffect);
        assert_eq!(followed, rows, "the rows marked `followed()`");
        let mut fixed = asked(|reader, compat| {
            let (settings, defaults) = (Mapping::default(), master::defaults(compat));
            let mut other = Reader::new(&settings, &defaults, Vec::new());
            let followed = Followed::take(&mut other, "/", "/var/log/salt/master");
            let site_paths = SitePaths::take(reader);
            master::take(reader, compat, site_paths, followed);
        });
        fixed.extend(names(MasterConfig::METHODS));
        let both: Vec<_> = fixed.intersection(&rows).collect();
        assert!(
            both.is_empty(),
            "followed, and read from the start too: {both:?}"
        );
    }
}
