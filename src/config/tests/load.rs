//! Loading real files: what is read, what is refused, and what the messages say.

use std::fs;
use std::path::Path;
use std::time::Duration;

use saltern_config::{ConfigErrors, Loaded, Severity, load_master, render_findings};
use saltern_model::Compat;

/// Writes `master` and further files into a directory and loads it. `DIR` in a text is replaced by
/// the directory.
fn load(files: &[(&str, &str)]) -> (tempfile::TempDir, Result<Loaded, ConfigErrors>) {
    let dir = tempfile::tempdir().unwrap();
    let place = dir.path().to_str().unwrap().to_owned();
    for (name, text) in files {
        let path = dir.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text.replace("DIR", &place)).unwrap();
    }
    let loaded = load_master(dir.path());
    (dir, loaded)
}

const BASE: &str = "root_dir: DIR/root\nid: m\n";

fn loaded(text: &str) -> Loaded {
    let (_dir, result) = load(&[("master", &format!("{BASE}{text}"))]);
    result.map_err(|errors| errors.to_string()).unwrap()
}

/// The errors as "line option: message".
fn errors(text: &str) -> Vec<String> {
    let (_dir, result) = load(&[("master", &format!("{BASE}{text}"))]);
    let Err(errors) = result else {
        panic!("the configuration was accepted: {text}");
    };
    let lines = errors
        .errors()
        .map(|f| format!("{} {}: {}", f.line, f.option, f.message));
    lines.collect()
}

#[test]
fn ordinary_file_is_loaded() {
    let text = "interface: 127.0.0.1\npublish_port: 14505\nret_port: \"14506\"\ntimeout: 7\n\
                worker_threads: 2\nsalt_compat: 3007.15\nauto_accept: True\n";
    let Loaded { config, findings } = loaded(text);
    assert_eq!(config.salt_compat, Compat::V3007);
    assert_eq!(config.interface.to_string(), "127.0.0.1");
    assert_eq!((config.publish_port, config.ret_port), (14505, 14506));
    assert_eq!(config.timeout, Duration::from_secs(7));
    assert_eq!(config.worker_threads, 2);
    assert!(
        config.pki_dir.ends_with("root/etc/salt/pki/master"),
        "{:?}",
        config.pki_dir
    );
    assert_eq!(config.id, "m");
    assert!(config.followed().auto_accept);
    let severities: Vec<_> = findings
        .iter()
        .map(|f| (f.severity, f.option.as_str()))
        .collect();
    assert_eq!(severities, [(Severity::Warning, "auto_accept")]);
}

/// The start verifies a ready signature by itself: one that is good needs no warning for ever.
#[test]
fn ready_signature_under_fips_mode_is_a_hint() {
    let text = "fips_mode: True\nmaster_sign_pubkey: True\nmaster_use_pubkey_signature: True\n";
    let findings = loaded(text).findings;
    let option = "master_use_pubkey_signature";
    let of_it = findings.iter().filter(|found| found.option == option);
    let severities: Vec<_> = of_it.map(|found| found.severity).collect();
    assert_eq!(severities, [Severity::Info]);
}

#[test]
fn configuration_errors_have_their_lines() {
    let text = "publish_port: 99999\nret_port: abc\nsign_pub_messages: maybe\n\
                interface: example.com\nlog_level: loud\nkeysize: 2048\nexternal_auth: {}\n";
    assert_eq!(
        errors(text),
        [
            "3 publish_port: 99999 is not a whole number from 1 to 65535",
            "4 ret_port: \"abc\" is not a whole number from 1 to 65535",
            "5 sign_pub_messages: \"maybe\" is not true or false",
            "6 interface: \"example.com\" is not an IP address of this host, such as 0.0.0.0, \
             192.0.2.1 or \"::\"",
            "7 log_level: \"loud\" is not one of all, garbage, trace, debug, profile, info, \
             warning, error, critical, quiet",
        ]
    );
}

#[test]
fn unknown_option_is_a_warning_with_the_nearest_name() {
    let findings = loaded("worker_thread: 3\nour_site_data: {a: 1}\n").findings;
    let shown: Vec<String> = findings
        .iter()
        .filter(|f| f.severity == Severity::Warning)
        .map(|f| format!("{} {:?}", f.line, f.suggestion))
        .collect();
    assert_eq!(
        shown,
        ["3 Some(\"did you mean \\\"worker_threads\\\"?\")", "4 None"]
    );
    let text = render_findings(&findings);
    assert!(
        text.contains("master:3: worker_thread: no such option"),
        "{text}"
    );
    assert!(text.ends_with("0 errors, 2 warnings, 0 hints\n"), "{text}");
}

