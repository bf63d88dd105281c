//! `/v1` before a master that answers by a table: answers as the document describes them, errors,
//! and the order of a stream.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::http::{Request, StatusCode};
use bytes::Bytes;
use futures_util::future::BoxFuture;
use http_body_util::BodyExt;
use parking_lot::Mutex;
use saltern_client::{EventSource, ReceivedEvent};
use saltern_http::Peer;
use saltern_model::control::{InventoryRow, Missing, SeenMinion};
use saltern_model::{Jid, MinionId, query};
use saltern_wire::msgpack::{Dialect, Limits, Value, decode_wire, from_slice, pack};
use serde::Serialize;
use serde_json::{Value as Json, json};
use tokio_util::sync::CancellationToken;
use tower_service::Service;
use zeroize::Zeroizing;

use super::{Backend, document, router};

const JID: &str = "20260102030405060708";

/// A master that answers by a table, and keeps what it was asked.
struct Table {
    answers: Mutex<Vec<(&'static str, Value)>>,
    asked: Mutex<Vec<Value>>,
    events: Mutex<Vec<ReceivedEvent>>,
    token_ended: CancellationToken,
}

fn value(of: &impl Serialize) -> Value {
    from_slice(&pack(of, Dialect::Bin), &Limits::WIRE).unwrap()
}

impl Table {
    fn new(answers: Vec<(&'static str, Value)>) -> Arc<Self> {
        Arc::new(Self {
            answers: Mutex::new(answers),
            asked: Mutex::default(),
            events: Mutex::default(),
            token_ended: CancellationToken::new(),
        })
    }

    /// The next answer for a function; the last one is given again and again.
    fn answer(&self, fun: &str) -> Option<Value> {
        let mut answers = self.answers.lock();
        let place = answers.iter().position(|(name, _)| *name == fun)?;
        let has_more = answers.iter().filter(|(name, _)| *name == fun).count() > 1;
        match has_more {
            true => Some(answers.remove(place).1),
            false => answers.get(place).map(|(_, answer)| answer.clone()),
        }
    }
}

impl Backend for Table {
    fn ask(&self, request: Bytes, _: &str, _: SocketAddr) -> BoxFuture<'static, Option<Bytes>> {
        let envelope = decode_wire(&request, &Limits::WIRE).unwrap();
        let load = envelope.get("load").cloned().unwrap();
        let command = load.get("cmd").and_then(Value::as_str).unwrap();
        let fun = load.get("fun").and_then(Value::as_str).unwrap();
        let reply = self.answer(if command == "publish" { command } else { fun });
        self.asked.lock().push(load);
        let reply = reply.map(|reply| Bytes::from(pack(&reply, Dialect::Raw)));
        Box::pin(std::future::ready(reply))
    }

    fn session_token(&self, id: &str) -> Option<Zeroizing<String>> {
        (id == "session").then(|| Zeroizing::new("its token".to_owned()))
    }

    fn listen(&self) -> Box<dyn EventSource> {
        Box::new(Events(std::mem::take(&mut *self.events.lock())))
    }

    fn ended(&self, _: Zeroizing<String>) -> BoxFuture<'static, ()> {
        Box::pin(self.token_ended.clone().cancelled_owned())
    }
}

/// Events that come at once, and then none.
struct Events(Vec<ReceivedEvent>);

impl EventSource for Events {
    fn next(&mut self) -> BoxFuture<'_, Option<ReceivedEvent>> {
        match self.0.is_empty() {
            true => Box::pin(std::future::pending()),
            false => Box::pin(std::future::ready(Some(self.0.remove(0)))),
        }
    }

    fn only(&mut self, _: &str) {}
}

fn page(of: &impl Serialize) -> Value {
    Value::map([("return", value(of))])
}

fn error(name: &str, message: &str) -> Value {
    let error = Value::map([("name", name), ("message", message)]);
    Value::map([("error", error)])
}

fn minion() -> MinionId {
    MinionId::parse("m1").unwrap()
}

