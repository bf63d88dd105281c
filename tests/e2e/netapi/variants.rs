//! Options of sites in the sections of the API, each on a master of its own without minions.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use saltern_tests::authority::Authority;
use saltern_tests::pam::PamService;
use saltern_tests::port::free_port;
use saltern_tests::process::peer;
use saltern_tests::site::SOON;
use saltern_tests::{Config, Release, Run, Server, Site, TestResult, run, wait_until};
use serde_json::{Value, json};

use super::request::{Answer, Request};
use super::{CLIENTS, Dialect, SECRET};

/// A master whose section has these options beside the usual ones.
fn with_section(
    dialect: Dialect,
    options: &str,
    scenario: impl FnOnce(&mut Site, u16) -> Result<()>,
) -> TestResult {
    with_options(dialect, options, |_| {}, scenario)
}

/// The same with options of the master as well. `ROOT` in `options` is the directory of the site.
fn with_options(
    dialect: Dialect,
    options: &str,
    configure: impl FnOnce(&mut Config),
    scenario: impl FnOnce(&mut Site, u16) -> Result<()>,
) -> TestResult {
    let port = free_port();
    Site::prepared(
        Server::Saltern(Release::V3008),
        |config| {
            let root = config.get("root_dir").unwrap_or_default().to_owned();
            let options = options.replace("ROOT", &root);
            let tls = if options.contains("ssl_crt") {
                ""
            } else {
                "disable_ssl: true, "
            };
            let section =
                format!("{{port: {port}, host: 127.0.0.1, address: 127.0.0.1, {tls}{options}}}");
            config
                .set(&dialect.section(), section)
                .set("netapi_enable_clients", CLIENTS)
                .set("sharedsecret", SECRET)
                .set(
                    "external_auth",
                    "{sharedsecret: {ann: ['.*', '@runner', '@wheel'], bob: ['test.*']}}",
                );
            configure(config);
        },
        |site| {
            site.announce("request refused");
            site.start_master_only()?;
            wait_until("the API to listen", SOON, || {
                TcpStream::connect(("127.0.0.1", port)).ok()
            })?;
            scenario(site, port)
        },
    )
}

fn credentials(user: &str) -> Value {
    json!({"username": user, "password": SECRET, "eauth": "sharedsecret"})
}

fn log_in(port: u16, user: &str) -> Result<Answer> {
    Request::post("/login", &credentials(user)).send(port)
}

fn session(port: u16, user: &str) -> Result<String> {
    let answer = log_in(port, user)?.json()?;
    let token = answer["return"][0]["token"].as_str();
    Ok(token.with_context(|| answer.to_string())?.to_owned())
}

/// Looks at the status, and at the text that the body has to have.
fn expect(answer: &Answer, status: u16, text: &str) -> Result<()> {
    ensure!(
        answer.status == status && answer.body.contains(text),
        "{status} with {text:?} is expected, not {answer:?}"
    );
    Ok(())
}

/// A command that runs in the master alone.
fn chunk() -> Value {
    json!([{"client": "runner", "fun": "test.arg", "arg": ["a"]}])
}

#[test]
fn pages_of_named_origins_may_use_the_cookie() -> TestResult {
    let options = "cors_origin: [http://ok.example]";
    with_section(Dialect::CherryPy, options, |_, port| {
        let cookie = format!("session_id={}", session(port, "ann")?);
        let from = |origin: &str| {
            let request = Request::post("/", &chunk()).header("Cookie", &cookie);
            request.header("Origin", origin).send(port)
        };
        let answer = from("http://ok.example")?;
        expect(&answer, 200, "\"args\": [\"a\"]")?;
        ensure!(
            answer.header("access-control-allow-origin") == Some("http://ok.example"),
            "{answer:?}"
        );
        expect(&from("http://other.example")?, 403, "another origin")?;
        expect(&from("null")?, 403, "another origin")
    })
}