#[test]
fn options_that_are_not_built_are_reported() {
    let findings = loaded("thorium_interval: 5\ncython_enable: true\nnodegroups: {}\n").findings;
    let shown: Vec<String> = findings
        .iter()
        .map(|f| format!("{:?} {} {}", f.severity, f.option, f.message))
        .collect();
    assert_eq!(
        shown,
        [
            "Warning thorium_interval not honoured yet (thorium and ext_processes)",
            "Info cython_enable has no effect: no Python runs here",
        ]
    );
}

#[test]
fn missing_directory_and_broken_file_are_different_errors() {
    let missing = load_master(Path::new("/nowhere/at/all")).err().unwrap();
    assert!(missing.unreadable);
    let (_dir, broken) = load(&[("master", "a: [1\nb: 2\n")]);
    let broken = broken.err().unwrap();
    assert!(!broken.unreadable);
    assert!(broken.errors().next().unwrap().line > 0, "{broken}");
}

#[test]
fn unsafe_or_unsupported_values_are_refused() {
    let table = [
        (
            "transport: detect\n",
            "transport: \"detect\" is not one of zeromq, tcp, ws",
        ),
        (
            "ssl: {certfile: x, cert_reqs: CERT_NONE}\n",
            "ssl: the transport \"zeromq\" has no TLS",
        ),
        (
            "cluster_id: c\n",
            "cluster_id: \"c\" cannot be used: stock's cluster",
        ),
        (
            "publish_port: 4506\n",
            "publish_port: publish_port and ret_port are both 4506",
        ),
        (
            "key_pass: sdb://vault/x\n",
            "key_pass: values from an sdb are not built yet",
        ),
        ("ipv6: maybe\n", "ipv6: \"maybe\" is not true or false"),
        (
            "publish_session: 0\n",
            "publish_session: must be more than zero seconds",
        ),
        (
            "sign_pub_messages:\n",
            "sign_pub_messages: nothing is not true or false",
        ),
        (
            "salt_compat: 3005\n",
            "salt_compat: 3005 is not one of 3006, 3007, 3008",
        ),
        (
            "local_cache_mirror: all\n",
            "local_cache_mirror: \"all\" is not one of full, loads",
        ),
        (
            "master_sign_key_name: ../x\n",
            "master_sign_key_name: \"../x\" is not the name of a",
        ),
        ("pki_dir: /dev/null/pki\n", "pki_dir: \"DIR"),
        (
            "saltern_max_message_size: 1 MB\n",
            "saltern_max_message_size: \"1 MB\" is not a size",
        ),
        (
            "timeout: -1\n",
            "timeout: -1 is not a number of seconds, zero or more",
        ),
        ("id: a/b\n", "id: must not be empty"),
    ];
    for (text, message) in table {
        let (_dir, result) = if text.starts_with("pki_dir") {
            load(&[
                ("master", "root_dir: DIR\npki_dir: DIR/file/pki\nid: m\n"),
                ("file", ""),
            ])
        } else if text.starts_with("id") {
            load(&[("master", &format!("root_dir: DIR/root\n{text}"))])
        } else {
            load(&[("master", &format!("{BASE}{text}"))])
        };
        let found = result
            .err()
            .unwrap_or_else(|| panic!("{text} was accepted"))
            .to_string();
        let message = message.split("DIR").next().unwrap();
        assert!(found.contains(message), "{text} gave {found}");
        assert_eq!(found.lines().count(), 1, "{found}");
    }
}

#[test]
fn no_message_shows_a_secret() {
    let text = "key_pass: [geheim]\nsigning_key_pass: 5\ncluster_secret: geheim\n\
                git_pillar_password: [geheim]\nssh_priv_passwd: {geheim: geheim}\n";
    let (_dir, result) = load(&[("master", &format!("{BASE}{text}"))]);
    let findings = result.err().unwrap().findings;
    assert!(findings.len() >= 4, "{findings:?}");
    assert!(
        !render_findings(&findings).contains("geheim"),
        "{findings:?}"
    );
    let config = loaded("key_pass: geheim\n").config;
    assert_eq!(config.key_pass.as_ref().unwrap().expose(), "geheim");
    assert!(
        config
            .shown_values()
            .all(|(name, node)| name != "key_pass" || node.is_null())
    );
}

