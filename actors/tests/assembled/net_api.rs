//! The HTTP API, from a socket through the gate to a minion and back.

use std::net::SocketAddr;

use saltern_wire::msgpack::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::in_system;
use crate::site::{Minion, Running, Site};

/// A user of `sharedsecret` with few rights, and one with all.
const OPTIONS: &str = "saltern_api: {port: 0}\nnetapi_enable_clients: [local, local_async, runner, wheel]\n\
     sharedsecret: hush\ntimeout: 60\nexternal_auth: {sharedsecret: {ann: ['.*', '@runner', '@wheel'], \
     bob: [test.ping]}}\n";

/// One exchange: status and headers, and the body.
pub(crate) async fn exchange(api: SocketAddr, head: &str, body: &str) -> (String, String) {
    let mut stream = TcpStream::connect(api).await.unwrap();
    let request = format!(
        "{head}\r\nHost: x\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.to_owned(), body.to_owned())
}

pub(crate) const FORM: &str = "HTTP/1.1\r\nContent-Type: application/x-www-form-urlencoded";

pub(crate) async fn log_in(api: SocketAddr, user: &str) -> String {
    let body = format!("username={user}&password=hush&eauth=sharedsecret");
    let (head, body) = exchange(api, &format!("POST /login {FORM}"), &body).await;
    assert!(head.starts_with("HTTP/1.1 200"), "{head}\n{body}");
    let (_, rest) = body.split_once("\"token\": \"").unwrap();
    rest.split('"').next().unwrap().to_owned()
}

pub(crate) async fn post(api: SocketAddr, session: &str, body: &str) -> (String, String) {
    let head = format!("POST / {FORM}\r\nX-Auth-Token: {session}");
    exchange(api, &head, body).await
}

pub(crate) fn api_of(running: &Running) -> SocketAddr {
    running.master.api_addresses()[0]
}

/// Answers the next job as the minion.
async fn serve_one(minion: &mut Minion, events: &mut crate::site::Listener) {
    let jid = loop {
        let (tag, data) = events.next().await.unwrap();
        if tag.starts_with("salt/job/") && tag.ends_with("/new") {
            break data.get("jid").and_then(Value::as_str).unwrap().to_owned();
        }
    };
    minion.return_until_acknowledged(&jid).await;
}

#[test]
fn api_call_goes_through_the_gate_to_the_minion_and_back() {
    in_system(async {
        let site = Site::new(OPTIONS);
        let identity = site.minion("m1");
        let running = site.start();
        let api = api_of(&running);
        let mut minion = identity.sign_in(&running).await;
        let path = site.socket("master_event_pub.ipc");
        let mut events = crate::site::Listener::connect(&path).await.unwrap();
        let session = log_in(api, "bob").await;
        let call = "client=local&tgt=m1&fun=test.ping";
        let (answer, ()) = tokio::join!(
            post(api, &session, call),
            serve_one(&mut minion, &mut events)
        );
        let (head, body) = answer;
        assert!(head.starts_with("HTTP/1.1 200"), "{head}\n{body}");
        assert!(head.contains("x-saltern-jid: 20"), "{head}");
        assert_eq!(body, "{\"return\": [{\"m1\": true}]}");
        let denied = post(api, &session, "client=local&tgt=m1&fun=cmd.run&arg=id").await;
        assert!(denied.0.starts_with("HTTP/1.1 401"), "{denied:?}");
        let denied = post(api, &session, "client=runner&fun=manage.up").await;
        assert!(denied.0.starts_with("HTTP/1.1 401"), "{denied:?}");
        let disabled = post(api, &session, "client=ssh&tgt=*&fun=test.ping").await;
        assert!(disabled.0.starts_with("HTTP/1.1 400"), "{disabled:?}");
        running.master.shutdown().await;
    });
}

#[test]
fn api_session_survives_a_restart_and_ends_with_its_log_out() {
    in_system(async {
        let site = Site::new(OPTIONS);
        let running = site.start();
        let session = log_in(api_of(&running), "ann").await;
        running.master.shutdown().await;
        drop(running);
        let running = site.start();
        let api = api_of(&running);
        let call = "client=wheel&fun=key.list_all";
        let (head, body) = post(api, &session, call).await;
        assert!(head.starts_with("HTTP/1.1 200"), "{head}\n{body}");
        let (head, body) = post(api, &session, "client=runner&fun=jobs.list_jobs").await;
        assert!(head.starts_with("HTTP/1.1 200"), "{head}\n{body}");
        let head = format!("POST /logout HTTP/1.1\r\nX-Auth-Token: {session}");
        let (head, body) = exchange(api, &head, "").await;
        assert!(head.starts_with("HTTP/1.1 200"), "{head}\n{body}");
        let (head, _) = post(api, &session, call).await;
        assert!(head.starts_with("HTTP/1.1 401"), "{head}");
        running.master.shutdown().await;
    });
}
