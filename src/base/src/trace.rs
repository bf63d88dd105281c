//! Distributed tracing: the spans of one request, over all processes that had a part in it.
//!
//! The context is propagated with what is sent, as W3C Trace Context. Ended spans are buffered
//! here, bounded, until they are exported. Nothing waits for that: spans beyond the bound are
//! dropped and counted.
//!
//! Not made of `tracing`'s spans: those end with the scope they were begun in, and the request that
//! is followed here goes through the mailboxes of several actors. So a span is a value that goes
//! along, and [`SpanParent`] is what others are begun under.

mod context;
mod tracer;

pub use context::TraceContext;
pub use tracer::{Attribute, FinishedSpan, Kind, Sampler, Span, SpanParent, Tracer};

use std::cell::RefCell;

thread_local! {
    static CURRENT: RefCell<Option<SpanParent>> = const { RefCell::new(None) };
}

/// The place in a trace of the work that this thread does at the moment, if that is traced.
pub fn current() -> Option<SpanParent> {
    CURRENT.with_borrow(Clone::clone)
}

/// Runs work under this parent: [`current`] returns it meanwhile.
pub fn within<T>(place: Option<SpanParent>, work: impl FnOnce() -> T) -> T {
    /// Puts the former place back, also when the work panics.
    struct Restore(Option<SpanParent>);
    impl Drop for Restore {
        fn drop(&mut self) {
            CURRENT.set(self.0.take());
        }
    }
    let _restore = Restore(CURRENT.replace(place));
    work()
}
