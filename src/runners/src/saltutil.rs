//! `saltutil.sync_*`: copies a site's own modules from `salt://_<form>` to where stock's programs
//! load them from (`salt/runners/saltutil.py`, `salt/utils/extmods.py`).
//!
//! Nothing here runs them.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use saltern_config::OptionValue;
use saltern_content::files::path::Relative;
use saltern_content::render::data::from_yaml;
use saltern_model::Compat;
use saltern_store::files::{self, Create};
use saltern_wire::msgpack::Value;

use crate::call::{Bound, CallResult, Function, Parameter, RunnerError, function};
use crate::python;
use crate::registry::RunnerContext;
use Parameter::Optional;

const PARAMETERS: &[Parameter] = &[
    Optional("saltenv"),
    Optional("extmod_whitelist"),
    Optional("extmod_blacklist"),
];

macro_rules! sync {
    ($name:literal, $form:literal) => {
        function($name, PARAMETERS, |context, bound, _| {
            sync(context, bound, $form)
        })
    };
}

/// The functions of the module.
pub(crate) const FUNCTIONS: &[Function] = &[
    function("sync_all", PARAMETERS, |context, bound, _| {
        sync_all(context, bound)
    }),
    sync!("sync_cache", "cache"),
    sync!("sync_clouds", "clouds"),
    sync!("sync_eauth_tokens", "tokens"),
    sync!("sync_engines", "engines"),
    sync!("sync_executors", "executors"),
    sync!("sync_fileserver", "fileserver"),
    sync!("sync_grains", "grains"),
    sync!("sync_modules", "modules"),
    sync!("sync_output", "output"),
    sync!("sync_pillar", "pillar"),
    sync!("sync_proxymodules", "proxy"),
    sync!("sync_queues", "queues"),
    sync!("sync_renderers", "renderers"),
    sync!("sync_returners", "returners"),
    sync!("sync_roster", "roster"),
    sync!("sync_runners", "runners"),
    sync!("sync_sdb", "sdb"),
    sync!("sync_serializers", "serializers"),
    sync!("sync_states", "states"),
    sync!("sync_thorium", "thorium"),
    sync!("sync_tops", "tops"),
    sync!("sync_utils", "utils"),
    sync!("sync_wheel", "wheel"),
    function(
        "sync_wrapper",
        PARAMETERS,
        |context, bound, _| match context.config.salt_compat {
            Compat::V3006 => Err(RunnerError::NotAvailable(
                "saltutil.sync_wrapper".to_owned(),
            )),
            Compat::V3007 | Compat::V3008 => sync(context, bound, WRAPPER),
        },
    ),
];

/// The forms of modules under the names that `sync_all` gives them, in its order.
const ALL: [(&str, &str); 24] = [
    ("clouds", "clouds"),
    ("modules", "modules"),
    ("states", "states"),
    ("grains", "grains"),
    ("renderers", "renderers"),
    ("returners", "returners"),
    ("output", "output"),
    ("proxymodules", "proxy"),
    ("runners", "runners"),
    ("wheel", "wheel"),
    ("engines", "engines"),
    ("thorium", "thorium"),
    ("queues", "queues"),
    ("pillar", "pillar"),
    ("utils", "utils"),
    ("sdb", "sdb"),
    ("cache", "cache"),
    ("fileserver", "fileserver"),
    ("tops", "tops"),
    ("tokens", "tokens"),
    ("serializers", "serializers"),
    ("executors", "executors"),
    (WRAPPER, WRAPPER),
    ("roster", "roster"),
];

/// Modules of `salt-ssh`, which 3006 does not copy.
const WRAPPER: &str = "wrapper";

/// Endings of a module's file.
const ENDINGS: [&str; 4] = [".py", ".pyx", ".so", ".zip"];

/// The largest file that is copied, in bytes.
const MAX_BYTES: usize = 32 << 20;

fn sync_all(context: &RunnerContext, bound: &Bound<'_>) -> CallResult {
    let is_old = context.config.salt_compat == Compat::V3006;
    let mut synced = Vec::with_capacity(ALL.len());
    for (name, form) in ALL {
        if !(is_old && form == WRAPPER) {
            synced.push((Value::from(name), sync(context, bound, form)?));
        }
    }
    Ok(Value::Map(synced))
}

