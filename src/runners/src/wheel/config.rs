//! `config.values`, `config.update_config` and `config.apply` (`salt/wheel/config.py`).
//!
//! A user who can write the configuration can run anything as the user of the master, so the last
//! two are withheld unless `saltern_config_wheels` is on. They write plain files below the
//! directory of `default_include` in the configuration's own directory, and nothing else. A file
//! that would keep the master from starting is removed again. Changes take effect at the next
//! start.

use std::path::{Component, Path, PathBuf};

use saltern_config::yaml::{self, Limits};
use saltern_config::{Finding, MasterConfig, read_master};
use saltern_content::pillar::master_options;
use saltern_content::render::data::{from_yaml, to_yaml_text};
use saltern_store::StoreError;
use saltern_store::files::{self, Create};
use saltern_wire::msgpack::Value;

use crate::call::{Bound, CallResult, Function, Parameter, RunnerError, function};
use crate::notices::Notices;
use crate::registry::RunnerContext;
use Parameter::Needed;

/// The functions of the module.
pub(crate) const FUNCTIONS: &[Function] = &[
    function("values", &[], values),
    function("apply", &[Needed("key"), Needed("value")], apply),
    function(
        "update_config",
        &[Needed("file_name"), Needed("yaml_contents")],
        update_config,
    ),
];

/// The file of options set by `config.apply`: the last of the directory, so that they win.
const APPLIED: &str = "zz-config-apply.conf";

/// The largest file that is written, in bytes.
const MAX_FILE_BYTES: usize = 1 << 20;

/// The longest name of a file, in bytes.
const MAX_NAME_LENGTH: usize = 200;

