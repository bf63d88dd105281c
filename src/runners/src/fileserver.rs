//! `fileserver.*`: the contents of the file server, backend by backend
//! (`salt/runners/fileserver.py`).
//!
//! Caches and locks of stock's git backend do not exist here: lists are read anew when a directory
//! changes, clones are never removed while minions use them, and the lock of a clone ends with the
//! process that holds it.

use saltern_content::files::Chosen;
use saltern_wire::msgpack::Value;

use crate::call::{Bound, CallResult, Function, Parameter, RunnerError, function};
use crate::notices::Notices;
use crate::python;
use crate::registry::RunnerContext;
use Parameter::{Keywords, Optional};

const LISTING: &[Parameter] = &[Optional("saltenv"), Optional("backend")];
const OF_REMOTES: &[Parameter] = &[Optional("backend"), Optional("remote")];

/// The functions of the module.
pub(crate) const FUNCTIONS: &[Function] = &[
    function(
        "clear_cache",
        &[Optional("backend")],
        |context, bound, _| {
            let problem = "the clones of git remotes stay: minions are served from them";
            unless_git(context, bound, problem, "No cache was cleared")
        },
    ),
    function("clear_file_list_cache", LISTING, clear_file_list_cache),
    function("clear_lock", OF_REMOTES, |context, bound, _| {
        let problem = "the locks of git remotes end with the process that holds them";
        unless_git(context, bound, problem, "No locks were removed")
    }),
    function("dir_list", LISTING, |context, bound, _| {
        Ok(chosen(context, bound)?.directories(&saltenv(bound)?)?)
    }),
    function("empty_dir_list", LISTING, |context, bound, _| {
        Ok(chosen(context, bound)?.empty_directories(&saltenv(bound)?)?)
    }),
    function("envs", &[Optional("backend"), Optional("sources")], envs),
    function("file_list", LISTING, |context, bound, _| {
        Ok(chosen(context, bound)?.files(&saltenv(bound)?)?)
    }),
    function("lock", OF_REMOTES, |context, bound, _| {
        let problem = "git remotes cannot be kept from being fetched";
        unless_git(context, bound, problem, "No locks were set")
    }),
    function("symlink_list", LISTING, |context, bound, _| {
        Ok(chosen(context, bound)?.links(&saltenv(bound)?)?)
    }),
    function("update", &[Optional("backend"), Keywords], update),
];

/// The backends that the call is about.
fn chosen<'a>(context: &'a RunnerContext, bound: &Bound<'_>) -> Result<Chosen<'a>, RunnerError> {
    let names = bound.truthy("backend").map(python::split_input);
    let files = &context.master()?.files;
    Ok(files.chosen(&names.unwrap_or_default()))
}

fn saltenv(bound: &Bound<'_>) -> Result<String, RunnerError> {
    Ok(bound.text("saltenv")?.unwrap_or_else(|| "base".to_owned()))
}

fn envs(context: &RunnerContext, bound: &Bound<'_>, _: &mut Notices<'_>) -> CallResult {
    let chosen = chosen(context, bound)?;
    // With their sources, stock sorts the names of the backends and loses the rest.
    if bound.flag("sources", false) {
        let mut names = chosen.names();
        names.sort_unstable();
        return Ok(Value::Array(names.into_iter().map(Value::from).collect()));
    }
    let names = chosen.environments().into_iter();
    Ok(Value::Array(names.map(Value::from).collect()))
}

fn clear_file_list_cache(
    context: &RunnerContext,
    bound: &Bound<'_>,
    _: &mut Notices<'_>,
) -> CallResult {
    let environments = bound.get("saltenv").map(python::split_input);
    let forgotten = chosen(context, bound)?.forget_lists(environments.as_deref());
    let cleared = forgotten.into_iter().map(|(backend, names)| {
        let names = names.into_iter().map(Value::from).collect();
        (Value::from(backend), Value::Array(names))
    });
    Ok(Value::Map(cleared.collect()))
}

