//! The console before a master that answers by a table: pages with and without data, log-in, forms,
//! headers, and that no text of others becomes an element or an attribute.

mod audit;
mod drift;
mod injection;
mod master;

use std::task::Poll;

use axum::Router;
use axum::body::Body;
use axum::http::{HeaderMap, Request, StatusCode};
use axum::response::Response;
use futures_util::poll;
use http_body_util::BodyExt;
use saltern_base::blocking;
use saltern_base::clock::Clock;
use saltern_http::{Peer, Stopping};
use tokio_util::sync::CancellationToken;
use tower_service::Service;

use super::*;
use master::{Before, JID, LETTER, RUNNING, Table};
use saltern_wire::msgpack::Value;

/// A console before a table, and the cookie of a session.
struct Rig {
    router: Router,
    master: Arc<Table>,
    clock: Clock,
    session: String,
    _dir: tempfile::TempDir,
}

struct Answer {
    status: StatusCode,
    headers: HeaderMap,
    body: String,
}

impl Answer {
    fn header(&self, name: &str) -> &str {
        let value = self.headers.get(name);
        value.map_or("", |value| value.to_str().unwrap())
    }
}

impl Rig {
    fn new(master: Arc<Table>) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let start = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_795_244_800);
        let clock = Clock::manual(start);
        let console = Console::open(
            dir.path().to_owned(),
            clock.clone(),
            &SharedState::default(),
        )
        .unwrap();
        let router = console.router(Arc::new(Before(master.clone())), false);
        let token = NewToken {
            token: "t0ken".to_owned().into(),
            expire: clock.unix() as f64 + 1e6,
        };
        let session = console.sessions.create(&token).unwrap().to_string();
        Self {
            router,
            master,
            clock,
            session,
            _dir: dir,
        }
    }

    async fn call(&self, mut request: Request<Body>) -> Response {
        let from = std::net::SocketAddr::from(([127, 0, 0, 1], 1));
        request.extensions_mut().insert(Peer(from));
        self.router.clone().call(request).await.unwrap()
    }

    async fn send(&self, request: Request<Body>) -> Answer {
        let response = self.call(request).await;
        let (parts, body) = response.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        Answer {
            status: parts.status,
            headers: parts.headers,
            body: String::from_utf8(body.to_vec()).unwrap(),
        }
    }

    fn request(&self, path: &str) -> Request<Body> {
        let cookie = format!("other=1; saltern_console={}", self.session);
        let request = Request::get(path).header("cookie", cookie);
        request.body(Body::empty()).unwrap()
    }

    async fn get(&self, path: &str) -> Answer {
        self.send(self.request(path)).await
    }

    async fn post(&self, path: &str, form: &[(&str, &str)]) -> Answer {
        let csrf = session::csrf_token(&self.session);
        let mut form = form.to_vec();
        form.push(("csrf", &csrf));
        self.post_as_is(path, &form, &[]).await
    }

    async fn post_as_is(
        &self,
        path: &str,
        form: &[(&str, &str)],
        headers: &[(&str, &str)],
    ) -> Answer {
        let pairs = form.iter();
        let pairs = pairs.map(|(name, value)| format!("{name}={}", site::encoded(value)));
        let body = pairs.collect::<Vec<_>>().join("&");
        let mut request = Request::post(path)
            .header("cookie", format!("saltern_console={}", self.session))
            .header("content-type", "application/x-www-form-urlencoded");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        self.send(request.body(Body::from(body)).unwrap()).await
    }
}

/// Every page that is read, with the answers of [`Table::full`].
pub(crate) fn pages() -> Vec<String> {
    let job = format!("/console/jobs/{JID}");
    vec![
        "/console/".to_owned(),
        "/console/jobs".to_owned(),
        "/console/jobs?state=failed&function=state.*&since=1h".to_owned(),
        job.clone(),
        format!("{job}?show=missing"),
        format!("{job}/minions/m1"),
        "/console/minions".to_owned(),
        "/console/minions?target=G%40os%3ADebian&present=yes&grains=os".to_owned(),
        "/console/minions/m1".to_owned(),
        "/console/keys".to_owned(),
        "/console/keys?compare=AA%3ABB".to_owned(),
        "/console/run".to_owned(),
        "/console/run?tgt=*&fun=test.ping".to_owned(),
        format!("/console/run?again={JID}"),
        format!("/console/run?again={JID}&only=failed"),
        "/console/events".to_owned(),
        "/console/events/00000007-3".to_owned(),
        "/console/batches".to_owned(),
        "/console/minions?grains=os,version,address,last_job,highstate".to_owned(),
        "/console/audit".to_owned(),
        "/console/audit?user=ann&door=api&verdict=refused&since=1h".to_owned(),
        "/console/drift".to_owned(),
        "/console/drift?verdict=failed".to_owned(),
        "/console/drift?group=failed-00ff".to_owned(),
        "/console/orchestrations".to_owned(),
        format!("/console/orchestrations/{RUNNING}"),
        format!("/console/orchestrations/{JID}"),
        "/console/reactor".to_owned(),
        "/console/schedule".to_owned(),
    ]
}