#[test]
fn tornado_names_the_origins_that_the_site_names() -> TestResult {
    let named = |port, origin: &str| -> Result<Option<String>> {
        let answer = Request::get("/").header("Origin", origin).send(port)?;
        expect(&answer, 200, "Welcome")?;
        let allowed = answer.header("access-control-allow-origin");
        Ok(allowed.map(str::to_owned))
    };
    let options = "cors_origin: [http://ok.example]";
    with_section(Dialect::Tornado, options, |_, port| {
        let ok = named(port, "http://ok.example")?;
        ensure!(ok.as_deref() == Some("http://ok.example"), "{ok:?}");
        let other = named(port, "http://other.example")?;
        ensure!(other.is_none(), "{other:?}");
        Ok(())
    })?;
    with_section(Dialect::Tornado, "cors_origin: '*'", |_, port| {
        let any = named(port, "http://other.example")?;
        ensure!(any.as_deref() == Some("*"), "{any:?}");
        Ok(())
    })
}

#[test]
fn open_hooks_need_no_session() -> TestResult {
    for dialect in [Dialect::CherryPy, Dialect::Tornado] {
        let options = "webhook_disable_auth: true";
        with_section(dialect, options, |site, port| {
            site.listen()?;
            let mark = site.events().mark();
            let answer = Request::post("/hook/built", &json!({"number": 7})).send(port)?;
            expect(&answer, 200, "\"success\": true")?;
            let event = site.events().find_since(mark, "the hook", SOON, |event| {
                (event.tag == "salt/netapi/hook/built").then(|| event.clone())
            })?;
            ensure!(event.data["post"]["number"] == 7, "{event:?}");
            Ok(())
        })?;
    }
    let options = "webhook_disable_auth: true, webhook_url: /from/outside";
    with_section(Dialect::CherryPy, options, |_, port| {
        let answer = Request::post("/from/outside/built", &json!({})).send(port)?;
        expect(&answer, 200, "\"success\": true")?;
        let answer = Request::post("/hook/built", &json!({})).send(port)?;
        expect(&answer, 404, "not found")
    })
}

#[test]
fn application_and_files_of_the_site_are_served() -> TestResult {
    let options = "app: ROOT/gui/index.html, static: ROOT/gui, favicon: ROOT/gui/icon.ico";
    with_section(Dialect::CherryPy, options, |site, port| {
        let files = [
            ("gui/index.html", "<p>the application</p>"),
            ("gui/part/code.js", "let a = 1;"),
            ("gui/icon.ico", "an icon"),
            ("secret", "not below the directory"),
        ];
        for (name, text) in files {
            let path = site.path(name);
            fs::create_dir_all(path.parent().context("a directory")?)?;
            fs::write(path, text)?;
        }
        std::os::unix::fs::symlink(site.path("secret"), site.path("gui/link.txt"))?;
        let browser = |path: &str| {
            let request = Request::new("GET", path);
            request.header("Accept", "text/html,*/*;q=0.8").send(port)
        };
        for path in ["/", "/app", "/app/minions", "/minions", "/login"] {
            let answer = browser(path)?;
            expect(&answer, 200, "the application")?;
            let media = answer.header("content-type").unwrap_or_default();
            ensure!(media.starts_with("text/html"), "{path}: {answer:?}");
        }
        let get = |path: &str| Request::get(path).send(port);
        let answer = get("/static/part/code.js")?;
        expect(&answer, 200, "let a = 1;")?;
        let media = answer.header("content-type").unwrap_or_default();
        ensure!(media.contains("javascript"), "{answer:?}");
        expect(&get("/favicon.ico")?, 200, "an icon")?;
        for path in [
            "/static/../secret",
            "/static/%2e%2e/secret",
            "/static/..%2fsecret",
            "/static//etc/passwd",
            "/static/link.txt",
            "/static/none.txt",
            "/static/part",
        ] {
            let answer = get(path)?;
            ensure!(answer.status == 404, "{path}: {answer:?}");
        }
        // What is no browser has the API under the same paths.
        expect(&get("/")?, 200, "Welcome")
    })
}

