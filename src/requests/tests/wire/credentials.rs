//! Every command with every kind of credential, against a table: what each may open, and nothing
//! else. The lesson of CVE-2020-11651, where unauthenticated methods were callable.

use std::time::Duration;

use bytes::Bytes;
use saltern_requests::{Effect, NO_ANSWER};
use saltern_store::Claims;
use saltern_wire::msgpack::Value;

use crate::wire::client::{Load, Minion, clear, commands, published_by_root};
use crate::wire::site::{Site, decode, sent, started};

/// Outcome of a request: `y` it is served, `n` its sender is not authenticated, `r` the sender is
/// not authorised, `.` there is no such command, `b` stock's "bad load", `-` stock's text for a
/// fault.
///
/// `alice` may do everything that rules can allow, `lim` only `test.version`; `bob` is the same by
/// the key of a local user. `mallory` is on the blacklist.
const CLEAR: &str = "
    credential            ping get_token mk_token publish saltern_batch saltern_query runner wheel
    nothing                 y      n        n        n          n         n             n     n
    empty key               y      n        n        n          n         n             n     n
    wrong key               y      n        n        n          n         n             n     n
    key that is a list      y      n        n        n          n         n             n     n
    key of another user     y      n        n        n          n         n             n     n
    key of root             y      n        n        y          y         y             y     y
    root by sudo            y      n        n        y          y         y             y     y
    root, key of bob        y      n        n        n          n         n             n     n
    sudo_alice, key of bob  y      n        n        n          n         n             n     n
    no user, key of bob     y      n        n        -          -         n             n     n
    key of bob              y      n        n        r          r         n             n     n
    mallory, key of root    y      n        n        r          r         y             y     y
    token                   y      y        n        y          y         y             y     y
    token of lim            y      y        n        r          r         n             n     n
    token, mallory          y      y        n        r          r         y             y     y
    expired token           y      n        n        n          n         n             n     n
    revoked token           y      n        n        n          n         n             n     n
    token nobody has        y      n        n        n          n         n             n     n
    token of no backend     y      y        n        n          n         n             n     n
    token that is a path    y      n        n        n          n         n             n     n
    token that is a list    y      n        n        n          n         n             n     n
    bad token, key of root  y      n        n        n          n         n             n     n
    login                   y      n        y        y          y         y             y     y
    login of lim            y      n        y        r          r         n             n     n
    login of nobody         y      n        y        r          r         n             n     n
    wrong password          y      n        n        n          n         n             n     n
    no password             y      n        n        n          n         n             n     n
    no name                 y      n        n        n          n         n             n     n
    backend not enabled     y      n        n        n          n         n             n     n
    backend not built in    y      n        n        n          n         n             n     n
    backend that is a list  y      n        n        n          n         n             n     n
    bad login, key of root  y      n        n        n          n         n             n     n
    syndic's list           y      n        n        r          r         y             y     y
    list without the key    y      n        n        r          r         n             n     n
";

/// Names that are no commands: methods and attributes of stock's own classes among them.
const NO_COMMANDS: [&str; 15] = [
    "",
    "__init__",
    "__class__",
    "_prep_auth_info",
    "_prep_pub",
    "_send_pub",
    "_prep_jid",
    "auth",
    "check_authentication",
    "destroy",
    "get_method",
    "loadauth",
    "minion_config",
    "rm_token",
    "Publish",
];

/// Commands that no user can call: those names, and all commands of minions.
fn no_commands() -> impl Iterator<Item = &'static str> {
    NO_COMMANDS.into_iter().chain(commands())
}

const OPTIONS: &str = "
client_acl_verify: False
sharedsecret: s3cret
external_auth:
  sharedsecret:
    alice: ['.*', '@runner', '@wheel']
    lim: [test.version]
    mallory: ['.*', '@runner', '@wheel']
  ldap:
    alice: ['.*']
publisher_acl:
  bob: [test.version]
publisher_acl_blacklist:
  users: [mallory]
";

/// A site, and the tokens of its users.
struct Fixture {
    site: Site,
    tokens: Tokens,
}

struct Tokens {
    alice: String,
    lim: String,
    expired: String,
    revoked: String,
    of_no_backend: String,
}

