//! Trace context of requests: the span of each, under the parent that its load names, and the
//! entries that pass the context on (`salt/utils/tracing.py` of 3008).
//!
//! Only with the option `tracing`; without it a load's own entries stay as they came and none are
//! added. A request that is not sampled adds none either, as in stock.

use saltern_base::trace::{self, Kind, Span, SpanParent, TraceContext, Tracer};
use saltern_config::MasterConfig;
use saltern_model::MinionId;
use saltern_wire::msgpack::{MapView, Value};

use crate::{Context, Effect, Handled};

/// The entry of loads and events that names the parent span.
const PARENT: &str = "traceparent";
/// The entry for the other programs of the trace.
const STATE: &str = "tracestate";

/// Collects the spans of this master, where the configuration asks for it.
pub(crate) fn tracer(
    config: &MasterConfig,
    clock: &saltern_base::clock::Clock,
    registry: &saltern_base::metrics::Registry,
) -> Option<std::sync::Arc<Tracer>> {
    let sampler = config.tracing.as_ref()?.sampler;
    Some(Tracer::new(sampler, clock.clone(), registry))
}

/// Begins the span of a minion's request.
pub(crate) fn begin(load: &MapView, minion: &MinionId, context: &Context) -> Option<Span> {
    begin_under(load.str(PARENT), load.str(STATE), minion.as_str(), context)
}

/// Begins the span of a clear request whose sender is proved. An unproved sender's has none: spans
/// wait in a bounded queue for the exporter, and such requests would fill it.
pub(crate) fn begin_proved(load: &Value, context: &Context) -> Option<Span> {
    let text = |name: &str| load.get(name).and_then(Value::as_str);
    begin_under(text(PARENT), text(STATE), "", context)
}

fn begin_under(
    parent: Option<&str>,
    state: Option<&str>,
    minion: &str,
    context: &Context,
) -> Option<Span> {
    let tracer = context.tracer.as_ref()?;
    let parent = parent.and_then(|parent| TraceContext::parse(parent, state));
    let mut span = tracer.begin("salt.req.recv", Kind::Server, parent.as_ref())?;
    span.set("salt.req.minion_id", minion);
    Some(span)
}

/// Describes the request in its span, with names from the closed set of known commands, because the
/// sender may be unproved.
pub(crate) fn describe(span: &mut Span, handled: &Handled) {
    span.rename(format!("salt.req.recv.{}", handled.command));
    span.set("salt.req.cmd", handled.command);
    let jid = handled
        .outcome
        .effects
        .iter()
        .find_map(|effect| match effect {
            Effect::StartJob(start) => Some(&start.job.jid),
            Effect::StoreReturn(returned) => Some(&returned.record.jid),
            _ => None,
        });
    if let Some(jid) = jid {
        span.set("salt.jid", jid.as_str());
    }
}

/// The entries that pass on this thread's span; none where nothing is traced.
pub(crate) fn entries() -> Vec<(&'static str, String)> {
    let Some(place) = trace::current() else {
        return Vec::new();
    };
    trace_entries(&place)
}

fn trace_entries(place: &SpanParent) -> Vec<(&'static str, String)> {
    let context = place.context();
    let mut entries = vec![(PARENT, context.to_string())];
    entries.extend(context.state().map(|state| (STATE, state.to_owned())));
    entries
}
