//! Copies bytes between a peer and the active member, through bounded buffers.
//!
//! The peer's end of stream is passed on, and the answer still arrives. The active member ends a
//! connection as a whole, so its end is that of the peer's, too: a peer that stays keeps no slot.

use std::io;
use std::pin::pin;
use std::time::Duration;

use futures_util::future::BoxFuture;
use prometheus::IntCounter;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, split};
use tokio::time::{Instant, timeout};

/// Bytes of the buffer of each direction: thousands of connections stand idle.
const BUFFER: usize = 8 << 10;

/// Time that the answers of one connection wait for what comes before them, in all: a program that has no
/// answer in time sends its request once more.
const MAX_WAIT: Duration = Duration::from_secs(1);

/// Outcome of a relayed connection.
#[derive(Debug)]
pub(crate) enum RelayEnd {
    /// A side has ended it.
    Closed,
    /// The peer did not take a buffer in time.
    Slow,
    /// A side failed.
    Failed(io::Error),
}

/// Something to be done before a program of this machine gets an answer.
pub trait BeforeAnswers: Send + Sync {
    /// Does it. It is dropped when it takes too long.
    fn prepare(&self) -> BoxFuture<'_, ()>;
}

/// Why one direction ended early.
enum Broken {
    Read(io::Error),
    Write(io::Error),
    Slow,
}

/// Copies both ways until the active member ends it, or a side fails. Dropping it closes both.
///
/// `patience` is the time in which the peer takes a buffer. The counters are those of bytes from the peer
/// and to it. `before` is done before each buffer for the peer, while the connection has not waited for
/// `MAX_WAIT`.
pub(crate) async fn relay(
    peer: impl AsyncRead + AsyncWrite,
    active: impl AsyncRead + AsyncWrite,
    (patience, before): (Duration, Option<&dyn BeforeAnswers>),
    (from_peer, to_peer): (&IntCounter, &IntCounter),
) -> RelayEnd {
    let (peer_read, peer_write) = split(peer);
    let (active_read, active_write) = split(active);
    // The active member reads when it has room, and ends what takes too long.
    let up = copy(peer_read, active_write, (None, None), from_peer);
    let mut down = pin!(copy(
        active_read,
        peer_write,
        (Some(patience), before),
        to_peer
    ));
    tokio::select! {
        ended = &mut down => end_of(ended),
        sent = up => match sent {
            Err(Broken::Read(error)) => RelayEnd::Failed(error),
            // It has ended; what it has sent before still arrives.
            _ => end_of(down.await),
        },
    }
}

fn end_of(down: Result<(), Broken>) -> RelayEnd {
    match down {
        Ok(()) => RelayEnd::Closed,
        // TLS is ended without a farewell.
        Err(Broken::Read(error)) if error.kind() == io::ErrorKind::UnexpectedEof => {
            RelayEnd::Closed
        }
        Err(Broken::Read(error) | Broken::Write(error)) => RelayEnd::Failed(error),
        Err(Broken::Slow) => RelayEnd::Slow,
    }
}