impl Fixture {
    fn new() -> Self {
        let site = Site::new(OPTIONS);
        site.accept("m1", "minion");
        let make = |name: &str, eauth: &str, seconds: u64| {
            let claims = Claims {
                name: name.to_owned(),
                eauth: eauth.to_owned(),
                groups: Vec::new(),
                auth_list: None,
                lasts: Duration::from_secs(seconds),
            };
            let token = site.services.users.tokens.create(claims).unwrap();
            let name = token.to_value().get("token").and_then(Value::as_str);
            name.unwrap().to_owned()
        };
        let tokens = Tokens {
            alice: make("alice", "sharedsecret", 3600),
            lim: make("lim", "sharedsecret", 3600),
            expired: make("alice", "sharedsecret", 1),
            revoked: make("alice", "sharedsecret", 3600),
            of_no_backend: make("alice", "pam", 3600),
        };
        site.clock.advance(Duration::from_secs(1));
        // Expired tokens are removed at the first lookup; so that no row leaves a trace.
        assert_eq!(site.services.users.tokens.sweep().unwrap(), 1);
        assert!(site.services.users.tokens.remove(&tokens.revoked).unwrap());
        Self { site, tokens }
    }

    fn key(&self, user: &str) -> String {
        let rules = self.site.services.users.rules();
        let key = rules.users.key(user).unwrap();
        key.expose().to_owned()
    }

    /// The entries of a credential in the load itself, and in its `kwargs`.
    fn credential(&self, name: &str) -> (Load, Load) {
        let none = Load::new;
        let user = |user: &str| none().set("user", user);
        let tokens = &self.tokens;
        let token = |name: &str| (user("root"), none().set("token", name));
        let login = |eauth: &str, name: &str, password: &str| {
            let login = none().set("eauth", eauth).set("username", name);
            (user("root"), login.set("password", password))
        };
        let shared = |name: &str, password: &str| login("sharedsecret", name, password);
        let auth_list = none().set("auth_list", Value::Array(vec!["test.version".into()]));
        match name {
            "nothing" => (user("root"), none()),
            "empty key" => (user("root").set("key", ""), none()),
            "wrong key" => (user("root").set("key", "x".repeat(76).as_str()), none()),
            "key that is a list" => {
                let keys = Value::Array(vec![self.key("root").as_str().into()]);
                (user("root").set("key", keys), none())
            }
            "key of another user" => (user("ann").set("key", self.key("bob").as_str()), none()),
            "key of root" => (user("root").set("key", self.key("root").as_str()), none()),
            "root by sudo" => {
                let load = user("sudo_bob").set("key", self.key("root").as_str());
                (load, none())
            }
            "root, key of bob" => (user("root").set("key", self.key("bob").as_str()), none()),
            "sudo_alice, key of bob" => {
                let load = user("sudo_alice").set("key", self.key("bob").as_str());
                (load, none())
            }
            "no user, key of bob" => (none().set("key", self.key("bob").as_str()), none()),
            "key of bob" => (user("bob").set("key", self.key("bob").as_str()), none()),
            "mallory, key of root" => {
                let load = user("mallory").set("key", self.key("root").as_str());
                (load, none())
            }
            "token" => token(&tokens.alice),
            "token of lim" => token(&tokens.lim),
            "token, mallory" => (user("mallory"), none().set("token", tokens.alice.as_str())),
            "expired token" => token(&tokens.expired),
            "revoked token" => token(&tokens.revoked),
            "token nobody has" => token(&"a".repeat(64)),
            "token of no backend" => token(&tokens.of_no_backend),
            "token that is a path" => token(&format!("../tokens/{}", tokens.alice)),
            "token that is a list" => {
                let names = Value::Array(vec![tokens.alice.as_str().into()]);
                (user("root"), none().set("token", names))
            }
            "bad token, key of root" => {
                let load = user("root").set("key", self.key("root").as_str());
                (load, none().set("token", "a".repeat(64).as_str()))
            }
            "login" => shared("alice", "s3cret"),
            "login of lim" => shared("lim", "s3cret"),
            "login of nobody" => shared("carl", "s3cret"),
            "wrong password" => shared("alice", "secret"),
            "no password" => {
                let (load, login) = shared("alice", "");
                (load, login.without("password"))
            }
            "no name" => {
                let (load, login) = shared("alice", "s3cret");
                (load, login.without("username"))
            }
            "backend not enabled" => login("auto", "alice", "s3cret"),
            "backend not built in" => login("ldap", "alice", "s3cret"),
            "backend that is a list" => {
                let (load, login) = shared("alice", "s3cret");
                let backends = Value::Array(vec!["sharedsecret".into()]);
                (load, login.set("eauth", backends))
            }
            "bad login, key of root" => {
                let load = user("root").set("key", self.key("root").as_str());
                (load, shared("alice", "secret").1)
            }
            "syndic's list" => {
                let load = user("root").set("key", self.key("root").as_str());
                (load, auth_list)
            }
            // Wider than the user's own rules, and therefore ignored.
            "list without the key" => {
                let all = Value::Array(vec![".*".into()]);
                let load = user("bob").set("key", self.key("bob").as_str());
                (load, none().set("auth_list", all))
            }
            other => panic!("no credential is called {other:?}"),
        }
    }