#[tokio::test]
async fn every_page_is_shown_with_and_without_data() {
    for master in [Table::full("x"), Table::empty()] {
        let rig = Rig::new(master);
        for path in pages() {
            let answer = rig.get(&path).await;
            let is_of_nothing = path.contains("/jobs/")
                || path.contains("/orchestrations/")
                || path.contains("again=")
                || path.contains("/minions/")
                || path.contains("/events/");
            let expected = match rig.master.is_empty() && is_of_nothing {
                true => StatusCode::NOT_FOUND,
                false => StatusCode::OK,
            };
            assert_eq!(answer.status, expected, "{path}: {}", answer.body);
            assert!(answer.body.contains("</html>"), "{path}");
            assert!(!answer.body.contains("t0ken"), "{path}");
        }
    }
}

/// Bytes that a page, its style sheet and its script have together before any data.
const MAX_BEFORE_DATA: usize = 100_000;

#[tokio::test]
async fn every_page_is_small_before_its_data() {
    let rig = Rig::new(Table::empty());
    let mut files = 0;
    for path in assets::paths() {
        files += rig.get(&path).await.body.len();
    }
    for path in pages() {
        let page = rig.get(&path).await.body.len();
        assert!(page + files < MAX_BEFORE_DATA, "{path}: {page} + {files}");
    }
}

#[tokio::test]
async fn every_response_has_the_headers_that_keep_others_out() {
    let rig = Rig::new(Table::full("x"));
    let css = assets::paths()[0].clone();
    let mut paths = pages();
    paths.extend([
        css.clone(),
        "/console/nothing".to_owned(),
        "/console/login".to_owned(),
    ]);
    for path in paths {
        let answer = rig.get(&path).await;
        let policy = answer.header("content-security-policy");
        assert!(
            policy.starts_with("default-src 'none'; script-src 'self'; style-src 'self'"),
            "{path}"
        );
        assert!(
            policy.ends_with("base-uri 'none'; frame-ancestors 'none'"),
            "{path}"
        );
        assert!(!policy.contains("unsafe"), "{path}");
        assert_eq!(answer.header("referrer-policy"), "no-referrer", "{path}");
        assert_eq!(answer.header("x-content-type-options"), "nosniff", "{path}");
        let caching = answer.header("cache-control");
        match path == css {
            true => assert_eq!(caching, "public, max-age=31536000, immutable"),
            false => assert_eq!(caching, "no-store", "{path}"),
        }
        assert!(!answer.body.contains("style=\""), "{path}");
        assert!(!answer.body.contains("onclick"), "{path}");
    }
}

