//! Pillars beyond a comparison with stock: bounds, roots that hold, files that change, kept
//! pillars. A little over 500 lines with the tree that all of them share.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use saltern_base::clock::Clock;
use saltern_config::load_master;
use saltern_content::ext_pillar::ExtPillars;
use saltern_content::files::FileServer;
use saltern_content::pillar::{Parts, PillarError, PillarRequest, Pillars};
use saltern_content::render::json;
use saltern_content::render::modules::site::NoSite;
use saltern_model::MinionId;
use saltern_wire::msgpack::Value;
use tempfile::TempDir;

/// A master with a tree of pillars.
struct Master {
    top: TempDir,
    clock: Clock,
}

impl Master {
    fn new(files: &[(&str, &str)]) -> Self {
        let master = Self {
            top: tempfile::tempdir().unwrap(),
            clock: Clock::manual(Clock::system().now()),
        };
        for (path, text) in files {
            master.write(path, text);
        }
        master
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn path(&self) -> &Path {
        self.top.path()
    }

    fn open(&self, options: &str) -> Result<Pillars, PillarError> {
        let at = self.path().display();
        let roots = match options.contains("pillar_roots") {
            true => String::new(),
            false => format!("pillar_roots: {{base: ['{at}/base']}}\n"),
        };
        let text = format!(
            "root_dir: {at}\ncachedir: {at}/cache\npki_dir: {at}/pki\nsock_dir: {at}/run\n\
             log_file: {at}/log\n{roots}{}",
            options.replace("{top}", &at.to_string())
        );
        let conf = self.path().join("master");
        fs::write(&conf, text).unwrap();
        let loaded = load_master(&conf).unwrap_or_else(|errors| panic!("{:?}", errors.findings));
        let config = loaded.config;
        let parts = Parts {
            clock: self.clock.clone(),
            files: Arc::new(FileServer::new(&config, self.clock.clone()).unwrap()),
            ext: ExtPillars::new(&config).unwrap(),
            site: Arc::new(NoSite),
            bridge: None,
        };
        Pillars::new(&config, parts)
    }
}

fn request() -> PillarRequest {
    let grains = data(r#"{"id": "web1", "os": "Debian"}"#);
    PillarRequest::new(MinionId::parse("web1").unwrap(), Arc::new(grains))
}

fn data(text: &str) -> Value {
    json::parse(text).unwrap()
}

/// The texts of `_errors`, joined.
fn errors(pillar: &Value) -> String {
    let errors = pillar.get("_errors").and_then(Value::as_array);
    let errors = errors.unwrap_or_default().iter().filter_map(Value::as_str);
    errors.collect::<Vec<_>>().join("; ")
}

const TOP: (&str, &str) = ("base/top.sls", "base: {'*': [all]}\n");

#[test]
fn an_environment_of_a_minion_does_not_lead_out_of_its_root() {
    let master = Master::new(&[
        ("envs/qa/top.sls", "qa: {'*': [all]}\n"),
        ("envs/qa/all.sls", "a: qa\n"),
        ("secret/top.sls", "'../secret': {'*': [all]}\n"),
        ("secret/all.sls", "a: secret\n"),
    ]);
    let pillars = master
        .open("pillar_roots: {__env__: ['{top}/envs/__env__']}\n")
        .unwrap();
    for (pillarenv, expected) in [("qa", r#"{"a": "qa"}"#), ("", "{}")] {
        let asked = PillarRequest {
            pillarenv: Some(pillarenv.to_owned()),
            ..request()
        };
        assert_eq!(pillars.compile(&asked), data(expected), "{pillarenv:?}");
    }
}

#[test]
fn invalid_environment_name_compiles_nothing() {
    // What a minion has stored with the master, where `../` leads to.
    let master = Master::new(&[
        TOP,
        ("base/all.sls", "a: 1\n"),
        ("stack/qa/stack.cfg", "[data.yml]\n"),
        ("stack/qa/data.yml", "stack: qa\n"),
        ("stolen/stack.cfg", "[data.yml]\n"),
        (
            "stolen/data.yml",
            "stack: {{ __salt__['cmd.run']('id') }}\n",
        ),
    ]);
    let stack = "ext_pillar:\n- stack:\n    'opts:id': \
                 {web1: '{top}/stack/__env__/stack.cfg'}\n";
    let pillars = master.open(stack).unwrap();
    for (name, expected) in [
        ("qa", Some("qa")),
        ("../stolen", None),
        ("qa/../../stolen", None),
        ("/stolen", None),
        ("qa//..", None),
        ("\0", None),
    ] {
        for asked in [
            PillarRequest {
                pillarenv: Some(name.to_owned()),
                ..request()
            },
            PillarRequest {
                saltenv: Some(name.to_owned()),
                ..request()
            },
        ] {
            let pillar = pillars.compile(&asked);
            let found = pillar.get("stack").and_then(Value::as_str);
            assert_eq!(found, expected, "{name:?}");
            let is_refused = errors(&pillar).contains("cannot be the name of an environment");
            assert_eq!(is_refused, expected.is_none(), "{name:?}: {pillar:?}");
        }
    }
    // The site's own option says nothing else to `stack`.
    let pillars = master
        .open(&format!("pillarenv: ../stolen\n{stack}"))
        .unwrap();
    let pillar = pillars.compile(&request());
    assert_eq!(pillar.get("stack"), None);
    assert!(errors(&pillar).contains("cannot be the name of an environment"));
}

#[test]
fn grains_in_an_include_do_not_lead_out_of_the_root() {
    let master = Master::new(&[
        TOP,
        ("base/all.sls", "include: ['{{ grains.role }}']\n"),
        ("secret.sls", "secret: 1\n"),
    ]);
    let pillars = master.open("").unwrap();
    for role in [
        "../secret",
        "/../secret",
        "....secret",
        "a/../../secret",
        "\u{0}",
    ] {
        let asked = PillarRequest {
            grains: Arc::new(Value::map([("id", "web1"), ("role", role)])),
            ..request()
        };
        let pillar = pillars.compile(&asked);
        assert_eq!(pillar.get("secret"), None, "{role:?}");
        assert_ne!(errors(&pillar), "", "{role:?}");
    }
}

#[test]
fn endless_includes_are_an_error() {
    let deep: Vec<(String, String)> = (0..150)
        .map(|n| (format!("base/d{n}.sls"), format!("include: [d{}]\n", n + 1)))
        .collect();
    let mut files = vec![
        (
            "base/top.sls",
            "base: {'deep*': [d0], 'wide*': [w0], 'loop*': [l]}\n",
        ),
        (
            "base/l.sls",
            "a: {% for a in range(100000) %}{% for b in range(100000) %}x{% endfor %}{% endfor \
            %}\n",
        ),
    ];
    files.extend(
        deep.iter()
            .map(|(path, text)| (path.as_str(), text.as_str())),
    );
    // Each level holds the one below it four times.
    let wide: Vec<(String, String)> = (0..20)
        .map(|n| {
            let next = format!("w{}", n + 1);
            let keys = ["a", "b", "c", "d"].map(|key| format!("{{{next}: {{key: {key}}}}}"));
            (
                format!("base/w{n}.sls"),
                format!("include: [{}]\nx: 1\n", keys.join(", ")),
            )
        })
        .collect();
    files.extend(
        wide.iter()
            .map(|(path, text)| (path.as_str(), text.as_str())),
    );
    let big = "y: ".to_owned() + &"z".repeat(4 << 20);
    files.push(("base/w20.sls", &big));
    let master = Master::new(&files);
    // Time enough for a busy machine, which is no bound here.
    let options = "pillar_safe_render_error: false\nsaltern_render_timeout: 600\n\
                   saltern_pillar_timeout: 600\n";
    let pillars = master.open(options).unwrap();
    for (minion, expected) in [
        ("deep1", "is included more than 100 levels deep"),
        ("wide1", "the pillar is larger than is allowed"),
        ("loop1", "more than"),
    ] {
        let asked = PillarRequest {
            minion: MinionId::parse(minion).unwrap(),
            ..request()
        };
        let found = errors(&pillars.compile(&asked));
        assert!(found.contains(expected), "{minion}: {found}");
    }
}

#[test]
fn pillar_nested_too_deeply_is_an_error() {
    let key = |parts: usize| vec!["a"; parts].join(":");
    let chain: Vec<(String, String)> = (0..50)
        .map(|n| {
            let include = format!("include: [{{c{}: {{key: '{}'}}}}]\n", n + 1, key(90));
            (format!("base/c{n}.sls"), include)
        })
        .collect();
    let long = format!("include: [{{leaf: {{key: '{}'}}}}]\n", key(50_000));
    let fine = format!("include: [{{leaf: {{key: '{}'}}}}]\n", key(50));
    let mut files = vec![
        (
            "base/top.sls",
            "base: {'long': [long], 'chain': [c0], 'fine': [fine]}\n",
        ),
        ("base/leaf.sls", "leaf: 1\n"),
        ("base/c50.sls", "leaf: 1\n"),
        ("base/long.sls", &long),
        ("base/fine.sls", &fine),
    ];
    files.extend(
        chain
            .iter()
            .map(|(path, text)| (path.as_str(), text.as_str())),
    );
    let master = Master::new(&files);
    let pillars = master.open("").unwrap();
    for (minion, expected) in [
        ("long", "a key of more than"),
        ("chain", "nested too deeply"),
        ("fine", ""),
    ] {
        let asked = PillarRequest {
            minion: MinionId::parse(minion).unwrap(),
            ..request()
        };
        let said = errors(&pillars.compile(&asked));
        assert!(
            said.contains(expected) && said.is_empty() == expected.is_empty(),
            "{said}"
        );
    }
}

#[test]
fn nested_list_merges_are_bounded() {
    let names: Vec<String> = (0..300).map(|n| format!("l{n}")).collect();
    let top = format!("base: {{'*': [{}]}}\n", names.join(", "));
    let mut files = vec![("base/top.sls".to_owned(), top)];
    files.extend(
        names
            .iter()
            .map(|name| (format!("base/{name}.sls"), "a: 1\n".to_owned())),
    );
    let files: Vec<_> = files
        .iter()
        .map(|(path, text)| (path.as_str(), text.as_str()))
        .collect();
    // The first file gives the key that the others add to.
    let asked = PillarRequest {
        pillar_override: Some(data(r#"{"a": 0}"#)),
        ..request()
    };
    let master = Master::new(&files);
    let pillars = master
        .open("pillar_source_merging_strategy: list\n")
        .unwrap();
    let said = errors(&pillars.compile(&asked));
    assert!(said.contains("nested too deeply"), "{said}");
}

#[test]
fn pillar_override_is_bounded() {
    let mut deep = Value::from("x");
    for _ in 0..400 {
        deep = Value::Array(vec![deep]);
    }
    let master = Master::new(&[]);
    let pillars = master.open("").unwrap();
    for (given, expected) in [
        (Value::map([("a", deep)]), "nested too deeply"),
        (Value::map([("a", "x".repeat(17 << 20))]), "takes more than"),
        (Value::map([("a", "x".repeat(1 << 20))]), ""),
    ] {
        let asked = PillarRequest {
            pillar_override: Some(given),
            ..request()
        };
        let pillar = pillars.compile(&asked);
        let said = errors(&pillar);
        assert!(said.contains(expected), "{said}");
        assert_eq!(pillar.get("a").is_some(), expected.is_empty());
    }
}

#[test]
fn python_renderers_without_python_are_named_errors() {
    for renderer in ["py", "mako|yaml", "jinja|yaml|stateconf", "our_own"] {
        let text = format!("#!{renderer}\na: 1\n");
        let master = Master::new(&[TOP, ("base/all.sls", &text)]);
        let pillars = master.open("pillar_safe_render_error: false\n").unwrap();
        let found = errors(&pillars.compile(&request()));
        let name = renderer
            .split('|')
            .find(|name| !["jinja", "yaml"].contains(name));
        assert!(found.contains(name.unwrap()), "{renderer}: {found}");
    }
}

#[test]
fn changed_pillar_file_is_read_again() {
    let master = Master::new(&[TOP, ("base/all.sls", "include: ['sub.*']\na: 1\n")]);
    let pillars = master.open("").unwrap();
    // Long after all files were written, so that their texts and names are kept.
    master.clock.advance(Duration::from_secs(60));
    for _ in 0..2 {
        assert_eq!(pillars.compile(&request()).get("a"), Some(&Value::Int(1)));
    }
    master.write("base/all.sls", "include: ['sub.*']\na: 22\n");
    master.write("base/sub/new.sls", "new: 1\n");
    let expected = data(r#"{"new": 1, "a": 22}"#);
    assert_eq!(pillars.compile(&request()), expected);
    fs::remove_file(master.path().join("base/sub/new.sls")).unwrap();
    assert_eq!(pillars.compile(&request()).get("new"), None);
}

#[test]
fn cached_pillars_expire() {
    for backend in ["disk", "memory"] {
        let master = Master::new(&[TOP, ("base/all.sls", "a: 1\n")]);
        let options =
            format!("pillar_cache: true\npillar_cache_ttl: 100\npillar_cache_backend: {backend}\n");
        let pillars = master.open(&options).unwrap();
        let ask = |request: PillarRequest| pillars.compile(&request).get("a").cloned();
        assert_eq!(ask(request()), Some(Value::Int(1)), "{backend}");
        master.write("base/all.sls", "a: 22\n");
        assert_eq!(ask(request()), Some(Value::Int(1)), "{backend}: kept");
        let other = PillarRequest {
            minion: MinionId::parse("web2").unwrap(),
            ..request()
        };
        assert_eq!(
            ask(other),
            Some(Value::Int(22)),
            "{backend}: another minion"
        );
        let with = PillarRequest {
            pillar_override: Some(data(r#"{"a": 3}"#)),
            ..request()
        };
        assert_eq!(ask(with), Some(Value::Int(3)), "{backend}: an override");
        assert_eq!(
            ask(request()),
            Some(Value::Int(1)),
            "{backend}: is not kept"
        );
        master.clock.advance(Duration::from_secs(101));
        assert_eq!(
            ask(request()),
            Some(Value::Int(22)),
            "{backend}: after its time"
        );
        master.write("base/all.sls", "a: 333\n");
        let clean = PillarRequest {
            clean_cache: true,
            ..request()
        };
        assert_eq!(ask(clean), Some(Value::Int(333)), "{backend}: cleaned");
        master.write("base/all.sls", "a: 4444\n");
        pillars.forget(&request().minion);
        assert_eq!(
            ask(request()),
            Some(Value::Int(4444)),
            "{backend}: forgotten"
        );
        if backend == "disk" {
            let file = master.path().join("cache/pillar_cache/web1");
            let mode = fs::metadata(file).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600);
            let again = master.open(&options).unwrap();
            master.write("base/all.sls", "a: 55555\n");
            let found = again.compile(&request()).get("a").cloned();
            assert_eq!(found, Some(Value::Int(4444)), "after a restart");
        }
    }
}

/// Neither is it given what was kept without them, nor is what it gets given to others.
#[test]
fn ext_pillar_on_demand_bypasses_the_cache() {
    let master = Master::new(&[TOP, ("base/all.sls", "a: 1\n")]);
    let pillars = master.open("pillar_cache: true\n").unwrap();
    let on_demand = || PillarRequest {
        ext: Some(data(r#"{"custom": {"of": "the minion"}}"#)),
        ..request()
    };
    let ask = |request: PillarRequest| pillars.compile(&request).get("a").cloned();
    assert_eq!(ask(on_demand()), Some(Value::Int(1)));
    master.write("base/all.sls", "a: 22\n");
    assert_eq!(ask(request()), Some(Value::Int(22)), "nothing was kept");
    master.write("base/all.sls", "a: 333\n");
    assert_eq!(ask(on_demand()), Some(Value::Int(333)), "made anew");
    assert_eq!(ask(request()), Some(Value::Int(22)), "what was kept stays");
}

#[test]
fn pillar_with_errors_is_not_cached() {
    let master = Master::new(&[TOP]);
    let pillars = master.open("pillar_cache: true\n").unwrap();
    assert!(errors(&pillars.compile(&request())).contains("Specified SLS 'all'"));
    master.write("base/all.sls", "a: 1\n");
    assert_eq!(pillars.compile(&request()), data(r#"{"a": 1}"#));
}

const SECRETS: &str = "key_pass: hidden
signing_key_pass: hidden
sharedsecret: hidden
gitfs_password: hidden
my_secret: hidden
auth.ldap.bindpw: hidden
gitfs_remotes:
- https://me:hidden@host/a
- https://host/b:
  - user: me
  - password: hidden
";

#[test]
fn pillar_opts_shows_the_options() {
    let master = Master::new(&[TOP, ("base/all.sls", "a: 1\n")]);
    for (compat, has_grains) in [("3006", false), ("3008", true)] {
        let options = format!("pillar_opts: true\nsalt_compat: {compat}\nmine: [x]\n{SECRETS}");
        let pillar = master.open(&options).unwrap().compile(&request());
        let shown = pillar.get("master").unwrap();
        assert_eq!(shown.get("id"), Some(&Value::from("web1")));
        assert_eq!(shown.get("mine"), Some(&data(r#"["x"]"#)));
        assert_eq!(shown.get("grains").is_some(), has_grains);
        let all = format!("{shown:?}");
        assert!(!all.contains("hidden"), "{all}");
        assert_eq!(shown.get("gitfs_password"), Some(&Value::from("")));
        assert!(shown.get("sharedsecret").is_none());
        let remotes = r#"["https://***@host/a", {"https://host/b": [{"user": "me"}, {}]}]"#;
        assert_eq!(shown.get("gitfs_remotes"), Some(&data(remotes)));
        assert!(shown.get("pass_dir").is_some());
        assert!(shown.get("saltern_job_database").is_none());
    }
}

#[test]
fn ext_pillar_on_demand_needs_permission_and_python() {
    let master = Master::new(&[TOP, ("base/all.sls", "a: 1\n")]);
    let pillars = master.open("").unwrap();
    let ask = |ext: &str| {
        let asked = PillarRequest {
            ext: Some(data(ext)),
            ..request()
        };
        errors(&pillars.compile(&asked))
    };
    assert!(ask(r#"{"libvirt": {}}"#).contains("libvirt\" is not available without Python"));
    // Stock only logs these.
    assert_eq!(ask(r#"{"cmd_yaml": "id"}"#), "");
    assert_eq!(ask(r#"["cmd_yaml"]"#), "");
}

#[test]
fn values_that_cannot_be_decrypted_are_errors() {
    let master = Master::new(&[TOP, ("base/all.sls", "a: {b: plain}\nc: 1\n")]);
    let pillars = master.open("decrypt_pillar: ['a:b', {c: moon}]\n").unwrap();
    let pillar = pillars.compile(&request());
    assert!(
        errors(&pillar).contains("Failed to decrypt pillar key 'c'"),
        "{pillar:?}"
    );
    assert_eq!(pillar.get("a"), Some(&data(r#"{"b": "plain"}"#)));
}

#[test]
fn site_without_pillars_is_empty() {
    let master = Master::new(&[]);
    assert!(master.open("").unwrap().is_empty());
    assert!(
        !master
            .open("ext_pillar: [{cmd_yaml: 'true'}]\n")
            .unwrap()
            .is_empty()
    );
    assert!(!master.open("pillar_opts: true\n").unwrap().is_empty());
    master.write("base/top.sls", "");
    assert!(!master.open("").unwrap().is_empty());
}

#[test]
fn options_that_cannot_work_are_named() {
    let master = Master::new(&[]);
    let error = master.open("pillar_roots: {base: [[1]]}\n");
    let error = error.err().unwrap().to_string();
    assert!(error.contains("pillar_roots"), "{error}");
}
