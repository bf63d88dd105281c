use std::time::{Duration, SystemTime};

use hmac::{Hmac, KeyInit as _, Mac as _};
use saltern_config::yaml;
use sha2::Sha256;

use super::*;

const SECRET: &str = "0123456789abcdef";

/// A time in Unix seconds.
const NOW: u64 = 1_000_000;

fn hooks(is_open: bool, dialect: Dialect) -> Hooks {
    let secrets = format!("{{/forge: {SECRET}, forge/inner: {SECRET}-inner}}");
    let secrets = yaml::parse(&secrets, "test", &yaml::Limits::DEFAULT).unwrap();
    let clock = Clock::manual(SystemTime::UNIX_EPOCH + Duration::from_secs(NOW));
    let secrets = HookSecrets::read(Some(&secrets)).ok().unwrap();
    Hooks::new(
        Arc::new(secrets),
        is_open,
        dialect,
        clock,
        HookMetrics::new(&Registry::new()),
    )
}

fn headers(list: &[(&str, &str)]) -> HeaderMap {
    let pairs = list.iter();
    let pairs = pairs.map(|(name, value)| {
        let name: axum::http::HeaderName = name.parse().unwrap();
        (name, value.parse().unwrap())
    });
    pairs.collect()
}

fn request<'a>(path: &'a str, headers: &'a HeaderMap, body: &'a Bytes) -> HookRequest<'a> {
    HookRequest {
        peer: IpAddr::from([127, 0, 0, 1]),
        path,
        headers,
        body,
        is_logged_in: false,
    }
}

fn signed(secret: &str, text: &str) -> String {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret.as_bytes()).unwrap();
    mac.update(text.as_bytes());
    let bytes = mac.finalize().into_bytes();
    let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256={digits}")
}

#[test]
fn hook_needs_session_or_signature_by_its_path() {
    let (none, body) = (HeaderMap::new(), Bytes::from_static(b"{}"));
    let gitlab = headers(&[("x-gitlab-token", SECRET)]);
    let wrong = headers(&[("x-gitlab-token", "0123456789abcdeF")]);
    let hub = headers(&[("x-hub-signature-256", &signed(SECRET, "{}"))]);
    let other = headers(&[("x-hub-signature-256", &signed(SECRET, "{} "))]);
    let junk = headers(&[("x-hub-signature-256", "sha256=00")]);
    let missing = Err(HookRefusal::Signature(SignatureError::Missing));
    let bad = Err(HookRefusal::Signature(SignatureError::Wrong));
    for (path, headers, is_open, is_logged_in, expected) in [
        ("a/b", &none, false, false, Err(HookRefusal::NotLoggedIn)),
        ("a/b", &none, true, false, Ok("salt/netapi/hook/a/b")),
        ("a%2Fb", &none, false, true, Ok("salt/netapi/hook/a/b")),
        ("", &none, true, false, Ok("salt/netapi/hook")),
        ("forge", &none, true, true, missing.clone()),
        ("forge/x", &none, true, true, missing.clone()),
        ("%66orge/x", &none, true, true, missing),
        (
            "forgery",
            &none,
            true,
            false,
            Ok("salt/netapi/hook/forgery"),
        ),
        ("forge", &gitlab, false, false, Ok("salt/netapi/hook/forge")),
        ("forge", &wrong, true, true, bad.clone()),
        ("forge", &hub, false, false, Ok("salt/netapi/hook/forge")),
        ("forge", &other, true, true, bad.clone()),
        ("forge", &junk, true, true, bad.clone()),
        ("forge/inner/x", &hub, true, true, bad),
        (
            "a%0Ab",
            &none,
            true,
            true,
            Err(HookRefusal::Tag(TagError::LineBreak)),
        ),
        ("a%FF", &none, true, true, Err(HookRefusal::Path)),
        (
            "x/salt/reactors/manage/add",
            &none,
            true,
            true,
            Err(HookRefusal::Reserved),
        ),
        (
            "salt/job/20261121070622637714/ret/m1",
            &none,
            true,
            true,
            Err(HookRefusal::Reserved),
        ),
    ] {
        let hooks = hooks(is_open, Dialect::Cherrypy);
        let request = HookRequest {
            is_logged_in,
            ..request(path, headers, &body)
        };
        let tag = hooks.admit(&request).map(|tag| tag.as_str().to_owned());
        assert_eq!(tag, expected.map(str::to_owned), "{path} {headers:?}");
    }
}

