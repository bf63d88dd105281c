//! Rendered files, and the data that minions put into them.

use super::*;
use crate::wire::client::Minion;
use crate::wire::files::git;
use crate::wire::pillar::pillar_load;

/// A master whose pillar is this file; `PWNED` in it is a path that must never exist.
fn site(options: &str, sls: &str) -> Site {
    let site = Site::new(&format!("pillar_version: 1\n{options}"));
    let pwned = site.path("pwned").display().to_string();
    site.write("pillar/top.sls", "base:\n  '*':\n    - role\n");
    site.write("pillar/role.sls", &sls.replace("PWNED", &pwned));
    site
}

fn pillar(site: &Site, grains: Load) -> Value {
    let m1 = Minion::signed_in(site, "m1");
    let load = pillar_load(&m1).without("ver").set("grains", grains);
    let answer = m1.open(&site.ask(m1.sealed(load, 3)).reply, 3);
    assert!(!site.path("pwned").exists(), "a command was run");
    answer
}

/// YAML made objects of any class of Python.
#[test]
fn cve_2013_4438_yaml_makes_no_objects() {
    let plain = pillar(&site("", "a: !!str 5\n"), Load::new());
    assert_eq!(text(&plain, "a"), Some("5"));
    for sls in [
        "a: !!python/object/apply:os.system ['touch PWNED']\n",
        "a: !!python/object/new:os.system ['touch PWNED']\n",
        "a: !!python/name:os.system\n",
        "!!python/object/apply:subprocess.check_output [['touch', PWNED]]\n",
    ] {
        let answer = pillar(&site("", sls), Load::new());
        assert_eq!(answer.get("a"), None, "{sls}");
    }
}

/// Templates reached everything of the interpreter.
#[test]
fn cve_2021_25283_template_reaches_no_interpreter() {
    let plain = pillar(&site("", "a: {{ 40 + 2 }}\n"), Load::new());
    assert_eq!(plain.get("a"), Some(&42_i64.into()));
    for expression in [
        "''.__class__.__mro__[1].__subclasses__()",
        "self.__init__.__globals__['os'].popen('touch PWNED').read()",
        "cycler.__init__.__globals__.os.system('touch PWNED')",
        "salt.__class__.__init__.__globals__",
        "lipsum.__globals__['os'].system('touch PWNED')",
        "(1).__class__.__base__",
    ] {
        let answer = pillar(
            &site("", &format!("a: {{{{ {expression} }}}}\n")),
            Load::new(),
        );
        assert!(
            answer.get("a").is_none_or(Value::is_nil),
            "{expression}: {answer:?}"
        );
    }
    // What a minion says of itself is a value, and no template.
    let said = "{{ 7 * 7 }}";
    let grains = Load::new().set("said", said);
    let answer = pillar(&site("", "a: {{ grains.said | yaml_dquote }}\n"), grains);
    assert_eq!(text(&answer, "a"), Some(said));
}

/// A minion chose the address that git asks, and so a command.
#[test]
fn cve_2025_22237_minion_chooses_no_command() {
    for allowed in ["", "on_demand_ext_pillar: [git]\n"] {
        let site = site(allowed, "role: web\n");
        let pwned = site.path("pwned").display().to_string();
        let m1 = Minion::signed_in(&site, "m1");
        for address in [
            format!("ext::sh -c touch% {pwned}"),
            format!("--upload-pack=touch {pwned}"),
            format!("master ext::sh -c touch% {pwned}"),
            format!("ssh://-oProxyCommand=touch% {pwned}/x"),
        ] {
            let chosen = Value::Array(vec![address.as_str().into()]);
            let load = pillar_load(&m1)
                .without("ver")
                .set("ext", Load::new().set("git", chosen));
            site.ask(m1.sealed(load, 3));
            assert!(!site.path("pwned").exists(), "{allowed}: {address}");
        }
    }
}

/// Environments whose names differ in a sign shared one directory of the cache.
#[test]
fn cve_2023_20898_each_environment_of_gitfs_has_its_own_files() {
    let site = Site::new("fileserver_backend: [gitfs]\ngitfs_remotes: ['file://ROOT/repo']\n");
    let repository = site.path("repo");
    site.write("repo/a", "base\n");
    git(&repository, &["init", "--quiet", "--initial-branch=master"]);
    git(&repository, &["add", "a"]);
    git(&repository, &["commit", "--quiet", "--message=a"]);
    let branches = ["dev_x", "dev-x", "dev/x"];
    for branch in branches {
        git(
            &repository,
            &["checkout", "--quiet", "-b", branch, "master"],
        );
        site.write("repo/a", branch);
        git(&repository, &["commit", "--quiet", "--all", "--message=b"]);
    }
    git(&repository, &["checkout", "--quiet", "master"]);
    assert!(site.services.content.files.refresh_remotes());
    let m1 = Minion::signed_in(&site, "m1");
    for _ in 0..2 {
        for branch in branches {
            let load = m1
                .load("_serve_file")
                .set("path", "a")
                .set("saltenv", branch)
                .set("loc", 0_i64);
            let answer = m1.open(&site.ask(m1.sealed(load, 3)).reply, 3);
            let data = answer.get("data").and_then(Value::as_bytes);
            assert_eq!(data, Some(branch.as_bytes()), "{branch}");
        }
    }
}