#[tokio::test]
async fn user_logs_in_and_out() {
    let mut rig = Rig::new(Table::full("x"));
    rig.session.clear();
    let answer = rig.get("/console/jobs?state=failed").await;
    assert_eq!(answer.status, StatusCode::SEE_OTHER);
    let next = "/console/jobs?state=failed";
    assert_eq!(
        answer.header("location"),
        format!("/console/login?next={}", site::encoded(next))
    );

    let form = rig.get("/console/login").await;
    assert!(!form.body.contains("Your session has ended"));
    let cookie = form.header("set-cookie").to_owned();
    for part in [
        "saltern_console_login=",
        "Path=/console",
        "SameSite=Strict",
        "HttpOnly",
    ] {
        assert!(cookie.contains(part), "{cookie}");
    }
    let before = cookie.split_once(';').unwrap().0;
    let csrf = session::csrf_token(before.split_once('=').unwrap().1);
    assert!(form.body.contains(&csrf));
    let right = [
        ("username", "ann"),
        ("password", "pw"),
        ("eauth", "file"),
        ("next", next),
        ("csrf", &csrf),
    ];
    let mut wrong = right;
    wrong[1].1 = "no";
    let answer = rig
        .post_as_is("/console/login", &wrong, &[("cookie", before)])
        .await;
    assert_eq!(answer.status, StatusCode::UNAUTHORIZED);
    assert!(!answer.body.contains("\"no\""));
    let mut forged = right;
    forged[4].1 = "x";
    let answer = rig
        .post_as_is("/console/login", &forged, &[("cookie", before)])
        .await;
    assert_eq!(answer.status, StatusCode::FORBIDDEN);
    let answer = rig
        .post_as_is("/console/login", &right, &[("cookie", before)])
        .await;
    assert_eq!(answer.status, StatusCode::SEE_OTHER, "{}", answer.body);
    assert_eq!(answer.header("location"), next);
    let cookie = answer.header("set-cookie").to_owned();
    for part in [
        "saltern_console=",
        "Path=/console",
        "SameSite=Strict",
        "HttpOnly",
    ] {
        assert!(cookie.contains(part), "{cookie}");
    }
    let session = cookie.split_once(';').unwrap().0;
    rig.session = session.split_once('=').unwrap().1.to_owned();
    assert_eq!(rig.get(next).await.status, StatusCode::OK);

    let answer = rig.post("/console/logout", &[]).await;
    assert_eq!(answer.header("location"), "/console/login");
    assert_eq!(*rig.master.revoked.lock(), ["t0ken"]);
    assert_eq!(rig.get(next).await.status, StatusCode::SEE_OTHER);
    let form = rig.get("/console/login").await;
    assert!(form.body.contains("Your session has ended"));
}

#[test]
fn session_that_cannot_be_ended_is_not_said_to_be() {
    let runtime = blocking::without_threads().build();
    runtime.unwrap().block_on(async {
        let rig = Rig::new(Table::full("x"));
        let answer = rig.post("/console/logout", &[]).await;
        assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(answer.header("set-cookie"), "");
        assert!(answer.body.contains("still logged in"), "{}", answer.body);
        assert!(rig.master.revoked.lock().is_empty());
        assert_eq!(rig.get("/console/jobs").await.status, StatusCode::OK);
    });
}

#[tokio::test]
async fn session_goes_on_while_its_token_cannot_be_revoked() {
    let rig = Rig::new(Table::full("x"));
    let is_full = &rig.master.is_full;
    is_full.store(true, std::sync::atomic::Ordering::SeqCst);
    let answer = rig.post("/console/logout", &[]).await;
    assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(answer.header("set-cookie"), "");
    assert!(answer.body.contains("still logged in"), "{}", answer.body);
    assert_eq!(rig.get("/console/jobs").await.status, StatusCode::OK);
    is_full.store(false, std::sync::atomic::Ordering::SeqCst);
    let answer = rig.post("/console/logout", &[]).await;
    assert_eq!(answer.status, StatusCode::SEE_OTHER);
    assert_eq!(*rig.master.revoked.lock(), ["t0ken"]);
}

#[tokio::test]
async fn session_whose_token_only_this_master_has_removed_is_over_here() {
    let rig = Rig::new(Table::full("x"));
    let is_unshared = &rig.master.is_unshared;
    is_unshared.store(true, std::sync::atomic::Ordering::SeqCst);
    let answer = rig.post("/console/logout", &[]).await;
    assert_eq!(answer.status, StatusCode::ACCEPTED);
    let cookies = answer.headers.get_all("set-cookie").iter();
    let cookies: Vec<&str> = cookies.filter_map(|cookie| cookie.to_str().ok()).collect();
    let is_over = |cookie: &&str| cookie.contains("Max-Age=0");
    assert!(cookies.iter().any(is_over), "{cookies:?}");
    assert!(answer.body.contains("Another master"), "{}", answer.body);
    assert_eq!(rig.get("/console/jobs").await.status, StatusCode::SEE_OTHER);
}

#[tokio::test]
async fn session_that_cannot_be_checked_is_not_said_to_have_ended() {
    let rig = Rig::new(Table::full("x"));
    let no_threads = &rig.master.no_threads;
    no_threads.store(true, std::sync::atomic::Ordering::SeqCst);
    let answer = rig.get("/console/jobs").await;
    assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE);
    assert!(answer.body.contains("cannot be checked"), "{}", answer.body);
    no_threads.store(false, std::sync::atomic::Ordering::SeqCst);
    assert_eq!(rig.get("/console/jobs").await.status, StatusCode::OK);
}

