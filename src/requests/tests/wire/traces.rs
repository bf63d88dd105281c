//! Trace context of requests: propagation to minions and events, and collected spans.

use saltern_base::trace::{FinishedSpan, TraceContext};
use saltern_requests::Handled;
use saltern_wire::msgpack::Value;

use crate::wire::client::{Load, clear, published_by_root};
use crate::wire::site::{Site, data, sent, started};

const ON: &str = "tracing: {enabled: true}\n";
const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
const NOT_SAMPLED: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00";

/// Publishes a job whose load has this `traceparent`; returns the `traceparent` of the publication,
/// and those of the events.
fn published(site: &Site, parent: &str) -> (Option<String>, Vec<Option<String>>, Handled) {
    site.accept("m1", "minion");
    let load = published_by_root(site, "m1")
        .set("traceparent", parent)
        .set("tracestate", "other=1");
    let handled = site.handle(clear(load, 3));
    let start = started(&handled.outcome);
    let of = |map: &Value| {
        let text = map.get("traceparent").and_then(Value::as_str);
        text.map(str::to_owned)
    };
    let events = start.announce.iter().map(|event| of(&data(event)));
    (of(&sent(start)), events.collect(), handled)
}

fn spans(site: &Site) -> Vec<FinishedSpan> {
    site.services.tracer.as_ref().unwrap().take(usize::MAX)
}

#[test]
fn load_is_unchanged_without_tracing() {
    let site = Site::new("");
    let (sent, in_events, handled) = published(&site, PARENT);
    assert_eq!(sent, None);
    assert!(in_events.iter().all(Option::is_none), "{in_events:?}");
    assert!(handled.span.is_none());
    assert!(site.services.tracer.is_none());
}

#[test]
fn job_is_sent_under_span_of_request() {
    let site = Site::new(ON);
    let (sent, in_events, handled) = published(&site, PARENT);
    let sent = TraceContext::parse(&sent.unwrap(), None).unwrap();
    let parent = TraceContext::parse(PARENT, None).unwrap();
    assert_eq!(sent.trace(), parent.trace());
    let span = handled.span.as_ref().unwrap().place().context().clone();
    assert_eq!(sent.span(), span.span());
    assert_eq!(span.state(), Some("other=1"));
    assert!(!in_events.is_empty());
    assert!(
        in_events
            .iter()
            .all(|in_events| *in_events == Some(span.to_string()))
    );
    assert!(spans(&site).is_empty(), "it has not been answered yet");
    drop(handled);
    let ended = spans(&site);
    assert_eq!(ended[0].name, "salt.req.recv.publish");
    assert_eq!(ended[0].parent, Some(parent.span()));
    let jid = ("salt.jid", "20260102030405060708".into());
    assert!(ended[0].attributes.contains(&jid), "{:?}", ended[0]);
}

#[test]
fn malformed_parent_begins_trace_and_unsampled_has_no_span() {
    let site = Site::new(ON);
    let (sent, _, handled) = published(&site, "00-garbage");
    drop(handled);
    let ended = spans(&site);
    assert_eq!(ended[0].parent, None);
    assert_eq!(sent, Some(ended[0].context.to_string()));

    let site = Site::new(ON);
    let (sent, in_events, handled) = published(&site, NOT_SAMPLED);
    assert!(handled.span.is_none() && sent.is_none());
    assert!(in_events.iter().all(Option::is_none), "{in_events:?}");
}

/// They would fill the bounded queue of spans.
#[test]
fn unproved_requests_have_no_spans() {
    let site = Site::new(ON);
    let commands = [
        "ping",
        "made-up-by-somebody",
        "_auth",
        "get_token",
        "mk_token",
    ];
    for command in commands.into_iter().chain(["publish", "runner", "wheel"]) {
        let load = Load::new().set("cmd", command).set("traceparent", PARENT);
        let handled = site.handle(clear(load.set("key", "wrong"), 3));
        assert!(handled.span.is_none(), "{command}");
    }
    assert!(spans(&site).is_empty());
}