/// Copies the modules of a form; gives the names of those that are new or different.
fn sync(context: &RunnerContext, bound: &Bound<'_>, form: &str) -> CallResult {
    let master = context.master()?;
    let target = Target::open(context, form)?;
    let wanted = Wanted::read(context, bound, form)?;
    let environments = match bound.get("saltenv") {
        None => vec!["base".to_owned()],
        Some(value) => python::split_input(value),
    };
    let prefix = format!("_{form}/");
    let (mut changed, mut present) = (Vec::new(), BTreeSet::new());
    for saltenv in environments {
        let listed = master.files.chosen(&[]).files(&saltenv)?;
        let paths = listed.as_array().unwrap_or_default().iter();
        for path in paths.filter_map(Value::as_str) {
            let Some(relative) = path.strip_prefix(&prefix) else {
                continue;
            };
            let is_module = ENDINGS.iter().any(|ending| relative.ends_with(ending));
            let name = module_name(relative);
            let Ok(relative) = Relative::parse(relative) else {
                continue;
            };
            if !is_module || !wanted.has(&name) {
                continue;
            }
            let Some(content) = master.files.read(path, &saltenv, MAX_BYTES)? else {
                continue;
            };
            present.insert(relative.as_str().to_owned());
            if target.write(&relative, &content)? {
                changed.push(Value::from(format!("{form}.{name}")));
            }
        }
    }
    let cleans = context.config.clean_dynamic_modules().node();
    if cleans.is_none_or(|node| node.as_bool() == Some(true)) {
        target.clean(&present)?;
    }
    Ok(Value::Array(changed))
}

/// `sub/name.py` is the module `sub.name`.
fn module_name(path: &str) -> String {
    let (directory, file) = path.rsplit_once('/').unwrap_or(("", path));
    // As `os.path.splitext`: leading dots are no ending.
    let dots = file.len() - file.trim_start_matches('.').len();
    let end = file.rfind('.').filter(|at| *at >= dots.max(1));
    let stem = file.get(..end.unwrap_or(file.len())).unwrap_or(file);
    match directory {
        "" => stem.to_owned(),
        directory => format!("{}.{stem}", directory.replace('/', ".")),
    }
}

/// Filter on the modules of a form: `extmod_whitelist` and `extmod_blacklist`, of the call or of
/// the configuration.
struct Wanted {
    only: Option<Vec<String>>,
    never: Vec<String>,
}

impl Wanted {
    fn read(context: &RunnerContext, bound: &Bound<'_>, form: &str) -> Result<Self, RunnerError> {
        let list = |option: OptionValue<'_>| -> Result<Option<Vec<String>>, RunnerError> {
            let name = option.name();
            let configured = || option.node().cloned().map(from_yaml);
            match bound.get(name).cloned().or_else(configured) {
                None | Some(Value::Nil) => Ok(None),
                Some(Value::Str(text)) => Ok(Some(text.split(',').map(str::to_owned).collect())),
                Some(by_form @ Value::Map(_)) => Ok(by_form.get(form).map(python::split_input)),
                Some(_) => Err(RunnerError::Refused(format!(
                    "{name} must be a string or dictionary"
                ))),
            }
        };
        Ok(Self {
            only: list(context.config.extmod_whitelist())?,
            never: list(context.config.extmod_blacklist())?.unwrap_or_default(),
        })
    }

    fn has(&self, module: &str) -> bool {
        let is_named = |names: &Vec<String>| names.iter().any(|name| name == module);
        self.only.as_ref().is_none_or(is_named) && !is_named(&self.never)
    }
}

/// The directory that modules of a form are copied to.
struct Target(PathBuf);

impl Target {
    fn open(context: &RunnerContext, form: &str) -> Result<Self, RunnerError> {
        let config = &context.config;
        let configured = config.extension_modules();
        // As stock has it: not below `cachedir`, but below `root_dir`, the default too.
        let root = match Path::new(configured.unwrap_or_default()) {
            path if path.starts_with(&config.root_dir) => path.to_path_buf(),
            path => config.root_dir.join(path.strip_prefix("/").unwrap_or(path)),
        };
        let directory = root.join(form);
        files::ensure_dir(&directory, 0o700)?;
        Ok(Self(directory))
    }

    /// Writes a module unless the same content is there; returns whether it wrote.
    fn write(&self, path: &Relative, content: &[u8]) -> Result<bool, RunnerError> {
        let path = self.0.join(path.as_str());
        if path.is_file() && files::read(&path, MAX_BYTES)?.as_deref() == Some(content) {
            return Ok(false);
        }
        if let Some(directory) = path.parent() {
            files::ensure_dir(directory, 0o700)?;
        }
        files::write_atomic(&path, content, Create::PRIVATE.derived())?;
        Ok(true)
    }