#[test]
fn signed_request_counts_once_and_within_its_window() {
    let body = Bytes::from_static(b"{}");
    let hooks = hooks(false, Dialect::Cherrypy);
    let with_time = |time: u64| {
        let signature = signed(SECRET, &format!("{time}.{{}}"));
        let time = time.to_string();
        headers(&[
            ("x-hub-signature-256", &signature),
            ("x-saltern-timestamp", &time),
        ])
    };
    for (time, expected) in [
        (NOW, None),
        (NOW, Some(SignatureError::Replayed)),
        (NOW - 300, None),
        (NOW - 301, Some(SignatureError::Stale)),
        (NOW + 300, None),
        (NOW + 301, Some(SignatureError::Stale)),
    ] {
        let headers = with_time(time);
        let refusal = hooks.admit(&request("forge", &headers, &body)).err();
        assert_eq!(refusal, expected.map(HookRefusal::Signature), "{time}");
    }
    // As long as its timestamp holds, it is remembered.
    hooks.clock.advance(Duration::from_secs(600));
    let again = hooks.admit(&request("forge", &with_time(NOW + 300), &body));
    assert_eq!(again, Err(HookRefusal::Signature(SignatureError::Replayed)));
}

#[test]
fn secrets_that_cannot_be_used_are_refused() {
    for (secrets, expected) in [
        ("[a]", Some(SecretsError::Form)),
        ("{a: 1}", Some(SecretsError::Form)),
        ("{a: short}", Some(SecretsError::Short)),
        ("null", None),
    ] {
        let node = yaml::parse(secrets, "test", &yaml::Limits::DEFAULT).unwrap();
        assert_eq!(HookSecrets::read(Some(&node)).err(), expected, "{secrets}");
    }
}

/// Records what is fired.
#[derive(Default)]
struct Recorded(Mutex<Vec<(String, Value)>>);

impl HookBus for Recorded {
    fn fire(&self, tag: Tag, data: Value) -> BoxFuture<'_, bool> {
        self.0.lock().push((tag.as_str().to_owned(), data));
        Box::pin(std::future::ready(true))
    }
}

#[tokio::test]
async fn event_has_the_fields_of_the_dialect_and_no_credentials() {
    let list = headers(&[
        ("content-type", "text/x"),
        ("x-many", "1"),
        ("x-auth-token", "secret"),
        ("cookie", "session_id=secret"),
    ]);
    let body = Bytes::from_static(b"hello");
    let posted = Posted {
        body: "hello".into(),
        post: Value::map([("a", 1)]),
        get: Value::map([("q", 2)]),
    };
    let post = Value::map([("a", 1)]);
    let named = |more: &[(&str, &str)]| {
        let all = [("Content-Type", "text/x"), ("X-Many", "1")];
        Value::map(all.iter().chain(more).copied())
    };
    for (dialect, expected) in [
        (
            Dialect::Cherrypy,
            Value::map([
                ("body", "hello".into()),
                ("post", post.clone()),
                ("headers", named(&[("Remote-Addr", "127.0.0.1")])),
            ]),
        ),
        (
            Dialect::Tornado,
            Value::map([
                ("post", post.clone()),
                ("get", Value::map([("q", 2)])),
                ("headers", named(&[])),
            ]),
        ),
    ] {
        let (hooks, bus) = (hooks(true, dialect), Recorded::default());
        let request = request("a", &list, &body);
        let tag = hooks.admit(&request).unwrap();
        assert!(hooks.fire(&bus, tag, &request, posted.clone()).await);
        let fired = bus.0.lock().clone();
        assert_eq!(fired, [("salt/netapi/hook/a".to_owned(), expected)]);
        assert_eq!(
            hooks.metrics.requests.with_label_values(&["fired"]).get(),
            1
        );
    }
}
