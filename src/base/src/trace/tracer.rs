//! Spans in progress, and the bounded buffer of ended spans that wait to be exported.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use super::context::{Ids, TraceContext};
use crate::clock::Clock;
use crate::metrics::{IntCounter, IntCounterVec, Registry, counter, counter_vec};

/// Kind of a span, by OTLP's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Work within this process.
    Internal = 1,
    /// Handles a request of a peer.
    Server = 2,
    /// Sends a message, and waits for no answer.
    Producer = 4,
}

/// A detail of a span.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Attribute {
    /// Text.
    Text(String),
    /// A number.
    Number(i64),
}

impl From<&str> for Attribute {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

/// Sampling of traces.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Sampler {
    /// `always_on`: all.
    AlwaysOn,
    /// `always_off`: none.
    AlwaysOff,
    /// `trace_id_ratio`: this part of them, by their ids: every process with the same part takes the
    /// same ones.
    TraceIdRatio(f64),
    /// `parent_based`: the parent's decision; of traces that begin here this part.
    ParentBased(f64),
}

impl Sampler {
    fn takes(self, trace: u128, parent: Option<&TraceContext>) -> bool {
        match (self, parent) {
            (Self::AlwaysOn, _) => true,
            (Self::AlwaysOff, _) => false,
            (Self::ParentBased(_), Some(parent)) => parent.is_sampled(),
            (Self::TraceIdRatio(part) | Self::ParentBased(part), _) => {
                // The lower half of the id, as OpenTelemetry's samplers have it.
                let bound = (part * (1_u128 << 64) as f64) as u128;
                trace & u128::from(u64::MAX) < bound
            }
        }
    }
}

/// A span that has ended.
#[derive(Clone, Debug)]
pub struct FinishedSpan {
    /// Name of the operation.
    pub name: String,
    /// See [`Kind`].
    pub kind: Kind,
    /// Trace id and span id.
    pub context: TraceContext,
    /// The id of the span that it is under.
    pub parent: Option<u64>,
    /// Microseconds since 1970.
    pub began: i64,
    /// Microseconds since 1970.
    pub ended: i64,
    /// Details, by name.
    pub attributes: Vec<(&'static str, Attribute)>,
}

/// Ended spans that wait; further ones are dropped and counted.
const MAX_WAITING: usize = 8192;

/// Begins spans and buffers ended ones until they are exported.
pub struct Tracer {
    sampler: Sampler,
    clock: Clock,
    ids: Ids,
    ended: Mutex<VecDeque<FinishedSpan>>,
    recorded: IntCounter,
    dropped: IntCounterVec,
}

impl Tracer {
    /// A tracer without spans.
    pub fn new(sampler: Sampler, clock: Clock, registry: &Registry) -> Arc<Self> {
        Arc::new(Self {
            sampler,
            clock,
            ids: Ids::new(),
            ended: Mutex::default(),
            recorded: counter(
                registry,
                "saltern_trace_spans_total",
                "Spans of traces that ended.",
            ),
            dropped: counter_vec(
                registry,
                "saltern_trace_spans_dropped_total",
                "Spans that were not exported: there was no room for them (full), or the \
                 collector refused them (refused).",
                &["reason"],
            ),
        })
    }

    /// Begins a span under that of the caller; `None` if its trace is not sampled.
    pub fn begin(
        self: &Arc<Self>,
        name: impl Into<String>,
        kind: Kind,
        parent: Option<&TraceContext>,
    ) -> Option<Span> {
        let context = TraceContext::begin(parent, &self.ids);
        if !self.sampler.takes(context.trace(), parent) {
            return None;
        }
        Some(Span {
            name: name.into(),
            kind,
            parent: parent.map(TraceContext::span),
            began: self.clock.unix_micros(),
            attributes: Vec::new(),
            place: SpanParent {
                tracer: self.clone(),
                context,
            },
        })
    }

    /// Drains at most `most` ended spans, oldest first.
    pub fn take(&self, most: usize) -> Vec<FinishedSpan> {
        let mut ended = self.ended.lock();
        let count = ended.len().min(most);
        ended.drain(..count).collect()
    }

    /// Counts drained spans that the exporter could not deliver.
    pub fn refused(&self, count: usize) {
        self.drop_for("refused", count);
    }

    fn drop_for(&self, reason: &str, count: usize) {
        self.dropped
            .with_label_values(&[reason])
            .inc_by(count as u64);
    }

    fn push(&self, span: FinishedSpan) {
        self.recorded.inc();
        let mut ended = self.ended.lock();
        if ended.len() < MAX_WAITING {
            ended.push_back(span);
        } else {
            drop(ended);
            self.drop_for("full", 1);
        }
    }
}

/// Parent of further spans, begun here or in a process that receives its context.
#[derive(Clone)]
pub struct SpanParent {
    tracer: Arc<Tracer>,
    context: TraceContext,
}

impl SpanParent {
    /// The context to propagate.
    pub fn context(&self) -> &TraceContext {
        &self.context
    }