#[test]
fn addresses_that_are_not_authorized_get_nothing() -> TestResult {
    with_section(
        Dialect::CherryPy,
        "authorized_ips: [10.0.0.1]",
        |_, port| {
            let low = Request::post("/", &chunk());
            let hook = Request::post("/hook/a", &json!({}));
            let requests = [
                Request::get("/"),
                Request::post("/login", &credentials("ann")),
                Request::post("/run", &chunk()),
                Request::get("/events"),
                low,
                hook,
            ];
            for request in requests {
                let answer = request.send(port)?;
                ensure!([401, 403].contains(&answer.status), "{answer:?}");
            }
            expect(&log_in(port, "ann")?, 403, "Bad IP")
        },
    )?;
    let options = "authorized_ips: [127.0.0.1], api_acl: {users: {ann: [127.0.0.1], \
                   bob: [10.0.0.1]}}";
    with_section(Dialect::CherryPy, options, |_, port| {
        expect(&log_in(port, "ann")?, 200, "token")?;
        expect(&log_in(port, "bob")?, 401, "Unauthorized")?;
        // Whom no rule names.
        expect(&log_in(port, "eve")?, 401, "Unauthorized")
    })
}

#[test]
fn site_without_sessions_has_no_pages_for_them() -> TestResult {
    with_section(Dialect::CherryPy, "enable_sessions: False", |_, port| {
        for path in ["/login", "/logout", "/minions", "/jobs", "/events"] {
            let answer = Request::get(path).send(port)?;
            ensure!(answer.status == 404, "{path}: {answer:?}");
        }
        expect(&log_in(port, "ann")?, 404, "not found")?;
        expect(&Request::get("/").send(port)?, 200, "Welcome")?;
        let mut low = chunk();
        for (name, value) in credentials("ann").as_object().into_iter().flatten() {
            low[0][name] = value.clone();
        }
        expect(&Request::post("/run", &low).send(port)?, 200, "\"args\"")?;
        expect(
            &Request::post("/run", &chunk()).send(port)?,
            401,
            "credentials",
        )
    })
}

#[test]
fn clients_that_are_not_enabled_run_nothing() -> TestResult {
    let only = |clients: &'static str| {
        move |config: &mut Config| {
            config.set("netapi_enable_clients", clients);
        }
    };
    with_options(Dialect::CherryPy, "", only("[]"), |_, port| {
        let token = session(port, "ann")?;
        for client in [
            "local",
            "local_async",
            "local_batch",
            "local_subset",
            "runner",
        ] {
            let low = json!([{"client": client, "tgt": "*", "fun": "test.ping"}]);
            let answer = Request::post("/", &low).header("X-Auth-Token", &token);
            let refusal = format!("Client disabled: '{client}'");
            expect(&answer.send(port)?, 400, &refusal)?;
        }
        let answer = Request::post("/token", &json!([credentials("ann")])).send(port)?;
        expect(&answer, 400, "Client disabled: 'runner'")
    })?;
    with_options(Dialect::CherryPy, "", only("[runner]"), |_, port| {
        let token = session(port, "ann")?;
        let ask = |low: &Value| Request::post("/", low).header("X-Auth-Token", &token);
        expect(&ask(&chunk()).send(port)?, 200, "\"args\"")?;
        let low = json!([{"client": "wheel", "fun": "key.list_all"}]);
        expect(&ask(&low).send(port)?, 400, "Client disabled: 'wheel'")?;
        let keys = Request::get("/keys").header("X-Auth-Token", &token);
        expect(&keys.send(port)?, 400, "Client disabled: 'wheel'")
    })
}

#[test]
fn bodies_have_the_size_that_the_site_allows() -> TestResult {
    // `expire_responses` has no meaning here, and is no reason not to serve.
    let options = "max_request_body_size: 400, expire_responses: True";
    with_section(Dialect::CherryPy, options, |_, port| {
        let padded = |length: usize| {
            let mut form = credentials("ann");
            form["padding"] = json!("");
            let missing = length.saturating_sub(form.to_string().len());
            form["padding"] = json!("x".repeat(missing));
            Request::post("/login", &form).send(port)
        };
        expect(&padded(400)?, 200, "token")?;
        expect(&padded(401)?, 413, "")
    })
}