#[tokio::test]
async fn log_in_leads_to_pages_of_the_console_only() {
    for next in [
        "https://evil.example/",
        "//evil.example",
        "/console\\evil",
        "javascript:x",
        "/console/\r\nx: y",
    ] {
        assert_eq!(site::own_path(Some(next)), "/console/", "{next}");
    }
    assert_eq!(
        site::own_path(Some("/console/jobs?a=b")),
        "/console/jobs?a=b"
    );
}

#[tokio::test]
async fn change_without_the_token_of_its_session_is_refused() {
    let rig = Rig::new(Table::full("x"));
    let changes = [
        "/console/logout",
        "/console/theme",
        "/console/keys",
        "/console/run",
        &format!("/console/jobs/{JID}/kill"),
        &format!("/console/batches/{JID}/pause"),
        &format!("/console/batches/{JID}/resume"),
        &format!("/console/batches/{JID}/stop"),
        "/console/minions/m1/pillar",
        "/console/orchestrations",
        "/console/reactor/replay",
    ];
    for path in changes {
        for csrf in ["", "x", &session::csrf_token("another session")] {
            let answer = rig.post_as_is(path, &[("csrf", csrf)], &[]).await;
            assert_eq!(answer.status, StatusCode::FORBIDDEN, "{path}");
        }
        let csrf = session::csrf_token(&rig.session);
        let foreign = [("sec-fetch-site", "cross-site")];
        let answer = rig.post_as_is(path, &[("csrf", &csrf)], &foreign).await;
        assert_eq!(answer.status, StatusCode::FORBIDDEN, "{path}");
    }
    assert_eq!(rig.master.changes(), 0);
}

#[tokio::test]
async fn idle_session_has_to_log_in_again() {
    let rig = Rig::new(Table::full("x"));
    assert_eq!(rig.get("/console/jobs").await.status, StatusCode::OK);
    rig.clock.advance(std::time::Duration::from_secs(1_801));
    assert_eq!(rig.get("/console/jobs").await.status, StatusCode::SEE_OTHER);
}

#[tokio::test]
async fn what_a_user_may_not_do_is_not_offered_and_is_refused() {
    let rig = Rig::new(Table::full("x"));
    rig.master.allow(&["runner cache.grains"]);
    let answer = rig.get("/console/").await;
    for (path, is_offered) in [
        ("/console/minions", true),
        ("/console/jobs", false),
        ("/console/keys", false),
    ] {
        let link = format!("href=\"{}\"", path.replace('/', "&#x2f;"));
        assert_eq!(answer.body.contains(&link), is_offered, "{path}");
    }
    rig.master.refuse("jobs.page");
    assert_eq!(rig.get("/console/jobs").await.status, StatusCode::FORBIDDEN);
    let keys = rig.get("/console/keys").await;
    assert!(!keys.body.contains("id=\"accept\""));
    let form = [
        ("tgt", "*"),
        ("fun", "test.ping"),
        ("step", "send"),
        ("seen", "1"),
    ];
    let answer = rig.post("/console/run", &form).await;
    let sent = format!("/console/run?sent={JID}");
    assert_eq!(answer.header("location"), sent);
    assert!(rig.get(&sent).await.body.contains("id=\"sent\""));
}

#[tokio::test]
async fn job_is_shown_with_verdicts_returns_and_what_can_be_done() {
    let rig = Rig::new(Table::full("x"));
    let answer = rig.get(&format!("/console/jobs/{JID}")).await;
    for part in [
        "data-minion=\"m1\"",
        "data-minion=\"m2\"",
        "no connection",
        "id=\"kill-now\"",
        "id=\"again\"",
        "saltern follow",
        "through the console from x",
    ] {
        assert!(answer.body.contains(part), "{part} in {}", answer.body);
    }
    let tag = site::encoded(&format!("salt/job/{JID}/ret/*")).replace('/', "&#x2f;");
    assert!(answer.body.contains(&tag), "{tag}");

    let answer = rig.post(&format!("/console/jobs/{JID}/kill"), &[]).await;
    assert_eq!(answer.status, StatusCode::SEE_OTHER, "{}", answer.body);
    let sent = rig.master.asked_of("saltutil.kill_job").pop().unwrap();
    assert_eq!(sent.get("tgt"), Some(&master::list(&["m2"])));
    assert_eq!(sent.get("arg"), Some(&master::list(&[JID])));
}