    /// A load that stock would take for this command, with a credential where it belongs.
    fn load(&self, command: &str, credential: &str) -> Load {
        let (mut load, beside) = self.credential(credential);
        load = load.set("cmd", command);
        if matches!(command, "publish" | "saltern_batch") {
            return load
                .set("tgt", "m1")
                .set("fun", "test.ping")
                .set("arg", Value::Array(Vec::new()))
                .set("tgt_type", "glob")
                .set("ret", "")
                .set("jid", "")
                .set("batch", Value::map([("size", 1)]))
                .set("kwargs", beside);
        }
        let Value::Map(entries) = beside.value() else {
            panic!("a map");
        };
        for (name, value) in entries {
            load = load.set(name.as_str().unwrap(), value);
        }
        let fun = match command {
            "saltern_query" => "jobs.page",
            "wheel" => "key.list_all",
            _ => "jobs.list_jobs",
        };
        load.set("fun", fun).set("kwarg", Load::new())
    }
}

/// The letter for the outcome of a request.
fn letter(fixture: &Fixture, command: &str, what: &str, payload: Bytes) -> char {
    let before = fixture.site.files();
    let outcome = fixture.site.ask(payload);
    let reply = decode(&outcome.reply);
    let untouched = || {
        let fires_only = outcome.effects.iter().all(|effect| {
            let Effect::Fire(event) = effect else {
                return false;
            };
            event.tag.to_string().starts_with("salt/job/")
        });
        assert!(fires_only, "{what}: it is refused and has effects");
        assert_eq!(fixture.site.files(), before, "{what}: it left a trace");
    };
    let error = reply.get("error");
    let error = error.map(|error| error.get("name").unwrap_or(error));
    let refused = match (command, &reply, error.and_then(Value::as_str)) {
        ("ping", _, _) => None,
        (_, _, Some("AuthorizationError")) => Some('r'),
        (_, _, Some(name)) if name.ends_with("AuthenticationError") => Some('n'),
        ("get_token", Value::Bool(false), _) => Some('n'),
        ("get_token", Value::Map(entries), _) if entries.is_empty() => Some('n'),
        ("mk_token", Value::Str(text), _) if text.is_empty() => Some('n'),
        (_, Value::Map(entries), _) if entries.is_empty() => Some('.'),
        (_, Value::Str(text), _) if text == "bad load" => Some('b'),
        (_, Value::Str(text), _) if text == NO_ANSWER => Some('-'),
        _ => None,
    };
    let Some(refused) = refused else {
        return 'y';
    };
    untouched();
    refused
}

#[test]
fn credential_table_has_every_clear_command() {
    let (mut columns, _) = table();
    columns.push("_auth");
    columns.sort_unstable();
    let mut served: Vec<_> = saltern_requests::clear_commands().collect();
    served.sort_unstable();
    assert_eq!(columns, served);
}