fn update(context: &RunnerContext, bound: &Bound<'_>, _: &mut Notices<'_>) -> CallResult {
    if let Some((name, _)) = bound.own_keywords().next() {
        return Err(RunnerError::Arguments {
            problem: format!("update() got an unexpected keyword argument '{name}'"),
            usage: "update([backend])".to_owned(),
        });
    }
    chosen(context, bound)?.update();
    Ok(true.into())
}

/// Answers `nothing` where git is not among the chosen backends, else the error `problem`.
fn unless_git(
    context: &RunnerContext,
    bound: &Bound<'_>,
    problem: &str,
    nothing: &str,
) -> CallResult {
    let names = chosen(context, bound)?.names();
    if !names.contains(&"gitfs") {
        return Ok(nothing.into());
    }
    let errors = Value::Array(vec![problem.into()]);
    Ok(Value::map([("errors", errors)]))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use saltern_model::Compat;

    use super::*;
    use crate::testing::{Named, TestSite, list};

    fn site() -> TestSite {
        let options = "fileserver_backend: [roots, minionfs]\nfile_recv: True\n";
        let site = TestSite::new(Compat::V3008, options);
        site.write("salt/top.sls", "");
        site.write("salt/sub/deep.sls", "");
        std::fs::create_dir(site.path("salt/empty")).unwrap();
        symlink("top.sls", site.path("salt/link")).unwrap();
        site
    }

    #[test]
    fn lists_are_those_of_the_chosen_backends() {
        let site = site();
        let ask = |fun: &str, named: Named<'_>| {
            site.runner_value(&format!("fileserver.{fun}"), &[], named)
        };
        let files = list(&["link", "sub/deep.sls", "top.sls"]);
        assert_eq!(ask("file_list", &[]), files);
        assert_eq!(ask("file_list", &[("backend", "roots".into())]), files);
        assert_eq!(ask("file_list", &[("backend", "-minionfs".into())]), files);
        let nothing = list(&[]);
        assert_eq!(ask("file_list", &[("backend", "minionfs".into())]), nothing);
        assert_eq!(ask("file_list", &[("backend", "nonsense".into())]), nothing);
        assert_eq!(ask("file_list", &[("saltenv", "other".into())]), nothing);
        assert_eq!(ask("dir_list", &[]), list(&["empty", "sub"]));
        assert_eq!(ask("empty_dir_list", &[]), list(&["empty"]));
        assert_eq!(ask("symlink_list", &[]), Value::map([("link", "top.sls")]));
        assert_eq!(ask("envs", &[]), list(&["base"]));
        let sources = ask("envs", &[("sources", true.into())]);
        assert_eq!(sources, list(&["minionfs", "roots"]));
    }

    #[test]
    fn clear_file_list_cache_drops_cached_lists() {
        let site = site();
        let clear =
            |named: Named<'_>| site.runner_value("fileserver.clear_file_list_cache", &[], named);
        let nothing = Value::Map(Vec::new());
        assert_eq!(clear(&[]), nothing);
        site.runner_value("fileserver.file_list", &[], &[]);
        assert_eq!(clear(&[("saltenv", "other".into())]), nothing);
        assert_eq!(clear(&[("backend", "minionfs".into())]), nothing);
        assert_eq!(clear(&[]), Value::map([("roots", list(&["base"]))]));
        assert_eq!(clear(&[]), nothing);
    }

    #[test]
    fn lock_functions_without_git_do_nothing() {
        let site = site();
        for (fun, said) in [
            ("lock", "No locks were set"),
            ("clear_lock", "No locks were removed"),
            ("clear_cache", "No cache was cleared"),
        ] {
            let value = site.runner_value(&format!("fileserver.{fun}"), &[], &[]);
            assert_eq!(value, said.into());
        }
        assert_eq!(
            site.runner_value("fileserver.update", &[], &[]),
            true.into()
        );
    }
}