#[test]
fn old_names_and_options_of_other_versions_are_reported() {
    let reported = |text: &str| -> Vec<String> {
        let findings = loaded(text).findings;
        findings
            .iter()
            .map(|f| format!("{:?} {}: {}", f.severity, f.option, f.message))
            .collect()
    };
    assert_eq!(
        reported("keep_jobs: 48\n"),
        ["Warning keep_jobs: has no effect in 3008"]
    );
    assert_eq!(
        reported("salt_compat: 3006\nkeep_jobs: 48\n"),
        ["Info keep_jobs: is the old name"]
    );
    assert_eq!(
        reported("salt_compat: 3006\nworker_pools_enabled: true\n"),
        [
            "Info worker_pools_enabled: Salt 3006 has no such option, only 3008",
            "Info worker_pools_enabled: has no effect: every class of requests has a queue of its \
             own, so none can starve another",
        ]
    );
    let kept = loaded("salt_compat: 3007\nkeep_jobs: 48\n")
        .config
        .keep_jobs;
    assert_eq!(kept, Some(Duration::from_secs(48 * 3600)));
}

#[test]
fn a_mistake_in_an_included_file_names_that_file() {
    let base = "root_dir: DIR/root\nid: m\ninclude: [more/*.conf, none]\n";
    let (dir, result) = load(&[
        ("master", base),
        ("master.d/a.conf", "timeout: 5\nret_port: x\n"),
        ("more/b.conf", "a: 1\na: 2\n"),
        ("more/_schedule.conf", "[\n"),
        ("more/c.conf", "- a list\n"),
        ("more/dir.conf/x", ""),
    ]);
    let errors = result.err().unwrap();
    let place = format!("{}/", dir.path().display());
    let shown: Vec<String> = errors
        .findings
        .iter()
        .map(|f| f.to_string().replace(&place, ""))
        .collect();
    assert_eq!(
        shown,
        [
            "master.d/a.conf:2: ret_port: \"x\" is not a whole number from 1 to 65535",
            "more/b.conf:2: the key \"a\" stands already in line 1",
            "more/c.conf:1: the file holds a list, not options with values",
            "more/dir.conf: cannot be read: it is a directory",
            "master:3: include: no file matches \"none\"",
            "more/_schedule.conf:2: did not find expected node content (while parsing a flow node \
             that starts in line 2)",
        ]
    );
    assert!(errors.unreadable);
}

#[test]
fn circular_includes_are_refused() {
    let (_dir, result) = load(&[
        ("master", "root_dir: DIR/root\nid: m\ninclude: a\n"),
        ("a", "include: b\n"),
        ("b", "include: a\n"),
    ]);
    let errors = result.err().unwrap().to_string();
    assert!(
        errors.contains("more than 16 includes within each other"),
        "{errors}"
    );
}

#[test]
fn socket_directory_beyond_the_address_length_is_refused() {
    let long = "x".repeat(100);
    let found = errors(&format!("cachedir: /{long}\nsock_dir: /{long}\n"));
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].contains("107 are possible"), "{found:?}");
}

/// The warnings as "option: message".
fn warnings(text: &str) -> Vec<String> {
    let findings = loaded(text).findings.into_iter();
    let warnings = findings.filter(|finding| finding.severity == Severity::Warning);
    warnings
        .map(|f| format!("{}: {}", f.option, f.message))
        .collect()
}

