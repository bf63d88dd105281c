//! Trace context as it is written in loads, events and headers (W3C Trace Context, level 1:
//! `traceparent` and `tracestate`).

use std::fmt;
use std::sync::Arc;

/// The place of one span in its trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceContext {
    trace: u128,
    span: u64,
    is_sampled: bool,
    state: Option<Arc<str>>,
}

/// The longest `tracestate` that is passed on, in bytes: what every program has to pass on at least.
const MAX_STATE_LENGTH: usize = 512;

impl TraceContext {
    /// Reads a `traceparent`, and a `tracestate` if there is one. `None` if the first is not
    /// exactly as the standard wants it: a place that is not certain is none. A `tracestate` that is
    /// too long or has other than printable letters is left out.
    pub fn parse(parent: &str, state: Option<&str>) -> Option<Self> {
        let mut parts = parent.splitn(5, '-');
        let version = u8::try_from(hex::<2>(parts.next()?)?).ok()?;
        let trace = hex::<32>(parts.next()?)?;
        let span = u64::try_from(hex::<16>(parts.next()?)?).ok()?;
        let flags = hex::<2>(parts.next()?)?;
        let has_more = parts.next().is_some();
        // Only later versions may have more; 255 is forbidden.
        if version == u8::MAX || (version == 0 && has_more) || trace == 0 || span == 0 {
            return None;
        }
        let is_plain = |state: &&str| {
            let mut letters = state.bytes();
            !state.is_empty()
                && state.len() <= MAX_STATE_LENGTH
                && letters.all(|letter| matches!(letter, b' '..=b'~'))
        };
        Some(Self {
            trace,
            span,
            is_sampled: flags & 1 == 1,
            state: state.filter(is_plain).map(Arc::from),
        })
    }

    /// A new span's context: in a trace of its own, or under a parent.
    pub(super) fn begin(parent: Option<&Self>, ids: &Ids) -> Self {
        Self {
            trace: parent.map_or_else(|| ids.long(), |parent| parent.trace),
            span: ids.short(),
            is_sampled: true,
            state: parent.and_then(|parent| parent.state.clone()),
        }
    }

    /// The id of the trace.
    pub fn trace(&self) -> u128 {
        self.trace
    }

    /// The id of the span.
    pub fn span(&self) -> u64 {
        self.span
    }

    /// Whether the spans of this trace are collected.
    pub(crate) fn is_sampled(&self) -> bool {
        self.is_sampled
    }

    /// The entry `tracestate`, which belongs to others and goes on as it came.
    pub fn state(&self) -> Option<&str> {
        self.state.as_deref()
    }
}

/// The entry `traceparent`.
impl fmt::Display for TraceContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let flags = u8::from(self.is_sampled);
        write!(f, "00-{:032x}-{:016x}-{flags:02x}", self.trace, self.span)
    }
}

/// Whether a text has exactly this many digits, none of them a capital letter.
fn hex<const DIGITS: usize>(text: &str) -> Option<u128> {
    let is_digit = |letter: u8| matches!(letter, b'0'..=b'9' | b'a'..=b'f');
    let is_right = text.len() == DIGITS && text.bytes().all(is_digit);
    is_right
        .then(|| u128::from_str_radix(text, 16).ok())
        .flatten()
}

/// Makes ids that no other process makes.
pub(super) struct Ids {
    key: std::hash::RandomState,
    next: std::sync::atomic::AtomicU64,
}

impl Ids {
    pub(super) fn new() -> Self {
        Self {
            key: std::hash::RandomState::new(),
            next: std::sync::atomic::AtomicU64::new(0),
        }
    }

    /// A keyed hash of a counter: unpredictable, and never 0.
    fn short(&self) -> u64 {
        use std::hash::BuildHasher as _;
        let number = self.next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        self.key.hash_one(number).max(1)
    }

    fn long(&self) -> u128 {
        (u128::from(self.short()) << 64) | u128::from(self.short())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    #[test]
    fn trace_context_round_trips() {
        let context = TraceContext::parse(GOOD, Some("a=1,b=2")).unwrap();
        assert_eq!(context.to_string(), GOOD);
        assert_eq!(context.state(), Some("a=1,b=2"));
        assert!(context.is_sampled());
        let ids = Ids::new();
        let below = TraceContext::begin(Some(&context), &ids);
        assert_eq!(below.trace(), context.trace());
        assert_ne!(below.span(), context.span());
        assert_eq!(below.state(), context.state());
        let read = TraceContext::parse(&below.to_string(), below.state());
        assert_eq!(read, Some(below));
        let root = TraceContext::begin(None, &ids);
        assert_eq!(TraceContext::parse(&root.to_string(), None), Some(root));
    }

    #[test]
    fn unknown_flags_and_versions_of_trace_context_are_accepted() {
        let not_sampled = TraceContext::parse(&format!("{}0", &GOOD[..54]), None).unwrap();
        assert!(!not_sampled.is_sampled());
        let later = format!("cc{}-what-comes-later", &GOOD[2..53].to_owned()) + "03";
        assert!(TraceContext::parse(&later, None).is_none());
        let later = format!("cc{}03-what-comes-later", &GOOD[2..53]);
        assert!(TraceContext::parse(&later, None).unwrap().is_sampled());
    }

    #[test]
    fn malformed_trace_context_is_rejected() {
        for garbage in [
            "",
            "00",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more",
            "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-00000000000000000000000000000000-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
            "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319-b7ad6b7169203331-01",
            "00-+af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            " 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-ü0af7651916cd43dd8448eb211c80319-b7ad6b7169203331-01",
        ] {
            assert_eq!(TraceContext::parse(garbage, None), None, "{garbage}");
        }
        let long = "x".repeat(MAX_STATE_LENGTH + 1);
        for garbage in ["", "a=\n", "ü=1", &long] {
            let context = TraceContext::parse(GOOD, Some(garbage)).unwrap();
            assert_eq!(context.state(), None, "{garbage}");
        }
    }
}