fn job_row() -> query::JobRow {
    query::JobRow {
        jid: Jid::parse(JID).unwrap(),
        created: 1_795_244_782_637_714,
        finished: None,
        user: "alice".into(),
        function: "test.ping".into(),
        target: "*".into(),
        target_type: "glob".into(),
        state: "open".into(),
        expected: 2,
        returned: 1,
        failed: 0,
    }
}

fn report(state: &str) -> query::JobReport {
    query::JobReport {
        paused_since: None,
        created: 1_795_244_782_637_714,
        expected: 2,
        finished: Some(1_795_244_783_637_714),
        function: "test.ping".into(),
        is_master_running: None,
        jid: Jid::parse(JID).unwrap(),
        missing: vec![Missing {
            minion: MinionId::parse("m2").unwrap(),
            state: "unreachable".into(),
            why: "no connection".into(),
        }],
        published: None,
        publisher: None,
        returned: vec![query::ReturnedMinion {
            minion: minion(),
            received: 1_795_244_783_000_000,
            retcode: 0,
        }],
        state: state.into(),
        target: "*".into(),
        target_type: "glob".into(),
        user: "alice".into(),
    }
}

fn answers() -> Vec<(&'static str, Value)> {
    let jobs = query::JobsPage {
        incomplete: None,
        jobs: vec![job_row()],
        next: Some(JID.into()),
    };
    let returns = query::ReturnsPage {
        returns: vec![query::ReturnRow {
            minion: minion(),
            received: 1_795_244_783_000_000,
            function: "test.ping".into(),
            retcode: 0,
            success: true,
            value: Value::from(true),
        }],
        next: None,
    };
    let minions = query::MinionsPage {
        minions: vec![InventoryRow {
            minion: SeenMinion {
                id: minion(),
                is_present: true,
                last_heard: Some(1_795_244_783_000_000),
                address: Some([192, 0, 2, 1].into()),
                standing: "connected".into(),
            },
            grains: vec![Some(Value::from("Debian"))],
        }],
        total: 1,
        next: None,
    };
    let keys = query::KeysPage {
        keys: vec![query::KeyRow {
            minion: minion(),
            state: "pending".into(),
            fingerprint: Some("aa:bb".into()),
            written: Some(1_795_244_783_000_000),
            last_heard: None,
            is_present: None,
            address: Some("192.0.2.1".into()),
        }],
        next: None,
    };
    let batch = Value::map([
        ("jid", Value::from(JID)),
        ("total", 2_i64.into()),
        ("completed", 1_i64.into()),
        ("active", 1_i64.into()),
        ("pending", 0_i64.into()),
        ("failed", 0_i64.into()),
        ("halted", false.into()),
        ("halted_reason", Value::Nil),
        ("user", "alice".into()),
        ("driver", "master".into()),
        ("paused_since", 1_795_244_783.5.into()),
    ]);
    let health = query::Health {
        is_ready: true,
        findings: vec![query::DoctorFinding {
            subject: "disk".into(),
            severity: "warning".into(),
            finding: "it is nearly full".into(),
            advice: "make room".into(),
        }],
        diagnosed: Some(1_795_244_782),
        lags: vec![query::Lag {
            name: "job files".into(),
            rows: 3,
            seconds: None,
        }],
        checks: vec![query::HealthCheck {
            name: "ports".into(),
            passed: true,
            reason: "taken".into(),
        }],
    };
    let versions = query::Versions {
        saltern: "1".into(),
        salt: "3008.3".into(),
    };
    let texts = |texts: &[&str]| Value::Array(texts.iter().map(|text| (*text).into()).collect());
    let published = Value::map([
        ("jid", Value::from(JID)),
        ("minions", texts(&["m1"])),
        ("missing", texts(&[])),
    ]);
    let changed = Value::map([
        ("success", Value::from(true)),
        ("return", Value::Map(Vec::new())),
    ]);
    let changed = Value::map([("tag", Value::from("x")), ("data", changed)]);
    vec![
        ("jobs.page", page(&jobs)),
        ("jobs.explain", page(&report("complete"))),
        ("jobs.returns", page(&returns)),
        ("minions.page", page(&minions)),
        ("keys.page", page(&keys)),
        ("key.accept", changed.clone()),
        ("key.reject", changed.clone()),
        ("key.delete", changed),
        (
            "batches.page",
            Value::map([("return", Value::Array(vec![batch.clone()]))]),
        ),
        ("audit.page", page(&audit_page(None))),
        ("audit.state", page(&audit_state())),
        ("batches.status", Value::map([("return", batch)])),
        ("batches.pause", page(&true)),
        ("batches.resume", page(&true)),
        ("batches.stop", page(&true)),
        ("saltern.health", page(&health)),
        ("saltern.version", page(&versions)),
        (
            "publish",
            Value::map([("enc", Value::from("clear")), ("load", published)]),
        ),
    ]
}