#[tokio::test]
async fn job_of_many_minions_is_shown_in_pages_of_bounded_size() {
    let rig = Rig::new(Table::full("x"));
    rig.master.grow(5_000);
    let path = format!("/console/jobs/{JID}");
    let first = rig.get(&path).await;
    assert_eq!(first.status, StatusCode::OK, "{}", first.body);
    assert!(first.body.len() <= 200_000, "{}", first.body.len());
    assert_eq!(first.body.matches("data-minion=").count(), 100);
    assert!(first.body.contains("data-minion=\"returned-00000\""));
    let second = rig.get(&format!("{path}?from=100")).await;
    assert!(second.body.contains("data-minion=\"returned-00100\""));
    let missing = rig.get(&format!("{path}?show=missing&from=4950")).await;
    assert_eq!(missing.body.matches("data-minion=").count(), 50);
    for from in ["99999999999999999999", "18446744073709551615"] {
        let beyond = rig.get(&format!("{path}?from={from}")).await;
        assert_eq!(beyond.status, StatusCode::OK, "{from}");
    }
}

#[tokio::test]
async fn nothing_is_sent_before_its_minions_were_seen() {
    let rig = Rig::new(Table::full("x"));
    let mut form = vec![
        ("tgt", "*"),
        ("tgt_type", "glob"),
        ("fun", "test.echo"),
        ("args", "a b\nname=1"),
    ];
    form.push(("step", "preview"));
    let answer = rig.post("/console/run", &form).await;
    assert_eq!(answer.status, StatusCode::OK, "{}", answer.body);
    assert!(answer.body.contains("id=\"matched\">1<"), "{}", answer.body);
    assert!(rig.master.asked_of("test.echo").is_empty());

    form.pop();
    form.extend([("step", "send"), ("seen", "0")]);
    let answer = rig.post("/console/run", &form).await;
    assert!(answer.body.contains("more minions now"), "{}", answer.body);
    form.pop();
    form.push(("seen", "1"));
    let answer = rig.post("/console/run", &form).await;
    assert_eq!(answer.header("location"), format!("/console/jobs/{JID}"));
    let sent = rig.master.asked_of("test.echo").pop().unwrap();
    let named = Value::map([("__kwarg__", Value::from(true)), ("name", 1_i64.into())]);
    assert_eq!(
        sent.get("arg"),
        Some(&Value::Array(vec!["a b".into(), named]))
    );

    form.push(("mode", "edit"));
    let answer = rig.post("/console/run", &form).await;
    assert!(answer.body.contains("id=\"preview\""), "{}", answer.body);
    assert!(answer.body.contains("a b\nname=1"), "{}", answer.body);
    assert_eq!(rig.master.asked_of("test.echo").len(), 1);

    let harmful = [
        ("tgt", "*"),
        ("fun", "cmd.run"),
        ("args", "reboot"),
        ("step", "send"),
        ("seen", "1"),
    ];
    let answer = rig.post("/console/run", &harmful).await;
    assert!(answer.body.contains("id=\"confirm\""), "{}", answer.body);
    assert!(rig.master.asked_of("cmd.run").is_empty());
    let states = [
        ("tgt", "*"),
        ("fun", "state.apply"),
        ("step", "send"),
        ("seen", "1"),
        ("mode", "test"),
    ];
    let answer = rig.post("/console/run", &states).await;
    assert_eq!(answer.status, StatusCode::SEE_OTHER, "{}", answer.body);
    let sent = rig.master.asked_of("state.apply").pop().unwrap();
    let test = Value::map([("__kwarg__", Value::from(true)), ("test", true.into())]);
    assert_eq!(sent.get("arg"), Some(&Value::Array(vec![test])));
}

#[tokio::test]
async fn now_has_findings_of_the_doctor_and_lags_of_followers() {
    let rig = Rig::new(Table::full("x"));
    let page = rig.get("/console/").await.body;
    let (error, note) = (page.find("error x").unwrap(), page.find("note x").unwrap());
    assert!(error < note, "{page}");
    assert!(page.contains("data-lag=\"1234\""), "{page}");
    assert!(page.contains("1234 rows behind, for 1 min 30 s"), "{page}");
    let page = Rig::new(Table::empty()).get("/console/").await.body;
    assert!(!page.contains("id=\"findings\""), "{page}");
}