    /// Records a child span that ends now and lasted `took`.
    pub fn record(
        &self,
        name: &str,
        kind: Kind,
        took: Duration,
        attributes: impl IntoIterator<Item = (&'static str, Attribute)>,
    ) {
        let tracer = &self.tracer;
        let now = tracer.clock.unix_micros();
        let took = i64::try_from(took.as_micros()).unwrap_or(0);
        tracer.push(FinishedSpan {
            name: name.to_owned(),
            kind,
            context: TraceContext::begin(Some(&self.context), &tracer.ids),
            parent: Some(self.context.span()),
            began: now - took,
            ended: now,
            attributes: attributes.into_iter().collect(),
        });
    }
}

/// A span under way. It ends when it is dropped.
pub struct Span {
    place: SpanParent,
    name: String,
    kind: Kind,
    parent: Option<u64>,
    /// Microseconds since 1970.
    began: i64,
    attributes: Vec<(&'static str, Attribute)>,
}

impl Span {
    /// The parent for spans under this one.
    pub fn place(&self) -> &SpanParent {
        &self.place
    }

    /// Renames the span, once the operation is known.
    pub fn rename(&mut self, name: impl Into<String>) {
        self.name = name.into();
    }

    /// Adds a detail.
    pub fn set(&mut self, name: &'static str, value: impl Into<Attribute>) {
        self.attributes.push((name, value.into()));
    }
}

impl Drop for Span {
    fn drop(&mut self) {
        let tracer = &self.place.tracer;
        tracer.push(FinishedSpan {
            name: std::mem::take(&mut self.name),
            kind: self.kind,
            context: self.place.context.clone(),
            parent: self.parent,
            began: self.began,
            ended: tracer.clock.unix_micros(),
            attributes: std::mem::take(&mut self.attributes),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::{current, within};

    fn tracer(sampler: Sampler) -> (Arc<Tracer>, Clock) {
        let clock = Clock::manual(std::time::UNIX_EPOCH);
        (Tracer::new(sampler, clock.clone(), &Registry::new()), clock)
    }

    #[test]
    fn spans_form_a_tree_and_know_their_time() {
        let (tracer, clock) = tracer(Sampler::ParentBased(1.0));
        let mut request = tracer.begin("request", Kind::Server, None).unwrap();
        request.set("cmd", "publish");
        clock.advance(Duration::from_micros(50));
        let place = request.place().clone();
        place.record("commit", Kind::Internal, Duration::from_micros(20), []);
        drop(request);
        let spans = tracer.take(10);
        let [commit, request] = spans.as_slice() else {
            panic!("two spans");
        };
        assert_eq!((commit.began, commit.ended), (30, 50));
        assert_eq!((request.began, request.ended), (0, 50));
        assert_eq!(commit.parent, Some(request.context.span()));
        assert_eq!(commit.context.trace(), request.context.trace());
        assert_eq!(request.parent, None);
        assert!(tracer.take(10).is_empty());
    }

    #[test]
    fn samplers_decide_as_those_of_opentelemetry_do() {
        let trace = "00-0000000000000001{}-b7ad6b7169203331-0";
        let context = |low: &str, flag: u8| {
            let text = trace.replace("{}", low) + &flag.to_string();
            TraceContext::parse(&text, None).unwrap()
        };
        let early = "3fffffffffffffff";
        let late = "c000000000000000";
        for (sampler, low, flag, expected) in [
            (Sampler::AlwaysOn, late, 0, true),
            (Sampler::AlwaysOff, early, 1, false),
            (Sampler::TraceIdRatio(0.5), early, 0, true),
            (Sampler::TraceIdRatio(0.5), late, 1, false),
            (Sampler::TraceIdRatio(1.0), "ffffffffffffffff", 0, true),
            (Sampler::TraceIdRatio(0.0), "0000000000000000", 1, false),
            (Sampler::ParentBased(0.0), late, 1, true),
            (Sampler::ParentBased(1.0), early, 0, false),
        ] {
            let (tracer, _) = tracer(sampler);
            let parent = context(low, flag);
            let span = tracer.begin("x", Kind::Server, Some(&parent));
            assert_eq!(span.is_some(), expected, "{sampler:?} {low} {flag}");
        }
        let (tracer, _) = tracer(Sampler::ParentBased(0.0));
        assert!(tracer.begin("x", Kind::Server, None).is_none());
    }

    #[test]
    fn full_span_buffer_drops_and_counts() {
        let (tracer, _) = tracer(Sampler::AlwaysOn);
        for _ in 0..MAX_WAITING + 3 {
            drop(tracer.begin("x", Kind::Internal, None));
        }
        let dropped = tracer.dropped.with_label_values(&["full"]);
        assert_eq!(dropped.get(), 3);
        assert_eq!(tracer.take(usize::MAX).len(), MAX_WAITING);
    }

    #[test]
    fn current_span_is_restored_after_a_panic() {
        let (tracer, _) = tracer(Sampler::AlwaysOn);
        let span = tracer.begin("x", Kind::Internal, None).unwrap();
        let place = Some(span.place().clone());
        let id = || current().map(|place| place.context().span());
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            within(place, || {
                assert_eq!(id(), Some(span.place().context().span()));
                within(None, || assert_eq!(id(), None));
                assert!(id().is_some());
                panic!("on purpose");
            })
        }));
        assert!(panicked.is_err());
        assert_eq!(id(), None);
    }
}