#[test]
fn unsupported_values_of_options_are_reported() {
    for (text, option) in [
        (
            "master_tops: {cobbler: {}}\npython_bridge: false\n",
            "master_tops: \"cobbler\"",
        ),
        ("master_tops: [x]\n", "master_tops: "),
        (
            "ext_pillar: [{consul: x}]\npython_bridge: off\n",
            "ext_pillar: \"consul\"",
        ),
        (
            "renderer: mako|yaml\npython_bridge: false\n",
            "renderer: \"mako\"",
        ),
        ("ext_pillar: [git]\n", "ext_pillar: an entry"),
        ("ext_pillar: {git: x}\n", "ext_pillar: "),
        (
            "pillar_cache_backend: redis\n",
            "pillar_cache_backend: \"redis\"",
        ),
        (
            "pillar_source_merging_strategy: nonsense\n",
            "pillar_source_merging_strategy: \"nonsense\"",
        ),
        ("nodegroups: {a: {x: 1}}\n", "nodegroups: the group \"a\""),
        ("nodegroups: {a: [1]}\n", "nodegroups: the group \"a\""),
        ("mine_get: {'a(': [x]}\n", "mine_get: \"a(\""),
        ("mine_get: {a: ['x)']}\n", "mine_get: \"x)\""),
        ("mine_get: {a: x}\n", "mine_get: a rule"),
        ("mine_get: [a]\n", "mine_get: "),
        ("order_masters: True\n", "order_masters: every minion"),
    ] {
        let found = warnings(text);
        let of_option = found.iter().filter(|warning| warning.starts_with(option));
        assert_eq!(of_option.count(), 1, "{text}: {found:?}");
    }
    let wrong = "pillar_cache: True\npillar_cache_backend: redis\n";
    assert_eq!(errors(wrong).len(), 1, "the master could not start");
    for good in [
        "master_tops: {ext_nodes: /bin/true}\n",
        "ext_pillar: [{cmd_yaml: 'x'}, {stack: /x}, {git: [main x]}]\n",
        "ext_pillar: [{consul: x}]\nexclude_ext_pillar: [consul]\n",
        // Only hints: Python runs them.
        "master_tops: {cobbler: {}}\next_pillar: [{consul: x}]\nrenderer: mako|yaml\n",
        "pillar_cache: True\npillar_cache_backend: memory\n",
        "pillar_source_merging_strategy: list\n",
        "nodegroups: {a: 'web* or L@x', b: ['N@a', 'or', 'c']}\n",
        "mine_get: {'(?!x)a.*': ['test\\..*', '[[]x', 'x\\Z']}\n",
        "failhard: True\nstate_events: True\nstate_aggregate: True\n",
        "top_file_merging_strategy: same\ndefault_top: dev\n",
    ] {
        let found = warnings(good);
        let names = good.lines().filter_map(|line| line.split(':').next());
        for name in names.filter(|name| *name != "exclude_ext_pillar") {
            let of_option = found.iter().filter(|warning| warning.starts_with(name));
            assert_eq!(of_option.count(), 0, "{good}: {found:?}");
        }
    }
    let found = warnings("failhard: [x]\n");
    assert!(
        found
            .iter()
            .any(|warning| warning.starts_with("failhard: ")),
        "{found:?}"
    );
}

#[test]
fn findings_about_python_are_marked() {
    for off in ["", "python_bridge: false\n"] {
        let text = format!("{off}renderer: jinja|mako|yaml\nsaltern_no_such_option: 1\n");
        let findings = loaded(&text).findings;
        let about = |needs_python| {
            let these = findings.iter().filter(|it| it.needs_python == needs_python);
            these.map(|it| it.option.as_str()).collect::<Vec<_>>()
        };
        assert_eq!(about(true), ["renderer"], "{findings:?}");
        assert!(about(false).contains(&"saltern_no_such_option"));
    }
}

#[test]
fn modules_that_only_python_can_run_are_named() {
    for (text, option, module) in [
        (
            "external_auth: {pam: {ann: ['.*']}, ldap: {bob: ['.*']}}\n",
            "external_auth",
            "ldap",
        ),
        ("event_return: [saltern, redis]\n", "event_return", "redis"),
        ("event_return: redis\n", "event_return", "redis"),
        ("ext_job_cache: redis\n", "ext_job_cache", "redis"),
        ("master_job_cache: redis\n", "master_job_cache", "redis"),
    ] {
        for (off, severity) in [
            ("", Severity::Info),
            ("python_bridge: false\n", Severity::Warning),
        ] {
            let findings = loaded(&format!("{text}{off}")).findings;
            let [finding] = findings.as_slice() else {
                panic!("{findings:?}")
            };
            assert_eq!(
                (finding.severity, finding.option.as_str()),
                (severity, option)
            );
            assert!(
                finding.needs_python && finding.message.contains(module),
                "{finding}"
            );
        }
    }
}