#[tokio::test]
async fn every_page_names_its_command_line() {
    let rig = Rig::new(Table::full("x"));
    for path in pages() {
        let answer = rig.get(&path).await;
        assert!(answer.body.contains("data-cli"), "{path}");
    }
}

#[tokio::test]
async fn dead_letter_is_shown_with_its_reason_and_replayed() {
    let rig = Rig::new(Table::full("x"));
    let page = rig.get("/console/reactor").await;
    for part in [
        format!("data-letter=\"{LETTER}\""),
        format!("saltern reactor replay {LETTER}"),
        "2 done".to_owned(),
        "1 failed".to_owned(),
    ] {
        assert!(page.body.contains(&part), "{part} in {}", page.body);
    }
    let form = [("letter", LETTER)];
    let answer = rig.post("/console/reactor/replay", &form).await;
    assert_eq!(answer.header("location"), "/console/reactor");
    let asked = rig.master.asked_of("reactor.replay").pop().unwrap();
    let letter = asked.get("kwarg").and_then(|kwarg| kwarg.get("letter"));
    assert_eq!(letter, Some(&Value::from(LETTER)));

    rig.master.allow(&["runner reactor.list"]);
    let page = rig.get("/console/reactor").await;
    assert!(!page.body.contains(LETTER), "{}", page.body);
    rig.master.refuse("reactor.replay");
    let answer = rig.post("/console/reactor/replay", &form).await;
    assert_eq!(answer.status, StatusCode::FORBIDDEN);
}

#[tokio::test]
async fn orchestration_starts_with_a_tick_or_as_a_dry_run() {
    let rig = Rig::new(Table::full("x"));
    let form = [("mods", "orch.deploy"), ("mode", "apply")];
    let answer = rig.post("/console/orchestrations", &form).await;
    assert_eq!(answer.status, StatusCode::BAD_REQUEST, "{}", answer.body);
    assert_eq!(rig.master.changes(), 0);
    let dry = [
        ("mods", "orch.deploy"),
        ("mode", "test"),
        ("pillar", "a: 1"),
    ];
    let answer = rig.post("/console/orchestrations", &dry).await;
    assert_eq!(answer.header("location"), "/console/orchestrations");
    let asked = rig.master.asked_of("state.orchestrate").pop().unwrap();
    let expected = Value::map([
        ("mods", Value::from("orch.deploy")),
        ("test", true.into()),
        ("pillar", Value::map([("a", Value::from(1_i64))])),
    ]);
    assert_eq!(asked.get("kwarg"), Some(&expected));
    let wrong = [("mods", "a"), ("mode", "test"), ("pillar", "- a")];
    let answer = rig.post("/console/orchestrations", &wrong).await;
    assert_eq!(answer.status, StatusCode::BAD_REQUEST, "{}", answer.body);
}

#[tokio::test]
async fn orchestration_shows_its_steps_while_it_runs() {
    let rig = Rig::new(Table::full("x"));
    let path = format!("/console/orchestrations/{RUNNING}");
    let page = rig.get(&path).await;
    assert_eq!(page.body.matches("data-step=").count(), 2, "{}", page.body);
    let tag = site::encoded(&format!("salt/run/{RUNNING}/*"));
    assert!(page.body.contains(&tag), "{tag}");
    // Whoever may not see calls that run does not see it until it has ended.
    rig.master.allow(&["runner jobs.list_jobs"]);
    rig.master.refuse("jobs.returns");
    assert_eq!(rig.get(&path).await.status, StatusCode::FORBIDDEN);
}

#[tokio::test]
async fn run_completes_called_functions_and_shows_what_is_known_of_one() {
    let rig = Rig::new(Table::full("x"));
    let page = rig.get("/console/run?tgt=*&fun=test.echo").await;
    for part in [
        "<option value=\"test.echo\">",
        "data-function=\"test.echo\"",
    ] {
        assert!(page.body.contains(part), "{part} in {}", page.body);
    }
    let empty = Rig::new(Table::empty());
    let page = empty.get("/console/run?tgt=*&fun=test.echo").await;
    assert!(page.body.contains("fun=sys.doc"), "{}", page.body);
}