/// The table's columns, and its rows with a letter for each.
fn table() -> (Vec<&'static str>, Vec<(&'static str, Vec<char>)>) {
    let mut lines = CLEAR.lines().map(str::trim).filter(|line| !line.is_empty());
    let columns: Vec<&str> = lines.next().unwrap().split_whitespace().skip(1).collect();
    let rows = lines.map(|line| {
        let (name, letters) = line.split_once("  ").unwrap();
        let letters = letters.split_whitespace().map(|word| {
            let mut letters = word.chars();
            letters.next().unwrap()
        });
        (name, letters.collect())
    });
    (columns, rows.collect())
}

#[test]
fn clear_commands_open_to_listed_credentials_only() {
    let (commands, rows) = table();
    let mut wrong = Vec::new();
    for (credential, letters) in rows {
        assert_eq!(letters.len(), commands.len(), "{credential}");
        let fixture = Fixture::new();
        for (command, expected) in commands.iter().zip(letters) {
            let what = format!("{command} with {credential}");
            let payload = clear(fixture.load(command, credential), 3);
            let found = letter(&fixture, command, &what, payload);
            if found != expected {
                wrong.push(format!("{what}: {found:?}, not {expected:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn unknown_command_is_refused_with_every_credential() {
    let fixture = Fixture::new();
    let (_, rows) = table();
    for (credential, _) in rows {
        for command in no_commands() {
            let what = format!("{command} with {credential}");
            let payload = clear(fixture.load(command, credential), 3);
            assert_eq!(letter(&fixture, command, &what, payload), '.', "{what}");
        }
    }
}

/// The session of a minion opens none of the clear commands, whatever else stands in the load.
#[test]
fn minion_session_opens_no_user_command() {
    let fixture = Fixture::new();
    let minion = Minion::signed_in(&fixture.site, "m1");
    let (commands, rows) = table();
    for (credential, _) in rows {
        for command in commands.iter().chain(&["_auth"]) {
            let what = format!("{command} with {credential}, sealed");
            let Value::Map(entries) = fixture.load(command, credential).value() else {
                panic!("a map");
            };
            let mut load = minion.load(command);
            for (name, value) in entries {
                load = load.set(name.as_str().unwrap(), value);
            }
            let reply = fixture.site.ask_in_vain(&what, minion.sealed(load, 3));
            assert_eq!(minion.open(&reply, 3), Value::Map(Vec::new()), "{what}");
        }
    }
}

/// A user's credentials open none of the commands of minions without the minion's session.
#[test]
fn user_credential_opens_no_minion_command() {
    let fixture = Fixture::new();
    let m1 = Minion::signed_in(&fixture.site, "m1");
    let m2 = Minion::signed_in(&fixture.site, "m2");
    let (_, rows) = table();
    for (credential, _) in rows {
        for command in no_commands().filter(|name| name.starts_with('_')) {
            let what = format!("{command} with {credential} and another minion's session");
            let Value::Map(entries) = fixture.load(command, credential).value() else {
                panic!("a map");
            };
            let mut load = m1.load(command);
            for (name, value) in entries {
                load = load.set(name.as_str().unwrap(), value);
            }
            let payload = m1.envelope(load, 3).set("id", "m2").packed();
            let reply = fixture.site.ask_in_vain(&what, payload);
            assert_eq!(decode(&reply).as_str(), Some("bad load"), "{what}");
        }
    }
    drop(m2);
}

/// Credentials are checked first: a large load without them is refused for the same reason and in
/// the same words as a small one, and one of a proved sender is carried out whole.
#[test]
fn large_load_is_decoded_for_proved_sender_only() {
    let site = Site::new("");
    site.accept("m1", "minion");
    let large = Value::Array(vec![Value::from("x".repeat(100)); 2_000]);
    let ours = || published_by_root(&site, "m1");
    for (what, load) in [("publish", ours()), ("runner", ours()), ("wheel", ours())] {
        let load = load.set("cmd", what).set("key", "wrong");
        let small = site.ask(clear(load.clone(), 3)).reply;
        let kwargs = Value::map([("kept", large.clone())]);
        for load in [
            load.clone().set("arg", large.clone()),
            load.set("kwargs", kwargs),
        ] {
            assert_eq!(site.ask(clear(load, 3)).reply, small, "{what}");
        }
    }
    let outcome = site.ask(clear(ours().set("arg", large.clone()), 3));
    assert_eq!(sent(started(&outcome)).get("arg"), Some(&large));
}