fn audit_page(next: Option<&str>) -> query::AuditPage {
    query::AuditPage {
        rows: vec![query::AuditLine {
            number: 7,
            at: 1_795_244_782_637_714,
            door: "api".into(),
            user: "alice".into(),
            backend: Some("file".into()),
            proof: "token".into(),
            origin: Some("192.0.2.1".into()),
            command: "publish".into(),
            function: "test.ping".into(),
            target: Some("*".into()),
            target_type: Some("glob".into()),
            arguments: "[1]".into(),
            verdict: "allowed".into(),
            reason: None,
            jid: Some(JID.into()),
            suppressed: 0,
            head: "7:00ff".into(),
        }],
        next: next.map(str::to_owned),
    }
}

fn audit_state() -> query::AuditState {
    query::AuditState {
        head: Some("7:00ff".into()),
        removed: 0,
        check: Some(query::AuditVerification {
            at: 1_795_244_782_637_714,
            by: "alice".into(),
            rows: 7,
            head: "7:00ff".into(),
            fault: None,
        }),
    }
}

struct Answer {
    status: StatusCode,
    content_type: String,
    body: Bytes,
}

impl Answer {
    fn json(&self) -> Json {
        serde_json::from_slice(&self.body).unwrap()
    }
}

fn request(method: &str, path: &str, body: &str) -> Request<Body> {
    let request = Request::builder()
        .method(method.to_uppercase().as_str())
        .uri(path);
    let request = request.header("authorization", "Bearer t0ken");
    let request = request.header("content-type", "application/json");
    request.body(Body::from(body.to_owned())).unwrap()
}

async fn send(mut router: Router, mut request: Request<Body>) -> Answer {
    let from = Peer(SocketAddr::from(([127, 0, 0, 1], 1)));
    request.extensions_mut().insert(from);
    let response = router.call(request).await.unwrap();
    let content_type = response.headers().get("content-type");
    Answer {
        status: response.status(),
        content_type: content_type
            .map_or("", |it| it.to_str().unwrap())
            .to_owned(),
        body: response.into_body().collect().await.unwrap().to_bytes(),
    }
}

