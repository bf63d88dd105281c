//! Timer of the writes of a history: now and then, on a thread that may block.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use saltern_base::{blocking, chain};
use tokio::time::Instant;

/// Minimum time between the begins of two writes; also how much a crash may cost.
const WRITE_INTERVAL: Duration = Duration::from_secs(5);

/// Writer of one history, which its actor asks at each look. A write that failed is tried again at a
/// later look, as the history still lacks what is new.
#[derive(Default)]
pub(crate) struct HistoryWriter {
    begun: Option<Instant>,
    is_under_way: Arc<AtomicBool>,
}

impl HistoryWriter {
    /// Begins a write if there is something new, none is under way, and the last one is long ago.
    pub(crate) fn look(&mut self, has_news: bool, write: impl FnOnce() + Send + 'static) {
        let is_due = self
            .begun
            .is_none_or(|begun| begun.elapsed() >= WRITE_INTERVAL);
        if !has_news || !is_due || self.is_under_way.swap(true, Ordering::SeqCst) {
            return;
        }
        self.begun = Some(Instant::now());
        let end = WriteEnd(self.is_under_way.clone());
        let begun = blocking::begin(move || {
            write();
            drop(end);
        });
        // Without a thread there is no write under way, and a later look has the news still.
        if let Err(error) = begun {
            let error = chain(&error);
            tracing::warn!(error, "a history is not written, and tried again later");
        }
    }
}

/// Marks the end of a write, also if it panics.
struct WriteEnd(Arc<AtomicBool>);

impl Drop for WriteEnd {
    fn drop(&mut self) {
        self.0.store(false, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::mpsc;

    use super::*;

    #[tokio::test]
    async fn write_begins_when_there_is_news_and_is_not_repeated_at_once() {
        let mut writer = HistoryWriter::default();
        let (sender, mut written) = mpsc::unbounded_channel();
        let look = |writer: &mut HistoryWriter, has_news| {
            let sender = sender.clone();
            writer.look(has_news, move || {
                let _ = sender.send(());
            });
        };
        look(&mut writer, false);
        assert_eq!(writer.begun, None);
        look(&mut writer, true);
        assert_eq!(written.recv().await, Some(()));
        look(&mut writer, true);
        assert!(written.try_recv().is_err(), "the last one was just now");
        // One that hangs keeps others away, however long. The first may not have said yet that it is over.
        writer.begun = None;
        writer.is_under_way = Arc::new(AtomicBool::new(true));
        look(&mut writer, true);
        assert_eq!(writer.begun, None);
    }

    /// An actor asks this at each look, and must not panic.
    #[test]
    fn write_for_which_no_thread_starts_is_tried_again() {
        let runtime = blocking::without_threads().build();
        let mut writer = HistoryWriter::default();
        let (sender, mut written) = mpsc::unbounded_channel::<()>();
        runtime.unwrap().block_on(async {
            writer.look(true, move || drop(sender));
        });
        assert_eq!(written.blocking_recv(), None);
        assert!(!writer.is_under_way.load(Ordering::SeqCst));
        assert!(writer.begun.is_some(), "not at once");
    }

    #[tokio::test]
    async fn panic_of_a_write_does_not_keep_the_next_from_beginning() {
        let mut writer = HistoryWriter::default();
        let (sender, mut written) = mpsc::unbounded_channel::<()>();
        let held = sender.clone();
        writer.look(true, move || {
            let _held = held;
            panic!("a test of a panic");
        });
        drop(sender);
        assert_eq!(written.recv().await, None);
        let is_under_way = writer.is_under_way.clone();
        tokio::time::timeout(Duration::from_secs(120), async {
            while is_under_way.load(Ordering::SeqCst) {
                tokio::task::yield_now().await;
            }
        })
        .await
        .unwrap();
    }
}