/// Copies one way up to the end of the stream, which is passed on.
async fn copy(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    (patience, before): (Option<Duration>, Option<&dyn BeforeAnswers>),
    count: &IntCounter,
) -> Result<(), Broken> {
    let mut buffer = vec![0; BUFFER];
    let mut left = MAX_WAIT;
    loop {
        let length = from.read(&mut buffer).await.map_err(Broken::Read)?;
        let bytes = buffer.get(..length).unwrap_or_default();
        if let Some(before) = before.filter(|_| !left.is_zero()) {
            let began = Instant::now();
            // Whether done or not.
            let _ = timeout(left, before.prepare()).await;
            left = left.saturating_sub(began.elapsed());
        }
        let writing = async {
            match bytes {
                [] => to.shutdown().await,
                bytes => {
                    to.write_all(bytes).await?;
                    to.flush().await
                }
            }
        };
        let written = match patience {
            Some(patience) => timeout(patience, writing).await.map_err(|_| Broken::Slow)?,
            None => writing.await,
        };
        written.map_err(Broken::Write)?;
        if length == 0 {
            return Ok(());
        }
        count.inc_by(u64::try_from(length).unwrap_or(0));
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::duplex;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(10);

    fn counter() -> IntCounter {
        IntCounter::new("bytes", "bytes").expect("a counter")
    }

    #[tokio::test]
    async fn answer_arrives_after_a_half_close() {
        let (mut minion, peer) = duplex(64);
        let (active, mut master) = duplex(64);
        let (sent, received) = (counter(), counter());
        let talk = async {
            minion.write_all(b"question").await.expect("written");
            minion.shutdown().await.expect("half closed");
            let mut asked = Vec::new();
            master.read_to_end(&mut asked).await.expect("read");
            assert_eq!(asked, b"question");
            master.write_all(b"answers").await.expect("written");
            master.shutdown().await.expect("closed");
            let mut answer = Vec::new();
            minion.read_to_end(&mut answer).await.expect("read");
            assert_eq!(answer, b"answers");
        };
        let (end, ()) = tokio::join!(
            relay(peer, active, (PATIENCE, None), (&sent, &received)),
            talk
        );
        assert!(matches!(end, RelayEnd::Closed), "{end:?}");
        assert_eq!((sent.get(), received.get()), (8, 7));
    }

    /// A stranger that never ends its side keeps no slot.
    #[tokio::test]
    async fn end_of_the_active_member_ends_a_peer_that_stays() {
        let (mut minion, peer) = duplex(64);
        let (active, mut master) = duplex(64);
        let talk = async {
            master.write_all(b"bye").await.expect("written");
            drop(master);
            let mut said = Vec::new();
            minion.read_to_end(&mut said).await.expect("read");
            assert_eq!(said, b"bye");
            minion
        };
        let counts = (&counter(), &counter());
        let (end, _minion) = tokio::join!(relay(peer, active, (PATIENCE, None), counts), talk);
        assert!(matches!(end, RelayEnd::Closed), "{end:?}");
    }

    /// Counts how often it was asked for.
    struct Counted(IntCounter);

    impl BeforeAnswers for Counted {
        fn prepare(&self) -> BoxFuture<'_, ()> {
            Box::pin(async { self.0.inc() })
        }
    }

    #[tokio::test]
    async fn answers_wait_for_what_comes_before_them() {
        let (mut client, peer) = duplex(64);
        let (active, mut master) = duplex(64);
        let before = Counted(counter());
        let talk = async {
            client.write_all(b"question").await.expect("written");
            let mut asked = [0; 8];
            master.read_exact(&mut asked).await.expect("read");
            assert_eq!(before.0.get(), 0);
            master.write_all(b"answers").await.expect("written");
            let mut answer = [0; 7];
            client.read_exact(&mut answer).await.expect("read");
            assert_eq!(before.0.get(), 1);
            drop(master);
        };
        let counts = (&counter(), &counter());
        let relaying = relay(peer, active, (PATIENCE, Some(&before)), counts);
        let (end, ()) = tokio::join!(relaying, talk);
        assert!(matches!(end, RelayEnd::Closed), "{end:?}");
    }

    /// Is never done.
    struct Hanging(IntCounter);

    impl BeforeAnswers for Hanging {
        fn prepare(&self) -> BoxFuture<'_, ()> {
            self.0.inc();
            Box::pin(std::future::pending())
        }
    }

    /// Under a paused clock, so that nothing but the wait takes time.
    #[tokio::test(start_paused = true)]
    async fn answers_of_a_connection_wait_for_a_bounded_time_in_all() {
        let (mut client, peer) = duplex(64);
        let (active, mut master) = duplex(64);
        let before = Hanging(counter());
        let began = Instant::now();
        let talk = async {
            for _ in 0..3 {
                master.write_all(b"answers").await.expect("written");
                let mut answer = [0; 7];
                client.read_exact(&mut answer).await.expect("read");
            }
            drop(master);
        };
        let counts = (&counter(), &counter());
        let relaying = relay(peer, active, (PATIENCE, Some(&before)), counts);
        tokio::join!(relaying, talk);
        assert_eq!(before.0.get(), 1);
        // The timer's tick.
        assert!(began.elapsed() <= MAX_WAIT + Duration::from_millis(1));
    }

    /// A minion that reads nothing holds one buffer of the relay and no more, and not for long.
    #[tokio::test(start_paused = true)]
    async fn peer_that_reads_nothing_is_ended() {
        let (_minion, peer) = duplex(64);
        let (active, mut master) = duplex(64);
        let counts = (&counter(), &counter());
        let sending = async {
            let mut taken = 0;
            while let Ok(count) = master.write(&[0; 64]).await {
                taken += count;
            }
            taken
        };
        let relaying = relay(peer, active, (PATIENCE, None), counts);
        let (end, taken) = tokio::join!(relaying, sending);
        assert!(matches!(end, RelayEnd::Slow), "{end:?}");
        assert!(taken <= 64 + BUFFER + 64, "{taken}");
    }
}
