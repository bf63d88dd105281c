//! `git_pillar.update`: fetches the git remotes of external pillars now
//! (`salt/runners/git_pillar.py`).

use saltern_wire::msgpack::Value;

use crate::call::{Bound, CallResult, Function, Parameter, RunnerError, function};
use crate::notices::Notices;
use crate::registry::RunnerContext;
use Parameter::Optional;

/// The functions of the module.
pub(crate) const FUNCTIONS: &[Function] = &[function(
    "update",
    &[Optional("branch"), Optional("repo")],
    update,
)];

fn update(context: &RunnerContext, bound: &Bound<'_>, _: &mut Notices<'_>) -> CallResult {
    let (branch, repo) = (bound.text("branch")?, bound.text("repo")?);
    let pillars = &context.master()?.pillars;
    let fetched = pillars.fetch_remotes(branch.as_deref(), repo.as_deref());
    if fetched.is_empty() {
        let text = match branch.is_some() || repo.is_some() {
            true => "Specified git branch/repo not found in ext_pillar config",
            false => "No git_pillar remotes are configured",
        };
        return Err(RunnerError::Refused(text.to_owned()));
    }
    Ok(Value::map(fetched))
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::process::Command;

    use saltern_model::Compat;

    use super::*;
    use crate::testing::TestSite;

    fn git(directory: &Path, arguments: &[&str]) {
        let done = Command::new("git")
            .arg("-C")
            .arg(directory)
            .args(["-c", "user.name=x", "-c", "user.email=x@example.com"])
            .args(arguments)
            .output()
            .unwrap();
        assert!(done.status.success(), "{done:?}");
    }

    #[test]
    fn update_fetches_git_pillar_remotes() {
        let origin = tempfile::tempdir().unwrap();
        git(origin.path(), &["init", "-q", "-b", "main"]);
        git(
            origin.path(),
            &["commit", "-q", "--allow-empty", "-m", "one"],
        );
        let url = format!("file://{}", origin.path().display());
        let options = format!("ext_pillar: [git: ['main {url}']]\n");
        let site = TestSite::new(Compat::V3008, &options);
        let update = |named: &[(&str, Value)]| site.runner("git_pillar.update", &[], named).0;
        let id = format!("main {url}");
        let fetched = |changed: bool| Value::map([(id.as_str(), changed)]);
        assert_eq!(update(&[]).value, fetched(true));
        assert_eq!(update(&[]).value, fetched(false));
        git(
            origin.path(),
            &["commit", "-q", "--allow-empty", "-m", "two"],
        );
        let named = [("branch", "main".into()), ("repo", url.as_str().into())];
        assert_eq!(update(&named).value, fetched(true));
        let text = update(&[("branch", "other".into())]).value;
        assert!(text.as_str().unwrap().contains("not found in ext_pillar"));
        let without = TestSite::new(Compat::V3008, "");
        let (ran, _) = without.runner("git_pillar.update", &[], &[]);
        assert!(
            ran.value
                .as_str()
                .unwrap()
                .contains("No git_pillar remotes")
        );
    }
}