#[tokio::test]
async fn batch_is_sent_with_its_options() {
    let rig = Rig::new(Table::full("x"));
    let form = [
        ("tgt", "*"),
        ("fun", "test.ping"),
        ("batch", "25%"),
        ("batch_wait", "1.5"),
        ("failhard", "on"),
        ("step", "send"),
        ("seen", "1"),
    ];
    let answer = rig.post("/console/run", &form).await;
    assert_eq!(answer.status, StatusCode::SEE_OTHER, "{}", answer.body);
    let sent = rig.master.asked_of("test.ping").pop().unwrap();
    let batch = Value::map([
        ("size", Value::from("25%")),
        ("failhard", true.into()),
        ("wait", Value::from(1.5)),
    ]);
    assert_eq!(sent.get("batch"), Some(&batch));
    let mut wrong = form;
    wrong[3].1 = "soon";
    let answer = rig.post("/console/run", &wrong).await;
    assert_eq!(answer.status, StatusCode::BAD_REQUEST, "{}", answer.body);
}

#[tokio::test]
async fn key_is_changed_only_while_it_is_the_one_that_was_seen() {
    let rig = Rig::new(Table::full("x"));
    let answer = rig
        .post(
            "/console/keys",
            &[("action", "accept"), ("key", "cc:dd m1")],
        )
        .await;
    assert_eq!(answer.status, StatusCode::CONFLICT);
    assert_eq!(rig.master.changes(), 0);
    let answer = rig
        .post(
            "/console/keys",
            &[("action", "accept"), ("key", "aa:bb m1")],
        )
        .await;
    assert_eq!(answer.status, StatusCode::SEE_OTHER, "{}", answer.body);
    let sent = rig.master.asked_of("key.accept").pop().unwrap();
    assert_eq!(sent.get("match"), Some(&master::list(&["m1"])));

    let delete = [("action", "delete"), ("key", "aa:bb m1")];
    let answer = rig.post("/console/keys", &delete).await;
    assert!(answer.body.contains("id=\"confirm\""), "{}", answer.body);
    assert!(rig.master.asked_of("key.delete").is_empty());
    let answer = rig
        .post(
            "/console/keys",
            &[delete[0], delete[1], ("confirmed", "yes")],
        )
        .await;
    assert_eq!(answer.status, StatusCode::SEE_OTHER);
    assert_eq!(rig.master.asked_of("key.delete").len(), 1);

    let answer = rig.get("/console/keys?compare=AABB").await;
    assert!(
        answer.body.contains("exactly this fingerprint"),
        "{}",
        answer.body
    );
    let answer = rig.get("/console/keys?compare=AABC").await;
    assert!(
        answer.body.contains("No key on this page"),
        "{}",
        answer.body
    );
}

#[tokio::test]
async fn pillar_is_shown_when_a_form_asks_for_it() {
    let rig = Rig::new(Table::full("secret-value"));
    let answer = rig.get("/console/minions/m1").await;
    assert!(answer.body.contains("secret-key"), "{}", answer.body);
    let names_only = answer.body.matches("secret-value").count();
    let answer = rig.post("/console/minions/m1/pillar", &[]).await;
    assert_eq!(answer.status, StatusCode::OK, "{}", answer.body);
    assert!(answer.body.matches("secret-value").count() > names_only);
}

#[tokio::test]
async fn filter_that_is_wrong_is_explained_beside_the_filters() {
    let rig = Rig::new(Table::full("x"));
    let answer = rig.get("/console/jobs?since=soon").await;
    assert_eq!(answer.status, StatusCode::OK);
    assert!(
        answer.body.contains("id=\"filter-problem\""),
        "{}",
        answer.body
    );
    rig.master
        .refuse_argument("minions.page", "target", "\"x@\" is no target");
    let answer = rig.get("/console/minions?target=x%40").await;
    assert!(
        answer.body.contains("id=\"target-problem\""),
        "{}",
        answer.body
    );
}

#[tokio::test]
async fn fragment_is_the_live_part_of_its_page() {
    let rig = Rig::new(Table::full("x"));
    let request = |session: &str| {
        Request::get("/console/jobs")
            .header("cookie", format!("saltern_console={session}"))
            .header("x-saltern-fragment", "1")
            .body(Body::empty())
            .unwrap()
    };
    let answer = rig.send(request(&rig.session)).await;
    assert!(answer.body.contains("id=\"jobs\""), "{}", answer.body);
    assert!(!answer.body.contains("<nav aria-label=\"Pages\">"));
    assert_eq!(
        rig.send(request("x")).await.status,
        StatusCode::UNAUTHORIZED
    );
}