async fn ask(answers: Vec<(&'static str, Value)>, method: &str, path: &str, body: &str) -> Answer {
    send(router(Table::new(answers)), request(method, path, body)).await
}

/// One request for each operation of the document: method, path there, path asked, body.
const OPERATIONS: [(&str, &str, &str, &str); 20] = [
    (
        "get",
        "/v1/jobs",
        "/v1/jobs?function=test.*&state=failed&limit=5&since=2026-01-02T03:04:05Z",
        "",
    ),
    (
        "post",
        "/v1/jobs",
        "/v1/jobs",
        r#"{"target": "*", "function": "test.ping"}"#,
    ),
    ("get", "/v1/jobs/{jid}", "/v1/jobs/20260102030405060708", ""),
    (
        "get",
        "/v1/jobs/{jid}/returns",
        "/v1/jobs/20260102030405060708/returns?limit=1",
        "",
    ),
    (
        "get",
        "/v1/jobs/{jid}/stream",
        "/v1/jobs/20260102030405060708/stream",
        "",
    ),
    (
        "get",
        "/v1/minions",
        "/v1/minions?grains=os&present=true",
        "",
    ),
    ("get", "/v1/minions/{id}", "/v1/minions/m1?grains=os", ""),
    ("get", "/v1/keys", "/v1/keys?match=m*&state=pending", ""),
    ("post", "/v1/keys/{id}/accept", "/v1/keys/m1/accept", ""),
    ("post", "/v1/keys/{id}/reject", "/v1/keys/m1/reject", ""),
    ("post", "/v1/keys/{id}/delete", "/v1/keys/m1/delete", ""),
    ("get", "/v1/batches", "/v1/batches", ""),
    (
        "get",
        "/v1/batches/{jid}",
        "/v1/batches/20260102030405060708",
        "",
    ),
    (
        "post",
        "/v1/batches/{jid}/pause",
        "/v1/batches/20260102030405060708/pause",
        "",
    ),
    (
        "post",
        "/v1/batches/{jid}/resume",
        "/v1/batches/20260102030405060708/resume",
        "",
    ),
    (
        "post",
        "/v1/batches/{jid}/stop",
        "/v1/batches/20260102030405060708/stop?kill=true",
        "",
    ),
    (
        "get",
        "/v1/audit",
        "/v1/audit?user=alice&door=api&since=2026-01-02T03:04:05Z&limit=5",
        "",
    ),
    (
        "get",
        "/v1/audit/export",
        "/v1/audit/export?verdict=allowed",
        "",
    ),
    ("get", "/v1/health", "/v1/health", ""),
    ("get", "/v1/version", "/v1/version", ""),
];

#[tokio::test]
async fn answer_of_every_operation_is_as_the_document_says() {
    let document = serde_json::to_value(document()).unwrap();
    assert!(document["openapi"].as_str().unwrap().starts_with("3.1"));
    let mut described = 0;
    for (_, operations) in document["paths"].as_object().unwrap() {
        described += operations.as_object().unwrap().len();
    }
    // Beside them the document itself.
    assert_eq!(described, OPERATIONS.len() + 1);
    for (method, path, asked, body) in OPERATIONS {
        let answer = ask(answers(), method, asked, body).await;
        assert!(answer.status.is_success(), "{asked}: {:?}", answer.body);
        let operation = &document["paths"][path][method];
        let response = &operation["responses"][answer.status.as_str()];
        let content = response["content"].as_object();
        let content = content.unwrap_or_else(|| panic!("{asked}: {operation}"));
        assert!(content.contains_key(&answer.content_type), "{asked}");
        if answer.content_type == "application/json" {
            let mut schema = content["application/json"]["schema"].clone();
            schema["components"] = document["components"].clone();
            let validator = jsonschema::validator_for(&schema).unwrap();
            let answer = answer.json();
            let errors: Vec<String> = validator
                .iter_errors(&answer)
                .map(|error| error.to_string())
                .collect();
            assert!(errors.is_empty(), "{asked}: {errors:?} in {answer}");
        }
    }
}

#[tokio::test]
async fn document_is_served_without_a_token() {
    let request = Request::get("/v1/openapi.json")
        .body(Body::empty())
        .unwrap();
    let answer = send(router(Table::new(Vec::new())), request).await;
    assert_eq!(answer.json(), serde_json::to_value(document()).unwrap());
}

#[tokio::test]
async fn wrong_request_is_a_problem_with_status_and_field() {
    let ok = answers;
    let refused = |name, message| move || vec![("jobs.page", error(name, message))];
    /// Method, path, body, the master's answers; the status, and the field that the problem names.
    type Row<'a> = (
        &'a str,
        &'a str,
        &'a str,
        Vec<(&'static str, Value)>,
        u16,
        Option<&'a str>,
    );
    let table: [Row<'_>; 13] = [
        ("get", "/v1/jobs?limit=x", "", ok(), 400, Some("limit")),
        ("get", "/v1/jobs?colour=x", "", ok(), 400, Some("colour")),
        ("get", "/v1/jobs?token=t0ken", "", ok(), 400, Some("token")),
        ("get", "/v1/jobs?since=today", "", ok(), 400, Some("since")),
        ("post", "/v1/jobs", "{}", ok(), 400, Some("target")),
        ("post", "/v1/jobs", "[", ok(), 400, None),
        ("get", "/v1/nothing", "", ok(), 404, None),
        ("delete", "/v1/jobs", "", ok(), 405, None),
        ("get", "/v1/jobs", "", Vec::new(), 503, None),
        (
            "get",
            "/v1/jobs",
            "",
            refused(
                "TokenAuthenticationError",
                "Authentication failure of type \"token\" occurred.",
            )(),
            401,
            None,
        ),
        (
            "get",
            "/v1/jobs",
            "",
            refused(
                "TokenAuthenticationError",
                "Authentication failure of type \"token\" occurred for user bob.",
            )(),
            403,
            None,
        ),
        (
            "get",
            "/v1/jobs",
            "",
            refused("NotFoundError", "there is no job")(),
            404,
            None,
        ),
        (
            "get",
            "/v1/jobs",
            "",
            refused("SaltMasterError", "see its log")(),
            500,
            None,
        ),
    ];
    for (method, path, body, answers, status, field) in table {
        let answer = ask(answers, method, path, body).await;
        assert_eq!(
            answer.status.as_u16(),
            status,
            "{method} {path}: {:?}",
            answer.body
        );
        assert_eq!(answer.content_type, "application/problem+json", "{path}");
        let problem = answer.json();
        assert_eq!(problem["status"], status, "{problem}");
        assert_eq!(problem["field"].as_str(), field, "{problem}");
        let has = |name: &str| problem[name].as_str().is_some_and(|text| !text.is_empty());
        assert!(
            ["type", "title", "detail"].into_iter().all(has),
            "{problem}"
        );
        let text = String::from_utf8_lossy(&answer.body).into_owned();
        assert!(!text.contains("t0ken"), "{text}");
    }
}

#[tokio::test]
async fn caller_is_named_by_token_or_session() {
    let table = Table::new(answers());
    for (header, text, token) in [
        ("authorization", "Bearer abc", Some("abc")),
        ("authorization", "bearer abc", Some("abc")),
        ("authorization", "Basic abc", None),
        ("x-auth-token", "session", Some("its token")),
        ("x-auth-token", "other", None),
        ("x-other", "x", None),
    ] {
        let request = Request::get("/v1/version").header(header, text);
        let request = request.body(Body::empty()).unwrap();
        let answer = send(router(table.clone()), request).await;
        assert_eq!(
            answer.status.is_success(),
            token.is_some(),
            "{header} {text}"
        );
        let asked = table.asked.lock().pop();
        let sent = asked.as_ref().and_then(|load| load.get("token")?.as_str());
        assert_eq!(sent, token, "{header} {text}");
    }
}

#[tokio::test]
async fn key_is_changed_by_exact_id_and_only_where_it_can_be() {
    let table = Table::new(answers());
    let accepted = send(
        router(table.clone()),
        request("post", "/v1/keys/m1/accept", ""),
    )
    .await;
    assert_eq!(
        accepted.json(),
        json!({"minion": "m1", "state": "accepted"})
    );
    let asked = table.asked.lock().pop().unwrap();
    assert_eq!(asked.get("match"), Some(&Value::Array(vec!["m1".into()])));
    // The page of this table has the key of "m1" only.
    let other = send(
        router(table.clone()),
        request("post", "/v1/keys/%2A/delete", ""),
    )
    .await;
    assert_eq!(other.status, StatusCode::NOT_FOUND);
    let asked = table.asked.lock().pop().unwrap();
    let pattern = asked.get("kwarg").and_then(|kwarg| kwarg.get("match"));
    assert_eq!(pattern, Some(&Value::from("[*]")));
}

#[tokio::test]
async fn stream_sends_stored_returns_then_live_ones_once_and_ends_with_the_verdict() {
    let mut all = answers();
    all.retain(|(fun, _)| *fun != "jobs.explain");
    // Read before the stream, at its beginning, and at the end.
    for state in ["open", "open", "complete"] {
        all.push(("jobs.explain", page(&report(state))));
    }
    let table = Table::new(all);
    let event = |what: &str, data: Value| ReceivedEvent {
        tag: format!("salt{what}"),
        data: pack(&data, Dialect::Bin).into(),
    };
    let returned = |id: &str| {
        let data = Value::map([("id", Value::from(id)), ("return", 7_i64.into())]);
        event(&format!("/job/{JID}/ret/{id}"), data)
    };
    let over = event(&format!("ern/job/{JID}/finished"), Value::Map(Vec::new()));
    *table.events.lock() = vec![returned("m1"), returned("m3"), over];
    let path = format!("/v1/jobs/{JID}/stream");
    let answer = send(router(table), request("get", &path, "")).await;
    assert_eq!(answer.content_type, "text/event-stream");
    let text = String::from_utf8(answer.body.to_vec()).unwrap();
    let events: Vec<(&str, Json)> = text
        .split("\n\n")
        .filter_map(|event| event.strip_prefix("event: ")?.split_once("\ndata: "))
        .map(|(name, data)| (name, serde_json::from_str(data).unwrap()))
        .collect();
    let names: Vec<&str> = events.iter().map(|(name, _)| *name).collect();
    assert_eq!(names, ["return", "return", "verdict"], "{text}");
    assert_eq!(
        (&events[0].1["minion"], &events[1].1["minion"]),
        (&json!("m1"), &json!("m3"))
    );
    assert_eq!(events[2].1["minions"][1]["reason"], "no connection");
}

#[tokio::test]
async fn stream_ends_with_its_token() {
    let mut all = answers();
    all.retain(|(fun, _)| *fun != "jobs.explain");
    all.push(("jobs.explain", page(&report("open"))));
    let table = Table::new(all);
    table.token_ended.cancel();
    let path = format!("/v1/jobs/{JID}/stream");
    let answer = send(router(table), request("get", &path, "")).await;
    let text = String::from_utf8(answer.body.to_vec()).unwrap();
    assert!(text.contains("event: error\ndata: {"), "{text}");
    assert!(
        text.contains("urn:saltern:problem:unauthenticated"),
        "{text}"
    );
}

#[tokio::test]
async fn audit_export_goes_through_all_pages_and_is_refused_with_a_status() {
    let answers = vec![
        ("audit.page", page(&audit_page(Some("7")))),
        ("audit.page", page(&audit_page(Some("3")))),
        ("audit.page", page(&audit_page(None))),
    ];
    let answer = ask(answers, "get", "/v1/audit/export?user=alice", "").await;
    assert_eq!(answer.content_type, "application/x-ndjson");
    let text = std::str::from_utf8(&answer.body).unwrap();
    let lines: Vec<Json> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(lines.len(), 3);
    assert_eq!(lines[0]["arguments"], json!([1]));
    assert_eq!(lines[0]["hash"], "00ff");

    let refused = error("AuthorizationError", "no");
    let answer = ask(vec![("audit.page", refused)], "get", "/v1/audit/export", "").await;
    assert_eq!(answer.status, StatusCode::FORBIDDEN);
    let answers = vec![
        ("audit.page", page(&audit_page(Some("7")))),
        ("audit.page", error("SaltReqTimeoutError", "busy")),
    ];
    let answer = ask(answers, "get", "/v1/audit/export", "").await;
    let text = std::str::from_utf8(&answer.body).unwrap();
    let last: Json = serde_json::from_str(text.lines().last().unwrap()).unwrap();
    assert_eq!(last, json!({"error": "busy"}), "a cut is not silent");
}

#[tokio::test]
async fn only_the_first_page_of_the_trail_asks_for_its_chain() {
    let first = ask(answers(), "get", "/v1/audit", "").await.json();
    assert_eq!(first["chain"]["check"]["by"], "alice");
    let later = ask(answers(), "get", "/v1/audit?cursor=7", "").await.json();
    assert!(later["chain"].is_null());
}