/// Why options are not written. The caller gets the text.
#[derive(Debug, thiserror::Error)]
enum ConfigError {
    /// The name leads elsewhere; stock's words.
    #[error("Invalid path")]
    Path,
    #[error("the configuration to write is no mapping of options")]
    NoMapping,
    #[error("the configuration to write is too large")]
    TooLarge,
    #[error("{}", saltern_base::chain(.0))]
    Store(#[from] StoreError),
    #[error("the master would not start: {0}")]
    Refused(Finding),
    #[error(transparent)]
    Yaml(#[from] yaml::YamlError),
    #[error("\"{0}\" is no mapping of options")]
    NoOptions(String),
}

impl From<ConfigError> for RunnerError {
    fn from(error: ConfigError) -> Self {
        Self::Refused(error.to_string())
    }
}

fn values(context: &RunnerContext, _: &Bound<'_>, _: &mut Notices<'_>) -> CallResult {
    Ok(master_options(&context.config))
}

/// Writes a file of options. Failures are answered as texts, as in stock.
fn update_config(context: &RunnerContext, bound: &Bound<'_>, _: &mut Notices<'_>) -> CallResult {
    let name = format!("{}.conf", bound.text("file_name")?.unwrap_or_default());
    let contents = bound.get("yaml_contents").cloned().unwrap_or(Value::Nil);
    Ok(match write(&context.config, &name, &contents) {
        Ok(()) => format!("Wrote {name}"),
        Err(problem) => problem.to_string(),
    }
    .into())
}

/// Sets one option. Stock overwrites the main file here; this is a file of its own.
fn apply(context: &RunnerContext, bound: &Bound<'_>, _: &mut Notices<'_>) -> CallResult {
    let key = bound.text("key")?.unwrap_or_default();
    let value = bound.get("value").cloned().unwrap_or(Value::Nil);
    let config = &context.config;
    let applied = directory(config)
        .ok_or(ConfigError::Path)
        .and_then(|directory| read(&directory.join(APPLIED)))?;
    let kept = applied
        .into_iter()
        .filter(|(name, _)| name.as_str() != Some(&key));
    let mut entries: Vec<(Value, Value)> = kept.collect();
    entries.push((key.into(), value));
    write(config, APPLIED, &Value::Map(entries))?;
    Ok(Value::Nil)
}

/// The directory of `default_include`, if it is below that of the configuration.
fn directory(config: &MasterConfig) -> Option<PathBuf> {
    let own = config.conf_file.parent()?;
    let include = config.default_include()?;
    let below = Path::new(include).parent()?;
    let below = below.strip_prefix(own).unwrap_or(below);
    let is_below = below
        .components()
        .all(|part| matches!(part, Component::Normal(_)));
    is_below.then(|| own.join(below))
}

fn is_plain_name(name: &str) -> bool {
    name.len() <= MAX_NAME_LENGTH
        && !name.starts_with('.')
        && !name.contains(|c: char| c == '/' || c.is_control())
}

fn write(config: &MasterConfig, name: &str, contents: &Value) -> Result<(), ConfigError> {
    let directory = directory(config).filter(|_| is_plain_name(name));
    let directory = directory.ok_or(ConfigError::Path)?;
    if contents.as_map().is_none() {
        return Err(ConfigError::NoMapping);
    }
    let text = to_yaml_text(contents).filter(|text| text.len() <= MAX_FILE_BYTES);
    let text = text.ok_or(ConfigError::TooLarge)?;
    files::ensure_dir(&directory, 0o755)?;
    let path = directory.join(name);
    let before = files::read(&path, MAX_FILE_BYTES)?;
    // Secrets may be in it; a link is replaced, not followed.
    let create = Create::PRIVATE.mode(0o640);
    files::write_atomic(&path, text.as_bytes(), create)?;
    let Some(problem) = refusal(config) else {
        tracing::warn!(path = %path.display(), "the configuration was changed by a wheel function");
        return Ok(());
    };
    let restored = match before {
        Some(before) => files::write_atomic(&path, &before, create),
        None => files::remove(&path).map(|_| ()),
    };
    restored?;
    Err(ConfigError::Refused(problem))
}

/// Why a master would not start with the files as they are now.
fn refusal(config: &MasterConfig) -> Option<Finding> {
    let reading = read_master(&config.conf_file);
    let mut findings = reading.findings.into_iter();
    findings.find(Finding::refuses_start)
}

/// The options that were applied before.
fn read(path: &Path) -> Result<Vec<(Value, Value)>, ConfigError> {
    let Some(text) = files::read_text(path, MAX_FILE_BYTES)? else {
        return Ok(Vec::new());
    };
    let name = path.display().to_string();
    let node = yaml::parse(&text, &name, &Limits::DEFAULT)?;
    match from_yaml(node) {
        Value::Map(entries) => Ok(entries),
        _ => Err(ConfigError::NoOptions(name)),
    }
}

#[cfg(test)]
mod tests {
    use saltern_model::Compat;

    use super::*;
    use crate::testing::TestSite;

    fn update(site: &TestSite, name: &str, contents: Value) -> String {
        let named = [("file_name", name.into()), ("yaml_contents", contents)];
        let (ran, _) = site.wheel("config.update_config", &named);
        ran.value.as_str().unwrap().to_owned()
    }

    fn apply(site: &TestSite, key: &str, value: Value) -> Value {
        let named = [("key", key.into()), ("value", value)];
        site.wheel("config.apply", &named).0.value
    }

    fn timeout(seconds: i64) -> Value {
        Value::map([("timeout", Value::from(seconds))])
    }

    #[test]
    fn config_wheels_are_refused_by_default() {
        let site = TestSite::new(Compat::V3008, "");
        for said in [
            update(&site, "gui", timeout(7)),
            apply(&site, "timeout", 7.into())
                .as_str()
                .unwrap()
                .to_owned(),
        ] {
            assert!(said.contains("saltern_config_wheels"), "{said}");
        }
        assert!(!site.path("conf/master.d").exists());
    }

    #[test]
    fn options_are_written_below_the_directory_of_default_include_alone() {
        let site = TestSite::new(Compat::V3008, "saltern_config_wheels: true\n");
        assert_eq!(update(&site, "gui", timeout(7)), "Wrote gui.conf");
        let written = site.read("conf/master.d/gui.conf");
        assert_eq!(written.as_deref(), Some("timeout: 7\n"));
        for name in [
            "../master",
            "/etc/x",
            "a/b",
            ".hidden",
            "a\nb",
            "..",
            &"x".repeat(300),
        ] {
            assert_eq!(update(&site, name, timeout(8)), "Invalid path", "{name:?}");
        }
        assert!(update(&site, "list", Value::Array(Vec::new())).contains("no mapping"));
        // Links are not followed.
        let outside = site.path("outside");
        std::fs::write(&outside, "kept").unwrap();
        std::os::unix::fs::symlink(&outside, site.path("conf/master.d/link.conf")).unwrap();
        assert_eq!(update(&site, "link", timeout(9)), "Wrote link.conf");
        assert_eq!(site.read("outside").as_deref(), Some("kept"));
    }

    #[test]
    fn options_that_prevent_the_start_are_rolled_back() {
        let site = TestSite::new(Compat::V3008, "saltern_config_wheels: true\n");
        assert_eq!(update(&site, "gui", timeout(7)), "Wrote gui.conf");
        for name in ["gui", "new"] {
            let wrong = Value::map([("ret_port", "none")]);
            let said = update(&site, name, wrong);
            assert!(said.contains("ret_port"), "{said}");
        }
        let written = site.read("conf/master.d/gui.conf");
        assert_eq!(written.as_deref(), Some("timeout: 7\n"));
        assert!(!site.path("conf/master.d/new.conf").exists());
    }

    #[test]
    fn applied_options_are_kept_together() {
        let site = TestSite::new(Compat::V3008, "saltern_config_wheels: true\n");
        for (key, value) in [("timeout", 7), ("gather_job_timeout", 8), ("timeout", 9)] {
            assert_eq!(apply(&site, key, value.into()), Value::Nil);
        }
        let written = site.read("conf/master.d/zz-config-apply.conf");
        assert_eq!(
            written.as_deref(),
            Some("gather_job_timeout: 8\ntimeout: 9\n")
        );
    }

    #[test]
    fn include_outside_of_the_configuration_is_not_written() {
        for include in ["/tmp/elsewhere/*.conf", "../x/*.conf"] {
            let site = TestSite::new(
                Compat::V3008,
                &format!("saltern_config_wheels: true\ndefault_include: {include}\n"),
            );
            assert_eq!(
                update(&site, "gui", timeout(7)),
                "Invalid path",
                "{include}"
            );
        }
    }
}