    /// Removes modules that are not `present`, and empty directories.
    fn clean(&self, present: &BTreeSet<String>) -> Result<(), RunnerError> {
        self.clean_below(None, present)?;
        Ok(())
    }

    /// Cleans one directory; returns whether it is empty now.
    fn clean_below(
        &self,
        at: Option<&str>,
        present: &BTreeSet<String>,
    ) -> Result<bool, RunnerError> {
        let directory = at.map_or_else(|| self.0.clone(), |at| self.0.join(at));
        let mut entries = Vec::new();
        files::each_entry(&directory, |name, entry| {
            let is_directory = entry.file_type().is_ok_and(|kind| kind.is_dir());
            entries.push((name.to_owned(), is_directory));
        })?;
        let mut is_empty = true;
        for (name, is_directory) in entries {
            let below = at.map_or_else(|| name.clone(), |at| format!("{at}/{name}"));
            let path = directory.join(&name);
            if is_directory {
                let is_gone =
                    self.clean_below(Some(&below), present)? && fs::remove_dir(&path).is_ok();
                is_empty &= is_gone;
            } else if present.contains(&below) {
                is_empty = false;
            } else {
                files::remove(&path)?;
            }
        }
        Ok(is_empty)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Named, TestSite, list};

    const EXTMODS: &str = "extension_modules: ROOT/cache/extmods\n";

    #[test]
    fn by_default_modules_lie_below_the_root() {
        let site = TestSite::new(Compat::V3008, "");
        site.write("salt/_sdb/own.py", "one");
        site.runner_value("saltutil.sync_sdb", &[], &[]);
        let copied = site.read("var/cache/salt/master/extmods/sdb/own.py");
        assert_eq!(copied.as_deref(), Some("one"));
    }

    #[test]
    fn modules_are_copied_and_old_ones_removed() {
        let site = TestSite::new(Compat::V3008, EXTMODS);
        site.write("salt/_runners/own.py", "one");
        site.write("salt/_runners/sub/deep.py", "two");
        site.write("salt/_runners/notes.txt", "three");
        site.write("cache/extmods/runners/old/former.py", "four");
        let sync = |named: Named<'_>| site.runner_value("saltutil.sync_runners", &[], named);
        assert_eq!(sync(&[]), list(&["runners.own", "runners.sub.deep"]));
        let copied = |name: &str| site.read(&format!("cache/extmods/runners/{name}"));
        assert_eq!(copied("own.py").as_deref(), Some("one"));
        assert_eq!(copied("sub/deep.py").as_deref(), Some("two"));
        assert_eq!(copied("notes.txt"), None);
        assert!(!site.path("cache/extmods/runners/old").exists());
        assert_eq!(sync(&[]), list(&[]));
        site.write("salt/_runners/own.py", "changed");
        assert_eq!(sync(&[]), list(&["runners.own"]));
        // A module that is not wanted counts as absent.
        assert_eq!(sync(&[("extmod_blacklist", "own".into())]), list(&[]));
        assert_eq!(copied("own.py"), None);
        assert_eq!(
            sync(&[("extmod_whitelist", "own".into())]),
            list(&["runners.own"])
        );
        assert_eq!(copied("sub/deep.py"), None);
        assert_eq!(sync(&[("saltenv", "other".into())]), list(&[]));
    }

    #[test]
    fn everything_is_synced_at_once() {
        for compat in Compat::ALL {
            let options = format!("{EXTMODS}clean_dynamic_modules: False\n");
            let site = TestSite::new(compat, &options);
            site.write("salt/_proxy/p.py", "one");
            site.write("cache/extmods/proxy/kept.py", "two");
            let all = site.runner_value("saltutil.sync_all", &[], &[]);
            assert_eq!(all.get("proxymodules"), Some(&list(&["proxy.p"])));
            assert_eq!(all.get("roster"), Some(&list(&[])));
            assert_eq!(all.get("wrapper").is_some(), compat != Compat::V3006);
            assert!(site.path("cache/extmods/proxy/kept.py").exists());
        }
    }

    #[test]
    fn names_of_modules_are_those_of_python() {
        for (path, name) in [
            ("a.py", "a"),
            ("a/b.so", "a.b"),
            (".py", ".py"),
            ("a.b.py", "a.b"),
        ] {
            assert_eq!(module_name(path), name);
        }
    }
}