/// The answer that `curl` gets from a server with TLS; it trusts this authority.
fn curl(port: u16, authority: &Path, certificate: Option<&Path>) -> Result<Run> {
    let mut command = Command::new("curl");
    command
        .args(["-sS", "--cacert"])
        .arg(authority.join("ca.pem"));
    if let Some(directory) = certificate {
        let file = |name: &str| directory.join(name);
        command.arg("--cert").arg(file("cert.pem"));
        command.arg("--key").arg(file("key.pem"));
    }
    command.arg(format!("https://127.0.0.1:{port}/"));
    run(&mut command, SOON)
}

fn authority(directory: &Path) -> Result<Authority> {
    fs::create_dir_all(directory)?;
    Authority::make(directory)
}

/// The bytes received for bytes that are no TLS.
fn sent_as_it_is(port: u16, bytes: &[u8]) -> Result<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(SOON))?;
    // The server may have closed before it has all of them.
    let _ = stream.write_all(bytes);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

#[test]
fn renewed_certificate_is_served_to_clients_that_show_theirs() -> TestResult {
    let options = "ssl_crt: ROOT/tls/cert.pem, ssl_key: ROOT/tls/key.pem, \
                   saltern_client_ca: ROOT/clients/ca.pem";
    let make = |config: &mut Config| {
        let root = Path::new(config.get("root_dir").unwrap_or_default()).to_owned();
        for name in ["tls", "clients"] {
            authority(&root.join(name)).expect("the site has a directory");
        }
    };
    with_options(Dialect::CherryPy, options, make, |site, port| {
        let clients = site.path("clients");
        let first = curl(port, &site.path("tls"), Some(&clients))?;
        ensure!(first.stdout.contains("Welcome"), "{first}");
        for stranger in [None, Some(site.path("tls"))] {
            let answer = curl(port, &site.path("tls"), stranger.as_deref())?;
            ensure!(
                answer.code != Some(0) && answer.stdout.is_empty(),
                "{stranger:?}: {answer}"
            );
        }
        let refused = |site: &Site| site.metric("saltern_http_refused_total", "server=\"api\"");
        let before = refused(site)?;
        for garbage in [&b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"[..], &[0; 10_000]] {
            let answer = sent_as_it_is(port, garbage)?;
            ensure!(!answer.contains("HTTP"), "{answer}");
        }
        wait_until("both to be counted", SOON, || {
            (refused(site).ok()? >= before + 2.0).then_some(())
        })?;
        let renewed = site.path("renewed");
        authority(&renewed)?;
        for name in ["cert.pem", "key.pem"] {
            let new = site.path(format!("tls/{name}.new"));
            fs::copy(renewed.join(name), &new)?;
            fs::set_permissions(&new, fs::Permissions::from_mode(0o600))?;
            fs::rename(new, site.path(format!("tls/{name}")))?;
        }
        wait_until("the renewed certificate", SOON, || {
            let answer = curl(port, &renewed, Some(&clients)).ok()?;
            answer.stdout.contains("Welcome").then_some(())
        })
    })
}

#[test]
fn log_ins_beyond_the_room_for_them_are_asked_to_come_later() -> TestResult {
    let service = PamService::install()?;
    let name = service.name.clone();
    let configure = |config: &mut Config| {
        config
            .set("auth.pam.service", name)
            .set("external_auth", "{pam: {waits: ['test.*']}}");
    };
    with_options(Dialect::CherryPy, "", configure, |site, port| {
        let mut command = Command::new(site.server().release().program("python"));
        command
            .arg(peer("full_logins.py"))
            .args(["127.0.0.1", &port.to_string()])
            .arg(service.released());
        let done = run(&mut command, SOON)?;
        let [full, good]: [Value; 2] = serde_json::from_str(&done.expect_code(0)?.stdout)?;
        ensure!(
            full["status"] == 503 && full["retry-after"].is_string(),
            "{full}"
        );
        ensure!(good["status"] == 200, "{good}");
        Ok(())
    })?;
    Ok(service.remove()?)
}