#[tokio::test]
async fn events_are_shown_with_their_job_and_followed_from_there() {
    let rig = Rig::new(Table::full("x"));
    let answer = rig.get("/console/events").await;
    assert!(
        answer
            .body
            .contains(&format!("salt&#x2f;job&#x2f;{JID}&#x2f;ret&#x2f;m1")),
        "{}",
        answer.body
    );
    assert!(answer.body.contains("after=00000007-3"), "{}", answer.body);
    // The stream of the table ends behind its last event.
    let answer = rig
        .get("/console/events/stream?after=00000007-0&tag=salt/job/*")
        .await;
    assert_eq!(answer.header("content-type"), "text/event-stream");
    assert!(answer.body.starts_with("retry: "), "{}", answer.body);
    assert!(
        answer.body.contains("id: 00000007-3\nevent: rows\n"),
        "{}",
        answer.body
    );
    assert!(answer.body.contains("event: closed"), "{}", answer.body);
    assert_eq!(
        answer.body.matches("data-row").count(),
        1,
        "{}",
        answer.body
    );
}

#[tokio::test(start_paused = true)]
async fn stream_ends_although_a_look_at_its_session_hangs() {
    for (is_stop, reason) in [(false, "session ended"), (true, "the master stops")] {
        let rig = Rig::new(Table::full("x"));
        let stop = CancellationToken::new();
        let mut request = rig.request("/console/events/stream");
        request.extensions_mut().insert(Stopping(stop.clone()));
        let mut body = rig.call(request).await.into_body();
        assert!(body.frame().await.is_some(), "the time until the next try");
        rig.master
            .hangs
            .store(true, std::sync::atomic::Ordering::SeqCst);
        // The next thing that it does is a look.
        tokio::time::advance(std::time::Duration::from_secs(5)).await;
        let mut next = Box::pin(body.frame());
        assert!(poll!(&mut next).is_pending());
        match is_stop {
            true => stop.cancel(),
            false => rig.master.ended.cancel(),
        }
        let Poll::Ready(Some(Ok(closed))) = poll!(&mut next) else {
            panic!("it goes on");
        };
        let closed = closed.into_data().unwrap();
        let closed = String::from_utf8(closed.to_vec()).unwrap();
        assert!(closed.contains(reason), "{closed}");
    }
}

#[tokio::test]
async fn events_are_read_backwards_and_no_more_than_are_shown() {
    let rig = Rig::new(Table::full("x"));
    let rows = |answer: &Answer| answer.body.matches("data-row").count();
    // Nothing is waited for where no event is kept any more: a stream would wait for the next one.
    rig.master.keep_events(0, 5_000);
    let answer = rig.get("/console/events").await;
    assert_eq!((answer.status, rows(&answer)), (StatusCode::OK, 0));
    assert!(
        answer.body.contains("after=00000007-5000"),
        "{}",
        answer.body
    );

    rig.master.keep_events(4_000, 5_000);
    let answer = rig.get("/console/events").await;
    assert_eq!((rows(&answer), rig.master.events_read()), (100, 100));
    let first = answer.body.find("rare&#x2f;5000").unwrap();
    assert!(first < answer.body.find("often&#x2f;4999").unwrap());

    // As many as are looked through for a filter that nothing matches; the page says so.
    rig.master.keep_events(4_000, 5_000);
    let answer = rig.get("/console/events?tag=none/*").await;
    assert_eq!((rows(&answer), rig.master.events_read()), (0, 2_000));
    assert!(answer.body.contains("id=\"looked-at\""), "{}", answer.body);
    let answer = rig.get("/console/events?tag=rare/*").await;
    assert_eq!(rows(&answer), 100);
    assert!(!answer.body.contains("id=\"looked-at\""), "{}", answer.body);

    let answer = rig.get("/console/events/00000007-4321").await;
    assert!(answer.body.contains("often&#x2f;4321"), "{}", answer.body);
    let answer = rig.get("/console/events/00000007-7").await;
    assert_eq!(answer.status, StatusCode::NOT_FOUND);
}

#[test]
fn script_is_one_short_module_without_hosts_of_others() {
    let script = include_str!("../assets/console.js");
    assert!(script.lines().count() <= 500);
    for text in [script, include_str!("../assets/console.css")] {
        assert!(!text.contains("http:") && !text.contains("https:"));
    }
}
